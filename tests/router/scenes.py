"""A router without a database: a `World` with all rows in it, and the words of tests about it."""

from __future__ import annotations

import copy
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from relevo.router import model
from relevo.router.core import job_patches, jobs, offers, workers
from relevo.router.core.world import HOLDING, World
from relevo.router.matcher import steps
from relevo.router.model import CloseJobOptions
from relevo.router.storage import Resources, RouterOptions

if TYPE_CHECKING:
    from relevo.router.core.world import JobRow, OfferRow, WorkerRow

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
CHANNELS = [
    {"channelId": "chat", "capacityCostPerJob": 20, "maxNumberOfJobs": 3},
    {"channelId": "voice", "capacityCostPerJob": 60},
]


def resources(
    *, rules: Any = (), queues: tuple[str, ...] = ("q", "other"), most: int = 2, **options: Any
) -> Resources:
    """Queues with one distribution policy, exception rules on `q`, a classification policy."""
    policy = {"mode": {"kind": "longestIdle", "maxConcurrentOffers": most}}
    found = {one: {"distributionPolicyId": "d", "exceptionPolicyId": "e"} for one in queues}
    for one in queues[1:]:
        del found[one]["exceptionPolicyId"]
    return Resources(
        1,
        {one: model.checked("queues", body) for one, body in found.items()},
        {"d": model.checked("distributionPolicies", policy)},
        {"e": model.checked("exceptionPolicies", {"exceptionRules": list(rules)})},
        {"c": model.checked("classificationPolicies", {"fallbackQueueId": "q"})},
        RouterOptions(**options),
    )


def rule(rule_id: str, *actions: Any, waits: float | None = None, length: int = 0) -> Any:
    """An exception rule of the wire."""
    trigger: dict[str, Any] = {"kind": "queueLength", "threshold": length}
    if waits is not None:
        trigger = {"kind": "waitTime", "thresholdSeconds": waits}
    return {"id": rule_id, "trigger": trigger, "actions": list(actions)}


class Scene:
    """A world, and time in the hands of the test."""

    def __init__(self, known: Resources | None = None) -> None:
        self.world = World(START, known or resources(), 1)

    def later(self, seconds: float) -> None:
        self.world.now += timedelta(seconds=seconds)

    def job(self, job_id: str = "j", **change: Any) -> JobRow:
        if job_id not in self.world.jobs:
            change = {"channelId": "chat", "queueId": "q", **change}
        return job_patches.patch(self.world, job_id, change).job

    def worker(self, worker_id: str = "w", **change: Any) -> WorkerRow:
        if worker_id not in self.world.workers:
            base = {"queues": ["q", "other"], "channels": CHANNELS, "capacity": 100}
            change = {**base, "availableForOffers": True, **change}
        return workers.patch(self.world, worker_id, change).worker

    def offer(self, job_id: str = "j", worker_id: str = "w", ttl: float | None = 60.0) -> OfferRow:
        job, worker = self.world.jobs[job_id], self.world.workers[worker_id]
        channel = worker.channel(job.channel_id)
        assert channel is not None
        return offers.issue(self.world, job, worker, channel.capacity_cost_per_job, ttl)

    def accept(self, offer: OfferRow) -> UUID:
        return UUID(offers.accept(self.world, offer.worker_id, offer.id).assignment_id)

    def assigned(self, job_id: str = "j", worker_id: str = "w") -> UUID:
        if job_id not in self.world.jobs:
            self.job(job_id)
        if worker_id not in self.world.workers:
            self.worker(worker_id)
        return self.accept(self.offer(job_id, worker_id))

    def completed(self, job_id: str = "j", worker_id: str = "w") -> UUID:
        assignment = self.assigned(job_id, worker_id)
        jobs.complete(self.world, job_id, assignment, None)
        return assignment

    def close(self, assignment: UUID, job_id: str = "j", **told: Any) -> None:
        jobs.close(self.world, job_id, assignment, CloseJobOptions(**told))

    def look(self, job_id: str = "j") -> None:
        steps.look(job_id).decide(self.world)

    def told(self, subject: str | None = None) -> list[str]:
        """Names of the events so far, of all or of one subject."""
        return [
            one.type.removeprefix("relevo.router.")
            for one in self.world.events
            if subject in (None, one.subject)
        ]

    def frozen(self) -> Any:
        """Return everything that may change, to be compared later."""
        world = self.world
        return copy.deepcopy((world.jobs, world.workers, world.offers, world.events))


def check_loads(world: World) -> None:
    """What workers are said to hold is the sum over their offers (spec 14)."""
    for worker in world.workers.values():
        held = [one for one in world.offers.values() if one.worker_id == worker.id]
        held = [one for one in held if one.state in HOLDING]
        assert worker.used == sum(one.cost for one in held)
        assert worker.offers == sum(one.state == "open" for one in held)
        assert worker.holding == sum(one.state != "open" for one in held)
        assert worker.by_channel == dict(Counter(one.channel_id for one in held))


def check_numbers(world: World) -> None:
    """Events of a subject are numbered without gaps (J12)."""
    seen: Counter[str] = Counter()
    for event in world.events:
        seen[event.subject] += 1
        assert event.version == seen[event.subject], event
        if event.type.endswith(".deleted"):
            del seen[event.subject]  # whoever gets the id next begins anew
