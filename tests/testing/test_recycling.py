"""A database that a test has used is given to another only if that cannot tell."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from relevo import App
from relevo.testing import recycling
from relevo.testing.recycling import Recycler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio


class Yard:
    """A recycler, and the databases that it is given."""

    def __init__(
        self, databases: TestDatabases, recycler: Recycler, admin: asyncpg.Connection
    ) -> None:
        self._databases = databases
        self._recycler = recycler
        self._admin = admin

    async def recycle(self, url: str) -> str | None:
        fresh = await self._recycler.recycle(self._admin, urlsplit(url).path[1:], url)
        return None if fresh is None else self._databases.url_of(fresh)


@pytest.fixture
def new_url(relevo_databases: TestDatabases) -> str:
    """A clone that no test has used."""
    return relevo_databases.url_of(
        relevo_databases._do(relevo_databases._create(relevo_databases._template))
    )


@pytest.fixture
async def yard(relevo_databases: TestDatabases, new_url: str) -> AsyncIterator[Yard]:
    admin = await asyncpg.connect(relevo_databases.url_of("postgres"))
    yield Yard(relevo_databases, await Recycler.of(new_url, "relevo"), admin)
    await admin.close()
    relevo_databases.drop(new_url)


async def content(url: str) -> dict[str, Any]:
    """Everything in the tables and sequences of a database."""
    connection = await asyncpg.connect(url)
    held: dict[str, Any] = {}
    try:
        for (table,) in await connection.fetch(
            "select relname::text from pg_class where relnamespace = 'relevo'::regnamespace"
            " and relkind = 'r'"
        ):
            copied = io.BytesIO()
            await connection.copy_from_table(table, schema_name="relevo", output=copied)
            held[table] = sorted(copied.getvalue().splitlines())
        for (sequence,) in await connection.fetch(
            "select c.oid::regclass::text from pg_class c where relkind = 'S'"
        ):
            held[sequence] = await connection.fetchrow(
                f"select last_value, is_called from {sequence}"
            )
    finally:
        await connection.close()
    return held


async def use(url: str) -> None:
    """Let every part store something."""
    async with App(url) as app:
        orders = app.container("orders", "/city")

        @app.job("receipt")
        async def receipt(customer: str) -> None: ...

        async with app.host():
            await orders.upsert({"id": "1", "city": "Vigo"})
            await app.queue("mail").send("hello")
            await (await receipt.submit(customer="ana")).wait(30)
        await app.database.write("update relevo.clock set shift = '1 day'")
        await app.database.write("delete from relevo.job_lane where name = 'bulk'")


async def test_a_used_database_is_as_good_as_new(yard: Yard, new_url: str) -> None:
    before = await content(new_url)
    url = new_url
    for _ in range(2):  # what was recycled once is found to be used again
        await use(url)
        changed = await content(url)
        assert {"item", "message", "job_lane", "clock"} <= {
            name for name, rows in changed.items() if rows != before.get(name)
        }
        recycled = await yard.recycle(url)
        assert recycled is not None
        assert await content(recycled) == before
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await asyncpg.connect(url)
        url = recycled
    await use(url)


async def test_clients_that_are_still_connected_are_cut_off(yard: Yard, new_url: str) -> None:
    stays = await asyncpg.connect(new_url)
    assert await yard.recycle(new_url) is not None
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await stays.fetch("select 1")
    stays.terminate()


@pytest.mark.parametrize(
    "statement",
    [
        "create table note (n int)",
        "create table note (n int); drop table note",
        "create function f() returns int return 1",
        "alter table relevo.job set (fillfactor = 50)",
        "create index on relevo.job (created_at)",
        "alter role relevo in database {database} set work_mem = '1MB'",
        "grant connect on database {database} to public",
        "insert into relevo.job_handler (name, lane) values ('a', 'default');"
        " analyze relevo.job_handler",
        "truncate relevo.clock",
        "insert into relevo.setting (key, value)"
        " select n::text, '{{}}' from generate_series(1, 3000) n",
    ],
)
async def test_what_cannot_be_undone_by_emptying_is_not_recycled(
    yard: Yard, new_url: str, statement: str
) -> None:
    connection = await asyncpg.connect(new_url)
    await connection.execute(statement.format(database=urlsplit(new_url).path[1:]))
    await connection.close()
    assert await yard.recycle(new_url) is None


async def test_a_database_is_given_up_after_so_many_uses(
    yard: Yard, new_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recycling, "USES_MAX", 2)
    again = await yard.recycle(new_url)
    assert again is not None
    last = await yard.recycle(again)
    assert last is not None
    assert await yard.recycle(last) is None
