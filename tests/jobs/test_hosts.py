"""Real host processes: killed, frozen, cut off, told to stop, with wrong clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.jobs.core import codes
from relevo.testing.cluster import Cluster
from tests.jobs.office import QUICK
from tests.jobs.programs import GATE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.testing.cluster import Node
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
SETTINGS = {
    **QUICK,
    "lease_expiration": 2.0,
    "lease_renew": 0.4,
    "pool_size": 4,
    "drain_seconds": 0.2,
}


class Building:
    """An office with hosts in processes of their own, and a gate at which handlers wait."""

    def __init__(self, office: Office, cluster: Cluster, gate: Path) -> None:
        self.office = office
        self.cluster = cluster
        self.gate = gate

    async def until_reborn(self, node: Node) -> None:
        """Wait until a host that lost its life has begun another."""
        former = node.records("ready")[0]["incarnation"]

        async def reborn() -> bool:
            found = await self.office.database.fetchval(
                "select incarnation from relevo.host where name = $1 and ended_at is null",
                node.name,
            )
            return found is not None and str(found) != former

        await self.cluster.until(reborn, f"{node.name} lives again")

    async def until_ended(self, node: Node) -> None:
        await self.cluster.until(lambda: node.process.poll() is not None, f"{node.name} ends")

    async def until_noted(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        await self.cluster.until(
            lambda: len(self.cluster.records(event)) >= count, f"{count} of {event}"
        )
        return self.cluster.records(event)


@pytest.fixture
async def building(office: Office, tmp_path: Path) -> AsyncIterator[Building]:
    gate = tmp_path / "open"
    async with Cluster(
        office.url, "tests.jobs.programs:office", tmp_path, settings=SETTINGS,
        environment={GATE_VARIABLE: str(gate)},
    ) as cluster:  # fmt: skip
        yield Building(office, cluster, gate)


async def test_a_killed_hosts_job_goes_on_elsewhere_from_its_checkpoint(
    building: Building,
) -> None:  # S14, A16, 6.2
    a = await building.cluster.start("a")
    job = await building.office.jobs.submit("steps")
    await building.until_noted("step", 2)
    a.kill()
    await building.cluster.start("b")
    assert await job.wait(30) == [2, 3]
    row = await job.get()
    assert (row.attempt, row.crashes, row.retries, row.host_name) == (2, 1, 0, "b")


async def test_a_job_that_kills_its_hosts_is_given_up(building: Building) -> None:  # S14, A16
    job = await building.office.jobs.submit("deadly")
    for name in ("one", "two"):
        node = await building.cluster.start(name, wait=False, jobs_crashes_max=2)
        await building.until_ended(node)
    survivor = await building.cluster.start("survivor", jobs_crashes_max=2)
    await building.office.until_status(job, 31)
    row = await job.get()
    assert (row.attempt, row.crashes, row.friendly) == (2, 2, "host lost")
    assert codes.shown(row.error_code or 0) == "0x80040224"
    assert survivor.process.poll() is None


async def test_a_frozen_host_that_wakes_settles_nothing(building: Building) -> None:  # A5
    a = await building.cluster.start("a")
    job = await building.office.jobs.submit("wait")
    await building.until_noted("began")
    a.freeze()
    await building.cluster.start("b")
    await building.until_noted("began", 2)  # b has it
    a.thaw()
    await building.until_reborn(a)
    row = await building.office.row(job)
    assert (row["status"], row["host_name"], row["attempt"]) == (20, "b", 2)
    building.gate.touch()
    assert await job.wait(30) == 2
    await building.office.until_status(job, 30)
    assert (await job.get()).crashes == 1
    # And the one that woke works again, in another life.
    building.cluster.nodes["b"].kill()
    assert await (await building.office.jobs.submit("wait")).wait(30) == 1


async def test_a_host_that_is_cut_off_loses_its_jobs_and_comes_back(
    building: Building,
) -> None:  # A5, A16
    a = await building.cluster.start("a")
    job = await building.office.jobs.submit("wait")
    await building.until_noted("began")
    a.partition()
    await building.cluster.start("b")
    await building.until_noted("began", 2)
    building.gate.touch()
    assert await job.wait(30) == 2
    building.cluster.nodes["b"].kill()
    a.heal()
    assert await (await building.office.jobs.submit("wait")).wait(30) == 1


async def test_a_host_told_to_stop_returns_its_jobs(building: Building) -> None:  # S17
    a = await building.cluster.start("a")
    job = await building.office.jobs.submit("wait")
    await building.until_noted("began")
    a.terminate()
    await building.until_ended(a)
    assert a.process.poll() == 0
    row = await building.office.row(job)
    assert (row["status"], row["crashes"], row["host"]) == (0, 0, None)


async def test_wrong_clocks_of_hosts_decide_nothing(building: Building) -> None:  # A29, A8
    await building.cluster.start("a", skew=-86_400.0)
    await building.cluster.start("b", skew=86_400.0)
    building.gate.touch()
    jobs = [await building.office.jobs.submit("wait") for _ in range(40)]
    now = await building.office.app.now()
    later = await building.office.jobs.submit("wait", start=now.replace(year=now.year + 1))
    for job in jobs:
        await job.wait(30)
    rows = [await job.get() for job in jobs]
    assert {row.host_name for row in rows} <= {"a", "b"}
    assert all(abs((row.started_at - now).total_seconds()) < 600 for row in rows if row.started_at)
    assert await building.office.status(later) == 10  # A9
