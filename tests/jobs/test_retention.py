"""What is removed by itself: auto-deleted successes, and records past their days (8.4)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.jobs import states
from relevo.jobs.errors import JobFailed
from relevo.jobs.host import JobsPart
from relevo.kernel.running.verdicts import Fail

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio


async def test_auto_delete_removes_successes_and_nothing_else(app: App) -> None:
    async def work(ctx: Any, fail: bool = False) -> None:
        if fail:
            raise Fail(None, "asked for")

    app.job("work", auto_delete=True)(work)
    async with app.host():
        kept = await app.jobs.submit("work", retain=True)
        failing = await app.jobs.submit("work", {"fail": True})
        gone = await app.jobs.submit("work")
        canceled = await app.jobs.submit("work", start=await app.now() + timedelta(days=1))
        await canceled.cancel()
        await gone.wait(30)
        await kept.wait(30)
        with pytest.raises(JobFailed):
            await failing.wait(30)
    rows = await app.database.fetch("select id, status from relevo.jobs")
    assert {row["id"]: row["status"] for row in rows} == {
        kept.id: states.SUCCEEDED, failing.id: states.FAILED, canceled.id: states.CANCELED,
    }  # A21  # fmt: skip


async def test_a_daily_removal_leaves_a_platform_record(app: App, clock: Clock) -> None:
    for _ in range(3):
        job = await app.jobs.submit("nobody")
        await job.cancel()
    timers = app.parts.of(JobsPart).timers
    assert await timers.forget_daily() == 0  # nothing is old; no record
    assert await app.database.fetchval("select count(*) from relevo.jobs") == 3
    await clock.advance(timedelta(days=31))
    assert await timers.forget_daily() == 3
    assert await timers.forget_daily() == 0  # once a day
    (row,) = await app.database.fetch("select * from relevo.jobs")
    assert (row["operation_type"], row["status"], row["system"], row["lane"]) == (
        14, states.SUCCEEDED, True, "maintenance",
    )  # fmt: skip
    assert (await app.jobs.get(row["id"])).result == {"removed": 3}
