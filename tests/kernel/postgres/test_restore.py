"""A dump that is restored: it works, says so once, and refuses positions of what is lost."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo import App, errors, settings
from relevo.cli.doctor.checks import Patient, restore
from relevo.kernel.postgres.database import Database
from tests.kernel.postgres.dumps import load, program
from tests.kernel.postgres.errand import run_errands
from tests.support.logs import capture_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio


@pytest.fixture
async def copy(relevo_databases: TestDatabases) -> AsyncIterator[str]:
    """The URL of an empty database."""
    url = relevo_databases.create(migrated=False)
    async with await Database.open(settings.load({"database_url": url}, environ={})) as database:
        await database.write("drop publication if exists relevo_tests")
    yield url
    relevo_databases.drop(url)


async def move(source: str, target: str, file: Path, *options: str) -> None:
    """Dump a database and restore it into another."""
    await program("pg_dump", "--format=custom", f"--file={file}", *options, source)
    script = await program("pg_restore", "--no-owner", "--file=-", str(file))
    await load(script, target)


async def said(url: str, **options: Any) -> int:
    """How often a host that does every kind of work says that the database was restored."""
    with capture_logs() as logs:
        await run_errands(url, **options)
    return [one["event"] for one in logs].count("database.restored")


async def doctor(url: str, **options: Any) -> str:
    told = settings.load({"database_url": url, **options}, environ={})
    async with await Database.open(told) as database:
        finding = await restore(Patient(told, database))
    return f"{finding.state}: {finding.detail}"


@asynccontextmanager
async def client(url: str) -> AsyncIterator[App]:
    async with App(settings=settings.load({"database_url": url}, environ={})) as app:
        yield app


async def read(app: App, token: str | None = None) -> tuple[list[str], str]:
    """The ids of all changes from a token on, and where they end."""
    ids: list[str] = []
    orders = app.container("orders", partition_key="/city")
    start: dict[str, Any] = {"continuation": token} if token else {"start": "beginning"}
    async for page in orders.read_changes(**start):
        ids += [change.id for change in page.changes]
        token = page.continuation
    assert token is not None
    return ids, token


@pytest.mark.parametrize("options", [["--schema", "relevo"], []], ids=["schema", "database"])
async def test_a_restored_database_says_so_once_and_works(
    relevo_url: str, copy: str, tmp_path: Path, options: list[str]
) -> None:
    assert await said(relevo_url) == 0
    await move(relevo_url, copy, tmp_path / "dump", *options)
    assert await doctor(relevo_url) == "ok: never"
    assert await doctor(copy) == "warn: restored, copied or upgraded since hosts last served it"
    assert await said(copy) == 1
    assert await said(copy) == 0
    assert (await doctor(copy)).startswith("ok: restored, copied or upgraded at ")
    assert await said(relevo_url) == 0


async def test_a_restored_schema_may_get_another_name(
    relevo_url: str, copy: str, tmp_path: Path
) -> None:
    await run_errands(relevo_url)
    await move(relevo_url, copy, tmp_path / "dump", "--schema", "relevo")
    async with await Database.open(settings.load({"database_url": copy}, environ={})) as database:
        await database.write("alter schema relevo rename to shop")
    assert await said(copy, schema="shop") == 1
    assert await said(copy, schema="shop") == 0


async def test_positions_of_changes_that_are_lost_are_refused_for_good(
    relevo_url: str, copy: str, tmp_path: Path
) -> None:
    async with client(relevo_url) as app:
        orders = app.container("orders", partition_key="/city")
        await orders.upsert({"id": "1", "city": "Vigo"})
        _, kept = await read(app)
        async with app.host():
            pass
        await move(relevo_url, copy, tmp_path / "dump")
        await orders.upsert({"id": "2", "city": "Vigo"})
        seen, lost = await read(app)
        stale = await orders.read("2", "Vigo")
        assert sorted(seen) == ["1", "2"]
    async with client(copy) as app:
        orders = app.container("orders", partition_key="/city")
        async with app.host():
            pass
        for n in range(20):  # more than were written after the dump
            await orders.upsert({"id": f"new {n}", "city": "Vigo"})
        await orders.upsert({"id": "2", "city": "Vigo"})
        with pytest.raises(errors.FeedRegressed, match="after the backup"):
            await read(app, lost)
        seen, _ = await read(app, kept)
        assert sorted(seen) == sorted(["2", *(f"new {n}" for n in range(20))])
        with pytest.raises(errors.ConditionNotMet):
            await orders.replace({"id": "2", "city": "Vigo"}, if_match=stale.etag)


async def test_where_the_server_hides_its_identifier_the_rest_decides(relevo_url: str) -> None:
    admin = await asyncpg.connect(relevo_url)
    whole = await admin.fetchval("select relevo.database_identity()")
    begun = admin.transaction()
    await begun.start()
    await admin.execute("revoke execute on function pg_control_system() from public")
    await admin.execute("create role relevo_plain; grant usage on schema relevo to relevo_plain")
    await admin.execute("set local role relevo_plain")
    plain = await admin.fetchval("select relevo.database_identity()")
    await begun.rollback()
    await admin.close()
    assert json.loads(whole).keys() == {"server", "database", "schema"}
    assert json.loads(plain).keys() == {"database", "schema"}
    assert json.loads(plain).items() <= json.loads(whole).items()
