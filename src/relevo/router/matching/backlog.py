"""Waiting jobs in order, by queue, channel and selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from relevo.kernel.labels import holds
from relevo.router.matching.ordering import Groups, Ordered
from relevo.router.matching.situation import order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from relevo.router.core.selectors import WorkerSelector
    from relevo.router.matching.ordering import Chosen, Key
    from relevo.router.matching.roster import RosterWorker
    from relevo.router.matching.situation import JobState
    from relevo.router.matching.vocabulary import Anchor, SelectorShape, Vocabulary

NOBODY = ""
"""The id of no worker."""


class BacklogJob:
    """A job: its last reading, and the decisions since."""

    __slots__ = (
        "alive",
        "choosy",
        "group",
        "id",
        "ids",
        "key",
        "only",
        "open",
        "shape",
        "stamp",
        "state",
        "waiting",
    )

    def __init__(self, state: JobState, bypass: bool, vocabulary: Vocabulary, stamp: int) -> None:
        self.id = state.id
        self.state = state
        self.stamp = stamp
        self.alive = True
        self.waiting = False
        """In its lane, where a search for a worker finds it."""
        self.ids: tuple[WorkerSelector, ...] = ()
        """The selectors on the worker's id, the one label that no two workers share."""
        self.only: str | None = None
        """The one worker that can be meant, where an id is asked for."""
        expedited, asked = False, []
        for selector in state.selectors:
            if selector.status != "active":
                continue
            expedited = expedited or selector.expedite
            if bypass:
                continue
            if selector.key != "Id":
                asked.append(selector)
                continue
            self.ids = (*self.ids, selector)
            if selector.label_operator == "equal":
                self.only = selector.value if isinstance(selector.value, str) else NOBODY
        self.shape: SelectorShape = vocabulary.shape(asked)
        self.group = self.shape.number
        self.key: Key = (*order(state, expedited), stamp, self.group, self)
        self.offered_to(state.open_offers)

    def offered_to(self, workers: frozenset[str]) -> None:
        """Have open offers to exactly these workers."""
        self.open = workers
        self.choosy = bool(workers or self.ids or self.state.declined)
        """Whether it refuses some workers that meet its shape."""

    def admits(self, worker_id: str) -> bool:
        """Whether nothing about this worker's id speaks against it."""
        if worker_id in self.open or worker_id in self.state.declined:
            return False
        return all(holds(one.label_operator, worker_id, one.value) for one in self.ids)

    def snapshot(self) -> JobState:
        """Return the job with the decisions since it was read."""
        return replace(self.state, open_offers=self.open)


class BacklogWalk:
    """Goes through waiting jobs in order, as long as one of them may still find a worker."""

    __slots__ = ("_jobs", "_meets", "_workers")

    def __init__(
        self, jobs: Groups | Ordered, workers: Sequence[tuple[RosterWorker, str, int]] = ()
    ) -> None:
        self._jobs = jobs
        self._workers = workers
        """The worker, the channel, and the groups of jobs that it meets."""
        self._look_ahead()

    def next(self, bound: Key) -> Key | None:
        """Return the first job after a place in the order, of groups: that is its group's first."""
        if isinstance(self._jobs, Groups):
            return self._jobs.first_after(bound, self._meets)
        return next(self._jobs.after(bound), None)

    def past(self, job: BacklogJob, *, hopeless: bool) -> tuple[BacklogWalk, ...]:
        """Return how to go on from a job that was left waiting.

        `hopeless` says that no worker is eligible for this shape; if only this job
        found none, its group goes on by itself.
        """
        if isinstance(self._jobs, Ordered):
            return () if hopeless else (self,)
        self._look_ahead()
        return (self,) if hopeless else (self, BacklogWalk(self._jobs.group(job.group)))

    def _look_ahead(self) -> None:
        """Go only through groups that a worker with room meets.

        This happens when a job found nobody, which happens when somebody had got one: so there are
        not many more vain searches than offers.
        """
        self._workers = [worker for worker in self._workers if worker[0].fits(worker[1])]
        self._meets = 0
        for _, _, meets in self._workers:
            self._meets |= meets


class BacklogLane:
    """The waiting jobs of one queue and channel."""

    __slots__ = ("channel", "parts", "personal")

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.parts: dict[Anchor | None, Groups] = {}
        """By a label that a worker must have; in each by shape."""
        self.personal: dict[str, Ordered] = {}
        """By the one worker that can be meant."""

    def add(self, job: BacklogJob) -> None:
        """Let a job wait here."""
        if job.only is None:
            anchor = job.shape.anchor
            part = self.parts.get(anchor)
            if part is None:
                part = self.parts[anchor] = Groups()
            part.add(job.key)
        elif job.only in self.personal:
            self.personal[job.only].add(job.key)
        else:
            self.personal[job.only] = Ordered(job.key)

    def remove(self, job: BacklogJob) -> None:
        """Let a job wait here no more."""
        if job.only is None:
            part = self.parts[job.shape.anchor]
            part.remove(job.key)
            if not part.occupied:
                del self.parts[job.shape.anchor]
        else:
            mine = self.personal[job.only]
            mine.remove(job.key)
            if not mine:
                del self.personal[job.only]

    def parts_for(self, worker: RosterWorker) -> list[Groups]:
        """Return the waiting jobs that ask for labels of a worker."""
        anchors, parts = worker.member_of.anchors, self.parts
        if len(anchors) < len(parts):
            return [parts[anchor] for anchor in anchors if anchor in parts]
        return [part for one, part in parts.items() if one in anchors]

    def best(self, meets: Chosen, worker: RosterWorker, best: Key | None) -> Key | None:
        """Return the first job that a worker may take, or `best` if that comes before."""
        if worker.id in self.personal:
            best = _first(self.personal[worker.id], meets.bits, worker, best)
        for part in self.parts_for(worker):
            first = part.first(meets)
            if first is not None and (best is None or first < best):
                best = _search(part, meets, worker, best) if first[-1].choosy else first
        return best


