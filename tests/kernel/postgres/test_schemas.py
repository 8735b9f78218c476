"""Several Relevos in one database: they have equal names for everything, and never meet."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import psycopg
import pytest
import sqlalchemy

from relevo import App, Message, settings
from relevo.kernel.postgres import locks
from relevo.kernel.postgres.pool.connections import Sleepers
from relevo.testing.clock import Clock
from tests.e2e.conftest import Result, invoke
from tests.kernel.postgres.dumps import load, program
from tests.kernel.postgres.errand import Account, define_account, run_errands
from tests.kernel.postgres.servers import pgbouncer
from tests.kernel.postgres.test_sleepers import AFTER, asleep, lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio

HERE: Final = "relevo"
THERE: Final = "order"
"""A word of SQL, so that a name without its quotes is noticed."""
EACH: Final = 40
LOCKED: Final = range(locks.MIGRATE, locks.MIGRATE + 0x40)
"""Every class of locks that is in use, and some more."""


def app_at(url: str, schema: str, **options: Any) -> App:
    told = {"database_url": url, "schema": schema, "pool_size": 5, **options}
    return App(settings=settings.load(told, environ={}))


class Kitchen:
    """One Relevo with a job, a lane and a container whose names every other has too."""

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self.app = app_at(url, schema)
        self.ran: list[str] = []
        self.cooked: list[str] = []
        self.orders = self.app.container("orders", partition_key="/city")

        @self.app.job("receipt", token=lambda maker, n: str(n % 3))
        async def receipt(ctx: Any, maker: str, n: int) -> None:
            self.ran.append(maker)

        @self.orders.on_changes("kitchen", start="beginning")
        async def cook(changes: Sequence[Any]) -> None:
            self.cooked += [change.item["maker"] for change in changes]

        self.receipt = receipt
        define_account(self.app)

    async def work(self) -> None:
        """Submit and write under load, until everything came back."""
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for n in range(EACH):
                group.create_task(self._one(n))
        async with asyncio.timeout(60):
            while len(self.cooked) < EACH:
                await asyncio.sleep(0.05)

    def counted(self, figure: str, label: str) -> float:
        """What a counter of this Relevo's host says of a handler or a unit."""
        return sum(
            sample.value
            for family in self.app.metrics.registry.collect()
            for sample in family.samples
            if sample.name == figure and any(label in one for one in sample.labels.values())
        )

    async def _one(self, n: int) -> None:
        item = {"id": str(n), "city": f"c{n % 5}", "maker": self.schema}
        await self.orders.create(item)  # which fails if the other's item of that name is seen
        job = await self.receipt.submit(maker=self.schema, n=n)
        await job.wait(timeout=100)
        await self.app.actor(Account, "shared").charge(1)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_two_under_load_share_no_row_wake_up_host_or_figure(relevo_url: str) -> None:
    kitchens = [Kitchen(relevo_url, name) for name in (HERE, THERE)]
    async with AsyncExitStack() as stack:
        for kitchen in kitchens:
            await stack.enter_async_context(kitchen.app.host())
        await asyncio.gather(*(kitchen.work() for kitchen in kitchens))
        for kitchen in kitchens:
            assert set(kitchen.ran) == set(kitchen.cooked) == {kitchen.schema}
            assert len(kitchen.ran) == len(kitchen.cooked) == EACH
            assert await kitchen.app.actor(Account, "shared").charge(0) == EACH
            hosts = await kitchen.app.directory.hosts()
            assert [host.name for host in hosts] == [kitchen.app.leases.name]
    for kitchen in kitchens:
        assert kitchen.counted("relevo_handler_runs_total", "receipt") == EACH
        assert kitchen.counted("relevo_feed_changes_total", "kitchen") == EACH
    async with connected(relevo_url) as connection:
        for schema in (HERE, THERE):
            makers = f"select distinct body ->> 'maker' from \"{schema}\".item"
            assert await connection.fetchval(makers) == schema
            ended = f"select count(*) from \"{schema}\".job_history where handler = 'receipt'"
            assert await connection.fetchval(ended) == EACH


