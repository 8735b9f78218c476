from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.jobs.office import Office, Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo.kernel.postgres import Database
    from relevo.testing.databases import TestDatabases

EMPTY = """
do $$
declare
  one regclass;
  filled boolean;
begin
  set local session_replication_role = replica;
  for one in
    select c.oid::regclass from pg_class c
    where c.relnamespace = 'relevo'::regnamespace and c.relkind = 'r' and not c.relispartition
      and (c.relname ~ '^(job|bulk_)'
           or c.relname in ('host', 'lease', 'member', 'unit', 'event_time'))
      and c.relname not in ('job_lane', 'job_transition')
  loop
    execute format('select exists (select from %s)', one) into filled;
    if filled then execute format('delete from %s', one); end if;
  end loop;
  delete from relevo.event;
  update relevo.clock set shift = '0', mark = '-infinity';
  delete from relevo.job_lane where name not in ('default', 'workflow', 'bulk', 'maintenance');
  update relevo.job_lane set events = 'ends', priority = false, owner_cap = null,
    shared_tokens = false;
end $$
"""
"""Makes a database as good as new: a tenth of what a new one costs."""


@pytest.fixture(scope="module")
def shared_url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture
def relevo_url(shared_url: str) -> str:
    """A database of the module, emptied before each test."""

    async def empty() -> None:
        connection = await asyncpg.connect(shared_url)
        try:
            await connection.execute(EMPTY)
        finally:
            await connection.close()

    asyncio.run(empty())
    return shared_url


@pytest.fixture
async def office(relevo_url: str, database: Database) -> AsyncIterator[Office]:
    """A client, and hosts on demand, on a database of their own."""
    async with AsyncExitStack() as stack:
        yield await Office.open(relevo_url, database, stack)


@pytest.fixture
def stage() -> Stage:
    return Stage()
