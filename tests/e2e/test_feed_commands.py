"""Containers, items and feeds from the command line, in process and over HTTP."""

from __future__ import annotations

import json
import signal
import sys
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.cli.calling.calls import OperationReply
from relevo.cli.calling.remote_calls import _error
from relevo.errors import FeedExpired
from relevo.http.operations import operation
from tests.e2e.conftest import PRESET

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Result, Site

WAYS = ("database", "http")


class Orders:
    """A container of its own for each test, on the one host of the module."""

    def __init__(self, site: Site, way: str) -> None:
        self.name = f"orders-{uuid.uuid4().hex[:8]}"
        self._site = site
        self._way = way
        made = self.run("container", "create", "--name", self.name, "--partition-key", "/city")
        assert made.code == 0, made

    def run(self, *arguments: str) -> Result:
        return self._site.run(*arguments, way=self._way)

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "-o", "json")
        assert done.code == 0, done
        return done.json

    def put(self, number: str, **members: Any) -> None:
        item = json.dumps({"id": number, "city": "Vigo", **members})
        assert self.run("item", "upsert", self.name, item).code == 0


@pytest.fixture(params=WAYS)
def orders(site: Site, request: pytest.FixtureRequest) -> Orders:
    return Orders(site, str(request.param))


def test_an_item_is_given_as_json_or_in_a_file(orders: Orders, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text('{"id": "1", "city": "Vigo", "dish": "pizza"}')
    assert orders.run("item", "create", orders.name, f"@{file}").code == 0
    read = orders.json("item", "show", orders.name, "1", "--partition-key", "Vigo")
    assert read["body"]["dish"] == "pizza"
    change = '[{"op": "set", "path": "/dish", "value": "soup"}]'
    done = orders.run("item", "update", orders.name, "1", change, "--partition-key", "Vigo")
    assert done.code == 0, done
    shown = orders.run("item", "query", orders.name, "--where", "dish = soup")
    assert '"dish":"soup"' in shown.out.replace(" ", "")
    gone = orders.run("item", "delete", orders.name, "1", "--partition-key", "Vigo")
    assert gone.code == 0, gone


def test_an_item_comes_from_standard_input(site: Site) -> None:
    orders = Orders(site, "database")
    lines = '{"id": "1", "city": "Vigo"}\n{"id": "2", "city": "Vigo"}\n'
    done = site.cli("item", "bulk", orders.name, "-", "-o", "json", stdin=lines)
    assert done.json["written"] == 2


def test_what_is_not_json_is_said_to_be_so(orders: Orders) -> None:
    for given in ("{", "@missing.json"):
        refused = orders.run("item", "create", orders.name, given)
        assert refused.code == 2, refused
        assert "ITEM" in refused.err


def test_a_partition_key_is_text_or_json(orders: Orders) -> None:
    for item, key in (
        ('{"id": "1", "city": "5"}', '"5"'),
        ('{"id": "1", "city": 5}', "5"),
        ('{"id": "1", "city": null}', "null"),
        ('{"id": "1"}', "{}"),
    ):
        assert orders.run("item", "create", orders.name, item).code == 0
        read = orders.json("item", "show", orders.name, "1", "--partition-key", key)
        assert read["body"] == json.loads(item)
        found = orders.json("item", "query", orders.name, "--partition-key", key)
        assert [one["body"] for one in found["items"]] == [json.loads(item)]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("n > 1", ["2"]),
        ("n<=1", ["1"]),
        ("name = Ada", ["2"]),
        ("n in [1, 5]", ["1"]),
        ("name exists", ["2"]),
        ("name exists false", ["1"]),
        ('{"path": "n", "op": "!=", "value": 2}', ["1"]),
    ],
)
def test_conditions_are_written_as_people_do(
    orders: Orders, condition: str, found: list[str]
) -> None:
    orders.put("1", n=1)
    orders.put("2", n=2, name="Ada")
    page = orders.json("item", "query", orders.name, "--where", condition)
    assert [one["id"] for one in page["items"]] == found


def test_a_batch_and_its_pages_are_shown(orders: Orders) -> None:
    steps = '[{"kind": "create", "item": {"id": "1", "city": "Vigo"}}, {"kind": "read", "id": "1"}]'
    done = orders.json("item", "batch", orders.name, steps, "--partition-key", "Vigo")
    assert [("body" in one) for one in done["results"]] == [False, True]
    orders.put("2")
    every = orders.json("item", "query", orders.name, "--limit", "1", "--all")
    assert [one["id"] for one in every["items"]] == ["1", "2"]


def test_tail_writes_one_line_for_each_change(orders: Orders) -> None:
    orders.put("1")
    orders.put("2")
    done = orders.run("feed", "tail", orders.name, "--from", "beginning", "--once")
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == ["1", "2"]
    one = orders.run("feed", "tail", orders.name, "--from", "beginning", "--count", "1")
    assert [json.loads(line)["id"] for line in one.out.splitlines()] == ["1"]


def test_tail_follows_until_it_is_interrupted(site: Site) -> None:
    orders = Orders(site, "database")
    orders.put("1")
    following = site.cli.spawn(
        "feed", "tail", orders.name, "--from", "beginning", url=site.host.url, key=PRESET
    )
    out = following.process.stdout
    assert out is not None
    assert json.loads(out.readline())["id"] == "1"
    orders.put("2")
    assert json.loads(out.readline())["id"] == "2"
    following.process.terminate()
    following.end()


def test_tail_says_what_is_wrong(orders: Orders) -> None:
    assert orders.run("feed", "tail", "nobody").code == 3
    kept = orders.run("feed", "tail", orders.name, "--mode", "all_versions", "--once")
    assert (kept.code, "keeps no versions" in kept.err) == (2, True)


