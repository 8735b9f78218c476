"""What the matcher keeps in memory: policies, its index, and notes on waiting jobs.

All of it comes from rows. The event log only names the rows to read again, and reading a row twice
is harmless, so no position is stored: a new matcher notes the head of the log, then reads all rows.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct, field

from relevo.errors import FeedExpired
from relevo.kernel.events import reading
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import Question
from relevo.router import storage
from relevo.router.core import queueing
from relevo.router.matcher import readings
from relevo.router.matching.index import Index
from relevo.router.storage import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relevo.kernel.postgres import Database
    from relevo.router.matcher.readings import JobReading
    from relevo.router.storage import Remembered, Resources

HINTS_MAX = 2_000
"""Hints of a stripe that are read at once."""


class Hints(Struct):
    """Rows to read again."""

    jobs: set[str] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)
    resources: bool = False
    more: bool = False
    """Whether the log has more."""


class Follower:
    """A matcher's position in the event log."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._positions: dict[int, int] = {}
        self.question = Question(SQL.hints, self._arguments, of_rows=True)
        """Whether the log has named any row since the last time."""

    def _arguments(self) -> tuple[list[int], list[int], int]:
        return list(self._positions), list(self._positions.values()), HINTS_MAX

    async def begin(self) -> None:
        """Stand at the head of the log."""
        state = await reading.look(self._database)
        heads = await reading.heads(self._database)
        self._positions = {
            stripe.id: heads[stripe.id] for stripe in state.stripes if stripe.kind == "subject"
        }

    async def read(self) -> Hints:
        """Return the rows that the log has named since the last time."""
        hints = Hints()
        rows = await self._database.fetch(SQL.hints, *self._arguments())
        counts = dict.fromkeys(self._positions, 0)
        for stripe, lsn, job, worker, resource in rows:
            if lsn is None:
                raise FeedExpired(
                    f"stripe {stripe} of the event log was trimmed before its hints were read;"
                    " the rows tell"
                )
            self._positions[stripe] = lsn
            counts[stripe] += 1
            if job is not None:
                hints.jobs.add(job)
            if worker is not None:
                hints.workers.add(worker)
            if resource is not None:
                hints.resources = True
        hints.more = max(counts.values(), default=0) >= HINTS_MAX
        return hints


SQL = catalog.load("relevo.router")
T = TypeVar("T")
ROWS_MAX: Final = 2_000
"""Rows that are read, decided or committed at once."""
UNSETTLED: Final = frozenset({"queued", "pendingClassification"})
"""Statuses of jobs that the matcher acts on."""
SCORING_PAUSE_MAX: Final = 60.0
"""How long at the most a job waits whose scoring rule keeps failing; from 1 s, doubled."""


class WaitingJobs:
    """Notes on the jobs in the index: their queue, and when to read them again."""

    def __init__(self) -> None:
        self.by_queue: Counter[str] = Counter()
        """How many jobs wait in each queue."""
        self.queue_of: dict[str, str] = {}
        self._retries: dict[str, datetime] = {}
        self._failures: Counter[str] = Counter()
        self._refusers: dict[str, tuple[str, ...]] = {}
        self._refused: dict[str, set[str]] = {}
        self._registrations: dict[str, int] = {}

    def put(self, job: JobReading, now: datetime) -> bool:
        """Note a job as it was read; True if it has come into another queue."""
        moved = self.queue_of.get(job.id) != job.queue_id
        if moved:
            self.drop(job.id)
            self.queue_of[job.id] = job.queue_id
            self.by_queue[job.queue_id] += 1
        self._note_refusers(job.id, tuple(job.declined))
        retry = job.next_retry(now)
        if retry is not None:
            self._read_again(job.id, retry)
        return moved

    def drop(self, job_id: str) -> bool:
        """Forget a job; False if it was not known."""
        self._retries.pop(job_id, None)
        self._failures.pop(job_id, None)
        self._note_refusers(job_id, ())
        queue_id = self.queue_of.pop(job_id, None)
        if queue_id is not None:
            self.by_queue[queue_id] -= 1
        return queue_id is not None

    def jobs_in(self, queues: Iterable[str]) -> list[str]:
        """Return the jobs that wait in some queues."""
        wanted = frozenset(queues)
        return [job_id for job_id, queue_id in self.queue_of.items() if queue_id in wanted]

    def registered(self, worker_id: str, registration: int | None) -> set[str]:
        """A worker has been read; return the jobs that it may be offered again for that."""
        before = self._registrations.pop(worker_id, None)
        if registration is None:
            return set()
        self._registrations[worker_id] = registration
        return set(self._refused.get(worker_id, ())) if before != registration else set()

    def scored(self, job_id: str, now: datetime, *, well: bool) -> None:
        """Scores were asked for; a rule that failed is tried again, more and more rarely."""
        if well:
            self._failures.pop(job_id, None)
        elif job_id in self.queue_of:
            self._failures[job_id] += 1
            pause = min(SCORING_PAUSE_MAX, 2.0 ** min(self._failures[job_id] - 1, 10))
            self._read_again(job_id, now + timedelta(seconds=pause))

    def due(self, now: datetime) -> list[str]:
        """Take the jobs that are to be read again by now."""
        found = [job_id for job_id, at in self._retries.items() if at <= now]
        for job_id in found:
            del self._retries[job_id]
        return found

    def seconds_left(self, now: datetime, at_most: float) -> float:
        """Return for how long none is to be read again."""
        soonest = min(self._retries.values(), default=None)
        return at_most if soonest is None else min(at_most, (soonest - now).total_seconds())

    def _read_again(self, job_id: str, at: datetime) -> None:
        self._retries[job_id] = min(at, self._retries.get(job_id, at))

    def _note_refusers(self, job_id: str, workers: tuple[str, ...]) -> None:
        for one in self._refusers.pop(job_id, ()):
            jobs = self._refused[one]
            jobs.discard(job_id)
            if not jobs:
                del self._refused[one]
        if workers:
            self._refusers[job_id] = workers
            for one in workers:
                self._refused.setdefault(one, set()).add(job_id)


