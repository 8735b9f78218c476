"""Old and new code side by side: nothing is lost, and what waits or failed says why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.host import JobsPart
from relevo.testing.cluster import Cluster
from tests.jobs.office import QUICK, until

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.jobs import JobHandle
    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
SETTINGS = {**QUICK, "drain_seconds": 0.5, "pool_size": 4}


async def test_a_deploy_host_by_host_loses_nothing(
    office: Office, clock: Clock, tmp_path: Path
) -> None:
    jobs: dict[JobHandle[Any], Any] = {}
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()

    async def by_old_clients() -> None:
        for n in range(10):
            jobs[await office.jobs.submit("charge", {"customer": f"c{n}"})] = f"c{n} in EUR"
            jobs[await office.jobs.submit("bill", {"number": n, "copy": True})] = n

    async def by_new_clients() -> None:
        for n in range(10):
            data = {"customer": f"c{n}", "currency": "USD"}
            jobs[await office.jobs.submit("charge", data)] = f"c{n} in USD"
            jobs[await office.jobs.submit("invoice", {"number": n})] = n

    async with (
        Cluster(
            office.url, "tests.jobs.deploys:before", tmp_path / "old", settings=SETTINGS
        ) as old,
        Cluster(office.url, "tests.jobs.deploys:after", tmp_path / "new", settings=SETTINGS) as new,
    ):
        await old.start("a")
        await old.start("b")
        jobs[await office.jobs.submit("long")] = [0, 1, 2]
        await old.until(lambda: len(old.records("counting")) == 2, "a checkpoint of the long job")
        await by_old_clients()
        await by_new_clients()  # the web servers are deployed first, which is no good order
        await new.start("c")
        await by_old_clients()
        for name in "ab":
            old.nodes[name].terminate()
            assert old.nodes[name].process.wait(30) == 0
            await by_new_clients()
        await by_old_clients()

        async def over() -> bool:
            await clock.advance(limits.JOB_DEFER_SECONDS_MIN * 1.2)  # what waits is tried again
            rows = await office.jobs.query().where(state=[states.READY // 10, 1, 2]).count()
            return rows == 0

        await new.until(over, "the end of all jobs")
    assert {job.id: await job.wait(10) for job in jobs} == {job.id: jobs[job] for job in jobs}


async def test_an_argument_that_is_gone_can_be_put_back(office: Office, clock: Clock) -> None:
    """The job waits, says for what, then fails; repaired code and a retry finish it."""

    async def bill(ctx: Any, number: int) -> int:
        return number

    async def repaired(ctx: Any, number: int, copy: bool = False) -> int:
        return number

    await office.host({"bill": bill}, "new")
    job = await office.jobs.submit("bill", {"number": 7, "copy": True})
    await office.until_status(job, states.WAITING)
    assert (await job.get()).friendly == "waits for a host whose handler 'bill' takes 'copy'"
    await clock.advance(limits.JOB_UNSERVED_SECONDS_MAX)
    await office.until_status(job, states.FAILED)
    assert (await job.get()).error_code == codes.HANDLER_MISSING
    await office.host({"bill": repaired}, "repaired")
    await job.retry()

    async def again() -> bool:
        await clock.advance(limits.JOB_DEFER_SECONDS_MIN * 1.2)
        return await office.status(job) == states.SUCCEEDED

    await until(again, "the repaired host to run it")
    assert await job.wait(10) == 7


async def test_a_name_that_is_gone_can_be_given_to_the_new_handler(
    office: Office, clock: Clock
) -> None:
    async def invoice(ctx: Any, number: int) -> int:
        return number

    job = await office.jobs.submit("bill", {"number": 7})
    first = await office.host({"invoice": invoice}, "new")
    await clock.advance(limits.JOB_UNSERVED_SECONDS_MAX + 1)
    await first.parts.of(JobsPart).timers.fail_unserved()
    await office.until_status(job, states.FAILED)
    assert (await job.get()).friendly == ("no host has had a handler for this job for 10 minutes")
    await office.host({"invoice": invoice, "bill": invoice}, "repaired")
    await job.retry()
    assert await job.wait(30) == 7
