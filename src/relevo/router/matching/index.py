"""Which worker is offered which job: an index of all that matters, and the decisions from it.

    index = Index()
    index.put_queue(QueueState(id="orders"))
    index.put_worker(WorkerState(id="ana", queues=frozenset({"orders"}), …))
    index.put_job(JobState(id="1", queue="orders", channel="MakePizza"))
    index.decide(100)   # [Decision(job="1", worker="ana", …)]

What is put is what rows say. A put marks who must be looked at; `decide` looks at them in the order
of jobs. All others are at rest: no waiting job that could have a further offer
has an eligible worker. So it makes no difference from which side a pair is found, and no job
is passed over by one behind it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from msgspec.structs import replace

from relevo.router.matching.backlog import Backlog
from relevo.router.matching.ratings import Ratings
from relevo.router.matching.roster import Roster
from relevo.router.matching.searching import Search
from relevo.router.matching.situation import Decision, NeedsScores
from relevo.router.matching.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from relevo.router.matching.backlog import BacklogJob, BacklogWalk
    from relevo.router.matching.ordering import Key
    from relevo.router.matching.roster import RosterWorker
    from relevo.router.matching.searching import Scorer
    from relevo.router.matching.situation import JobState, QueueState, WorkerState

    Answers = list[Decision | NeedsScores]


class Index:
    """Workers, waiting jobs and queues in memory, and the decisions from them.

    A reading that is older than a decision must be put before that decision is made, or not at all:
    a put replaces what was decided since. `scorer` rates workers by the local rules of queues.
    """

    def __init__(self, scorer: Scorer | None = None) -> None:
        self._vocabulary = Vocabulary()
        self._roster = Roster(self._vocabulary)
        self._backlog = Backlog(self._vocabulary)
        self._ratings = Ratings()
        self._search = Search(self._roster, self._vocabulary, self._ratings, scorer)
        self._queues: dict[str, QueueState] = {}
        self._pointers: dict[str, str | None] = {}
        self._stamp = 0
        self._free: dict[str, RosterWorker] = {}
        """Workers to look for jobs for; they have no places yet."""
        self._agenda: list[tuple[Key, int, BacklogWalk | None]] = []
        """Jobs to look at, in order; with the walk on which it is, if it was not put itself."""
        self._walks = 0
        """How many of these are on a walk."""

    def put_worker(self, state: WorkerState) -> None:
        """Take in a reading of a worker."""
        worker = self._roster.put(state, self._next_stamp())
        if worker is not None:
            self._free[worker.id] = worker

    def remove_worker(self, worker_id: str) -> None:
        """Forget a worker, if there is one of that id."""
        worker = self._roster.workers.get(worker_id)
        if worker is not None:
            self._roster.remove(worker)
            self._free.pop(worker_id, None)

    def put_job(self, state: JobState) -> None:
        """Take in a reading of a job that waits in a queue."""
        old = self._backlog.jobs.get(state.id)
        if old is not None and state == old.snapshot():
            rating = self._ratings.by_job.get(state.id)
            if rating is None or not rating.resting:
                return
        self._put_job(state)

    def remove_job(self, job_id: str) -> None:
        """Forget a job, if there is one of that id: it has been assigned, or waits no more."""
        job = self._backlog.jobs.get(job_id)
        if job is not None:
            self._backlog.remove(job)
            self._look_at(self._ratings.forget(job_id))

    def put_queue(self, state: QueueState) -> None:
        """Take in a reading of a queue; if its policy has changed, its jobs are looked at again."""
        before = self._queues.get(state.id)
        self._queues[state.id] = state
        self._pointers[state.id] = state.pointer
        if before is None or replace(before, pointer=state.pointer) != state:
            for job in list(self._backlog.by_queue.get(state.id, {}).values()):
                self._look_at(self._ratings.forget(job.id))
                self._put_job(job.snapshot())

    def remove_queue(self, queue_id: str) -> None:
        """Forget a queue; jobs in it are not offered until it is put again."""
        if self._queues.pop(queue_id, None) is not None:
            del self._pointers[queue_id]
            for job in self._backlog.by_queue.get(queue_id, {}).values():
                self._backlog.rest(job)
                self._look_at(self._ratings.forget(job.id))

    @property
    def rates_by_rule(self) -> bool:
        """Whether deciding may evaluate expressions, which takes time."""
        return any(queue.scoring.rule == "local" for queue in self._queues.values())

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is left to decide before the next put, rejection or score."""
        return not self._agenda and not self._free

    def decide(self, limit: int, enough: Callable[[], bool] | None = None) -> Answers:
        """Return at most so many offers to issue, and scores to ask for, the most urgent job first.

        Decisions count as made from then on. It also ends when there has been `enough`, and goes on
        from there the next time; see `is_at_rest`.
        """
        made: Answers = []
        if len(self._free) == 1 and not self._agenda:
            self._serve_one(self._free.popitem()[1], made, limit)
        if self._free:
            self._welcome()
        agenda = self._agenda
        while agenda and len(made) < limit:
            if enough is not None and enough():
                break
            key, _, walk = heappop(agenda)
            job: BacklogJob = key[-1]
            if walk is None:
                if job.alive:
                    hopeless = self._serve(job, made, limit)
                    if job.waiting and not hopeless and self._walks:
                        # It may now stand before others that a walk would have come to.
                        self._go_on(self._backlog.walk_behind(job), key)
                continue
            self._walks -= 1
            walks: tuple[BacklogWalk, ...] = (walk,)
            if job.waiting:
                hopeless = self._serve(job, made, limit)
                if job.waiting:
                    walks = walk.past(job, hopeless=hopeless)
            for one in walks:
                self._go_on(one, key)
        return made

    def reject(self, decision: Decision) -> None:
        """Undo a decision that could not be committed.

        The rows were not as thought: put them again before the next `decide`, or it will decide the
        same. A side that has been put since is left alone.
        """
        job = self._backlog.jobs.get(decision.job)
        worker = self._roster.workers.get(decision.worker)
        job_stamp, worker_stamp = decision.stamps
        if worker is not None and worker.stamp == worker_stamp:
            worker.unplace()
            worker.change(decision.channel, decision.cost, -1)
            self._free[worker.id] = worker
        if job is not None and job.stamp == job_stamp:
            job.offered_to(job.open - {decision.worker})
            self._note(job)
        if decision.pointer is not None and self.pointer(decision.queue) == decision.pointer:
            self._pointers[decision.queue] = decision.pointer_before

    def scored(self, request: NeedsScores, scores: Mapping[str, float] | None) -> None:
        """Take in the scores that were asked for; None if the rule failed altogether.

        Workers without a score are not considered until they or the job change. After a failure the
        job is not considered until it is put again. An answer that is out of date is ignored.
        """
        released = self._ratings.answer(request, scores)
        if released is not None:
            self._look_at(released)
            self._note(self._backlog.jobs[request.job])

    def worker(self, worker_id: str) -> WorkerState | None:
        """Return a worker with the decisions since it was put."""
        found = self._roster.workers.get(worker_id)
        return None if found is None else found.snapshot()

    def workers(self) -> Iterator[WorkerState]:
        """Walk all workers."""
        return (worker.snapshot() for worker in self._roster.workers.values())

    def job(self, job_id: str) -> JobState | None:
        """Return a job with the decisions since it was put."""
        found = self._backlog.jobs.get(job_id)
        return None if found is None else found.snapshot()

    def jobs(self) -> Iterator[JobState]:
        """Walk all jobs."""
        return (job.snapshot() for job in self._backlog.jobs.values())

    def queue(self, queue_id: str) -> QueueState | None:
        """Return a queue with its present pointer."""
        found = self._queues.get(queue_id)
        return None if found is None else replace(found, pointer=self._pointers[queue_id])

    def queue_length(self, queue_id: str) -> int:
        """Return how many jobs wait in a queue, with open offers or without."""
        return len(self._backlog.by_queue.get(queue_id, ()))

    def pointer(self, queue_id: str) -> str | None:
        """Return the worker with the last offer of a round-robin queue."""
        return self._pointers.get(queue_id)

    def _put_job(self, state: JobState) -> None:
        queue = self._queues.get(state.queue)
        bypass = queue is not None and queue.bypass_selectors
        job = self._backlog.put(state, bypass, self._next_stamp())
        if self._ratings.by_job:
            self._look_at(self._ratings.renew(job))
        self._note(job)

    def _note(self, job: BacklogJob) -> None:
        heappush(self._agenda, (job.key, self._next_stamp(), None))

    def _look_at(self, worker_ids: Iterable[str]) -> None:
        for one in worker_ids:
            worker = self._roster.workers.get(one)
            if worker is not None:
                worker.unplace()
                self._free[one] = worker

    def _welcome(self) -> None:
        """Give the free workers their places, and walk through the jobs that they may take."""
        for worker in self._free.values():
            worker.place()
        for walk in self._backlog.walks_for(self._free.values()):
            self._go_on(walk, ())
        self._free.clear()

    def _go_on(self, walk: BacklogWalk, bound: Key) -> None:
        key = walk.next(bound)
        if key is not None:
            self._walks += 1
            heappush(self._agenda, (key, self._next_stamp(), walk))

    def _serve(self, job: BacklogJob, made: Answers, limit: int) -> bool:
        """Offer a job as often as it may be; True if no worker is eligible for its shape."""
        queue = self._queues.get(job.state.queue)
        if queue is None:
            return False
        while len(job.open) < queue.max_concurrent_offers:
            if len(made) >= limit:
                self._note(job)
                return False
            picked = self._search.pick(job, queue, self._pointers[queue.id])
            if isinstance(picked, tuple):
                made.append(self._issue(job, queue, *picked))
                continue
            if isinstance(picked, NeedsScores):
                made.append(picked)
            self._backlog.wait(job)
            return picked is None and not job.choosy
        self._backlog.rest(job)
        return False

    def _serve_one(self, worker: RosterWorker, made: Answers, limit: int) -> None:
        """Serve the only worker to look at: all others are at rest, so none is before it."""
        while (job := self._backlog.best_for(worker)) is not None:
            queue = self._queues[job.state.queue]
            if len(made) >= limit or queue.mode == "bestWorker" or self._ratings.by_job:
                self._free[worker.id] = worker
                return
            made.append(self._issue(job, queue, worker, None))
            if len(job.open) >= queue.max_concurrent_offers:
                self._backlog.rest(job)
            if worker.is_full:
                return
        worker.place()

    def _issue(
        self, job: BacklogJob, queue: QueueState, worker: RosterWorker, score: float | None
    ) -> Decision:
        state, cost = job.state, worker.state.channels[job.state.channel].cost
        if worker.homes:
            worker.unplace()
            worker.change(state.channel, cost, 1)
            worker.place()
        else:
            worker.change(state.channel, cost, 1)
        job.offered_to(job.open | {worker.id})
        before = self._pointers[queue.id]
        pointer = worker.id if queue.mode == "roundRobin" else None
        if pointer is not None:
            self._pointers[queue.id] = pointer
        return Decision(
            job=job.id,
            worker=worker.id,
            queue=queue.id,
            channel=state.channel,
            cost=cost,
            job_version=state.version,
            worker_version=worker.state.version,
            offer_ttl=queue.offer_ttl,
            pointer=pointer,
            score=score,
            pointer_before=before,
            stamps=(job.stamp, worker.stamp),
        )

    def _next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp
