from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.jobs.office import Office, Stage
from tests.support.emptying import empty, emptying

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo.kernel.postgres import Database
    from relevo.testing.databases import TestDatabases

EMPTY = emptying(
    "^(bulk_|job$|job_(?!lane$|transition$))",
    """
delete from relevo.job_lane where name not in ('default', 'workflow', 'bulk', 'maintenance');
update relevo.job_lane set events = 'ends', priority = false, owner_cap = null,
  shared_tokens = false;
""",
)


@pytest.fixture(scope="module")
def shared_url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture
def relevo_url(shared_url: str) -> str:
    """A database of the module, emptied before each test."""
    asyncio.run(empty(shared_url, EMPTY))
    return shared_url


@pytest.fixture
async def office(relevo_url: str, database: Database) -> AsyncIterator[Office]:
    """A client, and hosts on demand, on a database of their own."""
    async with AsyncExitStack() as stack:
        yield await Office.open(relevo_url, database, stack)


@pytest.fixture
def stage() -> Stage:
    return Stage()
