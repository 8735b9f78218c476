"""Jobs that bring their hosts down: they alone fail, whatever ran beside them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo import App, limits
from relevo.errors import InvalidValue
from relevo.testing.cluster import Cluster
from tests.jobs.office import Worker, until
from tests.jobs.programs import GATE_VARIABLE
from tests.jobs.test_hosts import SETTINGS, Building

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)


@pytest.fixture
async def building(office: Office, tmp_path: Path) -> AsyncIterator[Building]:
    gate = tmp_path / "open"
    async with Cluster(
        office.url, "tests.jobs.programs:office", tmp_path, settings=SETTINGS,
        environment={GATE_VARIABLE: str(gate)},
    ) as cluster:  # fmt: skip
        yield Building(office, cluster, gate)


@asynccontextmanager
async def kept_running(building: Building, names: Sequence[str]) -> AsyncIterator[None]:
    """Hosts that are started again whenever they end, as a supervisor would."""

    async def keep(name: str) -> None:
        while True:
            node = await building.cluster.start(name, wait=False)
            while node.process.poll() is None:
                await asyncio.sleep(0.05)

    keepers = [asyncio.ensure_future(keep(name)) for name in names]
    try:
        yield
    finally:
        for one in keepers:
            one.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


async def all_over(building: Building) -> None:
    async def over() -> bool:
        return not await building.office.database.fetch("select from relevo.live_job limit 1")

    await building.cluster.until(over, "all jobs are over", timeout=120)


async def ended_as(building: Building, status: int) -> dict[UUID, int]:
    """Jobs that ended so, and how many hosts each has lost."""
    rows = await building.office.database.fetch(
        "select id, crashes from relevo.job_history where status = $1", status
    )
    return {row["id"]: row["crashes"] for row in rows}


@pytest.mark.parametrize(("hosts", "seconds"), [("a", 0.0), ("ab", 0.05)])
async def test_of_many_jobs_only_the_one_that_kills_its_hosts_fails(
    building: Building, seconds: float, hosts: str
) -> None:  # S14
    jobs = await building.office.jobs.submit_many(
        "minefield", [{"deadly": n == 137, "seconds": seconds} for n in range(400)]
    )
    async with kept_running(building, hosts):
        await all_over(building)
    assert await ended_as(building, 31) == {jobs[137].id: 3}
    survived = await ended_as(building, 30)
    assert len(survived) == 399
    assert max(survived.values()) <= 2  # and alone the third time
    assert len(building.cluster.records("died")) == 3


# --- what the database decides ---------------------------------------------------------------


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


async def test_only_a_job_that_ran_alone_is_given_up(office: Office, worker: Worker) -> None:  # S14
    job = await office.jobs.submit("work")
    await office.database.write("update relevo.job set crashes = 2, alone = true returning id")
    recover = "select relevo.recover_jobs(100, 3)"
    for crashes in (3, 4):
        victim = await Worker(worker.connection).join()
        await victim.take_lone(vacant=False)  # something else ran beside it for long
        await victim.end()
        await office.database.fetchval(recover)
        row = await office.row(job)
        assert (row["status"], row["crashes"], row["alone"]) == (0, crashes, True)
    assert (await worker.take_lone())["id"] == job.id
    await worker.end()
    await office.database.fetchval(recover)
    assert (await office.row(job))["status"] == 31


async def test_a_job_that_nothing_is_proved_of_is_given_up_in_the_end(
    office: Office, worker: Worker
) -> None:  # S14
    job = await office.jobs.submit("work")
    await office.database.write("update relevo.job set crashes = 29, alone = true returning id")
    await worker.take_lone(vacant=False)
    await worker.end()
    await office.database.fetchval("select relevo.recover_jobs(100, 3)")
    assert (await office.row(job))["status"] == 31


@pytest.mark.parametrize("crashes_max", [1, 2, 4])
async def test_a_handler_says_how_many_hosts_its_jobs_may_lose(
    office: Office, worker: Worker, crashes_max: int
) -> None:  # S14
    async def work(ctx: Any) -> None: ...

    app = office.new_app()
    app.job("work", crashes_max=crashes_max)(work)
    async with app.host():
        pass  # what it serves is written
    job = await office.jobs.submit("work")
    lost = 0
    while (row := await office.row(job))["status"] == 0:
        victim = await Worker(worker.connection).join()
        assert await (victim.take_lone() if row["alone"] else victim.work(1))
        await victim.end()
        await office.database.fetchval("select relevo.recover_jobs(100, 3)")
        lost += 1
    assert row["status"] == 31
    assert lost == row["crashes"] == max(2, crashes_max)  # the first proves nothing


def test_a_handler_may_not_say_that_its_jobs_lose_no_host() -> None:
    with pytest.raises(InvalidValue, match="crashes_max=0"):
        App().job("work", crashes_max=0)(lambda ctx: None)


# --- what a host does ------------------------------------------------------------------------


class Floor:
    """Handlers that note who is at work, each until it is let go."""

    def __init__(self) -> None:
        self.at_work: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self.doors: dict[str, asyncio.Event] = {}

    async def work(self, ctx: Any, name: str) -> None:
        self.at_work.add(name)
        for one in self.at_work:
            self.beside.setdefault(one, set()).update(self.at_work - {one})
        await self.doors.setdefault(name, asyncio.Event()).wait()
        self.at_work.discard(name)

    def open(self, *names: str) -> None:
        for name in names:
            self.doors.setdefault(name, asyncio.Event()).set()

    async def begun(self, *names: str) -> None:
        await until(lambda: self.beside.keys() >= set(names), f"{names} begin")


@pytest.fixture
async def floor(office: Office) -> Floor:
    """A host on which `before` runs; then `lone` comes, which lost two hosts, and `after`."""
    floor = Floor()
    await office.host({"work": floor.work})
    await office.jobs.submit("work", {"name": "before"})
    await floor.begun("before")
    lone = await office.jobs.submit("work", {"name": "lone"}, start=await office.app.now() + DAY)
    await office.database.write(
        "update relevo.job set crashes = 2, alone = true, status = 0 where id = $1 returning id",
        lone.id,
    )
    return floor


async def lone_row(office: Office) -> Any:
    return await office.database.fetchrow("select * from relevo.jobs where data like '%lone%'")


async def test_a_host_makes_room_for_a_job_that_is_to_run_alone(
    office: Office, floor: Floor
) -> None:
    floor.open("before")
    await floor.begun("lone")
    after = await office.jobs.submit("work", {"name": "after"})
    row = await lone_row(office)
    assert (row["status"], row["alone"]) == (20, True)
    floor.open("lone", "after")
    await after.wait(20)
    assert floor.beside == {"before": set(), "lone": set(), "after": set()}
    assert (await lone_row(office))["status"] == 30


async def test_a_job_that_takes_long_is_not_waited_for(
    office: Office, floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOB_ALONE_WAIT_SECONDS_MAX", 0.1)
    await floor.begun("lone")
    row = await lone_row(office)
    assert (row["status"], row["alone"]) == (20, False)  # its crash would prove nothing
    after = await office.jobs.submit("work", {"name": "after"})
    floor.open("lone", "after")
    await after.wait(20)
    assert floor.beside["lone"] == {"before"}
    floor.open("before")


async def test_a_job_that_runs_alone_for_long_has_company_again(
    office: Office, floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOB_ALONE_SECONDS_MAX", 0.1)
    floor.open("before")
    await floor.begun("lone")
    await office.jobs.submit("work", {"name": "after"})
    await floor.begun("after")
    assert floor.beside["after"] == {"lone"}
    assert not (await lone_row(office))["alone"]
    floor.open("lone", "after")
