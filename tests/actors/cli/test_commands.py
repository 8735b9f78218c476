"""Actors on the command line: a program that serves them, and commands about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.conftest import until

if TYPE_CHECKING:
    from tests.e2e.conftest import Result, Site


def run(site: Site, *arguments: str, code: int = 0, way: str = "http") -> Result:
    done = site.run(*arguments, way=way)
    assert done.code == code, done
    return done


def test_a_program_serves_actors_and_commands_reach_them(site: Site) -> None:
    until(lambda: "serving account" in site.host.log, "it says what it serves")
    called = run(
        site,
        "actor",
        "call",
        "account",
        "alice",
        "deposit",
        "--arguments",
        '{"cents": 5}',
        "-o",
        "json",
    )
    assert called.json == {"result": 5}
    shown = run(site, "actor", "show", "account", "alice", "-o", "json").json
    assert (shown["id"], shown["host"]) == ("account/s:alice", "alpha")
    state = run(site, "actor", "state", "account", "alice", "-o", "json").json
    assert state["state"] == {"cents": 5}
    assert "account/s:alice" in run(site, "actor", "list", "account", way="database").out
    leases = run(
        site, "lease", "list", "--kind", "actors", "--unit", "default", "-o", "json", way="database"
    ).json
    assert {one["name"] for one in leases["items"]} == {"0", "1", "2", "3"}
    run(site, "actor", "deactivate", "account", "alice")
    run(site, "actor", "delete", "account", "alice", "--yes")
    assert "account/s:alice" not in run(site, "actor", "list", "account").out
    assert "acount" in run(site, "actor", "call", "acount", "a", "deposit", code=3).err
    assert run(site, "actor", "letter", "list", "-o", "json").json["items"] == []
    assert run(site, "actor", "quarantine", "list", "-o", "json").json["items"] == []


def test_the_interfaces_of_a_program_are_shown_as_json_schema(site: Site) -> None:
    done = site.cli("actor", "schema", "bank:app")
    assert done.code == 0, done
    account = done.json["types"]["account"]
    assert account["interfaces"] == ["Account"]
    deposit = done.json["interfaces"]["Account"]["deposit"]
    assert deposit["result"] == {"type": "integer"}


def test_the_live_view_shows_slots_by_host_and_work_by_type(site: Site) -> None:
    run(site, "actor", "call", "account", "bob", "deposit", "--arguments", '{"cents": 5}')
    for way in ("database", "http"):
        shown = run(site, "actor", "watch", "--once", "-o", "json", way=way).json
        own = [one for one in shown["slots"] if one["placement_group"] == "default"]
        assert own == [{"placement_group": "default", "host": "alpha", "slots": 4, "moving": 0}]
    assert "alpha" in run(site, "actor", "watch", "--once").out


def test_stateless_types_are_called_and_seen(site: Site) -> None:
    text = ("--arguments", '{"text": "hello"}', "-o", "json")
    assert run(site, "actor", "call", "echo", "default", "echo", *text).json == {"result": "hello"}
    shown = run(site, "actor", "watch", "--once", "-o", "json").json
    (echo,) = [one for one in shown["here"] if one["type"] == "echo"]
    assert (echo["activations"], echo["max_local"]) == (1, 7)
    types = site.cli("actor", "schema", "bank:app").json["types"]
    assert types["echo"]["persist"] == "stateless"


def test_the_doctor_looks_at_slots_and_addresses(site: Site) -> None:
    found = site.run("doctor", "-o", "json", way="database").json["items"]
    checks = {one["check"]: one for one in found}
    assert "default 4" in checks["actor slots"]["detail"]
    assert checks["actor hosts"]["state"] in ("ok", "warn")


def test_slots_are_not_changed_while_a_host_serves_them(site: Site) -> None:
    until(lambda: "serving account" in site.host.log, "it says what it serves")
    refused = run(site, "actor", "slots", "default", "8", "--yes", code=4, way="database")
    assert "is served by alpha; stop these hosts" in refused.err
    run(site, "actor", "slots", "defualt", "8", "--yes", code=3, way="database")
