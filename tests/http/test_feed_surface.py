"""The feed over HTTP: pages, waiting, and processors in the hands of operators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.feed.processing import host as processors
from relevo.kernel.backoff import Backoff
from tests.http.table import code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.feed import Change, Processor
    from tests.http.conftest import Opens, Reply, Site

pytestmark = pytest.mark.anyio

CHANGES = "/v1/containers/orders/changes:read"
UNIT = "/v1/feeds/orders/kitchen"


def order(number: str, city: str = "Vigo") -> dict[str, Any]:
    return {"id": number, "city": city}


@pytest.fixture
async def orders(site: Site) -> Any:
    from datetime import timedelta

    container = site.services.app.container(
        "orders", partition_key="/city", ranges=2, versions=timedelta(hours=1)
    )
    await container.describe()
    return container


async def changes(site: Site, **told: Any) -> Reply:
    return await site.ask("POST", CHANGES, key="consumer", json=told)


async def all_ids(site: Site, **told: Any) -> list[str]:
    """Read to the end, as a client does."""
    found: list[str] = []
    while True:
        page = (await changes(site, **told)).json
        found += [one["id"] for one in page["items"]]
        if page["caught_up"]:
            return found
        told["continuation"] = page["continuation"]


async def test_every_change_is_read_once_in_pages(site: Site, orders: Any) -> None:
    cities = ["Vigo", "Lugo", "Zug", "Bonn"]
    await orders.bulk([order(str(n), cities[n % 4]) for n in range(20)])
    found = await all_ids(site, limit=3)
    assert sorted(found, key=int) == [str(n) for n in range(20)]  # F2


async def test_a_continuation_goes_on_where_the_page_ended(site: Site, orders: Any) -> None:
    await orders.upsert(order("1"))
    page = (await changes(site)).json
    await orders.upsert(order("2"))
    after = (await changes(site, continuation=page["continuation"])).json
    assert [one["id"] for one in after["items"]] == ["2"]
    damaged = await changes(site, continuation=page["continuation"][:-4])
    assert (damaged.status, code(damaged)) == (400, "bad_continuation")


async def test_all_versions_tell_what_happened(site: Site, orders: Any) -> None:
    await orders.create(order("1"))
    await orders.replace({**order("1"), "n": 1})
    await orders.delete("1", "Vigo")
    page = (await changes(site, mode="all_versions", partition_key="Vigo")).json
    assert [one["operation"] for one in page["items"]] == ["create", "replace", "delete"]  # F3
    assert page["items"][-1]["item"] is None
    assert len({one["change_id"] for one in page["items"]}) == 3


async def test_parts_of_a_feed_are_read_side_by_side(site: Site, orders: Any) -> None:
    await orders.bulk([order(str(n), f"city {n}") for n in range(30)])
    target = "/v1/containers/orders/feed-ranges?at_least=4"
    parts = (await site.ask("GET", target, key="viewer")).json["items"]
    assert len(parts) == 4
    found = [await all_ids(site, feed_range=one["feed_range"]) for one in parts]
    assert sorted((i for part in found for i in part), key=int) == [str(n) for n in range(30)]
    for wrong in ("20-10", "FF-FFF"):
        assert (await changes(site, feed_range=wrong)).json["pointer"] == "/feed_range"


async def test_a_reader_waits_for_the_next_change(site: Site, orders: Any) -> None:
    now = (await changes(site, start="now")).json
    assert (now["items"], now["caught_up"]) == ([], True)
    waiting = asyncio.create_task(changes(site, continuation=now["continuation"], wait_seconds=60))
    signals = site.services.app.wakeups.signals
    while not any(topic.startswith("feed:") for topic in signals):
        await asyncio.sleep(0)
    await orders.upsert(order("1"))
    assert [one["id"] for one in (await waiting).json["items"]] == ["1"]


async def test_where_to_start_is_checked(site: Site, orders: Any) -> None:
    await orders.upsert(order("1"))
    assert await all_ids(site, start="2001-01-01T00:00:00Z") == ["1"]
    for start in ("2001-01-01T00:00:00", "2999-01-01T00:00:00Z"):
        assert (await changes(site, start=start)).status == 400
    assert (await changes(site, start="no such snapshot")).status == 404


class Kitchen:
    """A processor of the test's own app, and what it was given."""

    processor: Processor

    def __init__(self) -> None:
        self.given: list[str] = []
        self.more = asyncio.Condition()

    async def cook(self, batch: list[Change[Any]]) -> None:
        async with self.more:
            self.given += [one.id for one in batch]
            self.more.notify_all()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60), self.more:
            await self.more.wait_for(lambda: len(self.given) >= count)


