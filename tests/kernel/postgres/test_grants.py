"""The roles of `relevo grants`: what each can do, and what it cannot."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from uuid import uuid4

import asyncpg
import pytest
from msgspec import Struct

from relevo import App, settings
from relevo.cli.doctor.checks import Finding, Patient, rights
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.grants import KINDS
from relevo.kernel.postgres.migration import migrate
from relevo.kernel.postgres.migration.migrations import known, parse
from tests.e2e.conftest import invoke
from tests.kernel.postgres.errand import Account, define_account, run_errands
from tests.kernel.postgres.servers import debian_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio

SCHEMA: Final = "shop"
ACCESS: Final = "local all all trust\nhost all all 127.0.0.1/32 trust\n"
DENIED: Final = asyncpg.InsufficientPrivilegeError
READS: Final = [
    "select * from shop.job", "select * from shop.job_history", "select * from shop.job_parcel",
    "select * from shop.jobs", "select * from shop.item", "select * from shop.event",
    "select * from shop.access_key", "select * from shop.setting", "select * from shop.container",
    "select shop.now()", "select * from shop.jobs_by_id(array[]::uuid[])",
    "select * from shop.lock_items(1, '[]', array['1'])", "select last_value from shop.lsn",
]  # fmt: skip
WRITES: Final = [
    "delete from shop.job", "update shop.item set body = '{}'",
    "insert into shop.job_gate (key) values ('c')",
    "select nextval('shop.lsn')", "select shop.make_event_partition(now())",
    "select shop.drop_trimmed_events()", "select shop.trim_events()",
    "select * from shop.stamp_writes()",
]  # fmt: skip
CHANGES: Final = [
    "alter table shop.job add column more int", "drop table shop.job_gate",
    "create table shop.more (a int)", "truncate shop.item",
    "create function shop.more() returns int language sql return 1",
    "update shop.migration set checksum = ''", "delete from shop.function",
    "alter function shop.now() volatile", "drop schema shop cascade",
]  # fmt: skip
SUBMITS: Final = [
    "arrive_messages", "put_item", "send_actor_messages", "send_message", "submit_job",
    "submit_jobs_in", "submit_unique_jobs_in",
]  # fmt: skip
REPORTS: Final = [
    "report_audit", "report_dead_letter", "report_host", "report_job", "report_lease",
    "report_router_job", "report_router_offer", "report_webhook",
]  # fmt: skip


CALLABLE: Final = """
select distinct p.proname as name from pg_proc p join pg_language l on l.oid = p.prolang
where p.pronamespace = to_regnamespace($2) and l.lanname <> 'internal'  -- constructors of types
  and has_function_privilege($1, p.oid, 'execute')
"""
USABLE: Final = """
select c.relname as name from pg_class c
where c.relnamespace = to_regnamespace($2) and c.relkind in ('r', 'p', 'v', 'S')
  and case when c.relkind = 'S' then has_sequence_privilege($1, c.oid, 'usage, select, update')
      else has_table_privilege($1, c.oid, 'select, insert, update, delete, truncate')
        or has_any_column_privilege($1, c.oid, 'select, insert, update') end
"""


class Roles(Struct, frozen=True):
    """A database, its superuser's URL and that of each role."""

    admin: str
    names: dict[str, str]
    urls: dict[str, str]

    def settings(self, kind: str, **options: object) -> settings.Settings:
        return settings.load(
            {"database_url": self.urls[kind], "schema": SCHEMA, **options}, environ={}
        )


async def granted(roles: Roles, url: str) -> None:
    """Run `relevo grants --apply`, as in a shell."""
    options = [word for kind, name in roles.names.items() for word in (f"--{kind}", name)]
    command = ["grants", "--apply", "--database", url, "--schema", SCHEMA, *options]
    result = await asyncio.to_thread(invoke, *command)
    assert result.code == 0, result


async def set_up(roles: Roles) -> None:
    """Make the roles as a superuser, migrate as the owner, and grant the rest as the owner."""
    await granted(roles, roles.admin)
    async with await Database.open(roles.settings("owner")) as database:
        await migrate.up(database)
    await granted(roles, roles.urls["owner"])


@asynccontextmanager
async def on_embedded(databases: TestDatabases) -> AsyncIterator[Roles]:
    names = {kind: f"{kind}_{uuid4().hex[:8]}" for kind in KINDS}
    url = databases.create(migrated=False)
    mark = "&" if "?" in url else "?"
    urls = {kind: f"{url}{mark}options=-c%20role%3D{name}" for kind, name in names.items()}
    admin = await asyncpg.connect(url)
    try:
        yield Roles(url, names, urls)
    finally:
        await admin.execute(
            "drop schema if exists shop cascade; drop schema if exists place cascade"
        )
        for name in names.values():
            if await admin.fetchval("select true from pg_roles where rolname = $1", name):
                await admin.execute(f"drop owned by {name} cascade; drop role {name}")
        await admin.close()
        databases.drop(url)


