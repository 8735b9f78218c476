"""The rows that a transaction's commands touch, locked, and the changes to them.

Commands are plain functions over a `World`. They check first and change then, so that a refused one
has changed nothing; those of one transaction see each other's changes. What was changed is written
back in sets, events last (`relevo.router.storage`).
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct

from relevo.kernel.events import Event
from relevo.router.core.selectors import WorkerSelector
from relevo.router.events import PREFIX, TOUCHED, Touched
from relevo.router.model import Channel, JobNote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.router.storage import Resources

ARRIVALS: Final = 1_000_000
"""Jobs that may enter queues in one transaction, in their order."""
SEEN_EVERY: Final = timedelta(hours=1)
"""A sign of life of a worker is written down so often at the most."""
OPEN: Final = "open"
HOLDING: Final = frozenset({"open", "assigned", "completed"})
"""States of an offer in which it takes its worker's capacity."""


class JobRow(Struct, gc=False):
    """A row of `router_job`."""

    id: str
    version: int
    activity: int
    events: int
    created_at: datetime
    modified_at: datetime
    status: str
    channel_id: str
    channel_reference: str | None
    queue_id: str | None
    policy_id: str | None
    priority: int
    disposition: str | None
    mode: str
    schedule_at: datetime | None
    scheduled_at: datetime | None
    enqueued_at: datetime | None
    arrival: int | None
    expedite: bool
    round: int
    unassigned: int
    fired: list[str]
    entered: bool
    due_at: datetime | None
    close_at: datetime | None
    ended_at: datetime | None
    closing: dict[str, Any] | None
    requested: tuple[WorkerSelector, ...]
    attached: tuple[WorkerSelector, ...]
    labels: dict[str, Any]
    tags: dict[str, Any]
    notes: tuple[JobNote, ...]

    @property
    def etag(self) -> str:
        """Names this version of the job, quotes included."""
        return f'"{self.version:x}-{self.activity:x}"'

    @property
    def selectors(self) -> tuple[WorkerSelector, ...]:
        """The selectors of the caller and of the classification."""
        return self.requested + self.attached


class WorkerRow(Struct, gc=False):
    """A row of `router_worker` with its row of `router_load`."""

    id: str
    version: int
    created_at: datetime
    modified_at: datetime
    available: bool
    registration: int
    registered_at: datetime | None
    seen_at: datetime
    capacity: int
    max_offers: int | None
    queues: list[str]
    activity: int
    events: int
    used: int
    offers: int
    holding: int
    idle_since: datetime
    acted_at: datetime
    channels: tuple[Channel, ...]
    labels: dict[str, Any]
    tags: dict[str, Any]
    by_channel: dict[str, int]

    @property
    def etag(self) -> str:
        """Names this version of the worker, quotes included."""
        return f'"{self.version:x}-{self.activity:x}"'

    @property
    def state(self) -> str:
        """Active, draining or inactive."""
        if self.available:
            return "active"
        return "draining" if self.holding else "inactive"

    @property
    def changed_at(self) -> datetime:
        """When the worker, its offers or its assignments changed last."""
        return max(self.modified_at, self.acted_at)

    @property
    def all_labels(self) -> dict[str, Any]:
        """The labels, with the one that belongs to the service."""
        return {**self.labels, "Id": self.id}

    def channel(self, channel_id: str) -> Channel | None:
        """Return what a job on a channel costs this worker, if it serves it."""
        return next(
            (channel for channel in self.channels if channel.channel_id == channel_id), None
        )


class OfferRow(Struct, gc=False):
    """A row of `router_offer`: an offer, and the assignment that it becomes."""

    id: UUID
    job_id: str
    worker_id: str
    queue_id: str
    channel_id: str
    cost: int
    state: str
    offered_at: datetime
    expires_at: datetime | None
    job_round: int
    registration: int
    retry_at: datetime | None = None
    reason: str | None = None
    assignment_id: UUID | None = None
    assigned_at: datetime | None = None
    completed_at: datetime | None = None
    ended_at: datetime | None = None
    score: float | None = None