@pytest.fixture
async def kitchen(site: Site, orders: Any) -> AsyncIterator[Kitchen]:
    """A host that serves `kitchen` and has dealt with the first order."""
    kitchen = Kitchen()
    kitchen.processor = orders.processor("kitchen", kitchen.cook, start="beginning")
    async with site.services.app.host(name="a"):
        await orders.upsert(order("1"))
        await kitchen.until(1)
        yield kitchen


async def test_processors_are_listed_with_their_lag(site: Site, kitchen: Kitchen) -> None:
    await site.ask("POST", f"{UNIT}:pause", key="operator", json={})
    await site.services.app.container("orders").upsert(order("2"))
    (one,) = (await site.ask("GET", "/v1/feeds", key="viewer")).json["items"]
    assert (one["container"], one["name"], one["leases"]) == ("orders", "kitchen", 2)
    assert (one["estimated_lag"], one["exact"]) == (1, True)
    leases = (await site.ask("GET", UNIT, key="viewer")).json["items"]
    assert [one["state"] for one in leases] == ["paused", "paused"]
    assert sum(one["estimated_lag"] for one in leases) == 1
    assert (await site.ask("GET", "/v1/feeds/orders/nobody", key="viewer")).status == 404


async def test_a_processor_is_paused_rewound_and_resumed(site: Site, kitchen: Kitchen) -> None:
    early = await site.ask("POST", f"{UNIT}:rewind", key="operator", json={"to": "beginning"})
    assert (early.status, code(early)) == (409, "conflict")
    paused = await site.ask("POST", f"{UNIT}:pause", key="operator", json={})
    assert paused.json["state"] == "paused"
    told = {"to": "beginning"}
    rewound = await site.ask("POST", f"{UNIT}:rewind", key="operator", json=told)
    assert rewound.json["generation"] == paused.json["generation"] + 1
    resumed = await site.ask("POST", f"{UNIT}:resume", key="operator", json={})
    assert resumed.json["state"] == "running"
    await kitchen.until(2)
    assert kitchen.given == ["1", "1"]


async def test_a_snapshot_is_a_place_to_come_back_to(site: Site, kitchen: Kitchen) -> None:
    await site.ask("POST", f"{UNIT}:pause", key="operator", json={})
    made = await site.ask("PUT", f"{UNIT}/snapshots/monday", key="operator", json={})
    listed = await site.ask("GET", f"{UNIT}/snapshots", key="viewer")
    assert listed.json["items"] == [made.json]
    await site.services.app.container("orders").upsert(order("2"))
    await site.ask("POST", f"{UNIT}:resume", key="operator", json={})
    await kitchen.until(2)
    await site.ask("POST", f"{UNIT}:pause", key="operator", json={})
    told = {"to": "monday"}
    assert (await site.ask("POST", f"{UNIT}:rewind", key="operator", json=told)).status == 200
    await site.ask("POST", f"{UNIT}:resume", key="operator", json={})
    await kitchen.until(3)
    assert kitchen.given == ["1", "2", "2"]
    nowhere = {"to": "tuesday", "force": True}
    assert (await site.ask("POST", f"{UNIT}:rewind", key="operator", json=nowhere)).status == 404


async def test_positions_are_exported_and_imported(site: Site, kitchen: Kitchen) -> None:
    await site.ask("POST", f"{UNIT}:pause", key="operator", json={})
    kept = (await site.ask("GET", f"{UNIT}:export", key="viewer")).json
    assert (kept["container"], kept["mode"], len(kept["places"])) == ("orders", "latest", 2)
    told = {"to": "beginning"}
    await site.ask("POST", f"{UNIT}:rewind", key="operator", json=told)
    taken = await site.ask("POST", f"{UNIT}:import", key="operator", json={"positions": kept})
    assert taken.status == 200, taken
    leases = (await site.ask("GET", UNIT, key="viewer")).json["items"]
    assert sum(one["estimated_lag"] for one in leases) == 0
    for wrong, status in (
        ({"incarnation": "0" * 32}, 409), ({"mode": "all_versions"}, 409), ({"version": 2}, 400),
        ({"places": []}, 400), ({"places": [[1, "", "FF", -1]]}, 400),
        ({"places": [[1, "FF", "", 0]]}, 400), ({"places": [[1, "", "FF", 2**62]]}, 409),
    ):  # fmt: skip
        told = {"positions": kept | wrong}
        refused = await site.ask("POST", f"{UNIT}:import", key="operator", json=told)
        assert refused.status == status, (wrong, refused)
    await site.ask("POST", f"{UNIT}:resume", key="operator", json={})
    early = await site.ask("POST", f"{UNIT}:import", key="operator", json={"positions": kept})
    assert (early.status, code(early)) == (409, "conflict")


