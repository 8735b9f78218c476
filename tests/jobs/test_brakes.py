"""The failure-rate brake (6.4): who fails too often waits, the others do not notice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import DatabaseUnavailable
from relevo.jobs import states
from relevo.jobs.brakes import PAUSE
from relevo.jobs.core import codes
from relevo.jobs.host import JobsPart
from relevo.jobs.model import Lane
from relevo.kernel.running import lanes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo import App
    from relevo.jobs.model import Job
    from relevo.jobs.service import JobHandle
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio


class Shop:
    """An extension that works or not, as the test says, and one beside it that always does."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.broken = True
        self.ran: list[int] = []

        @app.job("flaky", retries=0)
        async def flaky(ctx: Any, n: int) -> None:
            self.ran.append(n)
            if self.broken:
                raise ValueError("broken")

        @app.job("sound")
        async def sound(ctx: Any) -> str:
            return "fine"

    async def fail(self, times: int) -> None:
        jobs = [await self.app.jobs.submit("flaky", {"n": n}) for n in range(times)]
        for job in jobs:
            await until(job, lambda found: found.done or found.status_code == states.WAITING)

    async def braked(self) -> bool:
        return bool(await self.app.jobs.brakes.list())


async def until(job: JobHandle[Any], holds: Callable[[Job], bool]) -> Job:
    found: Job
    async with asyncio.timeout(30):
        while not holds(found := await job.get()):
            await asyncio.sleep(0.01)
    return found


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await holds():
            await asyncio.sleep(0.01)


def held(job: Job) -> bool:
    return job.status_code == states.WAITING and job.error_code == codes.BRAKED


async def events(app: App) -> list[str]:
    rows = await app.database.fetch(
        "select type from relevo.event where type like 'relevo.brake.%' order by lsn"
    )
    return [row["type"].rpartition(".")[2] for row in rows]


async def test_twenty_failures_are_not_too_many(app: App) -> None:
    shop = Shop(app)
    async with app.host():
        await shop.fail(20)

        async def counted() -> bool:
            rows = await app.database.fetch("select sum(failures) from relevo.job_failure")
            return bool(rows[0][0] == 20)

        await eventually(counted)
        await app.jobs.brakes.watch()
        assert not await shop.braked()


async def test_a_braked_extension_waits_and_no_other_does(app: App, clock: Clock) -> None:
    shop = Shop(app)
    async with app.host():
        await shop.fail(21)
        await eventually(shop.braked)
        ran = len(shop.ran)
        jobs = [await app.jobs.submit("flaky", {"n": 100 + n}) for n in range(3)]
        waiting = [await until(job, lambda one: held(one) or one.done) for job in jobs]
        assert await (await app.jobs.submit("sound")).wait(30) == "fine"  # A32
        braked = [one for one in waiting if held(one)]
        (brake,) = await app.jobs.brakes.list()
        assert all(one.postpone_until == brake.until for one in braked)
        assert brake.until - brake.since == PAUSE
        # What was claimed before the leader looked has run; nothing else has.
        assert len(shop.ran) - ran == len(waiting) - len(braked)
        assert await events(app) == ["on"]


async def test_after_the_pause_one_job_is_tried_and_its_success_frees_the_rest(
    app: App, clock: Clock
) -> None:
    shop = Shop(app)
    async with app.host():
        await shop.fail(21)
        await eventually(shop.braked)
        shop.ran.clear()
        shop.broken = False
        jobs = await _held(shop, 5)
        await clock.advance(PAUSE)
        for job in jobs:
            await until(job, lambda one: one.status_code == states.SUCCEEDED)
        assert not await shop.braked()
        assert await events(app) == ["on", "off"]


async def test_a_probe_that_fails_renews_the_pause(app: App, clock: Clock) -> None:
    shop = Shop(app)
    async with app.host():
        await shop.fail(21)
        await eventually(shop.braked)
        jobs = await _held(shop, 3)
        shop.ran.clear()
        before = (await app.jobs.brakes.list())[0].until
        await clock.advance(PAUSE)

        async def renewed() -> bool:
            return (await app.jobs.brakes.list())[0].until > before

        await eventually(renewed)
        later = (await app.jobs.brakes.list())[0].until
        assert len(shop.ran) == 1  # the probe alone
        for job in jobs[1:]:
            await until(job, lambda one: held(one) and one.postpone_until == later)
        assert await events(app) == ["on", "on"]


