"""A pool by use: nobody holds up the others, and waiting is told as waiting."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from relevo import limits, settings
from relevo.errors import ConnectionsBusy
from relevo.kernel import uses
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from relevo.kernel.uses import Kind

    Sized = Callable[[int], AbstractAsyncContextManager[Database]]

pytestmark = pytest.mark.anyio


@pytest.fixture
def sized(relevo_url: str) -> Sized:
    """Opens a pool of so many connections."""

    def opened(size: int) -> AbstractAsyncContextManager[Database]:
        stack = AsyncExitStack()

        class Opened:
            async def __aenter__(self) -> Database:
                told = settings.load({"database_url": relevo_url, "pool_size": size}, environ={})
                return await stack.enter_async_context(await Database.open(told))

            async def __aexit__(self, *_: object) -> None:
                await stack.aclose()

        return Opened()

    return opened


class Holders:
    """Tasks that hold as many connections of a use as it may have, and some that wait."""

    def __init__(self, database: Database, kind: Kind, count: int, key: str = "") -> None:
        self._database = database
        self._go_on = asyncio.Event()
        self._kind, self._key = kind, key
        self.holding = 0
        self.tasks = [asyncio.ensure_future(self._hold()) for _ in range(count)]

    async def _hold(self) -> None:
        with uses.used_for(self._kind, self._key):
            async with self._database.transaction() as tx:
                await tx.fetchval("select 1")
                self.holding += 1
                await self._go_on.wait()

    async def until_stuck(self, count: int) -> None:
        async with asyncio.timeout(30):
            while self.holding < count:
                await asyncio.sleep(0.001)

    async def end(self) -> None:
        self._go_on.set()
        await asyncio.gather(*self.tasks)


async def test_statements_and_transactions_of_some_work_are_counted(sized: Sized) -> None:
    async with sized(5) as database:
        with uses.counted() as outer:
            await database.fetchval("select 1")
        with uses.counted() as inner:
            await asyncio.create_task(database.fetchval("select 1"))
            async with database.transaction() as tx:
                await tx.fetchval("select 1")
                await tx.fetchval("select 1")
        await database.fetchval("select 1")
    assert (outer.number, inner.number) == (1, 2)


async def test_handlers_that_hold_all_they_may_leave_the_others_theirs(sized: Sized) -> None:
    async with sized(10) as database:
        holders = Holders(database, "handlers", 40)
        await holders.until_stuck(4)
        kinds: tuple[Kind, ...] = ("host", "groups", "program", "requests", "queries")
        async with asyncio.timeout(30):
            for kind in kinds:
                with uses.used_for(kind):
                    assert await database.fetchval("select 1") == 1
                    async with database.transaction() as tx:
                        assert await tx.fetchval("select 2") == 2
        assert holders.holding == 4
        await holders.end()
        assert holders.holding == 40


@pytest.mark.parametrize("size", [2, 3, 4, 10])
async def test_a_transaction_can_read_and_write_beside_itself(sized: Sized, size: int) -> None:
    async with sized(size) as database:
        await database.write("create table note (n integer)")

        async def statement(numbers: Sequence[int]) -> list[None]:
            await database.write("insert into note select unnest($1::integer[])", list(numbers))
            return [None] * len(numbers)

        group: Group[int, None] = Group("notes", statement)

        async def handle(n: int) -> None:
            with uses.used_for("handlers"):
                async with database.transaction() as tx:
                    await tx.execute("select 1")
                    await group.call(n)
                    await database.fetchval("select count(*) from note")
                    await asyncio.gather(*(database.fetchval("select 1") for _ in range(5)))
                    if size > 2:
                        async with database.transaction() as other:
                            await other.execute("insert into note values ($1)", n)
                            await database.fetchval("select 1")

        async with asyncio.timeout(60):
            await asyncio.gather(*map(handle, range(40)))
        assert await database.fetchval("select count(*) from note") == (80 if size > 2 else 40)


async def test_a_task_that_outlives_a_transaction_is_not_inside_it(sized: Sized) -> None:
    async with sized(4) as database:
        ended, go_on = asyncio.Event(), asyncio.Event()

        async def later() -> bool:
            await go_on.wait()
            return uses.is_holding(database)

        async with database.transaction():
            assert uses.is_holding(database)
            task = asyncio.ensure_future(later())
        assert not uses.is_holding(database)
        go_on.set()
        ended.set()
        assert not await task


async def test_waiting_is_told_as_waiting(sized: Sized, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POOL_WAIT_SECONDS_MAX", 0.05)
    monkeypatch.setattr(limits, "POOL_WAIT_HANDLERS_SECONDS_MAX", 0.05)
    async with sized(10) as database:
        holders = Holders(database, "handlers", 4)
        await holders.until_stuck(4)
        with (
            uses.used_for("handlers"),
            pytest.raises(ConnectionsBusy, match=r"waited 0\.05 s for one of the 4 .* handlers"),
        ):
            await database.fetchval("select 1")
        await holders.end()
        waits = database.metrics.registry.get_sample_value(
            "relevo_pool_wait_seconds_count", {"use": "handlers"}
        )
        assert waits == 1


async def test_a_pool_of_one_tells_that_a_second_connection_is_missing(
    sized: Sized, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POOL_WAIT_SECONDS_MAX", 0.05)
    async with sized(1) as database, database.transaction():
        with pytest.raises(ConnectionsBusy, match=r"holds one itself; raise pool_size \(1\)"):
            await database.fetchval("select 1")


async def test_a_key_leaves_connections_for_the_others(sized: Sized) -> None:
    async with sized(10) as database:
        holders = Holders(database, "requests", 20, key="greedy")
        await holders.until_stuck(2)
        async with asyncio.timeout(30):
            with uses.used_for("requests", "modest"):
                assert await database.fetchval("select 1") == 1
        await holders.end()


async def test_a_caller_that_is_cancelled_while_it_waits_takes_nothing(sized: Sized) -> None:
    async with sized(1) as database:
        for _ in range(20):
            holders = Holders(database, "program", 1)
            await holders.until_stuck(1)
            waiting = [asyncio.ensure_future(database.fetchval("select 1")) for _ in range(4)]
            await asyncio.sleep(0)
            end = asyncio.ensure_future(holders.end())
            for one in waiting[::2]:
                await asyncio.sleep(0)
                one.cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [one for one in results if not isinstance(one, BaseException)] == [1, 1]
            await end
        async with asyncio.timeout(30):
            assert await database.fetchval("select 1") == 1


async def test_closing_tells_those_who_wait(sized: Sized) -> None:
    async with sized(1) as database:
        holders = Holders(database, "program", 1)
        await holders.until_stuck(1)
        waiting = asyncio.ensure_future(database.fetchval("select 1"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(database.close())
        with pytest.raises(Exception, match="closed while the call waited"):
            await waiting
        await holders.end()
        await closing