async def test_gaps_are_repaired_and_leases_cut(site: Site, kitchen: Kitchen) -> None:
    early = await site.ask("POST", f"{UNIT}:split-leases", key="operator", json={"at_least": 3})
    assert (early.status, code(early)) == (409, "conflict")
    await site.ask("POST", f"{UNIT}:pause", key="operator", json={})
    cut = await site.ask("POST", f"{UNIT}:split-leases", key="operator", json={"at_least": 3})
    assert cut.status == 200, cut
    leases = [
        one["lease_token"] for one in (await site.ask("GET", UNIT, key="viewer")).json["items"]
    ]
    assert len(leases) == 4
    await site.services.app.database.write("delete from relevo.lease where name = $1", leases[1])
    repaired = await site.ask("POST", f"{UNIT}:repair", key="operator", json={"start": "beginning"})
    assert repaired.json == {"added": 1, "lease_tokens": [leases[1]]}
    again = await site.ask("POST", f"{UNIT}:repair", key="operator", json={"start": "now"})
    assert again.json == {"added": 0, "lease_tokens": []}


async def test_exports_and_repairs_of_many_leases_end_at_their_bytes(open_site: Opens) -> None:
    async with open_site(page_bytes=1_024) as site:
        app = site.services.app
        many = app.container("orders", partition_key="/city", ranges=64)
        kitchen = Kitchen()
        many.processor("kitchen", kitchen.cook, start="beginning")
        await many.upsert(order("1"))
        async with app.host(name="a"):
            await kitchen.until(1)
            await site.ask("POST", f"{UNIT}:pause", key="operator", json={})
            pages = [(await site.ask("GET", f"{UNIT}:export", key="viewer")).json]
            while cursor := pages[-1]["next"]:
                target = f"{UNIT}:export?cursor={cursor}"
                pages.append((await site.ask("GET", target, key="viewer")).json)
            assert all(len(msgspec.json.encode(one["places"])) <= 1_100 for one in pages)
            places = [place for page in pages for place in page["places"]]
            assert len(places) == len({place[1] for place in places}) == 64
            for positions, status in (
                (pages[0], 400),  # one page of several
                (pages[-1], 400),  # its places are not all
                (pages[-1] | {"places": places}, 200),
            ):
                told = {"positions": positions}
                reply = await site.ask("POST", f"{UNIT}:import", key="operator", json=told)
                assert reply.status == status, reply
            tokens = [one.token for one in (await many.unit("kitchen").state()).leases]
            await app.database.write("delete from relevo.lease where name = any ($1)", tokens[1:])
            start = {"start": "now"}
            repaired = await site.ask("POST", f"{UNIT}:repair", key="operator", json=start)
            named = repaired.json["lease_tokens"]
            assert repaired.json["added"] == 63
            assert named == tokens[1 : len(named) + 1]
            assert 0 < len(repaired.body) <= 1_100
            assert [one.token for one in (await many.unit("kitchen").state()).leases] == tokens


async def test_a_processor_is_deleted_when_no_host_serves_it(site: Site, kitchen: Kitchen) -> None:
    served = await site.ask("DELETE", UNIT, key="operator")
    assert (served.status, code(served)) == (409, "conflict")
    await processors.stop(kitchen.processor)
    assert (await site.ask("DELETE", UNIT, key="operator")).status == 204
    assert (await site.ask("DELETE", UNIT, key="operator")).status == 404
    assert (await site.ask("GET", UNIT, key="viewer")).status == 404


