"""What the log says of jobs: registered types, in order, and never what users put in."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.jobs import Lane, RetryLater
from relevo.jobs.events import JobData

if TYPE_CHECKING:
    from uuid import UUID

    from relevo import App, JobContext

pytestmark = pytest.mark.anyio


async def told(app: App, key: UUID) -> list[tuple[str, JobData]]:
    """The events of a job, each as the struct that its type has."""
    page = await app.events.read(max_items=1_000)
    mine = [one for one in page.events if one.subject == f"job/{key}"]
    assert all(b"secret" not in bytes(one.body) for one in mine)
    found = []
    for one in mine:
        data: Any = app.events.catalogue.payload(one)
        assert isinstance(data, JobData), one
        found.append((one.type.removeprefix("relevo.job."), data))
    return found


async def test_every_type_of_a_job_is_in_the_catalogue(app: App) -> None:
    names = {one.name for one in app.events.catalogue}
    words = (
        "submitted started suspended resumed retrying lost succeeded failed canceled deleted"
        " pausing canceling"
    )
    assert {f"relevo.job.{word}" for word in words.split()} <= names
    assert {"relevo.series.ended", "relevo.brake.on", "relevo.brake.off"} <= names


async def test_a_lane_can_tell_everything_that_happens(app: App) -> None:
    app.jobs.configure(Lane(name="told", events="all"))

    @app.job("mail", lane="told")
    async def mail(ctx: JobContext, text: str) -> str:
        if ctx.attempt == 1:
            raise RetryLater(timedelta(seconds=0))
        return text

    async with app.host(name="printer"):
        job = await mail.submit(text="secret")
        assert await job.wait(timeout=60) == "secret"
        events = await told(app, job.id)
        await job.delete()
        assert [kind for kind, _ in await told(app, job.id)][-1] == "deleted"
    kinds = [kind for kind, _ in events]
    assert kinds == ["submitted", "started", "retrying", "resumed", "started", "succeeded"]
    last = events[-1][1]
    assert (last.before, last.after, last.attempt, last.host) == (20, 30, 2, "printer")


async def test_a_lane_tells_ends_by_default_and_commands_in_any_case(app: App) -> None:
    job = await app.jobs.submit("mail")
    await job.cancel()
    assert [kind for kind, _ in await told(app, job.id)] == ["canceled"]
