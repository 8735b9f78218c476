from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import asyncpg
import pytest

from relevo.errors import LeaseLost
from relevo.kernel.leases import Fence, fence, require
from relevo.kernel.leases.service import SQL

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.kernel.postgres import Database, Transaction
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio


class Store:
    """Hosts and leases written by the product's own statements, without running hosts."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def host(self, name: str, ttl: float = 60.0) -> UUID:
        incarnation = uuid.uuid4()
        await self.database.write(SQL.register_host, incarnation, name, ttl, None, "{}", "test")
        return incarnation

    async def lease(self, *, strict: bool = False) -> int:
        await self.database.write(SQL.insert_unit, "feed", "u", strict, 30.0, None, 30.0, "equal")
        unit = await self.database.fetchrow(SQL.find_unit, "feed", "u")
        assert unit is not None
        await self.database.write(SQL.insert_leases, unit["id"], ["a"])
        found: int = await self.database.fetchval("select id from relevo.lease where name = 'a'")
        return found

    async def take(self, lease: int, host: UUID) -> Fence | None:
        async def work(tx: Transaction) -> Fence | None:
            await tx.execute(SQL.lock_leases, [lease])
            row = await tx.fetchrow(SQL.take_leases, [lease], host)
            return Fence(row["id"], row["epoch"], "u", row["name"]) if row else None

        return await self.database.run(work)

    async def end(self, host: UUID) -> None:
        await self.database.write(SQL.end_host, host)

    async def stale(self, *fences: Fence) -> frozenset[Fence]:
        return await self.database.run(lambda tx: fence(tx, fences))


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


async def test_the_owners_fence_holds_and_every_other_is_stale(store: Store) -> None:  # L2
    host, lease = await store.host("a"), await store.lease()
    mine = await store.take(lease, host)
    assert mine is not None
    assert await store.stale(mine) == frozenset()
    older = Fence(mine.lease_id, mine.epoch - 1, "u", "a")
    younger = Fence(mine.lease_id, mine.epoch + 1, "u", "a")
    foreign = Fence(9999, 1, "u", "z")
    assert await store.stale(mine, older, younger, foreign) == {older, younger, foreign}


async def test_each_change_of_owner_raises_the_epoch(store: Store) -> None:  # L1, I2
    lease = await store.lease()
    epochs = []
    for name in ("a", "b", "c"):
        host = await store.host(name)
        taken = await store.take(lease, host)
        assert taken is not None
        epochs.append(taken.epoch)
        await store.end(host)
    assert epochs == sorted(set(epochs))


async def test_the_store_refuses_an_owner_without_a_higher_epoch(store: Store) -> None:  # L1
    host, lease = await store.host("a"), await store.lease()
    with pytest.raises(asyncpg.RaiseError):
        await store.database.write(
            "update relevo.lease set owner = $1, free_since = null where id = $2", host, lease
        )
    await store.take(lease, host)
    with pytest.raises(asyncpg.RaiseError):
        await store.database.write("update relevo.lease set epoch = epoch - 1 where id = $1", lease)


async def test_nobody_takes_from_a_live_host(store: Store) -> None:  # I3
    lease = await store.lease()
    assert await store.take(lease, await store.host("a")) is not None
    assert await store.take(lease, await store.host("b")) is None


async def test_a_lapse_alone_frees_nothing_until_it_is_written(
    store: Store, clock: Clock
) -> None:  # D3, I3
    lease, a, b = await store.lease(), await store.host("a", 5.0), await store.host("b", 600.0)
    await store.take(lease, a)
    await clock.advance(6, hosts_lapse=True)
    assert await store.take(lease, b) is None
    await store.database.write(SQL.end_lapsed_hosts)
    assert await store.take(lease, b) is not None


async def test_a_lapsed_host_writes_nothing_though_nobody_took_over(
    store: Store, clock: Clock
) -> None:  # I6
    lease, a = await store.lease(), await store.host("a", 5.0)
    mine = await store.take(lease, a)
    assert mine is not None
    await clock.advance(6, hosts_lapse=True)
    assert await store.stale(mine) == {mine}
    saved = await store.database.write(SQL.save_positions, a, [lease], [mine.epoch], ['{"n": 1}'])
    assert saved == []


async def test_a_renewal_that_waited_for_its_row_finds_the_host_ended(
    store: Store, clock: Clock
) -> None:  # I6: a renewal is judged by what was written, not by the time at which it began
    a = await store.host("a", 5.0)
    ender: asyncpg.Connection = await store.database.endpoint.connect()
    try:
        async with ender.transaction():
            await ender.execute(
                "update relevo.host set ended_at = relevo.now(), end_reason = 'lapsed'"
                " where incarnation = $1",
                a,
            )
            renewal = asyncio.create_task(store.database.write(SQL.heartbeat, a, 5.0))
            await _until_blocked(store.database)
        assert await renewal == []
    finally:
        await ender.close()


async def test_a_lease_of_a_superseded_host_waits_in_a_strict_unit(
    store: Store, clock: Clock
) -> None:  # I3
    lease, first = await store.lease(strict=True), await store.host("a", 30.0)
    await store.take(lease, first)
    second = await store.host("a", 600.0)
    assert await store.take(lease, second) is None
    await clock.advance(31, hosts_lapse=True)
    assert await store.take(lease, second) is not None


async def test_a_lease_of_a_superseded_host_is_free_at_once_elsewhere(store: Store) -> None:
    lease, first = await store.lease(), await store.host("a", 30.0)
    mine = await store.take(lease, first)
    assert mine is not None
    taken = await store.take(lease, await store.host("a"))
    assert taken is not None
    assert await store.stale(mine, taken) == {mine}


async def test_a_take_over_waits_for_fenced_transactions(store: Store) -> None:  # L2, I4
    lease, a, b = await store.lease(), await store.host("a"), await store.host("b")
    mine = await store.take(lease, a)
    assert mine is not None
    writer: asyncpg.Connection = await store.database.endpoint.connect()
    try:
        transaction = writer.transaction()
        await transaction.start()
        await require(writer, mine)
        await store.end(a)
        take = asyncio.create_task(store.take(lease, b))
        await _until_blocked(store.database)
        assert not take.done()  # the write that passed the fence is committed first
        await transaction.commit()
        taken = await take
        assert taken is not None
        assert taken.epoch > mine.epoch
    finally:
        await writer.close()


async def test_a_snapshot_older_than_the_fence_is_not_believed(store: Store) -> None:  # L2
    lease, a, b = await store.lease(), await store.host("a"), await store.host("b")
    mine = await store.take(lease, a)
    assert mine is not None
    writer: asyncpg.Connection = await store.database.endpoint.connect()
    try:
        with pytest.raises((asyncpg.SerializationError, LeaseLost)):
            async with writer.transaction(isolation="repeatable_read"):
                await writer.fetchval("select count(*) from relevo.lease")  # the snapshot is taken
                await store.end(a)
                assert await store.take(lease, b) is not None
                await require(writer, mine)
    finally:
        await writer.close()


async def test_a_client_that_sleeps_on_a_fence_is_ended(
    store: Store,
) -> None:  # B5: a frozen host must not hold up the take-over
    lease, a, b = await store.lease(), await store.host("a"), await store.host("b")
    mine = await store.take(lease, a)
    assert mine is not None
    sleeper: asyncpg.Connection = await store.database.endpoint.connect()
    try:
        await sleeper.execute("begin")
        await require(sleeper, mine)
        await store.end(a)
        taken = await store.take(lease, b)  # returns when the server has ended the sleeper
        assert taken is not None
        with pytest.raises(
            (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
        ):
            await sleeper.execute("commit")
    finally:
        sleeper.terminate()


@pytest.mark.parametrize("statement", ["stale_fences", "lock_leases"])
async def test_locks_are_taken_in_rising_order(store: Store, statement: str) -> None:
    ids = [*range(1_005, 1_000, -1), *range(1_000, 1_010), 1_000]  # unordered, and some twice
    calls = {
        "stale_fences": "select * from relevo.stale_fences($1::integer[], $1::bigint[])",
        "lock_leases": "select relevo.lock_leases($1::integer[])",
    }
    held = (
        "select array_agg(distinct objid::integer order by objid::integer) from pg_locks"
        " where locktype = 'advisory' and granted and objid > 0 and pid <> $1"
        " and database = (select oid from pg_database where datname = current_database())"
    )
    blocker: asyncpg.Connection = await store.database.endpoint.connect()
    try:
        for middle in (1_000, 1_004, 1_009):
            transaction = blocker.transaction()
            await transaction.start()
            await blocker.execute("select relevo.lock_leases($1)", [middle])
            waiter = asyncio.create_task(store.database.write(calls[statement], ids))
            await _until_blocked(store.database)
            mine = await blocker.fetchval(held, blocker.get_server_pid())
            assert (mine or []) == list(range(1_000, middle))
            await transaction.rollback()
            await waiter
    finally:
        await blocker.close()


async def _until_blocked(database: Database) -> None:
    """Return when some session of this database waits for a lock."""
    for _ in range(3000):
        waiting = await database.fetchval(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        )
        if waiting:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits for a lock")