async def test_the_first_parts_of_a_key_read_what_is_below(site: Site) -> None:
    deep = site.services.app.container("deep", ["/tenant", "/user"])
    for tenant, user in (("a", "x"), ("a", "y"), ("b", "x")):
        await deep.upsert({"id": f"{tenant}{user}", "tenant": tenant, "user": user})
    for key, found in ((["a"], ["ax", "ay"]), ("b", ["bx"]), (["a", "y"], ["ay"])):
        page = await site.ask(
            "POST", "/v1/containers/deep/changes:read", key="consumer",
            json={"partition_key": key, "limit": 100},
        )  # fmt: skip
        assert sorted(one["id"] for one in page.json["items"]) == found


async def test_only_who_runs_feeds_may_pause_them(site: Site, kitchen: Kitchen) -> None:
    for role in ("viewer", "consumer", "producer", "worker", "supervisor"):
        assert (await site.ask("POST", f"{UNIT}:pause", key=role, json={})).status == 403


class Bitter(Exception):
    """What a handler of the test raises."""


async def test_dead_letters_are_listed_redriven_and_discarded(site: Site, orders: Any) -> None:
    spoilt, given_up = {"1", "2"}, asyncio.Event()

    async def cook(batch: list[Change[Any]]) -> None:
        if {one.id for one in batch} & spoilt:
            raise Bitter("of taste")

    letters: list[Any] = []

    async def note(*told: Any) -> None:
        letters.append(told)
        if len(letters) == 2:
            given_up.set()

    processor = orders.processor(
        "kitchen", cook, start="beginning", dead_letter=True, max_attempts=1,
        backoff=Backoff(first=0.01, longest=0.01),
    )  # fmt: skip
    processor.on_dead_lettered(note)
    target = f"{UNIT}/dead-letters"
    async with site.services.app.host(name="a"):
        await orders.bulk([order("1"), order("2", "Lugo")])
        async with asyncio.timeout(60):
            await given_up.wait()
        listed = (await site.ask("GET", target, key="viewer")).json["items"]
        assert {one["error_type"].rpartition(".")[2] for one in listed} == {"Bitter"}
        assert all("body" not in one and "message" not in one for one in listed)
        first, second = (f"{target}/{one['id']}" for one in listed)
        assert (await site.ask("GET", first, key="viewer")).status == 403
        shown = (await site.ask("GET", first, key="consumer")).json
        assert shown["body"]["id"] == listed[0]["item_id"]
        again = await site.ask("POST", f"{first}:redrive", key="operator", json={})
        assert code(again) == "handler_error"
        spoilt.clear()
        done = await site.ask("POST", f"{first}:redrive", key="operator", json={})
        assert done.status == 204
        assert (await site.ask("DELETE", second, key="operator")).status == 204
        assert (await site.ask("GET", target, key="viewer")).json["items"] == []
        assert (await site.ask("GET", first, key="admin")).status == 404


async def test_a_page_has_only_what_is_wanted(site: Site, orders: Any) -> None:
    await orders.bulk([{**order(str(n)), "total": n} for n in range(20)])
    where = [{"path": "total", "op": ">=", "value": 17}]
    assert sorted(await all_ids(site, where=where)) == ["17", "18", "19"]
    first = (await changes(site, where=where, limit=1)).json
    other = await changes(site, where=[], continuation=first["continuation"])
    assert (other.status, code(other)) == (400, "bad_continuation")  # 16.3
    await orders.delete("17", "Vigo")
    found = await all_ids(site, mode="all_versions", operations=["delete"])
    assert found == ["17"]
    assert (await changes(site, operations=["delete"])).status == 400


async def test_a_reader_begins_at_a_snapshot(site: Site, kitchen: Kitchen) -> None:
    await site.ask("POST", f"{UNIT}:pause", key="operator", json={})
    await site.ask("PUT", f"{UNIT}/snapshots/friday", key="operator", json={})
    await site.services.app.container("orders").bulk([order("later")])
    assert "later" in await all_ids(site, start="friday")
    assert (await changes(site, start="monday")).status == 404


async def test_texts_are_kept_with_a_lease(site: Site, kitchen: Kitchen) -> None:  # 5.2
    lease = (await site.ask("GET", UNIT, key="operator")).json["items"][0]
    assert lease["properties"] == {}
    told = {"lease_token": lease["lease_token"], "properties": {"team": "north"}}
    done = await site.ask("POST", f"{UNIT}:properties", key="operator", json=told)
    assert done.status == 200
    lease = (await site.ask("GET", UNIT, key="operator")).json["items"][0]
    assert (lease["properties"], lease["stalled_for"]) == ({"team": "north"}, 0.0)
