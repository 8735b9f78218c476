"""Roles as administrators set them up: Relevo's sessions set what they rely on themselves."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import asyncpg
import pytest

from relevo import settings
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.migration import migrate
from tests.kernel.postgres.errand import run_errands
from tests.kernel.postgres.servers import debian_server, pgbouncer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from relevo.testing.databases import TestDatabases

    Role = Callable[[Mapping[str, str]], Awaitable[str]]

pytestmark = pytest.mark.anyio

ROLES: Final = {
    "backslashes": {"standard_conforming_strings": "off"},
    "short times": {
        "statement_timeout": "'2s'",
        "lock_timeout": "'1s'",
        "idle_in_transaction_session_timeout": "'1s'",
    },
    "serializable": {"default_transaction_isolation": "serializable"},
    "repeatable read": {"default_transaction_isolation": "'repeatable read'"},
    "odd formats": {
        "timezone": "'Asia/Kathmandu'",
        "datestyle": "'SQL, DMY'",
        "intervalstyle": "sql_standard",
        "bytea_output": "escape",
    },
    "empty path": {"search_path": "''"},
    "catalogue last": {"search_path": "place, public, pg_catalog"},
    "custom plans": {"plan_cache_mode": "force_custom_plan", "jit": "on", "jit_above_cost": "0"},
}


@pytest.fixture
async def role(relevo_databases: TestDatabases) -> AsyncIterator[Role]:
    """Gives the role settings for one empty database."""
    url = relevo_databases.create(migrated=False)
    admin = await asyncpg.connect(url)

    async def make(options: Mapping[str, str]) -> str:
        database = await admin.fetchval("select current_database()")
        await admin.execute("create schema place")
        for option, value in options.items():
            await admin.execute(
                f'alter role relevo in database "{database}" set {option} = {value}'
            )
        return url

    yield make
    await admin.close()
    relevo_databases.drop(url)


@contextmanager
def way(url: str, through: str) -> Iterator[str]:
    """The database itself, or through a pooler in transaction mode."""
    if through == "direct":
        yield url
    else:
        with pgbouncer(url) as bounced:
            yield bounced


@pytest.mark.parametrize("through", ["direct", "pooler"])
@pytest.mark.parametrize("options", list(ROLES.values()), ids=list(ROLES))
async def test_everything_works_for_a_role_with(
    role: Role, options: Mapping[str, str], through: str
) -> None:
    with way(await role(options), through) as url:
        told = settings.load({"database_url": url}, environ={})
        async with await Database.open(told) as database:
            assert database.endpoint.pooled == (through == "pooler")
            assert await migrate.up(database)
        await run_errands(url, table="place.receipt")


@pytest.mark.parametrize("through", ["direct", "pooler"])
async def test_sessions_set_what_they_rely_on(role: Role, through: str) -> None:
    strange = {"standard_conforming_strings": "off", "jit": "on", "search_path": "place"} | {
        "default_transaction_isolation": "serializable"
    }
    with way(await role(strange), through) as url:
        told = settings.load({"database_url": url}, environ={})
        async with await Database.open(told) as database:
            ask = (
                "/* relevo test */ select current_setting('standard_conforming_strings'),"
                " current_setting('jit'), current_setting('search_path'),"
                " current_setting('transaction_isolation')"
            )
            for _ in range(3):  # also on a connection that users had in between
                row = await database.fetchrow(ask)
                assert row is not None
                assert tuple(row) == ("on", "off", "pg_catalog, pg_temp", "read committed")
                async with database.transaction() as tx:
                    assert await tx.fetchval("show search_path") == "place"
                    local = "local " if through == "pooler" else ""  # there it would stay
                    await tx.execute(f"set {local}search_path = nowhere")


async def test_a_role_that_may_only_create_a_schema_can_install_and_work() -> None:
    access = "local all all trust\nhost all all 127.0.0.1/32 trust\n"
    with debian_server(access, {}, {}) as port:
        admin = await asyncpg.connect(f"postgresql://relevo@127.0.0.1:{port}/relevo")
        await admin.execute("create role modest login")
        await admin.execute("grant create on database relevo to modest")
        await admin.execute("create schema place authorization modest")
        await admin.close()
        await run_errands(f"postgresql://modest@127.0.0.1:{port}/relevo", table="place.receipt")
