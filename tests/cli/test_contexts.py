"""Contexts: where commands go, and what wins."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.e2e.conftest import PRESET, invoke

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Result, Site


class Desk:
    """A user with a config folder, where no variable selects anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "relevo" / "contexts.json"

    def run(self, *arguments: str, **environment: str) -> Result:
        return invoke(*arguments, environment={"XDG_CONFIG_HOME": str(self.folder), **environment})

    def chosen(self, *arguments: str, **environment: str) -> dict[str, tuple[str | None, str]]:
        shown = self.run("context", "show", "--origin", "-o", "json", *arguments, **environment)
        assert shown.code == 0, shown
        return {each["setting"]: (each["value"], each["origin"]) for each in shown.json["items"]}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_saved_host_is_used_with_its_key(desk: Desk, site: Site) -> None:
    url = ("--url", site.host.url)
    assert desk.run("context", "save", "site", *url, "--key", PRESET, "--select").code == 0
    listed = desk.run("host", "list")
    assert (listed.code, listed.using) == (0, f"using {site.host.url}\n"), listed
    assert "alpha" in listed.out
    key_file = desk.folder / "key"
    key_file.write_text(PRESET)
    assert desk.run(*url, "context", "save", "other", "--key-file", str(key_file)).code == 0
    assert desk.run("--context", "other", "host", "list").code == 0
    assert desk.run("host", "list", RELEVO_CONTEXT="other").code == 0
    shown = desk.run("context", "list").out + desk.run("context", "show").out
    assert PRESET not in shown
    assert f"in {key_file}" in shown
    assert desk.run("context", "remove", "site").code == 0
    assert "site" not in desk.file.read_text()
    assert desk.run("host", "list", RELEVO_HOME=str(desk.folder / "none")).code == 3


def test_options_win_over_variables_over_the_context_over_defaults(desk: Desk) -> None:
    assert desk.chosen()["home"] == (".relevo", "settings file or default")
    url, home = "http://127.0.0.1:9", str(desk.folder / "home")
    assert desk.run("context", "save", "host", "--url", url, "--key", PRESET).code == 0
    assert desk.run("context", "save", "here", "--home", home).code == 0
    assert desk.run("context", "select", "host").code == 0
    assert desk.chosen()["context"] == ("host", "selected")
    assert desk.chosen()["url"] == (url, "context host")
    assert desk.chosen()["key"] == ("hidden", "context host")
    assert desk.chosen(RELEVO_KEY="x")["key"] == ("hidden", "environment RELEVO_KEY")
    by_variable = desk.chosen(RELEVO_DATABASE_URL="postgresql://ana:secret@db/shop")
    assert by_variable["database"] == ("db/shop", "environment RELEVO_DATABASE_URL")
    assert by_variable["context"] == (None, "none")
    by_option = desk.chosen("--context", "here", RELEVO_DATABASE_URL="postgresql://db/shop")
    assert by_option["database"] == (None, "default")
    assert by_option["home"] == (home, "context here")
    assert desk.chosen("--home", "x", RELEVO_CONTEXT="host")["home"] == ("x", "option --home")


def test_the_key_of_a_context_is_only_sent_to_its_host(desk: Desk) -> None:
    desk.run("context", "save", "a", "--url", "http://127.0.0.1:9", "--key", PRESET, "--select")
    other = desk.chosen("--url", "http://127.0.0.1:8")
    assert (other["url"][0], other["key"]) == ("http://127.0.0.1:8", (None, "none"))


def test_the_file_is_private_and_stays_so(desk: Desk) -> None:
    before = os.umask(0)
    try:
        assert desk.run("context", "save", "a", "--home", "x").code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o600
    desk.file.chmod(0o644)
    refused = desk.run("context", "list")
    assert (refused.code, "chmod 600" in refused.err) == (2, True), refused
    assert [each.name for each in desk.file.parent.iterdir()] == ["contexts.json"]


def test_what_cannot_be_meant_is_refused(desk: Desk) -> None:
    assert desk.run("context", "save", "a", "--home", "x").code == 0
    for arguments, code, text in (
        (("save", "a", "--home", "y"), 4, "--force"),
        (("save", "b"), 2, "give either --url or --database"),
        (("save", "b", "--home", "x", "--key", "k"), 2, "are for a host"),
        (("save", "../b", "--home", "x"), 2, "no name of a context"),
        (("select", "b"), 3, "known: a"),
        (("remove", "b"), 3, "known: a"),
        (("show", "--context", "b"), 3, "known: a"),
        (("show", "--context", "a", "--home", "x"), 2, "either --context or --home"),
    ):
        refused = desk.run("context", *arguments)
        assert (refused.code, text in refused.err) == (code, True), refused
    desk.file.write_bytes(msgspec.json.encode({"contexts": 1}))
    assert "cannot be read" in desk.run("host", "list").err
