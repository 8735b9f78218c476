"""With a publication of all tables the server takes every write: each table has an identity."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from relevo import App, settings
from relevo.feed.operating import trimming
from relevo.testing.clock import Clock
from tests.kernel.postgres.errand import run_errands

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio

WITHOUT_IDENTITY = """
select c.relname from pg_class c
where c.relnamespace = 'relevo'::regnamespace and c.relkind in ('r', 'p') and c.relreplident <> 'f'
  and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)
"""


async def test_every_table_has_a_replica_identity(database: Database) -> None:
    await database.write("select relevo.make_event_partition(relevo.now() + interval '2 days')")
    rows = await database.fetch(WITHOUT_IDENTITY)
    assert [row["relname"] for row in rows] == []


async def test_everything_works_while_all_tables_are_published(relevo_url: str) -> None:
    async with App(settings=settings.load({"database_url": relevo_url}, environ={})) as app:
        await app.database.write("create publication everything for all tables")
        orders = app.container("kept", partition_key="/city", versions=timedelta(hours=1))
        for n in range(3):
            await orders.upsert({"id": "1", "city": "Vigo", "n": n})
        async with app.database.transaction() as tx:  # stamped when it commits
            await orders.upsert({"id": "2", "city": "Vigo"}, tx=tx)
            await orders.delete("1", "Vigo", tx=tx)
        count = "select count(*) from relevo.item_version"
        assert await app.database.fetchval(f"{count} where lsn = 0") == 0
        assert await app.database.fetchval(count) == 5
        await Clock(app.database).advance(timedelta(hours=2))
        assert await trimming.trim(app.database, app.wakeups) == 5
    await run_errands(relevo_url)