@asynccontextmanager
async def on_debian() -> AsyncIterator[Roles]:
    names = {kind: f"Relevo {kind}" for kind in KINDS}
    with debian_server(ACCESS, {}, {}) as port:
        place = f"127.0.0.1:{port}/relevo"
        urls = {kind: f"postgresql://Relevo%20{kind}@{place}" for kind in KINDS}
        yield Roles(f"postgresql://relevo@{place}", names, urls)


@pytest.fixture(params=["embedded", "debian"])
async def bare(
    request: pytest.FixtureRequest, relevo_databases: TestDatabases
) -> AsyncIterator[Roles]:
    """A database without any of the roles."""
    made = on_embedded(relevo_databases) if request.param == "embedded" else on_debian()
    async with made as found:
        yield found


@pytest.fixture
async def roles(bare: Roles) -> Roles:
    await set_up(bare)
    return bare


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def refused(connection: asyncpg.Connection, statements: list[str]) -> None:
    for statement in statements:
        with pytest.raises(DENIED):
            await connection.execute(statement)


async def finding(roles: Roles, kind: str) -> Finding:
    told = roles.settings(kind)
    async with await Database.open(told) as database:
        return await rights(Patient(told, database))


async def test_each_role_does_its_work_and_nothing_else(roles: Roles) -> None:
    async with connected(roles.admin) as admin:
        await admin.execute(f'create schema place authorization "{roles.names["host"]}"')
    await run_errands(roles.urls["host"], schema=SCHEMA, table="place.receipt", migrate=False)
    async with connected(roles.urls["host"]) as host:
        await refused(host, CHANGES)
        assert await host.fetchval("select shop.make_event_partition(shop.now() + '3 days')")
        await host.execute("select shop.drop_trimmed_events()")
    async with connected(roles.urls["submitter"]) as submitter:
        await refused(submitter, READS + WRITES + CHANGES)
        await refused(submitter, [f"select * from shop.{view}" for view in REPORTS])
    async with connected(roles.urls["reader"]) as reader:
        await refused(reader, READS + WRITES + CHANGES)
        await refused(reader, ["select shop.submit_job('receipt')"])
        for view in REPORTS:
            await reader.fetch(f"select * from shop.{view}")
        assert await reader.fetchval("select count(*) from shop.report_job") >= 3


async def test_a_submitter_and_a_reader_may_touch_nothing_but_what_they_need(roles: Roles) -> None:
    """Every table, sequence and function of the schema, so also those that parts add later."""
    async with connected(roles.admin) as admin:
        for kind, own in (("submitter", SUBMITS), ("reader", [])):
            role = roles.names[kind]
            assert sorted(row["name"] for row in await admin.fetch(CALLABLE, role, SCHEMA)) == own
        for kind, own in (("submitter", []), ("reader", sorted(REPORTS))):
            rows = await admin.fetch(USABLE, roles.names[kind], SCHEMA)
            assert sorted(row["name"] for row in rows) == own
        rows = await admin.fetch(CALLABLE, roles.names["host"], SCHEMA)
        assert len(rows) > 100


async def test_a_submitter_submits_and_puts_in_its_own_transaction(roles: Roles) -> None:
    cooked: asyncio.Queue[str] = asyncio.Queue()
    app = App(settings=roles.settings("host", migrate=False))
    orders = app.container("orders", partition_key="/city", versions=None)

    @app.job("receipt")
    async def receipt(ctx: object, customer: str) -> str:
        return customer

    @orders.on_changes("kitchen", start="beginning")
    async def cook(changes: list[object]) -> None:
        for change in changes:
            cooked.put_nowait(change.item["id"])  # type: ignore[attr-defined]

    define_account(app)
    account = app.actor(Account, "1")
    put = """select shop.put_item('orders', '{"id": "1", "city": "Vigo"}')"""
    submit = """select shop.submit_job('receipt', '{"customer": "ana"}')"""
    send = "select shop.send_message('mail', 'first')"
    async with app.host(), connected(roles.urls["submitter"]) as connection:
        await app.queue("mail").ensure()
        await orders.upsert({"id": "0", "city": "Vigo"})
        rolled_back = connection.transaction()
        await rolled_back.start()
        await connection.execute(submit)
        await connection.execute(put)
        await connection.execute(send)
        await app.actors.send(account, tx=connection).charge(100)
        await rolled_back.rollback()
        async with connection.transaction():
            await connection.execute(put)
            await connection.execute(send)
            await app.queue("mail").send(b"second", tx=connection)
            await app.actors.send(account, tx=connection).charge(3)
            job = await connection.fetchval(submit)
            other = await app.jobs.submit("receipt", {"customer": "bea"}, tx=connection)
            named = await app.jobs.submit(
                "receipt", {"customer": "eva"}, tx=connection, lane="default"
            )
            daily = await app.jobs.submit(
                "report", tx=connection, lane="default", recurrence="FREQ=DAILY"
            )
        async with asyncio.timeout(60):
            assert await app.jobs.handle(job).wait() == "ana"
            assert await other.wait() == "bea"
            assert await named.wait() == "eva"
            assert (await app.jobs.get(daily.id)).lane == "default"
            assert [await cooked.get(), await cooked.get()] == ["0", "1"]
            mail = [one.body for _ in range(2) for one in await app.queue("mail").receive(wait=30)]
            assert mail == [b"first", b"second"]
            while (billed := await account.billed()) == 0:
                await asyncio.sleep(0.01)
            assert billed == 3
        assert await app.database.fetchval("select count(*) from shop.item") == 2


