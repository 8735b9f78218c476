"""What a handler declares about its jobs: retries, waits, time limit, priority."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import relevo
from relevo.errors import InvalidValue
from relevo.jobs.model import Lane
from tests.jobs.office import until

if TYPE_CHECKING:
    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio


async def test_a_job_whose_handler_raises_is_tried_four_times_with_growing_waits(
    office: Office, clock: Clock
) -> None:  # A15
    async def work(ctx: Any) -> None:
        raise KeyError("no such customer")

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    for retry, usual in enumerate((30, 60, 120), 1):
        await office.until_status(job, 10)
        waiting = await job.get()
        assert (waiting.attempt, waiting.retries) == (retry, retry)
        assert "no such customer" in (waiting.message or "")
        assert waiting.postpone_until is not None
        wait = (waiting.postpone_until - waiting.modified_at).total_seconds()
        assert 0.8 * usual <= wait <= 1.2 * usual
        await clock.advance(wait + 1)
        await until(lambda n=retry: _tried(office, job, n + 1), "it runs again")  # type: ignore[misc]
    await office.until_status(job, 31)
    assert (await job.get()).attempt == 4


async def _tried(office: Office, job: Any, least: int) -> bool:
    return bool((await office.row(job))["attempt"] >= least)


async def test_handlers_say_after_what_and_how_soon_their_jobs_run_again(office: Office) -> None:
    app = office.new_app()
    tries: list[str] = []

    @app.job("never", retries=0)
    async def never() -> None:
        tries.append("never")
        raise KeyError

    @app.job("only", retry_on=KeyError, retries=2, backoff=0)
    def only(name: str) -> None:
        tries.append(name)
        raise KeyError if name == "key" else ValueError

    @app.job("short", retries=1, backoff=relevo.Backoff(first=0), timeout=0.05)
    async def short(ctx: relevo.JobContext) -> int:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return ctx.attempt

    await office.serve(app)
    jobs = [
        await office.jobs.submit("never"),
        await office.jobs.submit("only", {"name": "key"}),
        await office.jobs.submit("only", {"name": "value"}),
    ]
    for job in jobs:
        await office.until_status(job, 31)
    assert [tries.count(one) for one in ("never", "key", "value")] == [1, 3, 1]
    assert await (await short.submit()).wait(30) == 2


async def test_the_priority_of_a_handler_is_that_of_submits_that_name_none(
    office: Office,
) -> None:
    app = office.new_app()
    app.jobs.configure(Lane(name="ordered", priority=True))

    @app.job("urgent", lane="ordered", priority=8)
    async def urgent() -> None: ...

    await office.serve(app)
    later = relevo.Recurrence(pattern="FREQ=DAILY")
    plain = await office.jobs.submit("urgent")
    given = await office.jobs.submit("urgent", priority=1)
    special = await office.jobs.submit("urgent", token="x")
    series = await office.jobs.submit("urgent", recurrence=later)
    id_ = await office.database.fetchval("select relevo.submit_job('urgent')")
    many = await office.jobs.submit_many("urgent", [{}] * 200)
    found = [(await office.row(one))["priority"] for one in (plain, given, special, series, id_)]
    assert found == [8, 1, 8, 8, 8]
    assert (await office.row(many[0]))["priority"] == 8


def test_options_that_make_no_sense_are_refused_where_they_are_written() -> None:
    app = relevo.App()
    app.jobs.configure(Lane(name="ordered", priority=True))
    for options, says in (
        ({"retries": -1}, "handler 'mail' has retries=-1"),
        ({"backoff": "1m"}, "handler 'mail' has backoff='1m'"),
        ({"timeout": 0}, "handler 'mail' has timeout=0"),
        ({"retry_on": "KeyError"}, "handler 'mail' has retry_on='KeyError'"),
        ({"priority": 10, "lane": "ordered"}, "priority=10; give a number from 0 to 9"),
        ({"priority": 7}, "configure the lane first"),
    ):
        with pytest.raises(InvalidValue, match=says):
            app.job("mail", **options)(lambda: None)
