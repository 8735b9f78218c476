"""Submitting inside a transaction of the caller, by whatever driver it uses (5.2, DESIGN D10)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from relevo.errors import InvalidValue
from tests.jobs.office import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
DATA = {"text": "it's %s :name {x} $1 \\ \u20ac", "list": [1, None, True]}


class Undone(Exception):
    """Rolls a transaction back."""


async def by_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


async def by_asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(url, min_size=0, max_size=1) as pool,
        pool.acquire() as one,
        one.transaction(),
    ):
        yield one


async def by_psycopg(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


async def by_psycopg_cursor(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        yield cursor


async def by_psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


async def by_sqlalchemy(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


async def by_sqlalchemy_session(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


async def by_sqlalchemy_async(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


async def by_sqlalchemy_asyncpg(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(_for_asyncpg(url))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


def _for_asyncpg(url: str) -> str:
    """SQLAlchemy gives asyncpg the parts of the address, and knows its own names for them."""
    found = sqlalchemy.make_url(url.replace("postgresql:", "postgresql+asyncpg:"))
    return found.render_as_string(hide_password=False)


WAYS = (
    by_asyncpg, by_asyncpg_pool, by_psycopg, by_psycopg_cursor, by_psycopg_async, by_sqlalchemy,
    by_sqlalchemy_session, by_sqlalchemy_async, by_sqlalchemy_asyncpg,
)  # fmt: skip
"""Connections in a transaction, which commits unless the body raises."""


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Callable[[str], AbstractAsyncContextManager[Any]]:
    from contextlib import asynccontextmanager

    return asynccontextmanager(request.param)


async def test_the_job_exists_if_the_transaction_commits(
    office: Office, way: Callable[[str], AbstractAsyncContextManager[Any]]
) -> None:  # A1
    owner, start = uuid4(), datetime(2040, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    async with way(office.url) as tx:
        job = await office.jobs.submit(
            "work", DATA, tx=tx, name="n'", token="t%", start=start, lane="bulk", priority=7,
            owner=owner, on_failure="hold", retain=True,
        )  # fmt: skip
        bare = await office.jobs.submit("work", tx=tx)
        assert await office.status(job) is None
    row = await office.row(job)
    assert (await job.get()).data == DATA
    assert (row["name"], row["token"], row["postpone_until"]) == ("n'", "t%", start)
    assert (row["lane"], row["priority"], row["owner"]) == ("bulk", 7, owner)
    assert (row["hold"], row["retain"], row["status"], row["chained"]) == (True, True, 10, True)
    plain = await bare.get()
    assert (plain.lane, plain.status_code, plain.priority, plain.token) == ("default", 0, 4, None)


async def test_no_job_exists_if_the_transaction_is_rolled_back(
    office: Office, way: Callable[[str], AbstractAsyncContextManager[Any]]
) -> None:  # A1
    with pytest.raises(Undone):
        async with way(office.url) as tx:
            await office.jobs.submit("work", tx=tx, token="t")
            raise Undone
    assert await office.database.fetchval("select count(*) from relevo.jobs") == 0
    assert await office.database.fetchval("select count(*) from relevo.job_gate") == 0


async def test_a_series_can_be_submitted_so(office: Office) -> None:  # 7.3
    connection = await asyncpg.connect(office.url)
    async with connection.transaction():
        job = await office.jobs.submit("work", recurrence="FREQ=DAILY", tx=connection)
    await connection.close()
    assert (await office.row(job))["series"] == job.id


async def test_the_function_is_for_every_language(office: Office) -> None:  # 5.2
    connection = await asyncpg.connect(office.url)
    worker = await Worker(connection).join()
    made = await connection.fetchval(
        "select relevo.submit_job('work', data => '{\"a\": 1}', token => 't', priority => 3)"
    )
    deferred = await connection.fetchval(
        "select relevo.submit_job('work', start => relevo.now() + interval '1 hour')"
    )
    (claimed,) = await worker.work(5)
    assert (claimed["id"], claimed["data"]) == (made, '{"a": 1}')
    assert (await office.jobs.get(deferred)).status_code == 10
    assert made.version == 7
    for wrong in (
        "''", "repeat('x', 257)", "'work', lane => 'nowhere'", "'work', priority => 10",
        "'work', start => '20000-01-01'", "'work', start => 'infinity'",
    ):  # fmt: skip
        with pytest.raises(asyncpg.PostgresError):
            await connection.fetchval(f"select relevo.submit_job({wrong})")
    await connection.close()


async def test_what_is_no_connection_is_refused(office: Office) -> None:
    with pytest.raises(InvalidValue, match="asyncpg, psycopg"):
        await office.jobs.submit("work", tx=object())
    assert await office.database.fetchval("select count(*) from relevo.jobs") == 0


async def test_submits_are_checked_before_anything_is_written(office: Office) -> None:
    for wrong in (
        {"handler": ""}, {"handler": "x" * 257}, {"handler": "a\0"}, {"token": "x" * 257},
        {"name": "x" * 257}, {"priority": 10}, {"priority": -1}, {"data": object()},
        {"data": {"a": "\0"}}, {"start": datetime(2030, 1, 1)},
        {"on_failure": "stop"}, {"lane": "nowhere"},
    ):  # fmt: skip
        with pytest.raises(InvalidValue):
            await office.jobs.submit(**{"handler": "work", **wrong})  # type: ignore[arg-type]
    assert await office.database.fetchval("select count(*) from relevo.jobs") == 0
