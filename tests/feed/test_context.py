"""What a handler is told about its call, and what it may ask for."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.errors import Conflict, InvalidValue, LeaseLost
from relevo.feed.processing import host as processors
from relevo.feed.reading.pull import Reader
from relevo.store import Upsert
from tests.feed.diner import Diner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.feed.model import Change
    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def diner(
    relevo_url: str, database: Database, store: Store, wakeups: Wakeups
) -> AsyncIterator[Diner]:
    async with AsyncExitStack() as stack:
        diner = Diner(relevo_url, store, database, stack)
        diner.orders = store.container(
            "orders", "/city", ranges=4, versions=timedelta(days=1), previous_images=True
        )
        await diner.orders.describe()
        yield diner


async def write_a_group(diner: Diner, *numbers: int) -> None:
    await diner.orders.batch("x", [Upsert({"id": str(n), "city": "x"}) for n in numbers])


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_call_that_is_asked_for_later_comes_again_and_is_no_failure(
    diner: Diner, in_thread: bool
) -> None:  # 10.1
    attempts: list[tuple[int, list[str]]] = []

    def take(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        attempts.append((ctx.attempt, [change.id for change in changes]))
        if len(attempts) <= 6:
            ctx.retry_later(0.001)
        diner.delivered += attempts[-1][1]

    async def take_on_the_loop(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        take(ctx, changes)

    await write_a_group(diner, 1, 2)
    await diner.open(
        handler=take if in_thread else take_on_the_loop, dead_letter=True, max_attempts=2
    )
    await diner.until_delivered(1, 2)
    assert attempts == [(1, ["1", "2"])] * 7
    assert diner.heard("error") == []
    assert await diner.letters.list() == []
    assert await diner.database.fetchval("select sum(attempts) from relevo.feed_lease") == 0


async def test_what_comes_later_never_grows_and_keeps_what_was_confirmed(
    diner: Diner,
) -> None:  # 8.6, 9.3
    calls: list[list[str]] = []

    async def halting(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        calls.append([change.id for change in changes])
        if len(calls) == 1:
            await diner.write_one_by_one(3)
            await ctx.confirm(changes[0])
            ctx.retry_later(0.001)
        await diner.cook(changes)

    await diner.write_one_by_one(1, 2)
    await diner.open(handler=halting)
    await diner.until_delivered(2, 3)
    assert calls[:2] == [["1", "2"], ["2"]]


async def test_later_is_not_in_the_past(diner: Diner) -> None:
    refused: list[Exception] = []

    async def wrong(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        try:
            ctx.retry_later(-1)
        except InvalidValue as error:
            refused.append(error)
        await diner.cook(changes)

    await diner.write_one_by_one(1)
    await diner.open(handler=wrong)
    await diner.until_delivered(1)
    assert len(refused) == 1


async def test_a_stop_does_not_wait_for_what_comes_later(diner: Diner) -> None:  # 7.4
    asked = asyncio.Event()

    async def much_later(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        asked.set()
        ctx.retry_later(3_600)

    await diner.write_one_by_one(1)
    processor = await diner.open(handler=much_later)
    await asked.wait()
    assert await processors.stop(processor) == []
    await diner.open("b", handler=diner.cook)
    await diner.until_delivered(1)


async def test_headers_lead_to_what_lies_behind_the_call(
    diner: Diner, wakeups: Wakeups
) -> None:  # 17
    headers: list[Any] = []
    told: list[Any] = []

    async def note(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        headers.append((dict(ctx.headers), changes[-1].lsn, len(changes)))
        told.append(ctx.diagnostics)
        await diner.cook(changes)

    await diner.write_one_by_one(1, 2, 3)
    await diner.open(handler=note, max_items=2)
    await diner.until_delivered(1, 2, 3)
    first, lsn, count = headers[0]
    assert (first["lsn"], first["item_count"], first["request_charge"]) == (lsn, count, 0)
    reader = await Reader.open(
        diner.database, wakeups, "orders", continuation=first["continuation"]
    )
    assert [change.id for change in (await reader.page(10)).changes] == ["3"]
    assert (told[0].rows, told[0].attempts, len(told[0].range_ids)) == (2, 1, 1)
    assert told[0].read_seconds > 0
    assert told[0].wait_seconds >= 0


async def test_raw_changes_are_the_items_as_bytes(diner: Diner) -> None:  # 17
    seen: list[bytes] = []
    await diner.write_one_by_one(1)
    await diner.open(handler=seen.extend, raw=True)
    await diner.until(lambda: bool(seen), "delivered")
    assert isinstance(seen[0], bytes)
    assert msgspec.json.decode(seen[0]) == {"id": "1", "city": "x"}


async def test_raw_versions_are_the_documents_of_the_reference(diner: Diner) -> None:  # 2.3, 17
    seen: list[bytes] = []
    await diner.write_one_by_one(1)
    await diner.orders.delete("1", "x")
    await diner.open(handler=seen.extend, raw=True, mode="all_versions")
    await diner.until(lambda: len(seen) == 2, "delivered")
    made, gone = map(msgspec.json.decode, seen)
    assert (made["current"]["id"], made["metadata"]["operationType"]) == ("1", "create")
    assert gone["current"] is None
    assert gone["previous"]["id"] == "1"
    assert gone["metadata"]["operationType"] == "delete"
    assert (gone["metadata"]["id"], gone["metadata"]["partitionKey"]) == ("1", ["x"])


async def test_a_group_that_is_atomic_is_given_up_as_a_whole(diner: Diner) -> None:  # 10.3, P9
    diner.bad = {"12"}
    await write_a_group(diner, 1, 2, 3)
    await write_a_group(diner, 11, 12, 13)
    await write_a_group(diner, 21, 22)
    await diner.open(dead_letter=True, max_attempts=2, atomic_groups=True)
    await diner.until_delivered(1, 2, 3, 21, 22)
    await diner.until(lambda: len(diner.heard("dead_lettered")) == 3, "given up")
    assert [one.item_id for one in await diner.letters.list()] == ["11", "12", "13"]
    assert sorted(diner.delivered, key=int) == ["1", "2", "3", "21", "22"]
    assert all(len({"11", "12", "13"} & set(call)) in (0, 3) for call in diner.calls)


async def test_a_part_of_a_group_that_was_done_stays_done(
    diner: Diner,
) -> None:  # 10.3: a group is halved, and the next owner repeats none of it
    diner.bad = {"7"}
    await write_a_group(diner, *range(8))
    await diner.open(dead_letter=True, max_attempts=2)
    await diner.until_delivered(*range(7))
    await diner.until(lambda: bool(diner.heard("dead_lettered")), "given up")
    assert sorted(diner.delivered) == [str(n) for n in range(7)]
    assert await diner.database.fetchval("select count(*) from relevo.feed_done") == 0


async def test_a_confirmation_that_comes_too_late_is_refused(diner: Diner) -> None:  # P6, 9.4
    contexts: list[ChangeContext] = []

    async def fail_first(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        contexts.append(ctx)
        if len(contexts) == 1:
            raise ValueError("no")
        if len(contexts) == 2:
            ctx.retry_later(3_600)

    await diner.write_one_by_one(1)
    processor = await diner.open(handler=fail_first, checkpoint="manual")
    await diner.until(lambda: len(contexts) == 2, "it comes again")
    with pytest.raises(Conflict, match="come again"):
        await contexts[0].confirm()
    await processors.stop(processor)
    with pytest.raises(LeaseLost):
        await contexts[1].confirm()
