"""The search for a worker: the eligible one that the queue's mode picks for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from relevo.router.core.scoring import default_score
from relevo.router.matching.ordering import FEW, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from relevo.router.matching.backlog import BacklogJob
    from relevo.router.matching.crews import Crew
    from relevo.router.matching.ordering import Chosen, Groups, Key, Ordered
    from relevo.router.matching.ratings import Ratings
    from relevo.router.matching.roster import Roster, RosterWorker
    from relevo.router.matching.situation import JobState, NeedsScores, QueueState, WorkerState
    from relevo.router.matching.vocabulary import Vocabulary

    Scorer = Callable[[QueueState, JobState, Sequence[WorkerState]], Mapping[str, float]]
    """Rates workers by a queue's local rule; a worker that is left out has no score."""

    Accepts = Callable[[RosterWorker], bool]

    Choice = tuple[RosterWorker, float | None]
    Picked = Choice | NeedsScores | Literal["unrated"] | None


class Search:
    """Finds workers among those with room, the same whether a job or a worker asked for it."""

    def __init__(
        self, roster: Roster, vocabulary: Vocabulary, ratings: Ratings, scorer: Scorer | None
    ) -> None:
        self._roster = roster
        self._vocabulary = vocabulary
        self._ratings = ratings
        self._scorer = scorer

    def pick(self, job: BacklogJob, queue: QueueState, pointer: str | None) -> Picked:
        """Return the worker that the mode picks; the scores to request first; that one is missing;
        or None if no worker is eligible.
        """
        if queue.mode == "bestWorker":
            return self._best(job, queue)
        if job.only is not None:
            found = next(self._eligible(job), None)
        elif queue.mode == "roundRobin":
            found = self._next(job, pointer)
        else:
            found = self._longest_idle(job)
        return None if found is None else (found, None)

    def _accepts(self, job: BacklogJob) -> Accepts | None:
        """Return the remaining conditions on a worker with room that meets the shape."""
        if not job.choosy and not self._ratings.by_job:
            return None
        return lambda worker: (
            job.admits(worker.id) and self._ratings.holder(worker.id, job.key) is None
        )

    def _longest_idle(self, job: BacklogJob) -> RosterWorker | None:
        best: Key | None = None
        channel, accepts = job.state.channel, self._accepts(job)
        for crew in self._roster.crews(job.state.queue, channel):
            roomy, cost = crew.roomy(channel), crew.channels[channel].cost
            chosen = crew.meeting(job.shape)
            first = roomy.first(chosen)
            if first is None or (best is not None and first > best):
                continue
            worker: RosterWorker = first[-1]
            if accepts is None and worker.used + cost <= worker.state.capacity:
                best = first
            else:
                best = _search(roomy, chosen, cost, accepts, best)
        return None if best is None else best[-1]

    def _next(self, job: BacklogJob, pointer: str | None) -> RosterWorker | None:
        behind: RosterWorker | None = None
        from_start: RosterWorker | None = None
        # The smallest text above the pointer; below its own key, for keys go on behind the id.
        bound = ("",) if pointer is None else (pointer + "\0",)
        accepts = self._accepts(job) or _anybody
        for crew in self._roster.crews(job.state.queue, job.state.channel):
            found = self._after(crew, job, bound, accepts)
            if found is not None and (behind is None or found.id < behind.id):
                behind = found
            if behind is None:
                found = self._after(crew, job, ("",), accepts)
                if found is not None and (from_start is None or found.id < from_start.id):
                    from_start = found
        return behind or from_start

    def _after(
        self, crew: Crew, job: BacklogJob, bound: Key, accepts: Accepts
    ) -> RosterWorker | None:
        ring = self._roster.ring(crew, job.state.channel)
        chosen = crew.meeting(job.shape).bits & ring.groups.occupied
        if chosen.bit_count() <= FEW:
            firsts = (_turn(ring.groups.group(one), bound, accepts) for one in numbers(chosen))
            return min((first for first in firsts if first), key=lambda one: one.id, default=None)
        for _, number, worker in ring.everyone.after(bound):
            if chosen >> number & 1 and accepts(worker):
                found: RosterWorker = worker
                return found
        return None

    def _best(self, job: BacklogJob, queue: QueueState) -> Picked:
        rule = queue.scoring.rule
        if rule == "outside":
            candidates = list(self._eligible(job, ignore_holds=True))
            return self._rated_outside(job, queue, candidates)
        by_class = queue.scoring.by_class if rule == "local" else not _asks_for_id(job.state)
        workers = list(self._eligible(job, one_of_each_class=by_class))
        rate = self._rated_by_default if rule == "default" else self._rated_here
        scores = rate(job, queue, workers)
        return _highest(workers, scores, queue.scoring.descending)

    def _rated_by_default(
        self, job: BacklogJob, queue: QueueState, workers: Sequence[RosterWorker]
    ) -> Mapping[str, float]:
        wanted, selectors = job.state.labels, job.state.selectors
        return {x.id: default_score(wanted, selectors, x.state.all_labels) for x in workers}

    def _rated_here(
        self, job: BacklogJob, queue: QueueState, workers: Sequence[RosterWorker]
    ) -> Mapping[str, float]:
        if self._scorer is None or not workers:
            return {}
        return self._scorer(queue, job.snapshot(), [worker.snapshot() for worker in workers])

    def _rated_outside(
        self, job: BacklogJob, queue: QueueState, candidates: Sequence[RosterWorker]
    ) -> Picked:
        if not candidates:
            return None
        rating = self._ratings.of(job)
        if rating.resting:
            return "unrated"
        request = self._ratings.ask(job, rating, candidates)
        if request is not None:
            return request
        if rating.asked:
            return "unrated"
        free = [
            candidate
            for candidate in candidates
            if self._ratings.holder(candidate.id, job.key) is None
        ]
        scores = {one.id: score for one in free if (score := rating.score(one)) is not None}
        return _highest(free, scores, queue.scoring.descending)

    def _eligible(
        self, job: BacklogJob, *, one_of_each_class: bool = False, ignore_holds: bool = False
    ) -> Iterator[RosterWorker]:
        """Walk all eligible workers, or of each class the first in the longest-idle order."""
        accepts = _admitted(job) if ignore_holds else self._accepts(job)
        channel = job.state.channel
        if job.only is not None:
            worker = self._roster.workers.get(job.only)
            if (
                worker
                and self._may_get_personally(worker, job)
                and (not accepts or accepts(worker))
            ):
                yield worker
            return
        for crew in self._roster.crews(job.state.queue, channel):
            roomy = crew.roomy(channel)
            cost = crew.channels[channel].cost
            for number in numbers(crew.meeting(job.shape).bits & roomy.occupied):
                for key in roomy.group(number):
                    worker = key[-1]
                    if worker.used + cost > worker.state.capacity:
                        break
                    if not accepts or accepts(worker):
                        yield worker
                        if one_of_each_class:
                            break

    def _may_get_personally(self, worker: RosterWorker, job: BacklogJob) -> bool:
        return (
            job.state.queue in worker.state.queues
            and worker.fits(job.state.channel)
            and bool(worker.member_of.meets(self._vocabulary).bits >> job.group & 1)
        )


