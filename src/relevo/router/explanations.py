"""Why things are as they are: reads the rows that a question is about and asks the pure core."""

from __future__ import annotations

import random
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct

from relevo.errors import NotFound, RuleFailed
from relevo.kernel import cpu
from relevo.kernel.postgres import catalog, clock
from relevo.router import storage
from relevo.router.core import classification, eligibility, scoring_rules
from relevo.router.core.classification import Classified, Subject, Unclassifiable
from relevo.router.core.eligibility import JobExplanation, WorkerExplanation
from relevo.router.matcher import readings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.kernel.postgres import Database
    from relevo.router.matcher.readings import JobReading
    from relevo.router.matcher.rule_calls import RuleCaller
    from relevo.router.matching.situation import JobState, QueueState, WorkerState
    from relevo.router.storage import Remembered, Resources

SQL = catalog.load(__package__)
LOOKED_AT_MAX: Final = 10_000
"""Workers, or jobs, that an explanation looks at."""
READ_AT_ONCE: Final = 500
"""Rows that are read before others have their turn."""
OFFERS_SHOWN_MAX: Final = 100


class PastOffer(Struct, frozen=True):
    """An offer of a job, and its outcome."""

    offer_id: UUID
    worker_id: str
    state: str
    reason: str | None
    offered_at: datetime
    ended_at: datetime | None
    retry_at: datetime | None
    score: float | None
    """The worker's score, if the queue's mode is bestWorker."""


class JobReport(Struct, frozen=True, kw_only=True):
    """Why a job is where it is."""

    job_id: str
    status: str
    says: str
    """In a sentence."""
    queue_id: str | None
    position: int | None = None
    offers: tuple[PastOffer, ...] = ()
    """The latest first."""
    next: JobExplanation | None = None
    """For a waiting job: eligible workers, and what rules out the others."""


class WorkerReport(Struct, frozen=True, kw_only=True):
    """Why a worker has its offers and assignments, or none."""

    worker_id: str
    state: str
    says: str
    load_ratio: float
    next: WorkerExplanation | None = None


