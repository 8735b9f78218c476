"""What is measured of jobs: runs by how they ended, their time, and what lanes hold."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo import Fail, RetryLater
from tests.jobs.office import until

if TYPE_CHECKING:
    from relevo import App
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio


def sample(app: App, name: str, **labels: str) -> float | None:
    found: float | None = app.metrics.registry.get_sample_value(
        f"relevo_{name}", {"part": "jobs", **labels}
    )
    return found


async def test_runs_are_counted_by_handler_and_outcome(office: Office) -> None:
    async def work(ctx: Any, how: str) -> None:
        if how == "later":
            raise RetryLater(3_600)
        if how == "never":
            raise Fail(None, "no")
        if how == "transaction":
            async with ctx.transaction():
                pass

    app = await office.host({"work": work})
    jobs = [
        await office.jobs.submit("work", {"how": how})
        for how in ("well", "well", "transaction", "later", "never")
    ]
    for job in (*jobs[:3], jobs[4]):
        await office.until_status(job, 30, 31)
    await office.until_status(jobs[3], 10)
    counts = {
        outcome: sample(app, "handler_runs_total", handler="work", outcome=outcome)
        for outcome in ("done", "retry", "fail")
    }
    assert counts == {"done": 3.0, "retry": 1.0, "fail": 1.0}
    assert sample(app, "handler_run_seconds_count", handler="work") == 5.0


async def test_lanes_show_what_runs_and_what_waits(office: Office) -> None:
    go = asyncio.Event()

    async def work(ctx: Any) -> None:
        await go.wait()

    app = await office.host({"work": work})
    job = await office.jobs.submit("work")
    await until(lambda: sample(app, "slots_in_use", lane="default") == 1.0, "it runs")
    assert sample(app, "claims_waiting", lane="default") == 0.0
    go.set()
    await job.wait(10)
    await until(lambda: sample(app, "slots_in_use", lane="default") == 0.0, "it has ended")


async def test_counts_of_many_jobs_are_estimates_and_the_oldest_wait_is_exact(
    office: Office,
) -> None:
    await office.database.fetch(
        """
        insert into relevo.job
          (id, rank, created_at, modified_at, status, lane, handler, name, data)
        select relevo.uuid7(), g, relevo.now() - interval '1 s' / g, relevo.now(),
          case when g % 10 = 0 then 10 else 0 end, 'default', 'work', 'work', repeat('x', 1700)
        from generate_series(1, 12000) g
        """
    )
    counts = {one.status: one for one in await office.jobs.views.counts()}
    ready, waiting = counts["waiting_for_resources"], counts["waiting"]
    assert ready.estimated
    assert ready.jobs == pytest.approx(10_800, rel=0.2)
    assert waiting.jobs == pytest.approx(1_200, rel=0.2)
    (lane,) = [one for one in await office.jobs.views.lanes() if one.name == "default"]
    assert (lane.ready, lane.suspended) == (ready.jobs, waiting.jobs)
    oldest = await office.database.fetchval("select min(created_at) from relevo.job")
    assert lane.oldest == oldest


async def test_waits_count_from_the_submit_or_from_when_a_job_was_due(office: Office) -> None:
    async def work(ctx: Any) -> None:
        if ctx.attempt == 1:
            raise RetryLater(0)

    jobs = [
        await office.jobs.submit("late"), await office.jobs.submit("late", token="chained"),
        await office.jobs.submit("due", start=await office.app.now()),
    ]  # fmt: skip
    day = 24 * 3_600
    await office.database.write(
        "update relevo.job set created_at = created_at - make_interval(secs => $1)", day
    )
    app = await office.host({"late": work, "due": work})
    for job in jobs:
        await job.wait(10)

    def waits(handler: str, kind: str) -> float:
        name = f"relevo_job_wait_seconds_{kind}"
        found = app.metrics.registry.get_sample_value(name, {"handler": handler})
        assert found is not None
        return found

    assert (waits("late", "count"), waits("due", "count")) == (2, 1)  # no second attempts
    assert waits("late", "sum") >= 2 * day > 0.5 * day > waits("due", "sum")
