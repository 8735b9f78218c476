"""Explains why a job waits or a worker is idle: each condition of matching, in words.

Everything is worked out from the states anew, by the rules of matching and without the index,
as if it were this job's turn. So it also bears witness that the index decides as it should.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo.kernel.labels import Value, identity
from relevo.router.core.capacity import load_ratio
from relevo.router.core.scoring import default_score
from relevo.router.core.selectors import WorkerSelector, first_failing
from relevo.router.matching.situation import order

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from relevo.router.matching.searching import Scorer
    from relevo.router.matching.situation import JobState, QueueState, WorkerState

Reason = Literal[
    "unavailable",
    "queue",
    "channel",
    "capacity",
    "channelLimit",
    "selector",
    "offered",
    "declined",
    "offerLimit",
    "unrated",
]
"""Which condition ruled a worker out: not registered; does not serve the queue, or the channel; too
little capacity left; as many jobs of the channel as it may have; a selector; has an open offer for
this job; has declined it; as many offers as it may have; the scoring rule gave it no score."""

NAMED: Final = 10
"""So many workers or jobs are named for each reason; all are counted."""


class Obstacle(Struct, frozen=True):
    """Why a worker does not get a job."""

    reason: Reason
    selector: WorkerSelector | None = None
    """The condition that it does not meet."""
    retry_at: float | None = None
    """When it may be asked again, if it has declined for a while."""


class WorkerCandidate(Struct, frozen=True):
    """An eligible worker, with the values that rank it."""

    worker: str
    load_ratio: float
    idle_since: float
    score: float | None = None


class RuledOut(Struct, frozen=True):
    """Workers with the same labels, but for `Id`, that the same condition rules out."""

    obstacle: Obstacle
    labels: Mapping[str, Value]
    count: int
    workers: tuple[str, ...]
    """The first few by id."""


class JobExplanation(Struct, frozen=True):
    """The worker that a job would be offered to next, or why there is none.

    `offered` means that as many offers are open as there may be, `noQueue` that its queue is gone,
    `nobody` that all workers are ruled out, `chosen` that the first candidate is next.
    """

    job: str
    verdict: Literal["offered", "noQueue", "nobody", "chosen"]
    candidates: tuple[WorkerCandidate, ...] = ()
    """Eligible workers, in the order of the mode."""
    ruled_out: tuple[RuledOut, ...] = ()

    @property
    def chosen(self) -> WorkerCandidate | None:
        """The next worker, if there is one."""
        return self.candidates[0] if self.verdict == "chosen" else None


class JobsRuledOut(Struct, frozen=True):
    """Waiting jobs that a worker does not get for the same reason."""

    obstacle: Obstacle
    queue: str
    channel: str
    count: int
    jobs: tuple[str, ...]
    """The first few in the order in which they wait."""


class WorkerExplanation(Struct, frozen=True):
    """Which waiting jobs a worker could get, in their order, and why it gets no other."""

    worker: str
    eligible_for: tuple[str, ...] = ()
    ruled_out: tuple[JobsRuledOut, ...] = ()


def explain_job(
    job: JobState,
    queue: QueueState | None,
    workers: Iterable[WorkerState],
    *,
    scorer: Scorer | None = None,
) -> JobExplanation:
    """Explain which worker is next for a job, and what rules out the others.

    `scorer` answers for the queue's scoring rule, if it has one; for a rule outside, hand in what
    it has answered. The first candidate is the one that `Index.decide` takes at the job's turn.
    """
    if queue is None:
        return JobExplanation(job.id, "noQueue")
    able: list[WorkerState] = []
    barred: list[tuple[WorkerState, Obstacle]] = []
    for one in workers:
        found = obstacle(one, job, queue)
        if found is None:
            able.append(one)
        else:
            barred.append((one, found))
    scores = _scores(job, queue, able, scorer)
    if scores is not None:
        barred += [(one, Obstacle("unrated")) for one in able if one.id not in scores]
        able = [one for one in able if one.id in scores]
    able.sort(key=_preference(queue, scores))
    candidates = tuple(
        WorkerCandidate(
            one.id,
            load_ratio(one.used, one.capacity),
            one.idle_since,
            None if scores is None else scores[one.id],
        )
        for one in able
    )
    enough = len(job.open_offers) >= queue.max_concurrent_offers
    verdict: Literal["offered", "chosen", "nobody"]
    verdict = "offered" if enough else "chosen" if candidates else "nobody"
    return JobExplanation(job.id, verdict, candidates, _by_class(barred))


def explain_worker(
    worker: WorkerState, jobs: Iterable[JobState], queues: Mapping[str, QueueState]
) -> WorkerExplanation:
    """Say which waiting jobs a worker is eligible for, and why not for the others.

    It gets the first job for which the queue's mode prefers no other worker (see `explain_job`).
    """
    eligible: list[str] = []
    grouped: dict[tuple[Obstacle, str, str], list[str]] = {}
    for job in sorted(jobs, key=order):
        queue = queues.get(job.queue)
        found = Obstacle("queue") if queue is None else obstacle(worker, job, queue)
        if found is None:
            eligible.append(job.id)
        else:
            grouped.setdefault((found, job.queue, job.channel), []).append(job.id)
    ruled_out = tuple(
        JobsRuledOut(found, queue_id, channel, len(ids), tuple(ids[:NAMED]))
        for (found, queue_id, channel), ids in grouped.items()
    )
    return WorkerExplanation(worker.id, tuple(eligible), ruled_out)


def obstacle(worker: WorkerState, job: JobState, queue: QueueState) -> Obstacle | None:
    """Return the first condition of matching that a worker does not meet, if any."""
    if not worker.available:
        return Obstacle("unavailable")
    if job.queue not in worker.queues:
        return Obstacle("queue")
    full = worker.obstacle(job.channel)
    if full is not None and full != "offerLimit":
        return Obstacle(full)
    if not queue.bypass_selectors:
        failing = first_failing(job.selectors, worker.all_labels)
        if failing is not None:
            return Obstacle("selector", failing)
    if worker.id in job.open_offers:
        return Obstacle("offered")
    if worker.id in job.declined:
        return Obstacle("declined", retry_at=job.declined[worker.id])
    return None if full is None else Obstacle(full)


def _scores(
    job: JobState, queue: QueueState, able: Sequence[WorkerState], scorer: Scorer | None
) -> Mapping[str, float] | None:
    if queue.mode != "bestWorker":
        return None
    if queue.scoring.rule == "default":
        return {x.id: default_score(job.labels, job.selectors, x.all_labels) for x in able}
    return {} if scorer is None or not able else scorer(queue, job, able)


def _preference(
    queue: QueueState, scores: Mapping[str, float] | None
) -> Callable[[WorkerState], tuple[float | bool | str, ...]]:
    """Return the order in which a queue's mode takes workers."""
    if queue.mode == "roundRobin":
        pointer = queue.pointer or ""
        return lambda one: (one.id <= pointer, one.id)
    sign = -1 if queue.scoring.descending else 1
    return lambda one: (
        0.0 if scores is None else sign * scores[one.id],
        load_ratio(one.used, one.capacity),
        one.idle_since,
        one.id,
    )


def _by_class(barred: Iterable[tuple[WorkerState, Obstacle]]) -> tuple[RuledOut, ...]:
    grouped: dict[Hashable, tuple[Obstacle, dict[str, Value], list[str]]] = {}
    for worker, found in barred:
        labels = {key: value for key, value in worker.labels.items() if key != "Id"}
        alike = found, frozenset((key, identity(value)) for key, value in labels.items())
        grouped.setdefault(alike, (found, labels, []))[2].append(worker.id)
    return tuple(
        RuledOut(found, labels, len(ids), tuple(sorted(ids)[:NAMED]))
        for found, labels, ids in grouped.values()
    )