class Backlog:
    """All jobs, and those that wait by lane."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.jobs: dict[str, BacklogJob] = {}
        self.by_queue: dict[str, dict[str, BacklogJob]] = {}
        self._vocabulary = vocabulary
        self._lanes: dict[str, dict[str, BacklogLane]] = {}

    def put(self, state: JobState, bypass: bool, stamp: int) -> BacklogJob:
        """Take in a reading of a job, in the place of an older one; it is not in its lane yet."""
        old = self.jobs.get(state.id)
        job = BacklogJob(state, bypass, self._vocabulary, stamp)
        if old is not None:
            self.remove(old)
        self.jobs[job.id] = job
        self.by_queue.setdefault(state.queue, {})[job.id] = job
        return job

    def remove(self, job: BacklogJob) -> None:
        """Forget a job."""
        self.rest(job)
        job.alive = False
        del self.jobs[job.id]
        siblings = self.by_queue[job.state.queue]
        del siblings[job.id]
        if not siblings:
            del self.by_queue[job.state.queue]
        self._vocabulary.release(job.shape)

    def wait(self, job: BacklogJob) -> None:
        """Let workers find the job."""
        if job.waiting:
            return
        job.waiting = True
        channels = self._lanes.setdefault(job.state.queue, {})
        lane = channels.get(job.state.channel)
        if lane is None:
            lane = channels[job.state.channel] = BacklogLane(job.state.channel)
        lane.add(job)

    def rest(self, job: BacklogJob) -> None:
        """Let workers find the job no more."""
        if not job.waiting:
            return
        job.waiting = False
        channels = self._lanes[job.state.queue]
        lane = channels[job.state.channel]
        lane.remove(job)
        if not lane.parts and not lane.personal:
            del channels[job.state.channel]
            if not channels:
                del self._lanes[job.state.queue]

    def walks_for(self, workers: Iterable[RosterWorker]) -> Iterator[BacklogWalk]:
        """Return walks through all jobs that one of these workers may take."""
        found: dict[Groups, list[tuple[RosterWorker, str, int]]] = {}
        for worker in workers:
            for lane in self._lanes_of(worker):
                able = worker, lane.channel, worker.member_of.meets(self._vocabulary).bits
                for part in lane.parts_for(worker):
                    found.setdefault(part, []).append(able)
                if worker.id in lane.personal:
                    yield BacklogWalk(lane.personal[worker.id])
        for part, workers_of in found.items():
            yield BacklogWalk(part, workers_of)

    def walk_behind(self, job: BacklogJob) -> BacklogWalk:
        """Return a walk through the waiting jobs among which a waiting job is."""
        lane = self._lanes[job.state.queue][job.state.channel]
        if job.only is not None:
            return BacklogWalk(lane.personal[job.only])
        return BacklogWalk(lane.parts[job.shape.anchor].group(job.group))

    def best_for(self, worker: RosterWorker) -> BacklogJob | None:
        """Return the first waiting job, over all its queues and channels, that a worker may take.

        Both sides ask for the same things, so this is a job for which a search would find that
        worker too.
        """
        lanes = self._lanes_of(worker)
        if not lanes:
            return None
        best: Key | None = None
        meets = worker.member_of.meets(self._vocabulary)
        for lane in lanes:
            best = lane.best(meets, worker, best)
        return None if best is None else best[-1]

    def _lanes_of(self, worker: RosterWorker) -> list[BacklogLane]:
        """Return the lanes in which jobs wait that fit into a worker."""
        queues, lanes = worker.state.queues, self._lanes
        found: list[BacklogLane] = []
        for queue in queues if len(queues) < len(lanes) else lanes:
            if queue in lanes and queue in queues:
                for channel, lane in lanes[queue].items():
                    if worker.fits(channel):
                        found.append(lane)
        return found


def _search(part: Groups, meets: Chosen, worker: RosterWorker, best: Key | None) -> Key | None:
    for first in part.firsts(meets):
        if best is not None and first > best:
            break
        best = _first(part.group(first[-2]), meets.bits, worker, best)
    return best


def _first(jobs: Ordered, meets: int, worker: RosterWorker, best: Key | None) -> Key | None:
    for key in jobs:
        if best is not None and key > best:
            break
        job: BacklogJob = key[-1]
        if meets >> job.group & 1 and (not job.choosy or job.admits(worker.id)):
            return key
    return best
