"""The bulk delete of succeeded jobs that every installation has (8.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.dataverse.bulk import default_series
from relevo.dataverse.bulk.service import BulkPart
from relevo.jobs import states

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.jobs.model import Job
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio


def part_of(app: App) -> BulkPart:
    app.serve_bulk()
    return app.parts.of(BulkPart)


async def the_one(app: App) -> Job:
    found = await app.jobs.query().where(name=default_series.NAME).first()
    assert found is not None
    return found


async def test_the_leader_makes_it_at_its_second_look(app: App) -> None:
    (duty,) = [one for one in part_of(app).duties() if one.name == "bulk.standing"]
    await duty.work()
    assert await app.jobs.query().where(name=default_series.NAME).count() == 0
    await duty.work()
    await duty.work()
    assert await app.jobs.query().where(name=default_series.NAME).count() == 1


@pytest.fixture
async def keeping(relevo_url: str) -> AsyncIterator[App]:
    """An app that keeps records of succeeded jobs for ever."""
    told = {"database_url": relevo_url, "jobs_keep_succeeded_days": 0}
    async with App(settings=settings.load(told, environ={})) as app:
        yield app


async def test_it_waits_for_somebody_and_resuming_enables_it(keeping: App, clock: Clock) -> None:
    app = keeping  # else retention may be there first
    app.serve_bulk()

    @app.job("quick")
    async def quick(ctx: Any) -> None: ...

    async with app.host():
        assert await part_of(app).establish()
        made = await the_one(app)
        assert (made.status_code, made.postpone_until, made.operation_type) == (
            states.WAITING,
            None,
            13,
        )
        row = await app.database.fetchrow("select * from relevo.bulk_delete")
        assert row is not None
        assert (row["name"], row["isrecurring"], row["statuscode"]) == (
            default_series.NAME,
            True,
            10,
        )
        await (await app.jobs.submit("quick")).wait(30)
        await clock.advance(31 * 86_400)
        assert (await app.jobs.get(made.id)).status_code == states.WAITING
        job = app.jobs.handle(made.id)
        await job.resume()
        assert await job.wait(60) == {"success": 1, "failure": 0}
        following = await app.jobs.query().where(series=made.series, state=1).first()
    assert following is not None  # A17
    assert following.postpone_until is not None


async def test_it_is_made_once_whatever_became_of_it(app: App) -> None:
    assert await part_of(app).establish()
    await app.jobs.handle((await the_one(app)).id).delete()
    assert not await part_of(app).establish()
    assert await app.jobs.query().where(name=default_series.NAME).count() == 0


async def test_who_keeps_records_for_ever_keeps_them(keeping: App) -> None:
    assert await part_of(keeping).establish()
    made = await the_one(keeping)
    assert (made.status_code, made.postpone_until) == (states.WAITING, None)
