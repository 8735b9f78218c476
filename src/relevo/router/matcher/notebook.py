"""What the matcher notes of waiting jobs besides its index: where they wait, when to read them."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.router.matcher.readings import JobReading

SCORING_PAUSE_MAX: Final = 60.0
"""How long at the most a job waits whose scoring rule keeps failing; from 1 s, doubled."""


class Notebook:
    """Notes on the jobs that are in the index; they go with the job."""

    def __init__(self) -> None:
        self.waiting: Counter[str] = Counter()
        """By queue: how many jobs wait in it."""
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
            self.waiting[job.queue_id] += 1
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
            self.waiting[queue_id] -= 1
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
