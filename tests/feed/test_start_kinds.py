"""Where a unit or a reader begins: tokens, snapshots, positions; only when the unit is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import BadContinuation, Conflict, InvalidValue, NotFound, SettingsMismatch
from relevo.feed.model import FeedRange
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.reading.pull import Reader
from tests.feed.test_processor import Kitchen, kitchen
from tests.support.logs import capture_logs

if TYPE_CHECKING:
    from relevo.kernel.postgres import Wakeups

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio


def handle(kitchen: Kitchen, wakeups: Wakeups, name: str = "kitchen") -> UnitHandle:
    return UnitHandle(kitchen.database, wakeups, "orders", name, "leases")


async def reader(kitchen: Kitchen, wakeups: Wakeups, **where: Any) -> Reader:
    return await Reader.open(kitchen.database, wakeups, "orders", **where)


async def read(kitchen: Kitchen, wakeups: Wakeups, **where: Any) -> set[str]:
    found = await reader(kitchen, wakeups, **where)
    return {c.id async for page in found.follow() for c in page.changes}


async def test_a_unit_begins_where_a_pull_token_is_also_after_splits(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # F9, P1
    await kitchen.write(*range(20))
    token = (await reader(kitchen, wakeups, start="now")).continuation
    await kitchen.write(*range(20, 40))
    for one in list((await kitchen.orders.ranges()).open)[:2]:
        await kitchen.orders.split(one.id)
    await kitchen.write(*range(40, 60))
    await kitchen.serve(start=token, leases=12)
    await kitchen.until_delivered(*range(20, 60))
    assert len(kitchen.delivered) == 40


async def test_a_token_of_a_part_is_no_beginning_of_a_whole(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:
    whole = (await reader(kitchen, wakeups)).continuation
    half, other = FeedRange.of(whole).split(2)
    with pytest.raises(InvalidValue, match="does not cover"):
        await kitchen.serve(start=half)
    await kitchen.write(*range(10))
    await kitchen.serve("b", start=[half, other])  # both together are
    await kitchen.until_delivered(*range(10))


async def test_the_tokens_of_a_unit_are_read_on_by_hand_and_by_another_unit(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # E3
    await kitchen.serve(start="beginning")
    await kitchen.write(*range(20))
    await kitchen.until_delivered(*range(20))
    await kitchen.hosts["a"].aclose()
    await kitchen.write(*range(20, 50))
    tokens = await handle(kitchen, wakeups).tokens()
    found = [await read(kitchen, wakeups, continuation=one) for one in tokens.values()]
    assert set().union(*found) == {str(n) for n in range(20, 50)}
    assert sum(map(len, found)) == 30  # no overlap
    kitchen.delivered.clear()
    await kitchen.serve("b", name="second", start=list(tokens.values()))
    await kitchen.until_delivered(*range(20, 50))
    assert len(kitchen.delivered) == 30


async def test_a_token_is_cut_into_tokens_that_go_on_where_it_was(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # E3, E4
    await kitchen.write(*range(10))
    whole = await reader(kitchen, wakeups)
    first = await whole.page(3)
    left = await read(kitchen, wakeups, continuation=whole.continuation)
    parts = FeedRange.of(whole.continuation).split(11)
    assert len(parts) == 11
    found = [await read(kitchen, wakeups, continuation=one) for one in parts]
    assert set().union(*found) == left
    assert sum(map(len, found)) == len(left)
    assert left | {c.id for c in first.changes} == {str(n) for n in range(10)}
    with pytest.raises(BadContinuation):
        FeedRange.of("garbage").split(2)


async def test_a_unit_begins_where_the_snapshot_of_another_is(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:
    await kitchen.serve(start="beginning")
    await kitchen.write(*range(10))
    await kitchen.until_delivered(*range(10))
    await handle(kitchen, wakeups).pause()
    await handle(kitchen, wakeups).snapshot("friday")
    await kitchen.write(*range(10, 30))
    kitchen.delivered.clear()
    await kitchen.serve("b", name="second", start="friday")
    await kitchen.until_delivered(*range(10, 30))
    assert len(kitchen.delivered) == 20
    assert await read(kitchen, wakeups, start="friday") == {str(n) for n in range(10, 30)}
    await handle(kitchen, wakeups, "second").snapshot("friday")
    with pytest.raises(Conflict, match="second"):
        await kitchen.serve("c", name="third", start="friday")
    await kitchen.serve("d", name="third", start="kitchen/friday")
    with pytest.raises(NotFound, match="neither a snapshot"):
        await kitchen.serve("e", name="fourth", start="monday")


async def test_a_unit_begins_at_positions_by_range(kitchen: Kitchen, wakeups: Wakeups) -> None:
    await kitchen.write(*range(10))
    rows = await kitchen.database.fetch("select range_id, lsn, id from relevo.item")
    ranges = {one.id: 0 for one in (await kitchen.orders.ranges()).open}
    here = max(row["range_id"] for row in rows)
    skipped = {row["id"] for row in rows if row["range_id"] == here}
    positions = {**ranges, here: max(row["lsn"] for row in rows)}
    await kitchen.serve(start=positions)
    left = {str(n) for n in range(10)} - skipped
    await kitchen.until_delivered(*map(int, left))
    await kitchen.write(100)
    await kitchen.until_delivered(100)
    assert skipped
    assert set(kitchen.delivered) == left | {"100"}
    with pytest.raises(NotFound, match="no range"):
        await kitchen.serve("b", name="second", start={4711: 0})


async def test_start_counts_only_when_the_unit_is_made_and_a_difference_is_told(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # U2
    await kitchen.write(1)
    token = (await reader(kitchen, wakeups, start="now")).continuation
    await kitchen.serve(start=token)
    positions = [one.positions for one in (await handle(kitchen, wakeups).state()).leases]
    with capture_logs() as logs:
        await kitchen.serve("same", start=token)
        assert not [one for one in logs if one["event"] == "feed.start_ignored"]
        await kitchen.serve("other", start="beginning")
    assert [one["event"] for one in logs if one["event"] == "feed.start_ignored"]
    with capture_logs() as logs:
        await kitchen.serve("third", start="beginning", on_start_mismatch="ignore")
    assert not [one for one in logs if one["event"] == "feed.start_ignored"]
    with pytest.raises(SettingsMismatch, match="rewind"):
        await kitchen.serve("fourth", start="beginning", on_start_mismatch="error")
    state = await handle(kitchen, wakeups).state()
    assert [one.positions for one in state.leases] == positions
    await kitchen.write(2)
    await kitchen.until_delivered(2)
    assert kitchen.delivered == ["2"]


def test_feed_ranges_are_written_as_json_and_know_their_keys() -> None:  # 16.2
    one = FeedRange.of_key("tenant-1")
    assert FeedRange.parse(str(one)) == one
    assert one.contains("tenant-1")
    assert not one.contains("tenant-2")
    assert [half.contains("a") for half in FeedRange().split(2)] == [False, True]
    with pytest.raises(InvalidValue, match="feed range"):
        FeedRange.parse("[]")