async def test_deactivating_an_extension_cancels_what_has_not_started(app: App) -> None:
    waiting = [await app.jobs.submit("flaky", {"n": n}, token="one") for n in range(5)]
    other = await app.jobs.submit("sound")
    assert await app.jobs.brakes.deactivate("flaky") == 5
    assert {(await job.get()).status_code for job in waiting} == {states.CANCELED}
    assert (await other.get()).status_code == states.READY


async def _held(shop: Shop, amount: int) -> list[JobHandle[Any]]:
    """Submit until so many are held back; others ran before the leader looked."""
    found: list[JobHandle[Any]] = []
    while len(found) < amount:
        job = await shop.app.jobs.submit("flaky", {"n": 1})
        if held(await until(job, lambda one: held(one) or one.done)):
            found.append(job)
    return found


async def test_an_outage_of_the_storage_is_no_failure_of_the_handler(app: App) -> None:
    shop = Shop(app)

    @app.job("cut off")
    async def cut_off(ctx: Any) -> None:
        raise DatabaseUnavailable("the database is away")

    async def counted() -> bool:
        return bool(await app.database.fetchval("select count(*) from relevo.job_failure"))

    async with app.host():
        for job in [await app.jobs.submit("cut off") for _ in range(25)]:
            await until(job, lambda found: found.status_code == states.WAITING)
        await shop.fail(1)
        await eventually(counted)
        rows = await app.database.fetch("select extension, failures from relevo.job_failure")
        assert [tuple(row) for row in rows] == [("flaky", 1)]


async def test_what_was_claimed_ahead_is_given_back_when_a_handler_fails_too_often(
    app: App,
) -> None:  # 6.4
    ran: list[int] = []
    ahead: list[int] = []

    @app.job("flaky", retries=0)
    async def flaky(ctx: Any, n: int) -> None:
        if n < 0:
            return  # quick successes: the host learns to claim ahead
        ran.append(n)
        if len(ran) == 1:
            host = app.parts.of(JobsPart)._host
            assert host is not None
            ahead.append(len(host._lanes["default"].waiting))
        raise ValueError("broken")

    await app.jobs.submit_many("flaky", [{"n": -1}] * 4_000)
    jobs = await app.jobs.submit_many("flaky", [{"n": n} for n in range(500)])
    async with app.host():
        for job in jobs:
            await until(job, lambda one: held(one) or one.done)
        most, slots = app.settings.jobs_brake_failures, app.jobs.registry.lanes["default"].slots
        assert ahead[0] > 250  # far more than may run
        assert most < len(ran) <= most + slots
        assert len([job for job in jobs if held(await job.get())]) == 500 - len(ran)
        assert await events(app) == ["on"]


async def test_every_host_gives_back_what_it_has_not_begun_when_a_brake_comes_on(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:  # 6.4
    monkeypatch.setattr(lanes, "KEEP_SECONDS", 600.0)  # it would not give back anything else
    app.jobs.configure(Lane(name="default", slots=1))
    ran: list[int] = []
    began, go = asyncio.Event(), asyncio.Event()

    @app.job("flaky", retries=0)
    async def flaky(ctx: Any, n: int) -> None:
        ran.append(n)

    @app.job("slow")
    async def slow(ctx: Any) -> None:
        began.set()
        await go.wait()

    async def held_here() -> int:
        sql = "select count(*) from relevo.live_job where status = 20 and handler = 'flaky'"
        return int(await app.database.fetchval(sql))

    async def given_back() -> bool:
        return await held_here() == 0

    await app.jobs.submit_many("flaky", [{"n": -1}] * 2_000)  # the host learns to claim ahead
    blocker = await app.jobs.submit("slow")
    await app.jobs.submit_many("flaky", [{"n": n} for n in range(200)])
    async with app.host():
        await began.wait()
        assert await held_here() > 0
        ran.clear()
        await app.database.write(
            "insert into relevo.job_brake (extension, handlers, since, until) values"
            " ('flaky', '{flaky}', relevo.now(), relevo.now() + interval '1 hour')"
            " returning 1"
        )
        await eventually(given_back)
        go.set()
        await blocker.wait(30)
        assert ran == []
