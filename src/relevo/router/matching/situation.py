"""Input and output of matching: workers, jobs, queues and decisions as plain values.

A state is a reading of rows. Times are numbers of any unit and origin, as long as all of one kind
share them; `version` is the counter of the document, which the shell checks when
it commits a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from relevo.kernel.labels import Value
from relevo.router.core.capacity import ChannelTerms, Obstacle, obstacle
from relevo.router.core.selectors import WorkerSelector, is_expedited

Mode = Literal["longestIdle", "roundRobin", "bestWorker"]
EXPEDITED: Final = 1 << 40
"""More than any priority."""
ScoringParameter = Literal["jobLabels", "workerSelectors"]


class WorkerState(Struct, frozen=True, kw_only=True):
    """A worker and its load. `labels` need not have `Id`, which is always the id."""

    id: str
    available: bool = True
    queues: frozenset[str] = frozenset()
    channels: Mapping[str, ChannelTerms] = {}
    labels: Mapping[str, Value] = {}
    capacity: int = 1
    max_offers: int | None = None
    used: int = 0
    jobs: Mapping[str, int] = {}
    """By channel: open offers and assignments not yet closed."""
    open_offers: int = 0
    idle_since: float = 0
    version: int = 0

    @property
    def all_labels(self) -> dict[str, Value]:
        """The labels with `Id`, which belongs to the service."""
        return {**self.labels, "Id": self.id}

    def obstacle(self, channel: str) -> Obstacle | None:
        """Return why another job of a channel does not fit, or None if it does."""
        terms = self.channels.get(channel)
        taken = self.jobs.get(channel, 0)
        found = obstacle(capacity=self.capacity, used=self.used, terms=terms, jobs=taken)
        if found is None and self.max_offers is not None and self.open_offers >= self.max_offers:
            return "offerLimit"
        return found


class JobState(Struct, frozen=True, kw_only=True):
    """A job that waits in a queue.

    A worker in `declined` is not eligible, whatever the time: the shell leaves an entry out, and
    puts the job again, when its retry time has come.
    """

    id: str
    queue: str
    channel: str
    selectors: tuple[WorkerSelector, ...] = ()
    """Requested and attached ones; those that have expired ask for nothing."""
    priority: int = 1
    enqueued_at: float = 0
    arrival: int = 0
    open_offers: frozenset[str] = frozenset()
    """The workers that have been offered the job and have not answered."""
    declined: Mapping[str, float | None] = {}
    """Worker → when it may be asked again, None for not at all."""
    version: int = 0
    labels: Mapping[str, Value] = {}
    """For scoring only."""


class Scoring(Struct, frozen=True, kw_only=True):
    """How `bestWorker` rates workers.

    `default` is the average of all selectors; a `local` rule is rated by the index's `Scorer`,
    one worker of each class of equal labels if `by_class` (a rule that reads neither `worker.Id`
    nor the list of all workers), else each; an `outside` rule by whoever answers `NeedsScores`.
    """

    rule: Literal["default", "local", "outside"] = "default"
    by_class: bool = False
    descending: bool = True
    parameters: tuple[ScoringParameter, ...] = ("jobLabels", "workerSelectors")
    batch: bool = False
    batch_size: int = 20


class QueueState(Struct, frozen=True, kw_only=True):
    """A queue with its distribution policy."""

    id: str
    mode: Mode = "longestIdle"
    max_concurrent_offers: int = 1
    bypass_selectors: bool = False
    offer_ttl: float | None = None
    """Seconds until an offer expires; None means never."""
    scoring: Scoring = Scoring()
    pointer: str | None = None
    """The worker with the last offer; `roundRobin` continues after it."""


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """An offer to issue, if both documents still have these versions and what it takes is free."""

    job: str
    worker: str
    queue: str
    channel: str
    cost: int
    job_version: int
    worker_version: int
    offer_ttl: float | None = None
    pointer: str | None = None
    """The queue's new pointer; None where the mode has none."""
    score: float | None = None
    pointer_before: str | None = None
    stamps: tuple[int, int] = (0, 0)
    """Which readings of job and worker it was made from: `Index.reject` undoes no other."""


class NeedsScores(Struct, frozen=True, kw_only=True):
    """A job waits for scores of these workers from an external rule.

    Until `Index.scored` is called with it, jobs behind this one do not get these workers.
    """

    job: str
    workers: tuple[str, ...]
    stamp: int


def order(job: JobState, expedited: bool | None = None) -> tuple[int, float, int, str]:
    """Return the place of a job among all that wait, smaller first."""
    if expedited is None:
        expedited = is_expedited(job.selectors)
    urgency = -job.priority - EXPEDITED if expedited else -job.priority
    return urgency, job.enqueued_at, job.arrival, job.id