class Explanations:
    """Answers why a job waits, and why a worker is idle; changes nothing."""

    def __init__(self, database: Database, remembered: Remembered, caller: RuleCaller) -> None:
        self._database = database
        self._remembered = remembered
        self._caller = caller

    async def job(self, job_id: str) -> JobReport:
        """Explain a job."""
        read = await self._read_job(job_id)
        rows = await self._database.fetch(SQL.offers_of_job, job_id, OFFERS_SHOWN_MAX)
        offers = tuple(PastOffer(*row) for row in rows)
        if read.status != "queued":
            says = _STATUSES.get(read.status, f"the job is {read.status}")
            return JobReport(
                job_id=job_id, status=read.status, says=says, queue_id=read.queue_id, offers=offers
            )
        found = await self._next(read)
        place = await self._database.fetchval(SQL.place, job_id) + 1
        return JobReport(
            job_id=job_id, status=read.status, says=_sentence(found, place),
            queue_id=read.queue_id, position=place, offers=offers, next=found,
        )  # fmt: skip

    async def worker(self, worker_id: str) -> WorkerReport:
        """Explain a worker."""
        found = await storage.workers(self._database, [worker_id])
        if not found:
            raise NotFound(f"there is no worker {worker_id!r}")
        row, state = found[0], readings.worker(found[0])
        resources = await self._remembered.now(self._database)
        rows = await self._database.fetch(SQL.waiting_for_worker, row.queues, LOOKED_AT_MAX)
        jobs = await self._jobs([one["id"] for one in rows])
        queues = {job.queue: await self._queue(resources, job.queue) for job in jobs}
        known = {queue_id: queue for queue_id, queue in queues.items() if queue is not None}
        explained = await cpu.off_loop(eligibility.explain_worker, state, jobs, known)
        return WorkerReport(
            worker_id=worker_id, state=row.state, says=_of_worker(row.state, explained, len(jobs)),
            load_ratio=row.used / row.capacity, next=explained,
        )  # fmt: skip

    async def classification(
        self, policy_id: str, labels: Mapping[str, Any], *, queue_id: str | None = None,
        priority: int = 1,
    ) -> Classified | Unclassifiable:  # fmt: skip
        """Return the steps of classifying a job of these labels."""
        resources = await self._remembered.now(self._database)
        policy = resources.classification_policies.get(policy_id)
        if policy is None:
            raise NotFound(f"there is no classification policy {policy_id!r}")
        rows = await self._database.fetch(SQL.waiting_by_queue)
        waiting = {row["queue_id"]: row["jobs"] for row in rows}
        subject = Subject(version=0, labels=labels, queue_id=queue_id, priority=priority)
        answers = await self._caller.answers(classification.needed(policy, labels))
        classify = partial(classification.classify, answers=answers)
        draw = random.Random()  # noqa: S311 - a draw by weight, not a secret
        queues = readings.candidates(resources, waiting)
        return await cpu.off_loop(classify, subject, policy, queues, draw)

    async def _read_job(self, job_id: str) -> JobReading:
        rows = await self._database.fetch(SQL.matching_jobs, [job_id])
        if not rows:
            raise NotFound(f"there is no job {job_id!r}")
        return readings.job(rows[0])

    async def _jobs(self, ids: list[str]) -> list[JobState]:
        now = await clock.now(self._database)
        found: list[JobState] = []
        for part in _parts(ids):
            rows = await self._database.fetch(SQL.matching_jobs, part)
            found += [readings.job_state(readings.job(row), now) for row in rows]
        return found

    async def _workers(self, ids: list[str]) -> list[WorkerState]:
        found: list[WorkerState] = []
        for part in _parts(ids):
            found += [readings.worker(one) for one in await storage.workers(self._database, part)]
        return found

    async def _next(self, read: JobReading) -> JobExplanation:
        resources = await self._remembered.now(self._database)
        now = await clock.now(self._database)
        job = readings.job_state(read, now)
        queue = await self._queue(resources, job.queue)
        rows = await self._database.fetch(SQL.workers_of_queue, job.queue, LOOKED_AT_MAX)
        workers = await self._workers([row["id"] for row in rows])
        rated = await self._rated(resources, queue, job, workers)
        explain = partial(eligibility.explain_job, scorer=lambda *_: rated)
        return await cpu.off_loop(explain, job, queue, workers)

    async def _rated(
        self, resources: Resources, queue: QueueState | None, job: JobState,
        workers: Sequence[WorkerState],
    ) -> Mapping[str, float]:  # fmt: skip
        """Return the scores of eligible workers by the queue's scoring rule."""
        rule = readings.scoring_rule(resources, job.queue)
        if queue is None or rule is None:
            return {}
        able = await cpu.off_loop(
            lambda: [
                worker for worker in workers if eligibility.obstacle(worker, job, queue) is None
            ]
        )
        answers = await self._caller.answers(scoring_rules.calls(rule, queue.scoring, job, able))
        try:
            return await cpu.off_loop(scoring_rules.scores, rule, queue.scoring, job, able, answers)
        except RuleFailed:
            return {}

    async def _queue(self, resources: Resources, queue_id: str) -> QueueState | None:
        if queue_id not in resources.queues:
            return None
        pointers = await self._database.fetch(SQL.pointers)
        pointer = {row["queue_id"]: row["worker_id"] for row in pointers}.get(queue_id)
        return readings.queue(resources, queue_id, pointer)


def _parts(ids: list[str]) -> list[list[str]]:
    return [ids[n : n + READ_AT_ONCE] for n in range(0, len(ids), READ_AT_ONCE)]


_STATUSES: Final = {
    "pendingClassification": "its classification is under way or due",
    "classificationFailed": "its classification failed; its events say why. Change it, or its"
    " policy, and reclassify it",
    "scheduled": "it waits for the time it was scheduled for",
    "waitingForActivation": "it waits for its caller to set its matching mode to queueAndMatch",
    "assigned": "a worker has accepted it",
    "completed": "its work is done; it keeps its worker's capacity until it is closed",
    "closed": "it is finished",
    "cancelled": "it was canceled",
}


def _sentence(found: JobExplanation, place: int) -> str:
    match found.verdict:
        case "noQueue":
            return "its queue does not exist any more; move it to another one"
        case "offered":
            return "it has as many open offers as its distribution policy allows"
        case "chosen":
            return (
                f"it stands at place {place} and would be offered to {found.candidates[0].worker!r}"
            )
        case _:
            counts: dict[str, int] = {}
            for one in found.ruled_out:
                counts[one.obstacle.reason] = counts.get(one.obstacle.reason, 0) + one.count
            if not counts:
                return "no worker lists its queue"
            named = ", ".join(f"{reason} ({count})" for reason, count in counts.items())
            return f"no worker of its queue is eligible: {named}"


def _of_worker(state: str, found: WorkerExplanation, waiting: int) -> str:
    if state != "active":
        return f"it is {state}: register it to get offers"
    if not waiting:
        return "no job waits in its queues"
    if found.eligible_for:
        return f"it is eligible for {len(found.eligible_for)} of {waiting} jobs that wait"
    return f"it is eligible for none of {waiting} jobs that wait in its queues"
