"""Through PgBouncer in transaction mode: no statement cache, no LISTEN, and everything works."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo import App, settings
from relevo.kernel.postgres import clock
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.postgres.migration import migrate
from relevo.kernel.postgres.migration.migrations import known, parse
from relevo.kernel.postgres.wakeups import Wakeups
from tests.kernel.postgres.conftest import Ledger, retries
from tests.kernel.postgres.servers import pgbouncer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from relevo.kernel.postgres.database import Transaction
    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio


@pytest.fixture
def bouncer_url(relevo_url: str) -> Iterator[str]:
    with pgbouncer(relevo_url) as url:
        yield url


@pytest.fixture
async def bounced(bouncer_url: str) -> AsyncIterator[Database]:
    told = settings.load({"database_url": bouncer_url}, environ={})
    async with await Database.open(told) as database:
        yield database


async def test_it_is_found_out(bounced: Database, database: Database) -> None:
    assert bounced.endpoint.pooled
    assert not database.endpoint.pooled


async def test_it_can_be_switched_on_for_a_plain_server(relevo_url: str) -> None:
    chosen = settings.load({"database_url": relevo_url, "pgbouncer": "on"}, environ={})
    async with await Database.open(chosen) as database:
        assert database.endpoint.pooled
        assert await database.fetchval("select $1::int", 7) == 7


async def test_many_calls_share_few_server_connections(bounced: Database, ledger: Ledger) -> None:
    async def transfer(number: int) -> int:
        async def work(tx: Transaction) -> int:
            await tx.execute(Ledger.PUT, f"run {number}")
            value: int = await tx.fetchval("select $1::int", number)
            return value

        await bounced.write(Ledger.PUT, f"write {number}")
        assert await bounced.fetchval("select $1::int + 1", number) == number + 1
        return await bounced.run(work)

    assert await asyncio.gather(*map(transfer, range(60))) == list(range(60))
    assert len(await ledger.notes()) == 120
    servers = "select count(*) from pg_stat_activity where datname = current_database()"
    assert await bounced.fetchval(servers) <= 3 + 10  # PgBouncer's and those of `database`


async def test_a_group_writes_in_one_statement(bounced: Database, ledger: Ledger) -> None:
    async def statement(notes: Sequence[str]) -> list[None]:
        await bounced.write("insert into note (id) select unnest($1::text[])", list(notes))
        return [None] * len(notes)

    group: Group[str, None] = Group("notes", statement)
    await asyncio.gather(*(group.call(str(number)) for number in range(200)))
    assert (group.calls, group.statements) == (200, 1)
    assert len(await ledger.notes()) == 200


async def test_a_server_connection_that_ends_is_replaced(bounced: Database, ledger: Ledger) -> None:
    pids: list[int] = []

    async def work(tx: Transaction) -> None:
        pids.append(await tx.fetchval("select pg_backend_pid()"))
        if len(pids) == 1:
            await ledger.database.fetch("select pg_terminate_backend($1, 5000)", pids[0])
        await tx.execute(Ledger.PUT, "a")

    await bounced.run(work)
    assert len(set(pids)) == 2
    assert retries(bounced) >= 1
    assert await ledger.notes() == ["a"]


async def test_the_schema_is_made_through_it(relevo_databases: TestDatabases) -> None:
    url = relevo_databases.create(migrated=False)
    steps = parse(
        "9000_indexes.sql",
        """-- description: an index
-- locks: none
-- kind: steps
-- step: index
-- undo: drop index concurrently if exists relevo.host_started
create index concurrently host_started on relevo.host (started_at);
""",
    )
    with pgbouncer(url) as through:
        told = settings.load({"database_url": through}, environ={})
        async with await Database.open(told) as database:
            done = await migrate.up(database, [*known(), steps])
            assert done[-1] == "9000_indexes"
            assert await migrate.check(database, [*known(), steps]) == []
            assert await clock.raise_mark(database) == 0.0
    relevo_databases.drop(url)


async def test_nobody_listens_and_waits_end_by_their_time(
    bounced: Database, database: Database
) -> None:
    wakeups = Wakeups(bounced)
    listening = asyncio.ensure_future(wakeups.listen())
    with wakeups.signal("unit:7") as signal:
        assert await signal.wait(0.05) is False
        wakeups.send("unit:7")  # within the process it works, and others hear of it
        assert await signal.wait(30) is True
    await wakeups.close()
    assert wakeups.sent == 1
    assert not wakeups.listening
    assert not listening.done()
    listening.cancel()
    listeners = await database.fetchval(
        "select count(*) from pg_stat_activity"
        " where query ~* '^listen' and datname = current_database()"
    )
    assert listeners == 0


async def test_a_host_serves_through_it(bouncer_url: str) -> None:
    async with (
        App(settings=settings.load({"database_url": bouncer_url}, environ={})) as app,
        app.host(name="bounced"),
    ):
        async with asyncio.timeout(30):
            while not app.leases.held:  # housekeeping
                await asyncio.sleep(0.01)
        assert (await app.health()).ok
