"""Hosts that are killed or frozen, the matcher's own among them, under load (J7, J19)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import RelevoError
from relevo.testing.cluster import Cluster
from tests.router import programs
from tests.router.floor import QUICK, Floor

if TYPE_CHECKING:
    from pathlib import Path

    from relevo import App
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio
OWNER = """
select h.name from relevo.lease l join relevo.unit u on u.id = l.unit_id
join relevo.host h on h.incarnation = l.owner where u.kind = 'matcher'
"""
SETTINGS = {**QUICK, "pool_size": 4}


class Service:
    """Answers every offer as workers do, until it is told to stop, and keeps count."""

    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        self.assigned: dict[str, list[str]] = {}
        self.declines = 0.2
        """How often a worker says no."""
        self._random = random.Random(7)

    async def prepare(self) -> None:
        router = self.floor.router
        mode = {"kind": "longestIdle", "maxConcurrentOffers": 2}
        await router.set_distribution_policy("d", mode=mode, offer_ttl=600.0)
        for queue in programs.QUEUES:
            await router.set_queue(queue, distribution_policy="d")
        for n in range(programs.WORKERS):
            await self.floor.worker(
                f"w{n}", queues=programs.QUEUES, channels=programs.CHANNELS, capacity=100
            )

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(programs.WORKERS):
                group.create_task(self._work(f"w{n}"))

    async def _work(self, worker_id: str) -> None:
        router = self.floor.router
        while True:
            for offer in (await router.get_worker(worker_id)).offers:
                with contextlib.suppress(RelevoError):  # another was faster, or it was cancelled
                    if self._random.random() < self.declines:
                        await router.decline_offer(worker_id, offer.offer_id)
                        continue
                    done = await router.accept_offer(worker_id, offer.offer_id)
                    self.assigned.setdefault(offer.job_id, []).append(done.assignment_id)
                    await router.complete_job(offer.job_id, done.assignment_id)
                    await router.close_job(offer.job_id, done.assignment_id)
            await asyncio.sleep(0.01)

    async def finished(self) -> bool:
        left = await self.floor.app.database.fetchval(
            "select count(*) from relevo.router_job where ended_at is null"
        )
        return bool(left == 0)


async def owner(floor: Floor) -> str | None:
    name: str | None = await floor.app.database.fetchval(OWNER)
    return name


def has_made(cluster: Cluster, wanted: int) -> bool:
    return len(cluster.records("made")) > wanted


async def kill_hosts(app: App, clock: Clock, url: str, folder: Path, kills: int) -> None:
    floor = Floor(app, clock)
    service = Service(floor)
    await service.prepare()
    chance = random.Random(kills)
    async with Cluster(
        url, "tests.router.programs:desk", folder, settings=SETTINGS
    ) as cluster:  # fmt: skip
        for name in ("a", "b", "c"):
            await cluster.start(name)
        serving = asyncio.ensure_future(service.serve())
        try:
            for turn in range(kills):
                wanted = len(cluster.records("made")) + 20
                await cluster.until(partial(has_made, cluster, wanted), "there is load")
                victim = await owner(floor) if turn % 2 == 0 else chance.choice("abc")
                name = victim or "a"
                cluster.nodes[name].kill()
                await cluster.start(name)
            for node in cluster.nodes.values():
                node.kill()
            # Another matcher: everything that is left is brought to its end.
            service.declines = 0.0
            async with app.host(name="survivor"):
                await release_barred(floor)
                await cluster.until(service.finished, "all jobs are done", timeout=120)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        made = {one["job"] for one in cluster.records("made")}
        await check(floor, service, made, {one["job"] for one in cluster.records("cancelled")})


async def release_barred(floor: Floor) -> None:
    """Let workers forget what they declined, so that every job finds one."""
    for n in range(programs.WORKERS):
        await floor.router.deregister_worker(f"w{n}")
        await floor.router.update_worker(f"w{n}", available_for_offers=True)
        await floor.router.update_worker(f"w{n}", labels={"round": 2})


async def check(floor: Floor, service: Service, made: set[str], cancelled: set[str]) -> None:
    await floor.check()  # capacity is the sum of what is held; numbering has no gaps
    rows = await floor.app.database.fetch("select id, status from relevo.router_job")
    statuses = {row["id"]: row["status"] for row in rows}
    assert made <= set(statuses)  # no acknowledged job is lost
    assert cancelled <= {one for one, status in statuses.items() if status == "cancelled"}
    assert set(statuses.values()) == {"closed", "cancelled"}
    twice = {job: held for job, held in service.assigned.items() if len(set(held)) > 1}
    assert not twice  # J3
    rows = await floor.app.database.fetch(
        "select job_id from relevo.router_offer where assigned_at is not null"
        " group by job_id having count(*) > 1"
    )
    assert not rows
    assert await floor.app.database.fetchval("select sum(used) from relevo.router_load") == 0


async def test_no_kill_loses_a_job_or_assigns_one_twice(
    app: App, clock: Clock, relevo_url: str, tmp_path: Path
) -> None:  # J7, J3
    await kill_hosts(app, clock, relevo_url, tmp_path, kills=3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_hundred_kills_lose_no_job_and_assign_none_twice(
    app: App, clock: Clock, relevo_url: str, tmp_path: Path
) -> None:  # J7, J3
    await kill_hosts(app, clock, relevo_url, tmp_path, kills=100)


@pytest.mark.parametrize("point", ["before_offers", "after_offers", "before_classification"])
async def test_what_was_left_undone_at_a_crash_is_done_by_the_next_matcher(
    app: App, clock: Clock, relevo_url: str, tmp_path: Path, point: str
) -> None:  # J7
    floor = Floor(app, clock)
    await floor.open()
    # Nobody answers there: a rule that is a call, and fails in the open.
    rule = {"kind": "webhook", "webhookUri": "https://rules.invalid/"}
    change = {"fallbackQueueId": "q", "prioritizationRule": rule}
    await floor.router.policies.patch("classificationPolicies", "cp", change)
    async with Cluster(
        relevo_url, "tests.router.programs:matcher", tmp_path, settings=SETTINGS
    ) as cluster:  # fmt: skip
        cluster.faults.arm(point, "kill", process="a")
        node = await cluster.start("a")
        await floor.worker()
        await floor.job()
        await floor.job("p", queue=None, classification_policy="cp")
        await cluster.until(lambda: node.process.poll() is not None, "a dies there")
        await cluster.start("b")
        await floor.becomes("classificationFailed", "p")
        await floor.offered()
    rows = await app.database.fetch("select from relevo.router_offer where job_id = 'j'")
    assert len(rows) == 1
    await floor.check()


async def test_a_frozen_matcher_that_wakes_is_refused(
    app: App, clock: Clock, relevo_url: str, tmp_path: Path
) -> None:  # J19
    floor = Floor(app, clock)
    await floor.open()
    async with Cluster(
        relevo_url, "tests.router.programs:matcher", tmp_path, settings=SETTINGS
    ) as cluster:  # fmt: skip
        cluster.faults.arm("before_offers", "stop", process="a")
        sleeper = await cluster.start("a")
        await floor.worker(capacity=2)
        await floor.job("one")
        await cluster.faults.reached("before_offers")  # it has decided, and stands still
        await cluster.start("b")

        async def b_owns() -> bool:
            return await owner(floor) == "b"

        await cluster.until(b_owns, "b matches")
        await floor.offered("w", "one")
        sleeper.thaw()
        await floor.job("two")
        await floor.offered("w", "two")
        await cluster.until(lambda: _stopped_acting(sleeper), "a has seen that it is over")
        assert sorted(await floor.offers()) == ["one", "two"]
    rows = await app.database.fetch("select count(*) from relevo.router_offer group by job_id")
    assert [row[0] for row in rows] == [1, 1]
    await floor.check()


def _stopped_acting(node: Any) -> bool:
    return "lease" in node.log and ("lost" in node.log or "fenced" in node.log)