def test_lag_without_processors_has_nothing_to_show(orders: Orders) -> None:
    assert orders.json("feed", "lag")["items"] == []
    assert orders.run("feed", "lag", orders.name).code == 2
    assert orders.run("feed", "lag", orders.name, "nobody").code == 3


def test_lag_is_watched_line_by_line(site: Site) -> None:
    watching = site.cli.spawn("feed", "lag", "--watch", "--every", "0.1", "-o", "json")
    out = watching.process.stdout
    assert out is not None
    assert [json.loads(out.readline())["items"] for _ in range(2)] == [[], []]
    watching.process.terminate()
    watching.end()


def test_lag_is_drawn_in_place_on_a_terminal(site: Site) -> None:
    terminal = site.cli.on_terminal("feed", "lag", "--watch", "--every", "0.1")
    terminal.read_until("nothing to show")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130


def test_ranges_and_feed_ranges_are_listed(orders: Orders) -> None:
    assert len(orders.json("container", "ranges", orders.name)["items"]) == 16
    parts = orders.run("feed", "ranges", orders.name, "--at-least", "20")
    assert len(parts.out.splitlines()) == 33


def test_an_expired_position_is_told_as_it_is() -> None:
    told = {
        "type": "x", "title": "x", "status": 409, "code": "feed_expired", "detail": "too old",
        "instance": "x", "retryable": False,
    }  # fmt: skip
    error = _error(
        operation("feeds.get"), OperationReply(409, msgspec.json.encode(told)), "http://x"
    )
    assert (type(error), error.message) == (FeedExpired, "too old")


PROGRAM = """
import relevo

app = relevo.App()
orders = app.container("{name}", partition_key="/city")


@orders.on_changes("kitchen", start="beginning")
async def cook(changes):
    for change in changes:
        print("cooked", change.id)


@orders.on_changes("other", start="beginning")
async def other(changes):
    print("never")
"""


def test_what_is_wanted_is_followed(orders: Orders) -> None:
    for n in range(4):
        orders.put(str(n), total=n)
    done = orders.run(
        "feed", "tail", orders.name, "--from", "beginning", "--where", "total >= 2", "--once"
    )
    assert sorted(json.loads(line)["id"] for line in done.out.splitlines()) == ["2", "3"]


def test_a_short_run_processes_what_is_there_and_ends(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # 18, 12.4
    orders = Orders(site, "database")
    for n in range(3):
        orders.put(str(n))
    module = f"program_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{module}.py").write_text(PROGRAM.format(name=orders.name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    done = orders.run("feed", "run", f"{module}:cook", "--until", "now")
    assert done.code == 0, done
    assert sorted(done.out.split()) == ["0", "1", "2", "cooked", "cooked", "cooked"]
    again = orders.run("feed", "run", f"{module}:cook", "--until", "now")
    assert (again.code, again.out) == (0, "")  # the state is in the leases
    for wrong in (f"{module}:nothing", f"{module}:orders", "no_such_module:x", module):
        assert orders.run("feed", "run", wrong).code == 2


@pytest.mark.parametrize("way", WAYS)
def test_operators_move_cut_repair_and_delete_a_processor(
    site: Site, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # 14.4, 14.5
    orders = Orders(site, way)
    orders.put("1")
    module = f"program_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{module}.py").write_text(PROGRAM.format(name=orders.name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    cook = ("feed", "run", f"{module}:cook", "--until", "now")
    assert site.run(*cook, way="database").out.split() == ["cooked", "1"]
    unit = (orders.name, "kitchen")
    assert orders.run("feed", "pause", *unit).code == 0
    kept = tmp_path / "positions.json"
    kept.write_text(orders.run("feed", "export", *unit).out)
    assert json.loads(kept.read_text())["container"] == orders.name
    assert orders.run("feed", "rewind", *unit, "--to", "beginning").code == 0
    assert sum(one["estimated_lag"] for one in orders.json("feed", "show", *unit)["items"]) == 1
    assert orders.run("feed", "import", *unit, f"@{kept}").code == 0
    assert sum(one["estimated_lag"] for one in orders.json("feed", "show", *unit)["items"]) == 0
    before = len(orders.json("feed", "show", *unit)["items"])
    cut = orders.run("feed", "split-leases", *unit, "--at-least", str(before + 1))
    assert cut.code == 0, cut
    assert len(orders.json("feed", "show", *unit)["items"]) == 2 * before
    repaired = orders.json("feed", "repair", *unit, "--start", "beginning")
    assert repaired == {"added": 0, "lease_tokens": []}
    gone = orders.run("feed", "delete", *unit, "--yes")
    assert gone.code == 0, gone
    assert orders.run("feed", "show", *unit).code == 3
    assert orders.run("feed", "delete", *unit, "--yes").code == 3


def test_the_changes_of_a_tenant_are_followed_by_the_first_part_of_its_key(site: Site) -> None:
    name = f"deep-{uuid.uuid4().hex[:8]}"
    paths = ("--partition-key", "/tenant", "--partition-key", "/user")
    assert site.cli("container", "create", "--name", name, *paths).code == 0
    for tenant, user in (("a", "x"), ("a", "y"), ("b", "x")):
        item = json.dumps({"id": f"{tenant}{user}", "tenant": tenant, "user": user})
        assert site.cli("item", "upsert", name, item).code == 0
    tail = ("feed", "tail", name, "--from", "beginning", "--once", "--partition-key")
    done = site.cli(*tail, '["a"]')
    assert sorted(json.loads(line)["id"] for line in done.out.splitlines()) == ["ax", "ay"]
    assert [json.loads(line)["id"] for line in site.cli(*tail, "b").out.splitlines()] == ["bx"]
