"""Short ids, choices in errors, and lists that are shown again and again."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli, Site


@pytest.mark.parametrize("way", ["database", "http"])
def test_the_first_characters_of_an_id_are_enough(site: Site, way: str) -> None:
    first, second = (
        site.run("job", "submit", "missing", "--name", name, way=way).out.strip()
        for name in ("soup", "cake")
    )
    for short in (first[:-1], first[:24]):
        shown = site.run("job", "show", short, "-o", "ids", way=way)
        assert (shown.code, shown.out) == (0, f"{first}\n"), shown
    refused = site.run("job", "show", first[:4], way=way)
    assert refused.code == 4
    assert f"{first} (soup)" in refused.err
    assert f"{second} (cake)" in refused.err
    assert site.run("job", "show", "ffff", way=way).code == 3
    assert "at least its first 4 characters" in site.run("job", "show", "ab", way=way).err
    assert site.run("job", "cancel", second[:-1], "--yes", way=way).code == 0
    assert "canceled" in site.run("job", "list", "--status", "canceled", way=way).out
    key = site.run("key", "create", "--name", "k", "--role", "viewer", "-o", "json", way=way).json
    assert site.run("key", "show", key["key"]["id"][:-2], way=way).code == 0


def test_an_unknown_choice_is_answered_with_the_choices(site: Site) -> None:
    mode = '{"mode": {"kind": "longest"}}'
    refused = site.run("router", "distribution-policy", "create", "p", mode)
    assert refused.code == 2
    assert "bestWorker, longestIdle, roundRobin" in refused.err


def test_a_list_is_shown_again_until_it_is_interrupted(cli: Cli) -> None:
    assert cli("container", "create", "--name", "orders", "--partition-key", "/city").code == 0
    terminal = cli.on_terminal("container", "list", "-w", "--every", "0.1")
    terminal.read_until("orders")
    assert cli("container", "create", "--name", "dishes", "--partition-key", "/city").code == 0
    terminal.read_until("dishes")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    lines = cli.spawn("container", "list", "--watch", "--every", "0.1", "-o", "yaml")
    assert lines.process.stdout is not None
    assert lines.process.stdout.readline() == "---\n"
