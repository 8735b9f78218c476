"""Arguments that the code of a host does not know: the job waits for one whose code does (4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.errors import JobFailed
from tests.jobs.office import until
from tests.jobs.process_handlers import add

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
NEW = {"number": 1, "color": "red"}


async def old(ctx: Any, number: int) -> str:
    return f"old {number}"


async def new(ctx: Any, number: int, color: str = "none") -> str:
    return f"new {number} {color}"


def plain(ctx: Any, number: int) -> str:
    return f"plain {number}"


async def test_a_job_with_new_arguments_waits_for_a_host_that_knows_them(
    office: Office, clock: Clock
) -> None:
    await office.host({"work": old}, "old")
    job = await office.jobs.submit("work", NEW)
    usual = await office.jobs.submit("work", {"number": 2})
    await office.until_status(job, states.WAITING)
    row = await job.get()
    assert row.friendly == "waits for a host whose handler 'work' takes 'color'"
    assert row.error_code == codes.HANDLER_MISSING
    assert row.postpone_until is not None
    assert await usual.wait(30) == "old 2"
    for turn in range(2, 5):  # the old host looks at it again and again, and it counts as no retry
        await clock.advance(limits.JOB_DEFER_SECONDS_MIN * 1.2)
        await _until_attempt(office, job, turn)
    app = await office.host({"work": new}, "new")
    await app.jobs.brakes.watch()
    assert await app.jobs.brakes.list() == []
    while (await job.get()).status_code < states.SUCCEEDED:
        await clock.advance(limits.JOB_DEFER_SECONDS_MIN * 1.2)
        await office.until_status(job, states.WAITING, states.SUCCEEDED)
    assert await job.wait(30) == "new 1 red"
    row = await job.get()
    assert (row.retries, row.error_code, row.friendly) == (0, None, None)


async def _until_attempt(office: Office, job: Any, wanted: int) -> None:
    async def reached() -> bool:
        found = await job.get()
        return bool(found.attempt >= wanted and found.status_code == states.WAITING)

    await until(reached, f"attempt {wanted}")


async def test_after_the_bound_it_fails_and_says_what_was_not_known(
    office: Office, clock: Clock
) -> None:
    await office.host({"work": old})
    job = await office.jobs.submit("work", NEW)
    await office.until_status(job, states.WAITING)
    await clock.advance(limits.JOB_UNSERVED_SECONDS_MAX)
    await office.until_status(job, states.FAILED)
    row = await job.get()
    assert row.error_code == codes.HANDLER_MISSING
    assert row.friendly == (
        "no host had a handler 'work' that takes 'color' for 10 minutes; start a host with newer"
        " code, or submit the job without it"
    )
    with pytest.raises(JobFailed, match="takes 'color'"):
        await job.wait(30)


async def test_only_the_time_counts_since_a_host_did_not_know_them(
    office: Office, clock: Clock
) -> None:
    job = await office.jobs.submit("work", NEW)
    most = 0.9 * limits.JOB_UNSERVED_SECONDS_MAX
    await clock.advance(most)
    await office.host({"work": old})
    await office.until_status(job, states.WAITING)
    await clock.advance(most)
    await _until_attempt(office, job, 2)
    await clock.advance(most)
    await office.until_status(job, states.FAILED)


@pytest.mark.parametrize("function", [plain, add], ids=["thread", "process"])
async def test_every_kind_of_handler_defers_what_it_does_not_know(
    office: Office, function: Any
) -> None:
    app = office.new_app()
    app.job("work", process=function is add)(function)
    await office.serve(app)
    job = await office.jobs.submit(
        "work", {"a" if function is add else "number": 1, "color": "red"}
    )
    await office.until_status(job, states.WAITING)
    assert "takes 'color'" in ((await job.get()).friendly or "")


async def test_a_workflow_defers_what_it_does_not_know(office: Office) -> None:
    app = office.new_app()

    @app.workflow("order")
    async def order(ctx: Any, number: int) -> AsyncGenerator[Any, Any]:
        yield None

    await office.serve(app)
    job = await office.jobs.submit("order", NEW)
    await office.until_status(job, states.WAITING)
    assert "takes 'color'" in ((await job.get()).friendly or "")


async def test_many_in_a_parcel_are_deferred_one_by_one(office: Office) -> None:
    await office.host({"work": old})
    jobs = await office.jobs.submit_many(
        "work", [{"number": n} if n % 2 else {**NEW, "number": n} for n in range(300)]
    )
    for number, job in enumerate(jobs):
        if number % 2:
            assert await job.wait(30) == f"old {number}"
        else:
            await office.until_status(job, states.WAITING)


async def test_a_handler_that_takes_anything_defers_nothing(office: Office) -> None:
    async def any_of_it(ctx: Any, number: int, **more: str) -> dict[str, str]:
        return more

    await office.host({"work": any_of_it})
    job = await office.jobs.submit("work", NEW)
    assert await job.wait(30) == {"color": "red"}


async def test_what_is_missing_or_of_another_type_fails_at_once(office: Office) -> None:
    await office.host({"work": old})
    for wrong in ({}, {"number": "x"}):
        job = await office.jobs.submit("work", wrong)
        await office.until_status(job, states.FAILED)


async def test_a_deferred_job_is_canceled_and_resumed_as_others(office: Office) -> None:
    await office.host({"work": old})
    jobs = [await office.jobs.submit("work", NEW) for _ in range(2)]
    for job in jobs:
        await office.until_status(job, states.WAITING)
    await jobs[0].cancel()
    assert await office.status(jobs[0]) == states.CANCELED
    await jobs[1].resume()
    await _until_attempt(office, jobs[1], 2)
