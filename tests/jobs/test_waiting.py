"""What `wait` says of jobs that are not there: not yet, no more, or never (16)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest

from relevo.errors import Closed
from relevo.jobs.errors import JobFailed, JobMissing
from tests.jobs.office import PARCELS, until
from tests.jobs.test_foreign_submits import WAYS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.jobs.office import Office, Stage

pytestmark = pytest.mark.anyio


class Undone(Exception):
    """Rolls a transaction back."""


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Callable[[str], AbstractAsyncContextManager[Any]]:
    return asynccontextmanager(request.param)


async def looked(office: Office, job: Any) -> None:
    """Wait until somebody has looked for a job that is awaited."""
    waiting = office.jobs._tools().waiting
    count = waiting.looks
    await until(lambda: job.id in waiting._awaited and waiting.looks > count + 1, "two looks")


async def brief_host(office: Office, function: Any, **more: Any) -> None:
    """Serve `brief`, whose successes leave no record."""
    app = office.new_app()
    app.job("brief", auto_delete=True)(function)
    for name, other in more.items():
        app.job(name)(other)
    await office.serve(app)


async def nothing(ctx: Any) -> None: ...


async def test_a_job_that_never_was_is_missing(office: Office) -> None:
    with pytest.raises(JobMissing, match="there is no job"):
        await office.jobs.handle(uuid4()).wait(10)


async def test_a_waiting_job_that_somebody_deletes_did_not_succeed(office: Office) -> None:
    job = await office.jobs.submit("nobody")
    found = office.jobs.handle(job.id)
    tasks = [asyncio.ensure_future(one.wait(20)) for one in (job, found)]
    await looked(office, job)
    await job.delete()
    for task in tasks:
        with pytest.raises(JobFailed, match="deleted"):
            await task
    with pytest.raises(JobFailed, match="deleted"):  # it was there, and its record would be
        await job.wait(10)


@pytest.mark.parametrize("auto_delete", [False, True])
async def test_a_running_job_that_somebody_deletes_did_not_succeed(
    office: Office, stage: Stage, auto_delete: bool
) -> None:  # A31
    async def work(ctx: Any) -> None:
        try:
            await stage.pass_by()
        except BaseException:
            await asyncio.shield(stage.go.wait())  # it takes its time to stop
            raise

    app = office.new_app()
    app.job("work", auto_delete=auto_delete)(work)
    await office.serve(app)
    job = await office.jobs.submit("work")
    await stage.entered.wait()
    await job.delete()
    try:
        for one in (job, office.jobs.handle(job.id)):
            with pytest.raises(JobFailed, match="deleted"):
                await one.wait(10)
    finally:
        stage.go.set()


async def test_what_auto_delete_removed_counts_as_succeeded(office: Office, stage: Stage) -> None:
    async def brief(ctx: Any) -> None:
        await stage.pass_by()

    await brief_host(office, brief)
    (many,) = await office.jobs.submit_many("brief", [{}])
    job = await office.jobs.submit("brief")
    found = asyncio.ensure_future(office.jobs.handle(job.id).wait(20))
    await looked(office, job)
    stage.go.set()
    assert [await found, await job.wait(10), await many.wait(10)] == [None] * 3
    await office.until_status(job, None)
    assert await job.wait(10) is None  # long gone, and known to have been there
    with pytest.raises(JobMissing):  # who has only the key cannot tell
        await office.jobs.handle(job.id).wait(10)


async def test_an_option_of_the_submit_says_that_too(office: Office) -> None:
    await brief_host(office, nothing, work=nothing)
    gone = await office.jobs.submit("work", options={"auto_delete": True})
    assert await gone.wait(10) is None
    kept = await office.jobs.submit("brief", options={"auto_delete": False})
    await kept.wait(10)
    await kept.delete()
    with pytest.raises(JobFailed, match="deleted"):
        await kept.wait(10)


async def test_jobs_that_travel_in_a_parcel_are_waited_for(office: Office, stage: Stage) -> None:
    async def brief(ctx: Any) -> None:
        await stage.pass_by()

    await office.database.write(PARCELS.format(2))
    try:
        jobs = await office.jobs.submit_many("brief", [{}] * 8, options={"auto_delete": True})
        await brief_host(office, brief)
        await stage.entered.wait()
        assert await office.database.fetchval("select count(*) from relevo.job_parcel") > 0
        tasks = [asyncio.ensure_future(office.jobs.handle(one.id).wait(20)) for one in jobs]
        await looked(office, jobs[-1])
        assert not any(task.done() for task in tasks)
        stage.go.set()
        assert await asyncio.gather(*tasks) == [None] * 8
    finally:
        await office.database.write(PARCELS.format(100))


async def test_a_job_of_a_transaction_is_awaited_until_that_commits(
    office: Office, way: Callable[[str], AbstractAsyncContextManager[Any]]
) -> None:  # A1
    async def work(ctx: Any) -> str:
        return "done"

    await brief_host(office, nothing, work=work)
    async with way(office.url) as tx:
        job = await office.jobs.submit("work", tx=tx)
        gone = await office.jobs.submit("brief", tx=tx)
        (many,) = await office.jobs.submit_many("work", [{}], tx=tx)
        task = asyncio.ensure_future(job.wait(20))
        await looked(office, job)
        assert not task.done()
    assert (await task, await many.wait(20)) == ("done", "done")
    assert await gone.wait(20) is None  # although nobody may ever have seen its row


async def test_a_job_of_a_transaction_that_is_rolled_back_is_missing(
    office: Office, way: Callable[[str], AbstractAsyncContextManager[Any]]
) -> None:  # A1
    with pytest.raises(Undone):
        async with way(office.url) as tx:
            job = await office.jobs.submit("work", tx=tx)
            task = asyncio.ensure_future(job.wait(20))
            await looked(office, job)
            raise Undone
    with pytest.raises(JobMissing, match="rolled back"):
        await task


@pytest.mark.parametrize("count", [1, 150])  # a row, or a parcel
async def test_a_job_of_a_savepoint_that_is_rolled_back_is_missing(
    office: Office, count: int
) -> None:  # A1
    await brief_host(office, nothing, work=nothing)
    async with transaction(office.url) as tx:
        kept = await office.jobs.submit("work", tx=tx)
        with pytest.raises(Undone):
            async with tx.transaction():
                undone = await office.jobs.submit_many("work", [{}] * count, tx=tx)
                raise Undone
        async with tx.transaction():
            nested = await office.jobs.submit("work", tx=tx)
        with pytest.raises(TimeoutError):
            await undone[0].wait(0)  # its transaction is under way
    for job in (undone[0], undone[-1]):
        with pytest.raises(JobMissing, match="rolled back"):
            await job.wait(20)
    assert (await kept.wait(20), await nested.wait(20)) == (None, None)
    await nested.delete()
    with pytest.raises(JobFailed, match="deleted"):
        await nested.wait(20)


@asynccontextmanager
async def transaction(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


async def test_who_knows_only_the_key_of_an_uncommitted_job_finds_none(office: Office) -> None:
    async with transaction(office.url) as tx:
        job = await office.jobs.submit("work", tx=tx)
        with pytest.raises(TimeoutError):
            await job.wait(0)
        with pytest.raises(JobMissing):
            await office.jobs.handle(job.id).wait(10)


async def test_no_time_is_one_look(office: Office) -> None:
    async def work(ctx: Any) -> str:
        return "done"

    job = await office.jobs.submit("work")
    for handle in (job, office.jobs.handle(job.id)):
        with pytest.raises(TimeoutError):
            await handle.wait(timeout=0)
    await office.host({"work": work})
    await office.until_status(job, 30)
    assert await job.wait(timeout=0) == "done"
    assert await office.jobs.handle(job.id).wait(timeout=-1) == "done"


async def test_a_wait_ends_with_its_app(office: Office) -> None:
    async with office.new_app() as app:
        job = await app.jobs.submit("nobody")
        task = asyncio.ensure_future(job.wait())
        await until(lambda: job.id in app.jobs._tools().waiting._awaited, "awaited")
    with pytest.raises(Closed, match="wait for it again"):
        await task
    with pytest.raises(Closed):
        await job.wait()


async def test_a_thousand_waiters_are_two_looks_at_first_and_one_then(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await office.jobs.submit_many("nobody", [{}] * 1000)
    fetch, calls = office.app.database.fetch, 0

    async def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return await fetch(*arguments)

    monkeypatch.setattr(office.app.database, "fetch", counted)
    tasks = [asyncio.ensure_future(office.jobs.handle(one.id).wait()) for one in jobs]
    await looked(office, jobs[-1])
    assert calls <= office.jobs._tools().waiting.looks + 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
