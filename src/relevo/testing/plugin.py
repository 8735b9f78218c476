"""Fixtures for tests that use Relevo; installed with it as a pytest plugin.

async def test_something(database): ...      # its own migrated database
async def test_later(app, clock): ...        # an App on it, and control over its time
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo import App
    from relevo.kernel.postgres.database import Database
    from relevo.settings import Settings
    from relevo.testing.clock import Clock
    from relevo.testing.databases import TestDatabases


@pytest.fixture(scope="session")
def relevo_schema() -> str:
    """The schema of Relevo in the tests' databases; define it again for another one."""
    return "relevo"


@pytest.fixture(scope="session")
def relevo_databases(relevo_schema: str) -> Iterator[TestDatabases]:
    """The server that tests share; creates databases on it."""
    from relevo.testing.databases import TestDatabases

    databases = TestDatabases(relevo_schema)
    yield databases
    databases.close()


@pytest.fixture
def relevo_url(relevo_databases: TestDatabases) -> Iterator[str]:
    """URL of a fresh, migrated database; dropped after the test."""
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture
def relevo_settings(relevo_url: str, relevo_schema: str) -> Settings:
    """Settings for a fresh, migrated database, independent of the environment."""
    from relevo import settings

    return settings.load({"database_url": relevo_url, "schema": relevo_schema}, environ={})


@pytest.fixture
async def database(relevo_settings: Settings) -> AsyncIterator[Database]:
    """A pool on a fresh, migrated database."""
    from relevo.kernel.postgres.database import Database

    async with await Database.open(relevo_settings) as pool:
        yield pool


@pytest.fixture
async def app(relevo_settings: Settings) -> AsyncIterator[App]:
    """A connected App on a fresh database; a client until the test enters `app.host()`."""
    from relevo import App

    async with App(settings=relevo_settings) as app:
        yield app


@pytest.fixture
def clock(database: Database) -> Clock:
    """The clock of the test's database."""
    from relevo.testing.clock import Clock

    return Clock(database)
