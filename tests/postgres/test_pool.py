"""Connections: shared, given back clean, waited for, and closed in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo import settings
from relevo.errors import Closed
from relevo.postgres.database import Database
from tests.postgres.conftest import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.postgres.database import Transaction

pytestmark = pytest.mark.anyio


@pytest.fixture
def small(relevo_url: str) -> Callable[[], Any]:
    """Opens a pool of one connection."""
    # Without TLS, since a cancelled attempt at it leaves an error behind that nobody asks for.
    url = f"{relevo_url}{'&' if '?' in relevo_url else '?'}sslmode=disable"
    told = settings.load({"database_url": url, "pool_size": 1}, environ={})
    return lambda: Database.open(told)


async def test_what_a_body_sets_in_its_session_is_gone_for_the_next(
    small: Callable[[], Any],
) -> None:
    async with await small() as database:
        async with database.transaction() as tx:
            pid = await tx.fetchval("select pg_backend_pid()")
            await tx.execute("set statement_timeout = '12345ms'")
            await tx.execute("select pg_advisory_lock(4711)")
        assert await database.fetchval("select pg_backend_pid()") == pid
        assert await database.fetchval("show statement_timeout") == "0"
        held = "select count(*) from pg_locks where pid = pg_backend_pid() and objid = 4711"
        assert await database.fetchval(held) == 0


async def test_a_transaction_that_was_kept_cannot_be_used_after_its_end(
    small: Callable[[], Any],
) -> None:
    async with await small() as database:
        async with database.transaction() as tx:
            pass
        assert await database.fetchval("select 1") == 1
        with pytest.raises(asyncpg.InterfaceError, match="released"):
            await tx.execute("select 1")


async def test_cancelled_calls_change_nothing_and_give_their_connection_back(
    small: Callable[[], Any], ledger: Ledger
) -> None:
    async def work(tx: Transaction) -> None:
        await tx.execute(Ledger.PUT, "a")
        await tx.execute("select pg_sleep(60)")

    async with await small() as database:
        for seconds in (0.0, 0.001, 0.002, 0.005, 0.01, 0.02):
            call = asyncio.ensure_future(database.run(work))
            await asyncio.sleep(seconds)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert await database.fetchval("select 1") == 1
    assert await ledger.notes() == []


async def test_who_finds_every_connection_taken_waits_for_one(small: Callable[[], Any]) -> None:
    async with await small() as database:
        async with database.transaction() as tx:
            waiting = asyncio.ensure_future(database.fetchval("select 2"))
            assert await tx.fetchval("select 1") == 1
            assert not waiting.done()
        assert await waiting == 2


async def test_close_lets_calls_finish_and_refuses_new_ones(
    ledger: Ledger, relevo_url: str
) -> None:
    database = await Database.open(settings.load({"database_url": relevo_url}, environ={}))
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def work(tx: Transaction) -> str:
        await tx.execute(Ledger.PUT, "a")
        entered.set()
        await go_on.wait()
        return "done"

    under_way = asyncio.ensure_future(database.run(work))
    await entered.wait()
    closing = asyncio.ensure_future(database.close())
    await asyncio.sleep(0)
    with pytest.raises(Closed):
        await database.fetch("select 1")
    go_on.set()
    assert await under_way == "done"
    await closing
    await database.close()  # again is fine
    assert await ledger.notes() == ["a"]
