"""Connections: shared, given back clean, waited for, and closed in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo import settings
from relevo.errors import Closed
from relevo.kernel.postgres import database as databases
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.pool import connections
from tests.kernel.postgres.conftest import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.kernel.postgres.database import Transaction
    from relevo.testing.proxy import Proxy

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


@pytest.mark.parametrize("way", ["execute", "fetch", "prepare", "cursor", "nested", "run"])
async def test_however_it_is_set(small: Callable[[], Any], way: str) -> None:
    sets = "select set_config('statement_timeout', '12345ms', false)"

    async def work(tx: Transaction) -> None:
        match way:
            case "execute":
                await tx.execute(sets)
            case "prepare":
                await (await tx.prepare(sets)).fetch()
            case "cursor":
                await (await tx.cursor(sets)).fetchrow()
            case "nested":
                async with tx.transaction():
                    await tx.execute(sets)
            case _:
                await tx.fetch(sets)

    async with await small() as database:
        for _ in range(2):
            if way == "run":
                await database.run(work)
            else:
                async with database.transaction() as tx:
                    await work(tx)
            assert await database.fetchval("show statement_timeout") == "0"


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


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_transaction_may_be_cancelled_at_every_step_and_nobody_complains(
    small: Callable[[], Any], cancels: int
) -> None:
    """Also while it begins, and once more while it is rolled back."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))

    async def work(tx: Transaction) -> None:
        await tx.execute("select 1")
        await asyncio.Event().wait()

    async with await small() as database:
        for steps in range(1, 30):
            await database.fetchval("select 1")  # connected: what is cancelled is the transaction
            call = asyncio.ensure_future(database.run(work))
            for _ in range(steps):
                await asyncio.sleep(0)
            for _ in range(cancels):
                call.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await call
    assert complaints == []


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


async def test_calls_one_after_the_other_use_one_connection(
    proxy: Proxy, proxied: Database
) -> None:
    for _ in range(5):
        await proxied.fetchval("select 1")
        await proxied.write("select 1")
    assert proxy.connections == 1


async def test_a_connection_at_hand_serves_a_transaction_too(small: Callable[[], Any]) -> None:
    async with await small() as database:
        pid = await database.fetchval("select pg_backend_pid()")
        async with asyncio.timeout(30), database.transaction() as tx:
            assert await tx.fetchval("select pg_backend_pid()") == pid


async def test_many_callers_of_a_small_pool_all_have_their_turn(small: Callable[[], Any]) -> None:
    async with await small() as database, asyncio.timeout(60):
        calls = [database.fetchval("select $1::int", number) for number in range(100)]
        blocks = [database.run(lambda tx: tx.fetchval("select 7")) for _ in range(20)]
        assert await asyncio.gather(*calls, *blocks) == [*range(100), *[7] * 20]


async def test_a_connection_that_broke_at_hand_is_left_for_a_new_one(
    proxy: Proxy, proxied: Database
) -> None:
    await proxied.fetchval("select 1")
    proxy.reset()
    await proxy.until(lambda: proxy.connections == 0)
    assert await proxied.fetchval("select 1") == 1
    assert proxy.connections == 1


async def test_a_connection_is_left_to_the_pool_when_nobody_calls(
    small: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool closes what nobody needs; what is at hand for ever would go stale unseen."""
    monkeypatch.setattr(connections, "AT_HAND_SECONDS", 0.01)
    async with await small() as database:
        await database.fetchval("select 1")
        pool = database._connections._pool
        async with asyncio.timeout(30):
            while pool.get_idle_size() == 0:
                await asyncio.sleep(0.005)


async def test_close_does_not_wait_for_connections_at_hand(small: Callable[[], Any]) -> None:
    database = await small()
    await database.fetchval("select 1")
    async with asyncio.timeout(5):
        await database.close()


async def test_close_cuts_off_calls_that_take_too_long(
    small: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "CLOSE_SECONDS_MAX", 0.05)
    database = await small()
    entered = asyncio.Event()

    async def work(tx: Transaction) -> None:
        entered.set()
        await tx.execute("select pg_sleep(60)")

    call = asyncio.ensure_future(database.run(work))
    await entered.wait()
    async with asyncio.timeout(30):
        await database.close()
    with pytest.raises(Closed):
        await call
