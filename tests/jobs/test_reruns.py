"""Failed and canceled jobs are run again, as somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg
import pytest

from relevo.jobs.errors import JobFailed, JobRefused
from tests.jobs.office import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import relevo
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
ALL = ("first", "second", "third")


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


async def test_a_failed_job_goes_back_with_its_attempts_and_ends_anew(office: Office) -> None:
    repaired = False
    states = []

    @office.app.job("charge", retries=0)
    async def charge(ctx: relevo.JobContext, amount: int) -> str:
        states.append((ctx.attempt, ctx.state))
        if not repaired:
            await ctx.checkpoint(state="half")
            raise ValueError("no such account")
        return f"charged {amount}"

    async with office.app.host():
        job = await charge.submit(amount=5)
        with pytest.raises(JobFailed, match="no such account"):
            await job.wait(60)
        repaired = True
        await job.retry()
        assert await job.wait(60) == "charged 5"
        assert states == [(1, None), (2, "half")]
        end = await job.get()
        assert (end.status, end.error_code, end.message, end.attempt) == (
            "succeeded",
            None,
            None,
            2,
        )
        with pytest.raises(JobRefused, match="delete"):
            await job.retry()


async def test_a_rerun_is_told_in_the_log(office: Office) -> None:
    job = await office.jobs.submit("work")
    await job.cancel()
    await job.retry()
    assert (await office.events(job))[-2:] == ["canceled", "rerun"]


async def test_a_rerun_takes_its_place_in_its_chain(office: Office, worker: Worker) -> None:  # A5
    first = await office.jobs.submit("first", token="t")
    second = await office.jobs.submit("second", token="t")
    third = await office.jobs.submit("third", token="t")
    await first.cancel()
    (row,) = await worker.work(3, ALL)
    assert row["id"] == second.id
    await first.retry()  # while the second runs
    assert await worker.work(3, ALL) == []
    ran = []
    for _ in range(2):
        (row,) = await worker.work(3, ALL, settle=[(row, "done")])
        ran.append(row["id"])
    assert ran == [first.id, third.id]


async def test_a_rerun_waits_for_room_of_its_owner(office: Office, worker: Worker) -> None:
    await office.database.write("update relevo.job_lane set owner_cap = 1 where name = 'default'")
    owner = uuid4()
    first = await office.jobs.submit("a", owner=owner)
    await first.cancel()
    second = await office.jobs.submit("b", owner=owner)
    (row,) = await worker.work(2, ["a", "b"])
    assert row["id"] == second.id
    await first.retry()
    assert await worker.work(2, ["a", "b"]) == []
    (row,) = await worker.work(2, ["a", "b"], settle=[(row, "done")])
    assert row["id"] == first.id


async def test_a_run_of_a_series_that_never_began_is_not_run_again(office: Office) -> None:
    job = await office.jobs.submit("tidy", recurrence="FREQ=DAILY")
    with pytest.raises(JobRefused, match="'retry' cannot happen"):
        await job.retry()  # it waits
    await job.cancel()
    with pytest.raises(JobRefused, match="before it began"):
        await job.retry()
