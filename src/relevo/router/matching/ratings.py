"""Scores of external rules: requested, known, and the workers held meanwhile.

While a job waits for scores, the workers that it may get are *held*: jobs behind it do not get
them, for it must not be passed over because its rule takes time. Other jobs of its kind ask
ahead meanwhile, so that rules are called side by side and offers still go out in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.router.matching.situation import NeedsScores

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from relevo.router.matching.backlog import BacklogJob
    from relevo.router.matching.ordering import Key
    from relevo.router.matching.roster import RosterWorker


class Rating:
    """The scores of one version of a job."""

    __slots__ = ("asked", "held", "key", "known", "resting", "stamp", "version")

    def __init__(self, job: BacklogJob) -> None:
        self.key: Key = job.key
        self.version = job.state.version
        self.stamp = job.stamp
        self.known: dict[str, tuple[int, float | None]] = {}
        """By worker: the version that was rated, and the score, None if there was none."""
        self.asked: dict[str, int] = {}
        """By worker: the version that is being rated."""
        self.held: set[str] = set()
        self.resting = False
        """Its rule has failed, and the job was not put again since."""

    def knows(self, worker: RosterWorker) -> bool:
        """Whether this worker as it is has been rated."""
        found = self.known.get(worker.id)
        return found is not None and found[0] == worker.state.version

    def score(self, worker: RosterWorker) -> float | None:
        """Return the score of a worker that has one."""
        return self.known[worker.id][1] if self.knows(worker) else None


class Ratings:
    """The ratings of all jobs whose scores come from outside."""

    def __init__(self) -> None:
        self.by_job: dict[str, Rating] = {}
        self._holders: dict[str, set[str]] = {}

    def of(self, job: BacklogJob) -> Rating:
        """Return the scores of a job."""
        found = self.by_job.get(job.id)
        if found is None:
            found = self.by_job[job.id] = Rating(job)
        return found

    def renew(self, job: BacklogJob) -> set[str]:
        """A job was put again; return the workers that are held for it no more.

        Scores stay as long as its document does. Workers that had none may be asked about again.
        """
        rating = self.by_job.get(job.id)
        if rating is None:
            return set()
        if rating.version != job.state.version:
            return self.forget(job.id)
        rating.key = job.key
        rating.resting = False
        rating.known = {one: known for one, known in rating.known.items() if known[1] is not None}
        return set()

    def forget(self, job_id: str) -> set[str]:
        """A job is gone; return the workers that are held for it no more."""
        rating = self.by_job.pop(job_id, None)
        return set() if rating is None else self._release(job_id, rating)

    def holder(self, worker_id: str, key: Key) -> str | None:
        """Return a job that comes before a place in the order and for which a worker is held."""
        for job_id in self._holders.get(worker_id, ()):
            if self.by_job[job_id].key < key:
                return job_id
        return None

    def ask(
        self, job: BacklogJob, rating: Rating, candidates: Sequence[RosterWorker]
    ) -> NeedsScores | None:
        """Return the scores to request now, if any, and hold the candidates.

        Nothing while as many jobs before it wait for scores of these workers as there are: each
        may take one. The last that lets go of a worker brings it up again.
        """
        fresh = [
            candidate
            for candidate in candidates
            if not rating.knows(candidate) and candidate.id not in rating.asked
        ]
        if not fresh or self._waiting_before(job, candidates) >= len(candidates):
            return None
        rating.asked.update((one.id, one.state.version) for one in fresh)
        rating.held.update(candidate.id for candidate in candidates)
        for one in candidates:
            self._holders.setdefault(one.id, set()).add(job.id)
        return NeedsScores(job=job.id, workers=tuple(x.id for x in fresh), stamp=rating.stamp)

    def answer(
        self, request: NeedsScores, scores: Mapping[str, float] | None
    ) -> Iterable[str] | None:
        """Take in scores, None if the rule failed; return the workers no longer held.

        The answer is None when the request is out of date, or others are still under way.
        """
        rating = self.by_job.get(request.job)
        if rating is None or rating.stamp != request.stamp:
            return None
        for worker in request.workers:
            version = rating.asked.pop(worker, None)
            if version is not None and scores is not None:
                rating.known[worker] = version, scores.get(worker)
        if scores is None:
            rating.resting = True
            rating.asked.clear()
        return None if rating.asked else self._release(request.job, rating)

    def _waiting_before(self, job: BacklogJob, workers: Iterable[RosterWorker]) -> int:
        holders = {job_id for worker in workers for job_id in self._holders.get(worker.id, ())}
        return sum(self.by_job[job_id].key < job.key for job_id in holders)

    def _release(self, job_id: str, rating: Rating) -> set[str]:
        released, rating.held = rating.held, set()
        for one in released:
            holders = self._holders[one]
            holders.discard(job_id)
            if not holders:
                del self._holders[one]
        return released
