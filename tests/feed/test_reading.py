"""The feed of a container: what is read, in which order, from where."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.errors import BadContinuation, FeedExpired, FeedRegressed, InvalidValue
from relevo.feed.reading import tokens
from relevo.feed.reading.pull import Reader
from relevo.store import Create, Delete, Upsert
from relevo.store.ranges import WHOLE, Interval

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.store import Container, Store
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio


class Feed:
    """Short hands for reading everything."""

    def __init__(self, database: Database, wakeups: Wakeups, store: Store) -> None:
        self.database = database
        self.wakeups = wakeups
        self.store = store

    def orders(self, **options: Any) -> Container[dict[str, Any]]:
        options.setdefault("ranges", 4)
        return self.store.container("orders", "/city", **options)

    async def reader(self, **options: Any) -> Reader:
        return await Reader.open(self.database, self.wakeups, "orders", **options)

    async def all(self, *, max_items: int = 7, **options: Any) -> list[Change[Any]]:
        reader = await self.reader(**options)
        return [c async for page in reader.follow(max_items) for c in page.changes]


@pytest.fixture
def feed(database: Database, wakeups: Wakeups, store: Store) -> Feed:
    return Feed(database, wakeups, store)


def item(n: int, **more: Any) -> dict[str, Any]:
    return {"id": str(n), "city": f"city {n % 9}", **more}


async def test_latest_version_shows_each_item_once_with_its_current_body(feed: Feed) -> None:  # F2
    orders = feed.orders()
    for round_ in range(3):
        await asyncio.gather(*(orders.upsert(item(n, round=round_)) for n in range(40)))
    await asyncio.gather(*(orders.delete(str(n), f"city {n % 9}") for n in range(0, 40, 4)))
    changes = await feed.all()
    assert sorted(int(c.id) for c in changes) == [n for n in range(40) if n % 4]
    assert {c.item["round"] for c in changes} == {2}


async def test_all_versions_shows_every_change_once_in_order(feed: Feed) -> None:  # F3, F4
    orders = feed.orders(versions=timedelta(days=1), previous_images=True)
    rng = random.Random(7)
    written: list[tuple[str, str]] = []
    there: set[int] = set()
    for _ in range(120):
        n = rng.randrange(12)
        if n in there and rng.random() < 0.3:
            await orders.delete(str(n), f"city {n % 9}")
            written.append((str(n), "delete"))
            there.discard(n)
        else:
            await orders.upsert(item(n))
            written.append((str(n), "replace" if n in there else "create"))
            there.add(n)
    changes = await feed.all(mode="all_versions")
    assert len(changes) == len(written)
    assert len({c.change_id for c in changes}) == len(changes)
    for name in map(str, range(12)):
        assert [c.operation for c in changes if c.id == name] == [
            o for i, o in written if i == name
        ]
        previous = [c.previous for c in changes if c.id == name and c.operation != "create"]
        assert all(image is not None for image in previous)


async def test_a_rolled_back_write_is_never_seen(feed: Feed) -> None:  # F3, F6
    orders = feed.orders(versions=timedelta(days=1))
    await orders.create(item(1))
    with pytest.raises(ZeroDivisionError):
        async with feed.database.transaction() as tx:
            await put(tx, item(2))
            raise ZeroDivisionError
    assert [c.id for c in await feed.all()] == ["1"]
    assert [c.id for c in await feed.all(mode="all_versions")] == ["1"]


async def put(tx: Any, body: dict[str, Any], kind: str = "upsert") -> None:
    text = msgspec.json.encode(body).decode()
    await tx.execute("select relevo.put_item('orders', $1::jsonb, $2)", text, kind)


async def test_a_committed_write_is_readable_at_once(feed: Feed) -> None:  # F6, E5
    orders = feed.orders()
    await orders.create(item(0))
    reader = await feed.reader(start="now")
    assert (await reader.page()).caught_up
    for n in range(1, 6):
        await orders.create(item(n))
        page = await reader.page()
        assert [c.id for c in page.changes] == [str(n)]


async def test_foreign_transactions_share_one_lsn_per_range_and_keep_their_order(
    feed: Feed,
) -> None:  # 4.3, F5
    await feed.orders(ranges=1).create(item(0))
    async with feed.database.transaction() as tx:
        for n in (5, 3, 9, 1):
            await put(tx, item(n))
        await put(tx, item(3, again=True))
        await put(tx, item(5), "delete")
    changes = [c for c in await feed.all(max_items=1) if c.id != "0"]
    assert [c.id for c in changes] == ["9", "1", "3"]
    assert len({c.lsn for c in changes}) == 1


async def test_an_idle_foreign_transaction_holds_up_nobody(feed: Feed) -> None:  # 4.3, F1
    orders = feed.orders(ranges=1)
    await orders.create(item(0))
    async with feed.database.transaction() as tx:
        await put(tx, item(1))
        await orders.create(item(2))  # another key of the same range: does not wait
        assert [c.id for c in await feed.all()] == ["0", "2"]
        seen = (await feed.all())[-1].lsn
    late = [c for c in await feed.all() if c.id == "1"]
    assert late[0].lsn > seen


async def test_a_group_is_never_split_over_two_pages(feed: Feed) -> None:  # F5
    orders = feed.orders(ranges=1)
    for batch in range(6):
        await orders.batch("x", [Create({"id": f"{batch}-{n}", "city": "x"}) for n in range(5)])
    reader = await feed.reader()
    async for page in reader.follow(3):
        groups = [c.lsn for c in page.changes]
        assert all(groups.count(lsn) == 5 for lsn in groups)


async def test_a_batch_larger_than_the_byte_limit_comes_alone(feed: Feed) -> None:  # 4.6
    from relevo.feed.reading import log as reading

    orders = feed.orders(ranges=1)
    await orders.batch(
        "x", [Upsert({"id": str(n), "city": "x", "pad": "p" * 500}) for n in range(8)]
    )
    await orders.upsert({"id": "small", "city": "x"})
    source = await reading.look(feed.database, "orders")
    range_id = source.ranges.open[0].id
    first = await reading.read(
        feed.database, source, "latest", range_id, WHOLE, 0, max_items=100, max_bytes=1000
    )
    assert len(first.changes) == 8
    assert first.more


async def test_nothing_arrives_late_under_concurrent_writers(feed: Feed) -> None:  # F1
    """Own writers, foreign transactions and rollbacks race; readers note every LSN they see."""
    orders = feed.orders(ranges=2, versions=timedelta(days=1))
    await orders.create(item(0))
    done = asyncio.Event()
    committed: set[str] = {"0"}

    async def own(worker: int) -> None:
        for n in range(60):
            await orders.upsert({"id": f"own-{worker}-{n}", "city": f"c{n % 5}"})
            committed.add(f"own-{worker}-{n}")

    async def foreign(worker: int) -> None:
        rng = random.Random(worker)
        for n in range(30):
            names = [f"foreign-{worker}-{n}-{i}" for i in range(rng.randrange(1, 4))]
            try:
                async with feed.database.transaction() as tx:
                    for name in names:
                        await put(tx, {"id": name, "city": f"c{rng.randrange(5)}"})
                    if rng.random() < 0.3:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            committed.update(names)

    async def read(seen: list[Change[Any]], mode: Any) -> None:
        reader = await feed.reader(mode=mode)
        newest: dict[int, int] = {}
        while True:
            finished = done.is_set()
            page = await reader.page(5)
            for change in page.changes:
                assert change.lsn >= newest.get(change.origin, 0)
                newest[change.origin] = change.lsn
            seen.extend(page.changes)
            if finished and page.caught_up:
                return

    seen: dict[str, list[Change[Any]]] = {"latest": [], "all_versions": []}
    readers = [asyncio.create_task(read(found, mode)) for mode, found in seen.items()]
    await asyncio.gather(*(own(w) for w in range(4)), *(foreign(w) for w in range(3)))
    done.set()
    await asyncio.gather(*readers)
    for found in seen.values():
        assert {c.id for c in found} == committed  # a late arrival would be missing here
        assert len(found) == len(committed)


async def test_a_split_under_load_loses_and_repeats_nothing(feed: Feed) -> None:  # F9
    orders = feed.orders(ranges=1, versions=timedelta(days=1))
    await orders.create(item(0))
    before = (await feed.reader(mode="all_versions")).continuation
    written = ["0"]

    async def write(worker: int) -> None:
        for n in range(50):
            await orders.create({"id": f"{worker}-{n}", "city": f"c{n}-{worker}"})
            written.append(f"{worker}-{n}")

    async def split() -> None:
        for _ in range(2):
            for one in list((await orders.ranges()).open):
                await orders.split(one.id)

    await asyncio.gather(*(write(w) for w in range(4)), split())
    assert len((await orders.ranges()).open) == 4
    for mode, continuation in (("all_versions", before), ("latest", None)):
        changes = await feed.all(mode=mode, continuation=continuation)
        assert sorted(c.id for c in changes) == sorted(written)
        for city in {c.key for c in changes}:
            lsns = [c.lsn for c in changes if c.key == city]
            assert lsns == sorted(lsns)  # F4


async def test_reading_by_token_equals_reading_in_one_go(feed: Feed) -> None:  # E3
    orders = feed.orders()
    await orders.bulk([item(n) for n in range(50)])
    whole = [c.change_id for c in await feed.all(max_items=4)]
    token, pieces = None, []
    while True:
        reader = await feed.reader(continuation=token)
        page = await reader.page(4)
        pieces += [c.change_id for c in page.changes]
        token = page.continuation
        if page.caught_up:
            break
    assert pieces == whole


async def test_a_reader_that_waits_ends_some_time_after_the_last_change(feed: Feed) -> None:
    orders = feed.orders()
    await orders.upsert(item(1))
    seen: list[str] = []
    async for page in (await feed.reader()).follow(wait=0.5):
        seen += [change.id for change in page.changes]
        if page.caught_up and seen == ["1"]:
            await orders.upsert(item(2))
    assert seen == ["1", "2"]


async def test_the_parts_of_a_feed_are_the_feed(feed: Feed) -> None:  # E4
    orders = feed.orders()
    await orders.bulk([item(n) for n in range(60)])
    whole = {c.change_id for c in await feed.all()}
    parts: list[str] = []
    for interval in WHOLE.split(7):
        parts += [c.change_id for c in await feed.all(interval=interval)]
    assert sorted(parts) == sorted(whole)


async def test_a_token_can_be_cut_and_goes_on_where_it_was(feed: Feed) -> None:  # 16.3
    orders = feed.orders()
    await orders.bulk([item(n) for n in range(40)])
    reader = await feed.reader()
    first = await reader.page(5)
    token = tokens.decode(
        first.continuation, incarnation=first.changes[0].incarnation, mode="latest"
    )
    found = [c.change_id for c in first.changes]
    for part in tokens.split(token, 5):
        found += [c.change_id for c in await feed.all(continuation=tokens.encode(part))]
    assert sorted(found) == sorted(c.change_id for c in await feed.all())


async def test_start_now_and_at_an_instant(feed: Feed, clock: Clock) -> None:  # 12.1
    orders = feed.orders()
    await orders.bulk([item(n) for n in range(10)])
    await clock.advance(60)
    instant = await clock.now()
    await clock.advance(1)
    await orders.bulk([item(n) for n in range(100, 110)])
    assert sorted(int(c.id) for c in await feed.all(start=instant)) == list(range(100, 110))
    assert await feed.all(start="now") == []
    assert len(await feed.all(start=datetime.min.replace(tzinfo=UTC))) == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": datetime(2026, 1, 1)}, "time zone"),
        ({"start": 7}, "start is"),
        ({"start": datetime(2999, 1, 1, tzinfo=UTC)}, "future"),
        ({"mode": "some"}, "mode is"),
        ({"mode": "all_versions"}, "keeps no versions"),
        ({"continuation": "garbage"}, "token"),
    ],
)
async def test_bad_input_is_refused_by_name(
    feed: Feed, options: dict[str, Any], message: str
) -> None:
    await feed.orders().create(item(1))
    with pytest.raises(InvalidValue, match=message):
        await feed.reader(**options)


async def test_foreign_and_tampered_tokens_are_refused(feed: Feed) -> None:  # 16.3
    orders = feed.orders(versions=timedelta(days=1))
    await orders.create(item(1))
    token = (await feed.reader()).continuation
    for spoilt in (token[:-2] + ("AA" if token[-2:] != "AA" else "BB"), token[5:], ""):
        with pytest.raises(BadContinuation):
            await feed.reader(continuation=spoilt)
    with pytest.raises(BadContinuation, match="mode"):
        await feed.reader(continuation=token, mode="all_versions")
    await orders.drop()
    await orders.create(item(1))
    with pytest.raises(BadContinuation, match="earlier one"):
        await feed.reader(continuation=token)


async def test_a_position_ahead_of_the_store_is_refused(feed: Feed) -> None:  # 4.9
    await feed.orders().create(item(1))
    reader = await feed.reader()
    token = tokens.decode(
        reader.continuation, incarnation=(await feed.all())[0].incarnation, mode="latest"
    )
    ahead = msgspec.structs.replace(
        token, places=tuple(msgspec.structs.replace(p, lsn=10**9) for p in token.places)
    )
    with pytest.raises(FeedRegressed, match="backup"):
        await feed.reader(continuation=tokens.encode(ahead))


async def test_a_position_that_was_trimmed_is_refused(feed: Feed) -> None:  # F7
    orders = feed.orders(ranges=1, versions=timedelta(days=1))
    await orders.bulk([item(n) for n in range(10)])
    token = (await feed.reader(mode="all_versions")).continuation
    await feed.database.write("update relevo.feed_range set trimmed_lsn = 5")
    with pytest.raises(FeedExpired) as caught:
        await feed.reader(mode="all_versions", continuation=token)
    assert caught.value.oldest == 5


async def test_one_partition_key_can_be_read_alone(feed: Feed) -> None:  # 16.5
    from relevo.store.keys import epk

    orders = feed.orders()
    await orders.bulk([item(n) for n in range(40)])
    point = epk(("city 3",))
    changes = await feed.all(interval=Interval(point, point + "0"))
    assert {c.partition_key for c in changes} == {("city 3",)}
    assert len(changes) == len([n for n in range(40) if n % 9 == 3])


async def test_a_delete_in_a_batch_leaves_the_latest_feed(feed: Feed) -> None:  # F2
    orders = feed.orders()
    await orders.create({"id": "a", "city": "x"})
    await orders.batch("x", [Upsert({"id": "b", "city": "x"}), Delete("a")])
    assert [c.id for c in await feed.all()] == ["b"]


async def test_a_reader_that_trimming_overtakes_is_told(feed: Feed) -> None:  # F7
    orders = feed.orders(ranges=1, versions=timedelta(days=1))
    await orders.bulk([item(n) for n in range(10)])
    reader = await feed.reader(mode="all_versions")
    await reader.page(2)
    await feed.database.write("update relevo.feed_range set trimmed_lsn = 6")
    await feed.database.write("delete from relevo.item_version where lsn <= 6")
    with pytest.raises(FeedExpired):
        await reader.page(2)