class Memory:
    """The matcher's picture of the rows, which may be stale."""

    clock: datetime
    """PostgreSQL's time at the last look."""

    def __init__(self, database: Database, remembered: Remembered) -> None:
        self._database = database
        self._remembered = remembered
        self.resources: Resources = NOTHING
        self.index = Index(readings.Scorer(lambda: self.resources))
        self.waiting = WaitingJobs()
        self.stale = Hints()
        """What to read again before the next decision."""
        self.overlooked: set[str] = set()
        """Jobs that a rule that is newer than their timer looks at earlier."""

    async def are_resources_stale(self) -> bool:
        """Whether decisions were rejected because there is a later revision of the resources.

        Not every revision is in the log: that of a channel, or of a change that changed nothing.
        """
        asked, self.stale.resources = self.stale.resources, False
        if not asked:
            return False
        revision: int = await self._database.fetchval(SQL.revision)
        return revision != self.resources.revision

    async def renew_resources(self) -> None:
        """Read changed policies and queues; update the index, and jobs with other rules."""
        before, self.resources = self.resources, await self._remembered.now(self._database)
        pointers = {
            row["queue_id"]: row["worker_id"] for row in await self._database.fetch(SQL.pointers)
        }
        for queue_id in self.resources.queues:
            self.index.put_queue(readings.queue(self.resources, queue_id, pointers.get(queue_id)))
        for queue_id in before.queues.keys() - self.resources.queues.keys():
            self.index.remove_queue(queue_id)
        ruled_otherwise = {
            queue_id for queue_id in self.resources.queues
            if queueing.exception_policy(before, queue_id)
            != queueing.exception_policy(self.resources, queue_id)
        }  # fmt: skip
        self.stale.jobs.update(self.waiting.jobs_in(ruled_otherwise))

    async def read_workers(self, ids: Iterable[str]) -> None:
        """Put available workers into the index; take the others out."""
        for part in in_parts(ids):
            found = {one.id: one for one in await storage.workers(self._database, part)}
            for worker_id in part:
                worker = found.get(worker_id)
                if worker is None or not worker.available:
                    self.waiting.registered(worker_id, None)
                    self.index.remove_worker(worker_id)
                else:
                    again = self.waiting.registered(worker_id, worker.registration)
                    self.stale.jobs |= again
                    self.index.put_worker(readings.worker(worker))

    async def put_jobs(self, ids: Sequence[str]) -> list[JobReading]:
        """Put jobs that wait into the index; return those that something must happen to before."""
        rows = await self._database.fetch(SQL.matching_jobs, ids)
        found = {row["id"]: readings.job(row) for row in rows if row["status"] in UNSETTLED}
        unsettled = []
        for job_id in ids:
            job = found.get(job_id)
            if job is not None and job.status == "queued" and job.entered:
                self._put(job)
                continue
            self._drop(job_id)
            if job is not None:
                unsettled.append(job)
        return unsettled

    def _put(self, job: JobReading) -> None:
        if self.waiting.put(job, self.clock):
            self.index.remove_job(job.id)
        if job.is_overlooked(self.resources):
            self.overlooked.add(job.id)
        self.index.put_job(readings.job_state(job, self.clock))

    def _drop(self, job_id: str) -> None:
        if self.waiting.drop(job_id):
            self.index.remove_job(job_id)


def in_parts(items: Iterable[T]) -> list[list[T]]:
    """Split items into parts of at most `ROWS_MAX`."""
    rows = list(items)
    return [rows[n : n + ROWS_MAX] for n in range(0, len(rows), ROWS_MAX)]
