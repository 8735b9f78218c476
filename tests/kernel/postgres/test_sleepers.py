"""A client that falls asleep within a statement: frozen or cut off between Parse and Bind."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.kernel.postgres import locks
from relevo.kernel.postgres.pool.connections import Sleepers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres import Database
    from relevo.kernel.postgres.database import Transaction

pytestmark = pytest.mark.anyio
AFTER = 0.3


@asynccontextmanager
async def asleep(
    url: str, *statements: str, application: str = "relevo"
) -> AsyncIterator[asyncpg.Connection]:
    """A session that did these statements and waits for the rest of the next one."""
    connection = await asyncpg.connect(url, server_settings={"application_name": application})
    try:
        await connection.transaction().start()
        await connection.execute("select relevo.stay_awake()")
        for sql in statements:
            await connection.execute(sql)
        await connection.prepare("select 1")  # Parse, and no Sync: for the server it is active
        yield connection
    finally:
        connection.terminate()


def lock(lock_class: int) -> str:
    return f"select pg_advisory_xact_lock({lock_class}, 7)"


@pytest.fixture
def quick(database: Database) -> Database:
    database.sleepers = Sleepers(database.endpoint, after=AFTER)
    return database


async def still_there(database: Database, pid: Any) -> bool:
    return bool(await database.fetch("select from pg_stat_activity where pid = $1", pid))


async def test_a_call_that_waits_for_a_sleeper_goes_on(quick: Database, relevo_url: str) -> None:
    async with asleep(relevo_url, lock(locks.UNIT)) as sleeper:
        await quick.fetch("select pg_advisory_xact_lock($1, 7)", locks.UNIT)
        assert not await still_there(quick, sleeper.get_server_pid())


async def test_a_row_lock_of_a_sleeper_holds_up_nobody(quick: Database, relevo_url: str) -> None:
    touch = "update relevo.clock set mark = mark"
    async with asleep(relevo_url, touch):
        await quick.write(touch, idempotent=True)


async def test_a_transaction_that_waits_is_not_repeated(quick: Database, relevo_url: str) -> None:
    async with asleep(relevo_url, lock(locks.STAMP)):
        calls = []

        async def work(tx: Transaction) -> None:
            calls.append(await tx.fetchval("select pg_backend_pid()"))
            await tx.execute("select pg_advisory_xact_lock($1, 7)", locks.STAMP)

        await quick.run(work)
        assert len(calls) == 1


async def test_a_transaction_of_the_caller_that_waits_goes_on(
    quick: Database, relevo_url: str
) -> None:
    async with asleep(relevo_url, lock(locks.LEASE)), quick.transaction() as tx:
        await tx.execute(lock(locks.LEASE))


async def test_who_sleeps_without_a_lock_of_ours_is_left_alone(
    database: Database, relevo_url: str
) -> None:
    sleepers = Sleepers(database.endpoint, after=0.0)
    foreign = "select pg_advisory_xact_lock(7)"
    async with (
        asleep(relevo_url) as idle,
        asleep(relevo_url, lock(locks.MIGRATE)) as migrator,
        asleep(relevo_url, foreign, application="x") as other,
    ):
        assert await sleepers.end() == []
        for one in (idle, migrator, other):
            assert await still_there(database, one.get_server_pid())


async def test_who_waits_for_a_lock_is_not_asleep(database: Database, relevo_url: str) -> None:
    sleepers = Sleepers(database.endpoint, after=0.0)
    async with asleep(relevo_url, lock(locks.UNIT)) as sleeper, asyncio.TaskGroup() as group:
        waiting = group.create_task(database.fetch(lock(locks.UNIT)))
        blocked = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
        while not await database.fetch(blocked):
            pass
        assert await sleepers.end() == [sleeper.get_server_pid()]
        await waiting


async def test_a_look_that_fails_harms_nobody(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    async def refuse(**_: object) -> None:
        looked.set()
        raise OSError("no way to the database")

    async def work(tx: Transaction) -> int:
        monkeypatch.setattr(database.endpoint, "connect", refuse)
        await looked.wait()
        found: int = await tx.fetchval("select 1")
        return found

    database.sleepers = Sleepers(database.endpoint, after=0.01)
    assert await database.run(work) == 1