async def test_a_migration_renews_the_rights_of_the_roles(roles: Roles) -> None:
    async with connected(roles.admin) as admin:
        arguments = await admin.fetchval(
            "select string_agg(oid::regprocedure::text, ', ') from pg_proc"
            " where pronamespace = 'shop'::regnamespace and proname = 'submit_job'"
        )
    changed = f"""-- description: drops a function that is made again, and makes a view
-- locks: none
drop function {arguments};
create view relevo.report_more as select 1 as one;
create function relevo.more() returns integer language sql return 1;
"""
    async with await Database.open(roles.settings("owner")) as database:
        assert await migrate.up(database, [*known(), parse("0002_more.sql", changed)])
    async with connected(roles.urls["submitter"]) as submitter:
        assert await submitter.fetchval("select shop.submit_job('receipt')")
        await refused(submitter, ["select shop.more()", "select * from shop.report_more"])
    async with connected(roles.urls["reader"]) as reader:
        assert await reader.fetchval("select one from shop.report_more") == 1
        await refused(reader, ["select shop.more()", "select shop.submit_job('receipt')"])
    async with connected(roles.urls["host"]) as host:
        assert await host.fetchval("select shop.more()") == 1
        await refused(host, ["update shop.migration set checksum = ''"])


async def test_reports_show_jobs_that_wait_in_parcels(roles: Roles) -> None:
    async with App(settings=roles.settings("host", migrate=False)) as app:
        await app.jobs.submit_many("receipt", [{}] * 250)
        await app.jobs.submit("receipt")
    async with connected(roles.urls["reader"]) as reader:
        assert await reader.fetchval("select count(*) from shop.report_job where status = 0") == 251


async def test_the_doctor_says_which_role_it_is(roles: Roles) -> None:
    owner, host = await finding(roles, "owner"), await finding(roles, "host")
    assert (owner.state, host.state) == ("ok", "ok")
    assert "is an owner" in owner.detail
    assert f"is a host: it serves, and {roles.names['owner']} migrates" in host.detail
    for kind in ("submitter", "reader"):
        found = await finding(roles, kind)
        assert found.state == "fail"
        assert f"is a {kind}; a host also needs execute on shop.accept_messages" in found.detail
        assert "relevo grants --apply" in found.advice
    async with connected(roles.admin) as admin:
        await admin.execute(f'revoke delete on shop.item from "{roles.names["host"]}"')
    lacking = await finding(roles, "host")
    assert lacking.state == "fail"
    assert "a host also needs delete on shop.item" in lacking.detail


async def test_a_schema_of_somebody_else_is_not_taken(roles: Roles) -> None:
    command = ["grants", "--database", roles.admin, "--schema", SCHEMA, "--owner", "nobody"]
    result = await asyncio.to_thread(invoke, *command)
    assert result.code != 0
    assert f"belongs to {roles.names['owner']}, not to nobody" in result.err


async def test_a_role_that_may_make_roles_and_a_schema_is_enough(bare: Roles) -> None:
    """As administrators of managed offers are: no superusers."""
    manager = f"manager_{uuid4().hex[:8]}"
    url = bare.urls["owner"].replace(quote(bare.names["owner"]), manager)
    async with connected(bare.admin) as admin:
        name = await admin.fetchval("select current_database()")
        await admin.execute(f"create role {manager} login createrole")
        await admin.execute(f'grant create on database "{name}" to {manager}')
        try:
            await granted(bare, url)
            async with await Database.open(bare.settings("owner")) as database:
                await migrate.up(database)
            await granted(bare, bare.urls["owner"])
            assert (await finding(bare, "host")).state == "ok"
        finally:
            await admin.execute("drop schema if exists shop cascade")
            await admin.execute(f"drop owned by {manager} cascade")
            for role in bare.names.values():
                await admin.execute(f'drop owned by "{role}" cascade; drop role "{role}"')
            await admin.execute(f"drop role {manager}")


async def test_without_apply_it_only_prints(relevo_url: str) -> None:
    async with connected(relevo_url) as admin:
        before = await admin.fetchval("select count(*) from pg_roles")
        result = await asyncio.to_thread(invoke, "grants", "--database", relevo_url)
        assert await admin.fetchval("select count(*) from pg_roles") == before
    assert result.code == 0, result
    lines = result.out.splitlines()
    assert 'create role "relevo_host" login;' in lines
    assert all(line.endswith(";") for line in lines)
