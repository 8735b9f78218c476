"""Chains of owners, chains that a lane shares, and how an operator lifts what blocks one (4.2)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest

from relevo.jobs import states
from relevo.jobs.errors import JobMissing, JobRefused
from relevo.jobs.host import JobsPart
from relevo.jobs.model import Lane
from tests.jobs.office import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
ANA, BEN = uuid4(), uuid4()
FAR = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


async def share(office: Office) -> None:
    """Let an app come up, and go, whose lane shares tokens."""
    app = office.new_app()
    app.jobs.configure(Lane(name="default", shared_tokens=True))
    async with app:
        await app.parts.of(JobsPart).declare()


def ids(rows: list[Any]) -> list[Any]:
    return [one["id"] if isinstance(one, dict) else one.id for one in rows]


async def test_a_job_of_one_owner_holds_up_no_job_of_another(
    office: Office, worker: Worker
) -> None:
    await office.jobs.submit("work", token="t", owner=BEN, start=FAR)
    mine = [await office.jobs.submit("work", token="t", owner=ANA) for _ in range(2)]
    nobodys = await office.jobs.submit("work", token="t")
    (first, second) = await worker.work(10)
    assert ids([first, second]) == ids([mine[0], nobodys])  # each owner in its own order
    assert ids(await worker.work(10, settle=[(first, "done")])) == ids(mine[1:])


async def test_jobs_without_an_owner_share_a_chain(office: Office, worker: Worker) -> None:
    jobs = [await office.jobs.submit("work", token="t") for _ in range(2)]
    assert ids(await worker.work(10)) == ids(jobs[:1])


async def test_a_token_cannot_be_written_so_that_it_is_that_of_another_owner(
    office: Office, worker: Worker
) -> None:
    await office.jobs.submit("work", token="t", owner=BEN, start=FAR)
    forged = await office.jobs.submit("work", token=f"{BEN} t")
    owned = await office.jobs.submit("work", token=f"{BEN} t", owner=ANA)
    assert ids(await worker.work(10)) == ids([forged, owned])


async def test_a_lane_that_shares_tokens_has_one_chain_for_all(
    office: Office, worker: Worker
) -> None:
    await share(office)
    jobs = [await office.jobs.submit("work", token="t", owner=one) for one in (ANA, BEN, None)]
    for job in jobs:
        (run,) = await worker.work(10)
        assert run["id"] == job.id
        await worker.work(0, settle=[(run, "done")])


async def test_a_run_of_a_series_is_in_the_chain_of_its_owner(
    office: Office, worker: Worker, clock: Clock
) -> None:
    now = await clock.now()
    await office.jobs.submit("work", token="t", owner=BEN, start=FAR)
    series = await office.jobs.submit(
        "work", token="t", owner=ANA, recurrence="FREQ=DAILY", start=now + timedelta(hours=1)
    )
    mine = await office.jobs.submit("work", token="t", owner=ANA)
    await clock.advance(3_700)
    await office.app.parts.of(JobsPart).timers.start_series()
    (run,) = await worker.work(10)
    assert run["id"] == mine.id
    assert ids(await worker.work(10, settle=[(run, "done")])) == [series.id]


# Lifting.


async def test_the_rest_of_a_chain_goes_on_in_order_without_the_job_that_blocked_it(
    office: Office, worker: Worker, clock: Clock
) -> None:
    head = await office.jobs.submit("work", token="t", start=await clock.now() + timedelta(days=1))
    rest = [await office.jobs.submit("work", token="t") for _ in range(3)]
    assert await worker.work(10) == []
    assert await office.jobs.unblock(rest[2].id) == head.id
    for job in rest:
        (run,) = await worker.work(10)
        assert run["id"] == job.id
        await worker.work(0, settle=[(run, "done")])
    row = await head.get()
    assert (row.status_code, row.token) == (states.WAITING, "t")
    assert "no longer wait for it" in (row.friendly or "")
    behind = await office.jobs.submit("work", token="t")
    (run,) = await worker.work(10)
    assert run["id"] == behind.id
    await clock.advance(86_400)  # its own time comes as ever, apart from the chain
    assert ids(await worker.work(10)) == [head.id]
    assert "unblocked" in await office.events(head)


async def test_what_runs_is_not_lifted_for_two_would_run_at_once(
    office: Office, worker: Worker
) -> None:  # A6
    head, behind = [await office.jobs.submit("work", token="t") for _ in range(2)]
    await worker.work(10)
    with pytest.raises(JobRefused, match=f"waits for job {head.id}, which runs on worker"):
        await office.jobs.unblock(behind.id)


async def test_there_is_nothing_to_lift_where_nothing_blocks(
    office: Office, worker: Worker
) -> None:
    head, free = await office.jobs.submit("work", token="t"), await office.jobs.submit("work")
    parcel = await office.jobs.submit_many("work", [{}] * 150)
    for job in (head, free, parcel[0]):
        with pytest.raises(JobRefused, match="waits for no other job"):
            await office.jobs.unblock(job.id)
    (run, *_) = await worker.work(1)
    await worker.work(0, settle=[(run, "done")])
    for id_ in (run["id"], uuid4()):
        with pytest.raises(JobMissing):
            await office.jobs.unblock(id_)


async def test_whoever_lifts_and_whoever_claims_at_once_let_one_run(
    office: Office, worker: Worker
) -> None:  # A6
    for _ in range(20):
        head, behind = [await office.jobs.submit("work", token="t") for _ in range(2)]
        lifted, claimed = await asyncio.gather(
            office.jobs.unblock(behind.id), worker.work(10), return_exceptions=True
        )
        assert not isinstance(claimed, BaseException)
        claimed += await worker.work(10)
        both = isinstance(lifted, Exception)
        assert len(claimed) == (1 if both else 2), (lifted, claimed)
        while worker.held:
            settle = [(row, "done") for row in worker.held.values()]
            await worker.work(10, settle=settle)
        assert [await office.status(one) for one in (head, behind)] == [30, 30]