async def test_the_schema_is_named_in_code_in_the_environment_or_in_a_file(
    relevo_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "relevo.toml"
    file.write_text('schema = "shop"')
    assert settings.load({}, environ={}).schema == HERE
    assert settings.load({}, environ={"RELEVO_SCHEMA": "shop"}).schema == "shop"
    assert settings.load({}, environ={}, file=file).schema == "shop"
    for schema, application in {HERE: "relevo", THERE: "relevo:order"}.items():
        async with App(relevo_url, schema=schema) as app:
            assert await app.database.fetchval("show application_name") == application
            assert await app.database.fetchval("select to_regclass($1)", f'"{schema}".job')


async def test_one_works_while_every_lock_of_the_other_is_held(relevo_url: str) -> None:
    await run_errands(relevo_url)  # which makes units, leases, ranges and gates
    async with app_at(relevo_url, THERE):
        pass
    async with connected(relevo_url) as connection, connection.transaction():
        tables = await connection.fetch(
            "select format('%I.%I', schemaname, tablename) as name from pg_tables"
            " where schemaname = $1", HERE,
        )  # fmt: skip
        names = ", ".join(row["name"] for row in tables)
        await connection.execute(f"lock table {names} in access exclusive mode")
        await connection.execute(
            "select pg_advisory_xact_lock(class, number) from unnest($1::int[]) as class"
            " cross join generate_series(0, 50) as number", list(LOCKED),
        )  # fmt: skip
        await connection.execute("select pg_advisory_xact_lock($1, 2147480000 + n)"
                                 " from generate_series(0, 31) as n", locks.STAMP)  # fmt: skip
        await run_errands(relevo_url, schema=THERE, table="theirs")


async def test_wake_ups_are_heard_in_their_schema_alone(relevo_url: str) -> None:
    heard: dict[str, list[object]] = {HERE: [], THERE: []}
    async with connected(relevo_url) as connection, app_at(relevo_url, THERE) as app:
        for channel in heard:
            await connection.add_listener(
                channel, lambda _, pid, name, payload: heard[name].append(payload)
            )
        await run_errands(relevo_url, schema=THERE)
        put = """select "order".put_item('orders', '{"id": "q", "city": "Vigo"}', notify => true)"""
        await app.database.write(put)
        await Clock(app.database).advance(1)
        await connection.execute("select 1")
    assert heard[HERE] == []
    assert any("feed:" in str(one) for one in heard[THERE])
    assert any("clock" in str(one) for one in heard[THERE])


async def test_time_is_moved_in_one_schema_alone(relevo_url: str) -> None:
    async with app_at(relevo_url, HERE) as here, app_at(relevo_url, THERE) as there:
        before = await here.now()
        assert (await Clock(there.database).advance(3600) - before).total_seconds() > 3599
        assert (await here.now() - before).total_seconds() < 1800


async def test_one_is_dropped_and_the_other_goes_on(relevo_url: str) -> None:
    kitchen = Kitchen(relevo_url, THERE)
    await run_errands(relevo_url)
    async with kitchen.app.host(), connected(relevo_url) as connection:
        working = asyncio.create_task(kitchen.work())
        await connection.execute("drop schema relevo cascade")
        await working
    assert len(kitchen.ran) == EACH
    await run_errands(relevo_url, schema=THERE)


async def test_both_take_part_in_one_transaction(relevo_url: str) -> None:
    """Also in one of the other Relevo, and in one that none of them began."""
    async with app_at(relevo_url, HERE) as here, app_at(relevo_url, THERE) as there:
        apps = {HERE: here, THERE: there}
        for app in apps.values():
            await app.container("orders", partition_key="/city").upsert({"id": "0", "city": "x"})
            await app.queue("mail").send_many([Message(b"letter")] * 3)
        received = {schema: await app.queue("mail").receive(3) for schema, app in apps.items()}
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(connected(relevo_url))
            given = [
                await stack.enter_async_context(here.database.transaction()),
                await stack.enter_async_context(there.database.transaction()),
            ]
            await stack.enter_async_context(connection.transaction())
            for number, tx in enumerate([*given, connection]):
                for schema, app in apps.items():
                    item = {"id": f"{schema}{number}", "city": "Vigo"}
                    await app.container("orders").upsert(item, tx=tx)
                    await app.jobs.submit("receipt", {"in": schema}, lane="default", tx=tx)
                    await received[schema][number].complete(tx=tx)
        for schema, app in apps.items():
            rows = await app.database.fetch(f'select id from "{schema}".item order by id')
            assert [row["id"] for row in rows] == ["0", *(f"{schema}{n}" for n in range(3))]
            datas = await app.database.fetch(f'select distinct data from "{schema}".job')
            assert [row["data"] for row in datas] == [f'{{"in":"{schema}"}}']
            assert await app.database.fetchval(f'select count(*) from "{schema}".message') == 0


async def test_jobs_of_other_drivers_go_to_the_schema_of_their_app(relevo_url: str) -> None:
    async with app_at(relevo_url, THERE) as app:
        with psycopg.connect(relevo_url) as connection:
            await app.jobs.submit("receipt", {"n": 1}, tx=connection)
        engine = sqlalchemy.create_engine(relevo_url.replace("postgresql", "postgresql+psycopg", 1))
        with engine.begin() as begun:
            await app.jobs.submit_many("receipt", [{"n": 2}, {"n": 3}], tx=begun)
        engine.dispose()
        datas = await app.database.fetch('select data from "order".job order by sequence')
        assert [row["data"] for row in datas] == ['{"n":1}', '{"n":2}', '{"n":3}']


async def test_commands_work_on_the_schema_that_they_are_told(relevo_url: str) -> None:
    async def told(*command: str) -> Result:
        result = await asyncio.to_thread(invoke, *command, "--database", relevo_url)
        assert result.code == 0, result
        return result

    await told("migrate", "up", "--schema", THERE)
    app = app_at(relevo_url, THERE, migrate=False)
    async with app.host():
        assert app.leases.name in (await told("host", "list", "--schema", THERE)).out
        assert app.leases.name not in (await told("host", "list")).out


async def test_a_dump_is_restored_elsewhere_and_under_another_name(
    relevo_url: str, relevo_databases: TestDatabases
) -> None:
    await run_errands(relevo_url)
    copy = relevo_databases.create(migrated=False)
    text = await program("pg_dump", "--schema", HERE, "--no-owner", relevo_url)
    await load(text, copy)
    await run_errands(copy)
    async with connected(copy) as connection:
        await connection.execute(f'alter schema {HERE} rename to "{THERE}"')
        items = await connection.fetchval('select count(*) from "order".item')
    await run_errands(copy, schema=THERE)
    async with connected(copy) as connection:
        assert await connection.fetchval('select count(*) from "order".item') == items + 1
        assert await connection.fetchval("select to_regnamespace('relevo')") is None
    relevo_databases.drop(copy)


async def test_through_a_pooler_it_is_the_same(relevo_url: str) -> None:
    with pgbouncer(relevo_url) as url:
        await run_errands(url, schema=THERE)
    async with connected(relevo_url) as connection:
        assert await connection.fetchval('select count(*) from "order".item') == 1
        assert await connection.fetchval("select count(*) from relevo.item") == 0


async def test_a_session_asleep_is_ended_by_its_own_relevo_alone(relevo_url: str) -> None:
    async with app_at(relevo_url, HERE) as here, app_at(relevo_url, THERE) as there:
        quick = [Sleepers(app.database.endpoint, after=AFTER) for app in (here, there)]
        taken = lock(locks.of(locks.UNIT, THERE))
        async with asleep(relevo_url, taken, application="relevo:order") as sleeper:
            async with asyncio.timeout(60):
                while not (ended := await quick[1].end()):  # it must have slept for a while
                    assert await quick[0].end() == []
            assert ended == [sleeper.get_server_pid()]