class World:
    """The locked rows, policies and queues, the time, and the changes."""

    def __init__(self, now: datetime, resources: Resources, arrival: int = 0) -> None:
        self.now = now
        self.resources = resources
        self.jobs: dict[str, JobRow] = {}
        self.workers: dict[str, WorkerRow] = {}
        self.offers: dict[UUID, OfferRow] = {}
        self.events: list[Event] = []
        self.new_jobs: set[str] = set()
        self.job_states: set[str] = set()
        self.job_steps: set[str] = set()
        """Jobs that went one step on and are otherwise as they were."""
        self.job_documents: set[str] = set()
        self.deleted_jobs: set[str] = set()
        self.new_workers: set[str] = set()
        self.loads: set[str] = set()
        self.worker_documents: set[str] = set()
        self.deleted_workers: set[str] = set()
        self.new_offers: set[UUID] = set()
        self.changed_offers: set[UUID] = set()
        self.pointers: dict[str, str] = {}
        self.skipped: list[tuple[str, str]] = []
        """Exception actions that could not be done: the job, and why."""
        self._touched: dict[str, Event] = {}
        self._arrival = arrival * ARRIVALS
        self._of_job: defaultdict[str, list[OfferRow]] = defaultdict(list)
        self._of_worker: defaultdict[str, list[OfferRow]] = defaultdict(list)

    def add_offer(self, offer: OfferRow) -> None:
        """Take in an offer that was read or made."""
        if offer.id not in self.offers:
            self.offers[offer.id] = offer
            self._of_job[offer.job_id].append(offer)
            self._of_worker[offer.worker_id].append(offer)

    def next_arrival(self) -> int:
        """Return the place of the next job that enters a queue, among those of one instant."""
        self._arrival += 1
        return self._arrival

    def open_offers(self, job: JobRow) -> list[OfferRow]:
        """Return the open offers of a job."""
        return [one for one in self._of_job[job.id] if one.state == OPEN]

    def open_offers_to(self, worker: WorkerRow) -> list[OfferRow]:
        """Return the open offers of a worker that was loaded with its offers."""
        return [one for one in self._of_worker[worker.id] if one.state == OPEN]

    def had(self, worker: WorkerRow) -> list[OfferRow]:
        """Return the loaded offers of a worker, ended or not."""
        return list(self._of_worker[worker.id])

    def held_by(self, worker: WorkerRow) -> Iterator[OfferRow]:
        """Yield the offers that take capacity of a worker loaded with its offers."""
        return (one for one in self._of_worker[worker.id] if one.state in HOLDING)

    def assignments(self, job: JobRow) -> list[OfferRow]:
        """Return the assignments that a job has had, in their order."""
        found = [one for one in self._of_job[job.id] if one.assigned_at is not None]
        return sorted(found, key=lambda one: (one.assigned_at, one.assignment_id))

    def current(self, job: JobRow) -> OfferRow | None:
        """Return the assignment of a job that has not ended."""
        return next(
            (one for one in self._of_job[job.id] if one.state in ("assigned", "completed")), None
        )

    def forget_job(self, job: JobRow) -> None:
        """Drop a job and its offers; another of its id may be created."""
        del self.jobs[job.id]
        for offer in self._of_job.pop(job.id, ()):
            del self.offers[offer.id]
            self.changed_offers.discard(offer.id)
            self.new_offers.discard(offer.id)
            self._of_worker[offer.worker_id].remove(offer)
        if job.id in self.new_jobs:
            self.new_jobs.discard(job.id)
        else:
            self.deleted_jobs.add(job.id)

    def forget_worker(self, worker: WorkerRow) -> None:
        """Drop a worker; its offers remain with the jobs."""
        del self.workers[worker.id]
        if worker.id in self.new_workers:
            self.new_workers.discard(worker.id)
        else:
            self.deleted_workers.add(worker.id)

    def act_on(self, job: JobRow) -> None:
        """Note that the router has moved a job."""
        job.activity += 1
        job.modified_at = self.now
        self.job_states.add(job.id)

    def step(self, job: JobRow) -> None:
        """Note that a job went one step on: its status, its end, and nothing else."""
        job.activity += 1
        job.modified_at = self.now
        self.job_steps.add(job.id)

    def touch(self, job: JobRow) -> None:
        """Note that matching must look at a job, though nothing may be announced."""
        self.job_states.add(job.id)
        subject = f"job/{job.id}"
        self._touched[subject] = Event(TOUCHED, subject, job.events, Touched(job_id=job.id))

    def touch_worker(self, worker: WorkerRow) -> None:
        """Note that matching must look at a worker, though nothing may be announced."""
        subject = f"worker/{worker.id}"
        hint = Touched(worker_id=worker.id)
        self._touched[subject] = Event(TOUCHED, subject, worker.events, hint)

    def log_entries(self) -> list[Event]:
        """Return the entries of the log: public events, and hints for other changes."""
        announced = {event.subject for event in self.events}
        return self.events + [one for one in self._touched.values() if one.subject not in announced]

    def edit(self, job: JobRow) -> None:
        """Note that a job's document has changed."""
        job.version += 1
        job.modified_at = self.now
        self.job_documents.add(job.id)

    def act_on_worker(self, worker: WorkerRow) -> None:
        """Note that a worker's offers or assignments have changed."""
        worker.activity += 1
        worker.acted_at = self.now
        self.loads.add(worker.id)

    def edit_worker(self, worker: WorkerRow) -> None:
        """Note that a worker's document has changed."""
        worker.version += 1
        worker.modified_at = self.now
        self.worker_documents.add(worker.id)

    def see(self, worker: WorkerRow) -> None:
        """Note a sign of life of a worker."""
        if self.now - worker.seen_at > SEEN_EVERY:
            worker.seen_at = self.now
            self.worker_documents.add(worker.id)

    def tell_of_job(self, job: JobRow, name: str, data: Struct) -> None:
        """Record an event of a job."""
        job.events += 1
        self.job_steps.add(job.id)
        self.events.append(Event(PREFIX + name, f"job/{job.id}", job.events, data))

    def tell_of_worker(self, worker: WorkerRow, name: str, data: Struct) -> None:
        """Record an event of a worker, or of an offer to it."""
        worker.events += 1
        self.loads.add(worker.id)
        self.events.append(Event(PREFIX + name, f"worker/{worker.id}", worker.events, data))
