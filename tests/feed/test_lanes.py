"""Keyed lanes: order per key, several calls at a time, and a successor that repeats little."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo import limits
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.processing import host as processors
from relevo.feed.processing.lanes import lane_of
from relevo.feed.service import FeedPart
from relevo.kernel.backoff import Backoff
from relevo.store import keys
from relevo.testing.cluster import Cluster
from tests.feed.diner import Diner
from tests.feed.test_crashes import Deaths
from tests.feed.test_processor import AT_ONCE
from tests.support.parts import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo import App
    from relevo.feed.model import Change
    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.postgres import Database, Transaction, Wakeups
    from relevo.store import Store
    from relevo.testing.recorder import Recorder

pytestmark = pytest.mark.anyio
LANES = 4
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "pool_size": 4}


class Counter(Diner):
    """A diner over one range, so that one lease has many keys."""

    def __init__(self, url: str, store: Store, database: Database, stack: AsyncExitStack) -> None:
        super().__init__(url, store, database, stack)
        self.orders = store.container("orders", "/city", ranges=1)

    async def fill(self, rounds: int, cities: str = "abcdefgh", first: int = 0) -> None:
        """Write to every city in turn; ids are "city-round"."""
        for n in range(first, first + rounds):
            for city in cities:
                await self.orders.upsert({"id": f"{city}-{n}", "city": city})

    async def put_together(self, *ids: str) -> None:
        """Write items of several keys in one transaction: one group."""

        async def work(tx: Transaction) -> None:
            for one in ids:
                item = msgspec.json.encode({"id": one, "city": one[0]}).decode()
                await tx.execute("select relevo.put_item('orders', $1::jsonb)", item)

        await self.database.run(work)

    async def done(self) -> set[tuple[int, int]]:
        rows = await self.database.fetch("select lsn, ordinal from relevo.feed_done")
        return {(row["lsn"], row["ordinal"]) for row in rows}

    async def position(self) -> int:
        text = await self.database.fetchval(
            "select l.position from relevo.lease l join relevo.feed_lease f on f.lease_id = l.id"
        )
        return max(msgspec.json.decode(text, type=dict[str, int]).values())

    async def until_stored(self, lsn: int) -> None:
        async with asyncio.timeout(30):
            while await self.position() < lsn:
                await asyncio.sleep(0.01)

    async def last(self) -> int:
        lsn: int = await self.database.fetchval("select max(lsn) from relevo.item")
        return lsn


def lane(city: str, lanes: int = LANES) -> int:
    return lane_of(keys.text((city,)), lanes)


def in_order(delivered: list[str]) -> bool:
    """Whether the rounds of each city rise."""
    seen: dict[str, list[int]] = defaultdict(list)
    for one in delivered:
        city, _, number = one.partition("-")
        seen[city].append(int(number))
    return all(numbers == sorted(numbers) for numbers in seen.values())


@pytest.fixture
async def counter(
    relevo_url: str, database: Database, store: Store, wakeups: Wakeups
) -> AsyncIterator[Counter]:
    async with AsyncExitStack() as stack:
        counter = Counter(relevo_url, store, database, stack)
        await counter.orders.describe()
        yield counter


async def test_lanes_work_at_the_same_time_and_keep_the_order_of_each_key(
    counter: Counter,
) -> None:  # P2, F4
    await counter.fill(6)
    together = asyncio.Barrier(LANES)
    running: set[str] = set()
    met = False

    async def cook(changes: list[Change[Any]]) -> None:
        nonlocal met
        mine = {change.item["city"] for change in changes}
        assert len({lane(city) for city in mine}) == 1
        assert not mine & running
        running.update(mine)
        if not met:
            await together.wait()
            met = True
        await counter.cook(changes)
        running.difference_update(mine)

    assert {lane(city) for city in "abcdefgh"} == set(range(LANES))
    await counter.open(handler=cook, lanes=LANES, max_items=2)
    await counter.until(lambda: len(counter.delivered) == 48, "all are delivered")
    assert in_order(counter.delivered)
    await counter.until_stored(await counter.last())
    assert await counter.done() == set()


async def test_a_failing_key_stops_only_its_lane_and_holds_the_position(
    counter: Counter,
) -> None:  # P7, 8.5
    await counter.fill(5)
    broken = True

    async def cook(changes: list[Change[Any]]) -> None:
        if broken and any(change.item["city"] == "a" for change in changes):
            raise ValueError("a is closed")
        await counter.cook(changes)

    await counter.open(handler=cook, lanes=LANES, max_items=4)
    others = [city for city in "abcdefgh" if lane(city) != lane("a")]
    wanted = {f"{city}-{n}" for city in others for n in range(5)}
    await counter.until(lambda: wanted <= set(counter.delivered), "other lanes go on")
    first = await counter.database.fetchval("select lsn from relevo.item where id = 'a-0'")
    assert await counter.position() < first
    assert not {one for one in counter.delivered if one.startswith("a")}
    broken = False
    await counter.until(lambda: len(counter.delivered) == 40, "all in the end")
    assert in_order(counter.delivered)
    assert len(set(counter.delivered)) == 40


async def test_a_split_under_a_failing_key_lets_the_other_lanes_go_on(
    counter: Counter,
) -> None:  # F9, 8.5
    await counter.fill(2)
    broken = True

    async def cook(changes: list[Change[Any]]) -> None:
        if broken and any(change.item["city"] == "a" for change in changes):
            raise ValueError("a is closed")
        await counter.cook(changes)

    await counter.open(handler=cook, lanes=LANES, backoff=Backoff(first=30.0, longest=30.0))
    others = [city for city in "abcdefgh" if lane(city) != lane("a")]
    await counter.until(lambda: len(counter.delivered) == 2 * len(others), "others go on")
    await counter.orders.split(next(iter((await counter.orders.ranges()).open)).id)
    await counter.fill(2, first=2)
    await counter.until(lambda: len(counter.delivered) == 4 * len(others), "also behind the split")
    assert in_order(counter.delivered)
    assert len(set(counter.delivered)) == len(counter.delivered)


async def test_what_is_finished_above_the_position_is_bounded(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:  # 8.5
    monkeypatch.setattr(limits, "FEED_DONE_MAX", 8)
    await counter.fill(20)
    broken = True

    async def cook(changes: list[Change[Any]]) -> None:
        if broken and any(change.item["city"] == "a" for change in changes):
            raise ValueError("a is closed")
        await counter.cook(changes)

    await counter.open(handler=cook, lanes=LANES, max_items=1, lane_window=8)
    await counter.until(lambda: len(counter.delivered) >= 8, "as far as it may")
    await counter.until(lambda: len(counter.heard("error")) > 5, "and a while longer")
    assert len(counter.delivered) <= 8 + 8 + LANES
    broken = False
    await counter.until(lambda: len(counter.delivered) == 160, "all in the end")
    assert in_order(counter.delivered)


async def test_the_next_owner_skips_what_was_finished_above_the_position(
    counter: Counter,
) -> None:  # P7, P1
    await counter.fill(5)
    others = [city for city in "abcdefgh" if lane(city) != lane("a")]
    entered = asyncio.Event()

    async def hang_on_a(changes: list[Change[Any]]) -> None:
        if any(change.item["city"] == "a" for change in changes):
            entered.set()
            await asyncio.Event().wait()
        await counter.cook(changes)

    await counter.open(handler=hang_on_a, lanes=LANES, max_items=4)
    await entered.wait()
    await counter.until(lambda: len(counter.delivered) == 5 * len(others), "others are through")
    async with asyncio.timeout(30):
        while len(await counter.done()) < 5 * len(others) - 7:
            await asyncio.sleep(0.01)  # all but those that the position may cover
    marked = await counter.done()
    before = list(counter.delivered)
    await counter.database.write("update relevo.lease set epoch = epoch + 1")  # lost, uncleanly
    entered.clear()
    counter.delivered.clear()
    await entered.wait()
    await counter.hosts["a"].aclose()
    counter.delivered.clear()
    await counter.open("b", handler=counter.cook, lanes=2)
    await counter.until(lambda: len({*before, *counter.delivered}) == 40, "nothing is lost")
    rows = await counter.database.fetch(
        "select id from relevo.item"
        " where (lsn, ordinal) in (select * from unnest($1::bigint[], $2::integer[]))",
        *map(list, zip(*marked, strict=True)),
    )
    assert rows
    assert not {row["id"] for row in rows} & set(counter.delivered)
    assert in_order(counter.delivered)


async def serve_lanes(app: App, record: Recorder) -> None:
    """What the processes of the cluster run; the one named "a" stands still at city d."""

    async def handle(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        ids = [change.id for change in changes]
        if app.leases.name == "a" and any(one.startswith("d") for one in ids):
            record("stuck", ids=ids)
            await asyncio.Event().wait()
        record("returned", ids=ids, places=[(c.lsn, c.ordinal) for c in changes])

    app.container("orders").processor(
        "kitchen", handle, start="beginning", poll_interval=0.25, lanes=LANES, max_items=3,
        backoff=Backoff(first=0.05, longest=0.2),
    )  # fmt: skip
    await serve(app, FeedPart)


async def test_after_a_kill_only_what_is_not_marked_done_comes_again(
    counter: Counter, relevo_url: str, tmp_path: Path
) -> None:  # P7, P1
    await counter.fill(8)
    program = "tests.feed.test_lanes:serve_lanes"
    async with Cluster(relevo_url, program, tmp_path, settings=QUICK) as cluster:
        node = await cluster.start("a")
        others = {f"{c}-{n}" for c in "abcdefgh" if lane(c) != lane("d") for n in range(8)}

        def returned(host: str) -> list[str]:
            return [i for r in cluster.records("returned") if r["host"] == host for i in r["ids"]]

        await cluster.until(lambda: others <= set(returned("a")), "the other lanes are through")
        await cluster.until(lambda: bool(cluster.records("stuck")), "one lane stands still")

        async def marked() -> bool:
            return len(await counter.done()) > 20

        await cluster.until(marked, "what is finished is marked")
        node.kill()
        done, position = await counter.done(), await counter.position()
        first = returned("a")
        await cluster.start("b")
        everything = {f"{c}-{n}" for c in "abcdefgh" for n in range(8)}
        await cluster.until(
            lambda: everything <= {*first, *returned("b")}, "the successor does the rest"
        )
        again = {
            (lsn, ordinal)
            for r in cluster.records("returned") if r["host"] == "b"
            for lsn, ordinal in r["places"]
        }  # fmt: skip
        assert not again & done
        assert min(lsn for lsn, _ in again) > position
        assert in_order(returned("b"))
        await cluster.until(lambda: len(returned("b")) == len(again), "each once")


async def test_effects_in_transactions_happen_exactly_once_in_lanes(
    counter: Counter,
) -> None:  # P5, 9.5
    await counter.database.run(lambda tx: tx.execute("create table dishes (id text)"))
    calls = 0

    async def applied() -> list[str]:
        rows = await counter.database.fetch("select id from dishes")
        return [row["id"] for row in rows]

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        nonlocal calls
        calls += 1
        async with ctx.transaction() as tx:
            for change in changes:
                await tx.execute("insert into dishes values ($1)", change.id)
            if calls % 5 == 3:
                raise RuntimeError("after the effects, before the commit")
            if calls in (7, 30):  # lost in the middle: nothing of it counts
                await counter.database.write(
                    "update relevo.lease set epoch = epoch + 1 where id = $1", ctx.fence.lease_id
                )
        counter.delivered += [change.id for change in changes]

    await counter.fill(8)
    await counter.open(handler=cook, lanes=LANES, max_items=2)
    async with asyncio.timeout(30):  # a call may be cut off while its transaction commits
        while len(dishes := await applied()) < 64:
            await asyncio.sleep(0.05)
    assert len(dishes) == len(set(dishes)) == 64
    assert set(counter.delivered) <= set(dishes)


async def test_a_bad_change_is_given_up_alone_in_its_lane(counter: Counter) -> None:  # P8, P9
    await counter.fill(6)
    counter.bad = {"c-2", "f-4"}
    await counter.open(lanes=LANES, max_items=4, dead_letter=True, max_attempts=2)
    await counter.until(lambda: len(counter.heard("dead_lettered")) == 2, "both are given up")
    await counter.until(lambda: len(set(counter.delivered)) == 46, "all others are processed")
    assert {one.item_id for one in await counter.letters.list()} == counter.bad
    assert len(counter.delivered) == 46  # none twice
    assert in_order(counter.delivered)
    await counter.until_stored(await counter.last())


async def test_confirmations_in_any_order_never_skip_an_unconfirmed_change(
    counter: Counter,
) -> None:  # P6
    await counter.fill(3)
    open_: dict[str, ChangeContext] = {}

    async def later(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        open_.update((change.id, ctx) for change in changes)

    processor = await counter.open(
        handler=later, lanes=LANES, checkpoint="manual", max_unconfirmed=100, max_items=1
    )
    await counter.until(lambda: len(open_) == 24, "all are in the hands of the handler")
    for one in sorted(open_)[6:]:
        await open_[one].confirm()
    await processors.stop(processor)
    missing = set(sorted(open_)[:6])
    await counter.open("b", handler=counter.cook, lanes=LANES)
    await counter.until(lambda: missing <= set(counter.delivered), "the rest comes again")
    assert set(counter.delivered) == missing


@pytest.mark.parametrize("atomic", [True, False])
async def test_what_was_written_together_is_kept_whole_where_that_is_asked_for(
    counter: Counter, atomic: bool
) -> None:  # F5
    for n in range(4):
        await counter.fill(1, "ab", first=10 * n)
        await counter.put_together(*(f"{city}-{10 * n + 1}" for city in "abcdefgh"))
        await counter.fill(1, "gh", first=10 * n + 2)
    groups: list[dict[int, int]] = []

    async def cook(changes: list[Change[Any]]) -> None:
        sizes: dict[int, int] = defaultdict(int)
        for change in changes:
            sizes[change.lsn] += 1
        groups.append(sizes)
        await counter.cook(changes)

    await counter.open(handler=cook, lanes=LANES, atomic_groups=atomic)
    await counter.until(lambda: len(counter.delivered) == 48, "all are delivered")
    rows = await counter.database.fetch("select lsn, count(*) as n from relevo.item group by lsn")
    whole = {row["lsn"]: row["n"] for row in rows}
    assert in_order(counter.delivered)
    kept = all(size == whole[lsn] for sizes in groups for lsn, size in sizes.items())
    assert kept == atomic


async def test_a_rewind_forgets_what_was_finished(counter: Counter, wakeups: Wakeups) -> None:  # U7
    await counter.fill(2)
    processor = await _stuck_at_a(counter)
    assert await counter.done()
    await processors.stop(processor, timeout=0.01)
    handle = UnitHandle(counter.database, wakeups, "orders", "kitchen", "leases")
    await handle.rewind("beginning", force=True)
    assert await counter.done() == set()
    counter.delivered.clear()
    await counter.open("b", handler=counter.cook, lanes=LANES)
    await counter.until(lambda: len(counter.delivered) == 16, "everything comes again")


async def test_leases_that_take_the_place_of_one_skip_what_it_had_finished(
    counter: Counter, wakeups: Wakeups
) -> None:  # P7, L4
    await counter.fill(2)
    processor = await _stuck_at_a(counter)
    await processors.stop(processor, timeout=0.01)
    marked, position = await counter.done(), await counter.position()
    handle = UnitHandle(counter.database, wakeups, "orders", "kitchen", "leases")
    await handle.split_leases(4, force=True)
    counter.delivered.clear()
    await counter.open("b", handler=counter.cook, lanes=LANES)
    rows = await counter.database.fetch("select id, lsn, ordinal from relevo.item")
    finished = {row["id"] for row in rows if (row["lsn"], row["ordinal"]) in marked}
    assert finished
    left = {row["id"] for row in rows if row["lsn"] > position} - finished
    await counter.until(lambda: left <= set(counter.delivered), "what was left")
    assert set(counter.delivered) == left


async def _stuck_at_a(counter: Counter) -> Any:
    """Serve until all but the lane of city a is through and stored."""

    async def hang_on_a(changes: list[Change[Any]]) -> None:
        if any(change.item["city"] == "a" for change in changes):
            await asyncio.Event().wait()
        await counter.cook(changes)

    processor = await counter.open(handler=hang_on_a, lanes=LANES)
    others = [city for city in "abcdefgh" if lane(city) != lane("a")]
    await counter.until(lambda: len(counter.delivered) == 2 * len(others), "others are through")
    async with asyncio.timeout(30):
        while not await counter.done():
            await asyncio.sleep(0.01)
    return processor


async def deadly(app: App, record: Recorder) -> None:
    """Die of one change, while other lanes work."""

    async def handle(changes: list[Change[Any]]) -> None:
        if any(change.id == "d-3" for change in changes):
            os.kill(os.getpid(), signal.SIGKILL)
        record("returned", ids=[change.id for change in changes])

    app.container("orders").processor(
        "kitchen", handle, start="beginning", poll_interval=0.25, backoff=AT_ONCE, lanes=LANES,
        max_items=2, dead_letter=True,
    )  # fmt: skip
    await serve(app, FeedPart)


async def test_a_change_that_kills_its_process_is_isolated_among_lanes(
    counter: Counter, relevo_url: str, tmp_path: Path
) -> None:  # P10
    await counter.fill(6)
    others = {f"{city}-{n}" for city in "abcdefgh" for n in range(6)} - {"d-3"}
    program = "tests.feed.test_lanes:deadly"
    async with Cluster(relevo_url, program, tmp_path, settings=QUICK) as cluster:
        deaths = Deaths(cluster)

        async def given_up() -> bool:
            letters = await counter.database.fetch("select from relevo.dead_letter")
            return bool(letters) and others <= deaths.returned()

        await deaths.live_until(given_up, "the change is out of the way")
    assert deaths.count == 3
    found = await counter.letters.list()
    assert [(one.item_id, one.reason) for one in found] == [("d-3", "crash")]