def _search(
    roomy: Groups, chosen: Chosen, cost: int, accepts: Accepts | None, best: Key | None
) -> Key | None:
    """Return the first of some classes that has room and is accepted, if it comes before `best`."""
    for first in roomy.firsts(chosen):
        if best is not None and first > best:
            break
        for key in roomy.group(first[-2]):
            worker: RosterWorker = key[-1]
            if worker.used + cost > worker.state.capacity or (best is not None and key > best):
                break
            if accepts is None or accepts(worker):
                best = key
                break
    return best


def _turn(group: Ordered, bound: Key, accepts: Accepts) -> RosterWorker | None:
    return next((key[-1] for key in group.after(bound) if accepts(key[-1])), None)


def _highest(
    workers: Sequence[RosterWorker], scores: Mapping[str, float], descending: bool
) -> Choice | Literal["unrated"] | None:
    """Return the worker with the best score; equal scores go by load, idle time and id."""
    if not workers:
        return None
    sign = -1 if descending else 1
    rated = [worker for worker in workers if worker.id in scores]
    best = min(rated, key=lambda one: (sign * scores[one.id], one.rank), default=None)
    return "unrated" if best is None else (best, scores[best.id])


def _asks_for_id(job: JobState) -> bool:
    return "Id" in job.labels or any(selector.key == "Id" for selector in job.selectors)


def _admitted(job: BacklogJob) -> Accepts:
    return lambda worker: job.admits(worker.id)


def _anybody(_: RosterWorker) -> bool:
    return True
