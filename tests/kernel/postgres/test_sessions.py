"""Whose statement it is decides the search path, in any order and through a pooler too."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import pytest

import relevo
from relevo import settings
from relevo.errors import Conflict
from relevo.kernel.postgres.database import Database
from tests.kernel.postgres.servers import pgbouncer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres.database import Transaction

pytestmark = pytest.mark.anyio

OWN: Final = "/* relevo test */ select current_setting('search_path')"
OWN_WITH: Final = "/* relevo test */ select current_setting('search_path') where $1"
PINNED: Final = "pg_catalog, pg_temp"


@pytest.fixture(params=["direct", "pooler"])
async def shop(request: pytest.FixtureRequest, relevo_url: str) -> AsyncIterator[Database]:
    """A database whose role finds its tables in the schema `shop`."""
    admin = await asyncpg.connect(relevo_url)
    name = await admin.fetchval("select current_database()")
    await admin.execute("create schema shop; create table shop.sale (n integer)")
    await admin.execute(f'alter role relevo in database "{name}" set search_path = shop')
    await admin.close()
    if request.param == "direct":
        told = settings.load({"database_url": relevo_url, "pool_size": 2}, environ={})
        async with await Database.open(told) as database:
            yield database
        return
    with pgbouncer(relevo_url) as url:
        told = settings.load({"database_url": url, "pool_size": 2}, environ={})
        async with await Database.open(told) as database:
            yield database


async def both(tx: Transaction | Database, expected: str = "shop") -> None:
    """A statement of either side."""
    assert await tx.fetchval("select current_setting('search_path')") == expected
    assert await tx.fetchval(OWN_WITH, True) == PINNED


async def test_single_statements_of_users_and_of_relevo_take_turns(shop: Database) -> None:
    for n in range(3):
        await shop.write("insert into sale values ($1)", n)
        await both(shop)
        await both(shop)
    assert await shop.fetchval("select count(*) from sale") == 3


@pytest.mark.parametrize("own", [False, True])
async def test_in_a_transaction_too(shop: Database, own: bool) -> None:
    async with shop.transaction(own=own) as tx:
        await both(tx)
        await tx.execute("insert into sale values (1)")
        assert await tx.fetchval(OWN) == PINNED
        await tx.executemany("insert into sale values ($1)", [(2,), (3,)])
    await both(shop)

    async def work(tx: Transaction) -> int:
        await both(tx)
        await both(tx)
        count: int = await tx.fetchval("select count(*) from sale")
        return count

    assert await shop.run(work) == 3
    await both(shop)


async def test_a_path_that_a_user_sets_comes_back_after_a_statement_of_relevo(
    shop: Database,
) -> None:
    async with shop.transaction() as tx:
        await tx.execute("set local search_path = shop, public")
        await both(tx, "shop, public")
        await both(tx, "shop, public")
        await tx.execute("select set_config('search_path', 'public', true)")
        await both(tx, "public")
    await both(shop)


@pytest.mark.parametrize("first", ["own", "theirs"])
async def test_a_savepoint_that_is_undone_brings_its_path_back(shop: Database, first: str) -> None:
    async def begin(tx: Transaction) -> None:
        if first == "own":
            await tx.fetchval(OWN)
        else:
            await tx.execute("insert into sale values (0)")

    async with shop.transaction() as tx:
        for last in ("own", "theirs"):
            await begin(tx)
            with pytest.raises(Conflict):
                async with tx.transaction():
                    await both(tx)
                    if last == "theirs":
                        await tx.execute("insert into sale values (1)")
                    raise Conflict("undo")
            await both(tx)
            await begin(tx)
            await tx.execute("savepoint by_hand")
            await tx.execute("insert into sale values (2)")
            if last == "own":
                await tx.fetchval(OWN)
            await tx.execute("rollback to savepoint by_hand")
            await tx.execute("insert into sale values (3)")
            await both(tx)


async def test_a_failed_statement_of_relevo_in_a_savepoint_can_be_undone(shop: Database) -> None:
    async with shop.transaction() as tx:
        await tx.execute("savepoint by_hand")
        with pytest.raises(asyncpg.DivisionByZeroError):
            await tx.fetchval("/* relevo test */ select 1 / 0")
        await tx.execute("rollback to savepoint by_hand")
        await both(tx)
        with pytest.raises(asyncpg.DivisionByZeroError):
            async with tx.transaction():
                await tx.fetchval("/* relevo test */ select 1 / 0")
        await both(tx)


async def test_cursors_prepared_statements_and_copies_find_the_users_tables(
    shop: Database,
) -> None:
    async with shop.transaction() as tx:
        await tx.fetchval(OWN)
        await tx.copy_records_to_table("sale", records=[(n,) for n in range(5)])
        await tx.fetchval(OWN)
        assert [row["n"] async for row in tx.cursor("select n from sale order by n")] == [*range(5)]
        await tx.fetchval(OWN)
        cursor = await tx.cursor("select n from sale order by n")
        await tx.fetchval(OWN)
        assert [row["n"] for row in await cursor.fetch(2)] == [0, 1]
        prepared = await tx.prepare("select count(*) from sale")
        assert await tx.fetchval(OWN) == PINNED
        assert await prepared.fetchval() == 5
        await tx.execute("insert into sale values (5)")
        assert await tx.fetchval(OWN_WITH, True) == PINNED
        assert await prepared.fetchval() == 6
    await both(shop)


async def test_temporary_objects_of_users_do_not_stand_in_for_the_catalogues(
    shop: Database,
) -> None:
    async with shop.transaction() as tx:
        await tx.execute("create temporary table pg_class (relname text) on commit drop")
        assert await tx.fetchval("/* relevo test */ select count(*) > 100 from pg_class")


def test_every_statement_of_relevo_is_marked_as_its_own() -> None:
    """Texts in the code would run with the search path of users; they belong into queries.sql."""
    root = Path(relevo.__file__).parent
    found = [
        f"{path.relative_to(root)}:{call.lineno}"  # type: ignore[attr-defined]
        for path in root.rglob("*.py")
        if "testing" not in path.parts
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if _runs_text(call)
    ]
    assert found == []


def _runs_text(call: Any) -> bool:
    names = {"fetch", "fetchval", "fetchrow", "execute", "executemany", "write"}
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in names
        and bool(call.args)
        and (
            (isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str))
            or isinstance(call.args[0], ast.JoinedStr)
        )
    )
