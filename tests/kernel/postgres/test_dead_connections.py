"""On a dead connection, a caller's error, time-out and cancellation come out as they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.kernel.postgres.database import Database, Transaction
    from relevo.testing.proxy import Proxy

    Kill = Callable[[Transaction], Awaitable[None]]

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["terminated", "cut"])
def kill(request: pytest.FixtureRequest, proxy: Proxy, database: Database) -> Kill:
    """Ends the connection of a transaction, and returns when the driver knows."""

    async def terminated(tx: Transaction) -> None:
        pid = await tx.fetchval("select pg_backend_pid()")
        await database.fetch("select pg_terminate_backend($1, 5000)", pid)

    async def cut(_: Transaction) -> None:
        proxy.reset()

    async def ended(tx: Transaction) -> None:
        await (terminated if request.param == "terminated" else cut)(tx)
        async with asyncio.timeout(30):
            while tx._con is not None:  # type: ignore[attr-defined]  # the pool's stand-in
                await asyncio.sleep(0.001)

    return ended


def block(database: Database, way: str, work: Callable[[Transaction], Awaitable[None]]) -> object:
    """Run a body in a transaction, in each way there is."""

    async def as_block() -> None:
        async with database.transaction() as tx:
            await work(tx)

    async def within() -> None:
        async with database.transaction() as tx, tx.transaction():
            await work(tx)

    return {"run": lambda: database.run(work), "block": as_block, "savepoint": within}[way]()


WAYS = pytest.mark.parametrize("way", ["run", "block", "savepoint"])


@WAYS
async def test_the_error_of_a_body_comes_out(proxied: Database, kill: Kill, way: str) -> None:
    async def work(tx: Transaction) -> None:
        await kill(tx)
        raise Conflict("taken")

    with pytest.raises(Conflict, match="taken"):
        await block(proxied, way, work)  # type: ignore[misc]
    assert await proxied.fetchval("select 1") == 1


@WAYS
async def test_a_time_out_comes_out(proxied: Database, kill: Kill, way: str) -> None:
    dead = asyncio.Event()

    async def work(tx: Transaction) -> None:
        await kill(tx)
        dead.set()
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as timeout:
            asyncio.get_running_loop().create_task(_expire(timeout, dead))
            await block(proxied, way, work)  # type: ignore[misc]
    assert timeout.expired()


async def _expire(timeout: asyncio.Timeout, dead: asyncio.Event) -> None:
    await dead.wait()
    timeout.reschedule(asyncio.get_running_loop().time())


@WAYS
async def test_a_cancellation_comes_out(proxied: Database, kill: Kill, way: str) -> None:
    dead = asyncio.Event()

    async def work(tx: Transaction) -> None:
        await kill(tx)
        dead.set()
        await asyncio.Event().wait()

    async def call() -> None:
        await block(proxied, way, work)  # type: ignore[misc]

    task = asyncio.ensure_future(call())
    await dead.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_time_out_of_the_body_itself_comes_out(proxied: Database, kill: Kill) -> None:
    async def work(tx: Transaction) -> None:
        await kill(tx)
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await proxied.run(work)


async def test_a_body_that_is_cancelled_in_a_statement_comes_out(
    proxy: Proxy, proxied: Database
) -> None:
    """Cut off in the middle: the statement is under way, and so is its rollback."""
    sent = asyncio.Event()

    async def work(tx: Transaction) -> None:
        await tx.fetchval("select 1")
        proxy.on_bytes("upstream", b"select pg_sleep", sent.set)
        await tx.fetchval("select pg_sleep(60)")

    task = asyncio.ensure_future(proxied.run(work))
    await sent.wait()
    proxy.reset()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert await proxied.fetchval("select 1") == 1


async def test_a_savepoint_that_could_not_be_undone_is_not_committed(
    proxy: Proxy, proxied: Database, database: Database
) -> None:
    """Whoever catches the error of a block must not commit what the block did."""
    await database.write("create table note (id text)")
    with pytest.raises(Exception, match="connection"):
        async with proxied.transaction() as tx:
            try:
                async with tx.transaction():
                    await tx.execute("insert into note values ('undone')")
                    proxy.on_bytes("upstream", b"ROLLBACK TO", proxy.reset)
                    raise Conflict("undo it")
            except Conflict:
                pass
    assert await database.fetchval("select count(*) from note") == 0
