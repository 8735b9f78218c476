"""Users, teams, business units, and keys for users, in process and over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Result, Site


@pytest.fixture(params=["database", "http"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tag(way: str) -> str:
    """Makes names of a test its own: one database serves all tests."""
    return f"{way} {uuid4().hex[:8]}"


def run(site: Site, way: str, *arguments: str) -> Result:
    done = site.run(*arguments, way=way)
    assert done.code == 0, done
    return done


def made(site: Site, way: str, *arguments: str) -> Any:
    return run(site, way, *arguments, "--output", "json").json


def test_a_user_is_made_moved_kept_out_and_let_in(site: Site, way: str, tag: str) -> None:
    unit = made(site, way, "dataverse", "unit", "create", "--name", f"north {tag}")
    ana = made(
        site, way, "dataverse", "user", "create", "--name", f"Ana {tag}", "--zone", "Europe/Madrid"
    )
    assert (ana["unit_name"], ana["zone"]) == ("organization", "Europe/Madrid")
    moved = made(site, way, "dataverse", "user", "move", ana["id"], "--unit", unit["id"])
    assert moved["unit"] == unit["id"]
    assert made(site, way, "dataverse", "user", "disable", ana["id"])["disabled"] is True
    shown = run(site, way, "dataverse", "user", "show", ana["id"]).out
    assert (
        f"Ana {tag}: is disabled; enable it with relevo dataverse user enable {ana['id']}" in shown
    )
    assert made(site, way, "dataverse", "user", "enable", ana["id"])["disabled"] is False
    listed = made(site, way, "dataverse", "user", "list", "--unit", unit["id"])["items"]
    assert [one["id"] for one in listed] == [ana["id"]]
    assert ana["id"] in run(site, way, "dataverse", "user", "list", "--all").out


def test_members_join_and_leave(site: Site, way: str, tag: str) -> None:
    ana = made(site, way, "dataverse", "user", "create", "--name", f"Ana {tag}")
    crew = made(site, way, "dataverse", "team", "create", "--name", f"crew {tag}")
    assert (
        made(site, way, "dataverse", "team", "join", crew["id"], "--user", ana["id"])["members"]
        == 1
    )
    shown = run(site, way, "dataverse", "user", "show", f"Ana {tag}").out
    assert f"crew {tag}" in shown
    assert crew["id"] in run(site, way, "dataverse", "team", "list", "--all").out
    assert (
        made(site, way, "dataverse", "team", "leave", crew["id"], "--user", ana["id"])["members"]
        == 0
    )
    assert made(site, way, "dataverse", "user", "show", ana["id"])["teams"] == {}


def test_a_key_is_given_to_a_user_with_single_rights(site: Site, way: str, tag: str) -> None:
    ana = made(site, way, "dataverse", "user", "create", "--name", f"Ana {tag}")
    shown = run(site, way, "dataverse", "user", "show", ana["id"]).out
    assert f"create a key for it with relevo key create --user-id {ana['id']}" in shown
    key = made(
        site, way, "key", "create", "--name", "ana", "--user-id", ana["id"],
        "--role", "job.read:unit", "--role", "job.write:own",
    )["key"]  # fmt: skip
    assert (key["user_id"], key["roles"]) == (ana["id"], ["job.read:unit", "job.write:own"])
    found = made(site, way, "dataverse", "user", "show", ana["id"])
    assert found["rights"] == {"job.read": "unit", "job.write": "own"}
    assert (
        "may job.read:unit, job.write:own."
        in run(site, way, "dataverse", "user", "show", ana["id"]).out
    )
    run(site, way, "key", "revoke", key["id"], "--yes")
    assert made(site, way, "dataverse", "user", "show", ana["id"])["rights"] == {}


def test_a_user_is_shown_by_name_if_no_other_has_it(site: Site, way: str, tag: str) -> None:
    first, second = (
        made(site, way, "dataverse", "user", "create", "--name", f"Ana {tag}") for _ in "ab"
    )
    refused = site.run("dataverse", "user", "show", f"Ana {tag}", way=way)
    assert refused.code == 4
    for text in ("2 users are named", first["id"], second["id"]):
        assert text in refused.err
    missing = site.run("dataverse", "user", "show", f"Eve {tag}", way=way)
    assert missing.code != 0
    assert "`relevo dataverse user list` lists all users" in missing.err


def test_errors_say_what_is_wrong_in_one_line(site: Site, way: str) -> None:
    none = str(uuid4())
    for arguments, text in (
        (("dataverse", "user", "move", none, "--unit", none), "no user"),
        (
            ("dataverse", "user", "create", "--name", "x", "--zone", "Mars/Base"),
            "'--zone': there is no time",
        ),
        (("dataverse", "user", "create"), "--name"),
        (("dataverse", "user", "disable", "ana"), "ana"),
        (("dataverse", "team", "join", none, "--user", none), "no team"),
        (("dataverse", "unit", "create", "--name", "organization"), "'organization' is already"),
        (("key", "create", "--name", "x", "--role", "viewer", "--user-id", none), "no user"),
    ):
        refused = site.run(*arguments, way=way)
        assert refused.code not in (0, 1), refused
        assert text in refused.err, refused
        assert refused.err.count("\n") == 1
