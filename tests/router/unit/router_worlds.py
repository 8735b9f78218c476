"""Small worlds of workers, jobs and queues, and what the spec's text says must happen in them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from msgspec import Struct, field
from msgspec.structs import replace

from relevo.router.core.capacity import ChannelTerms
from relevo.router.core.selectors import WorkerSelector
from relevo.router.matching.index import Index
from relevo.router.matching.situation import Decision, JobState, QueueState, Scoring, WorkerState

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUES = ("qa", "qb")
CHANNELS = ("voice", "chat")
WORKERS = ("w1", "w2", "w3", "w4")
JOBS = ("j1", "j2", "j3", "j4")
MANY_JOBS = (*JOBS, "j5", "j6", "j7", "j8")

values: st.SearchStrategy[Any] = st.sampled_from([1, 2, 2.0, True, "x", "y"])
labels = st.dictionaries(st.sampled_from(["skill", "tongue"]), values, max_size=2)
channels = st.dictionaries(
    st.sampled_from(CHANNELS),
    st.builds(ChannelTerms, st.integers(0, 3), st.none() | st.integers(1, 2)),
)
operators: st.SearchStrategy[Any] = st.sampled_from(
    ["equal", "notEqual", "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual"]
)
by_label = st.builds(
    WorkerSelector,
    st.sampled_from(["skill", "tongue"]),
    operators,
    st.none() | values,
    expedite=st.booleans(),
    status=st.sampled_from(["active", "active", "expired"]),
)
by_id = st.builds(
    WorkerSelector,
    st.just("Id"),
    st.sampled_from(["equal", "notEqual", "greaterThan"]),
    st.sampled_from([*WORKERS, 7]),
)
selectors = st.lists(st.one_of(by_label, by_label, by_id), max_size=2).map(tuple)


@st.composite
def worker_states(draw: st.DrawFn, worker_id: str) -> WorkerState:
    return WorkerState(
        id=worker_id,
        available=draw(st.sampled_from([True, True, True, False])),
        queues=draw(st.frozensets(st.sampled_from(QUEUES))),
        channels=draw(channels),
        labels={**draw(labels), "Id": worker_id},
        capacity=draw(st.integers(1, 4)),
        max_offers=draw(st.sampled_from([None, None, 1, 2])),
        idle_since=draw(st.integers(0, 2)),
        version=draw(st.integers(0, 3)),
    )


@st.composite
def job_states(draw: st.DrawFn, job_id: str) -> JobState:
    return JobState(
        id=job_id,
        queue=draw(st.sampled_from(QUEUES)),
        channel=draw(st.sampled_from(CHANNELS)),
        selectors=draw(selectors),
        priority=draw(st.integers(0, 2)),
        enqueued_at=draw(st.integers(0, 2)),
        arrival=draw(st.integers(0, 2)),
        version=draw(st.integers(0, 3)),
        labels=draw(labels),
    )


@st.composite
def queue_states(draw: st.DrawFn, queue_id: str) -> QueueState:
    return QueueState(
        id=queue_id,
        mode=draw(st.sampled_from(["longestIdle", "roundRobin", "bestWorker"])),
        max_concurrent_offers=draw(st.integers(1, 3)),
        bypass_selectors=draw(st.sampled_from([False, False, True])),
        scoring=Scoring(
            rule=draw(st.sampled_from(["default", "local"])),
            by_class=draw(st.booleans()),
            descending=draw(st.booleans()),
        ),
        pointer=draw(st.sampled_from([None, *WORKERS])),
    )


@st.composite
def alike_workers(draw: st.DrawFn, worker_id: str) -> WorkerState:
    """Workers that are in each other's way."""
    return WorkerState(
        id=worker_id,
        queues=frozenset({"qa"}),
        channels={"voice": ChannelTerms(1)},
        labels={"skill": draw(st.integers(1, 2))},
        capacity=draw(st.integers(1, 2)),
        max_offers=draw(st.sampled_from([None, 1])),
    )


@st.composite
def alike_jobs(draw: st.DrawFn, job_id: str) -> JobState:
    """Jobs that are in each other's way."""
    asks = draw(st.sampled_from([(), (1,), (2,)]))
    return JobState(
        id=job_id,
        queue="qa",
        channel="voice",
        selectors=tuple(WorkerSelector("skill", "equal", one) for one in asks),
        priority=draw(st.integers(0, 1)),
    )


class World(Struct):
    """What rows would say."""

    workers: dict[str, WorkerState] = field(default_factory=dict)
    jobs: dict[str, JobState] = field(default_factory=dict)
    queues: dict[str, QueueState] = field(default_factory=dict)

    def offer(self, job_id: str, worker_id: str) -> None:
        """An offer is made and takes capacity."""
        job = self.jobs[job_id]
        self.jobs[job_id] = replace(job, open_offers=job.open_offers | {worker_id})
        self.load(worker_id, job.channel, offers=1, jobs=1)
        queue = self.queues[job.queue]
        if queue.mode == "roundRobin":
            self.queues[job.queue] = replace(queue, pointer=worker_id)

    def load(self, worker_id: str, channel: str, *, offers: int, jobs: int) -> None:
        """A worker has more or fewer offers and jobs on a channel."""
        worker = self.workers[worker_id]
        cost = worker.channels[channel].cost
        self.workers[worker_id] = replace(
            worker,
            used=worker.used + jobs * cost,
            open_offers=worker.open_offers + offers,
            jobs={**worker.jobs, channel: worker.jobs.get(channel, 0) + jobs},
        )

    def indexed(self) -> Index:
        """Return an index of all this."""
        index = Index(scorer=local_scores)
        for queue in self.queues.values():
            index.put_queue(queue)
        for worker in self.workers.values():
            index.put_worker(worker)
        for job in self.jobs.values():
            index.put_job(job)
        return index

    def copy(self) -> World:
        return World(dict(self.workers), dict(self.jobs), dict(self.queues))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    workers = draw(st.lists(st.sampled_from(WORKERS), unique=True))
    jobs = draw(st.lists(st.sampled_from(JOBS), unique=True))
    return World(
        {one: draw(worker_states(one)) for one in workers},
        {one: draw(job_states(one)) for one in jobs},
        {one: draw(queue_states(one)) for one in QUEUES},
    )


def local_scores(
    queue: QueueState, job: JobState, workers: Any
) -> Mapping[str, float]:  # by skill, which all of a class share; who has none has no score
    return {
        one.id: float(one.labels["skill"])
        for one in workers
        if isinstance(one.labels.get("skill"), int | float)
    }


def compares(operator: str, label: Any, value: Any) -> bool:
    """Section 9, row by row."""
    if value is None:
        return {"equal": label is None, "notEqual": label is not None}.get(operator, False)
    if label is None:
        return operator == "notEqual"
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (label, value))
    texts = isinstance(label, str) and isinstance(value, str)
    booleans = isinstance(label, bool) and isinstance(value, bool)
    if not (numbers or texts or booleans):
        return operator == "notEqual"
    if operator in ("equal", "notEqual"):
        return bool(label == value) == (operator == "equal")
    if booleans:
        return False
    results: dict[str, bool] = {
        "lessThan": label < value,
        "lessThanOrEqual": label <= value,
        "greaterThan": label > value,
        "greaterThanOrEqual": label >= value,
    }
    return results[operator]


def active(job: JobState) -> list[WorkerSelector]:
    return [one for one in job.selectors if one.status == "active"]


def has_room(worker: WorkerState, channel: str) -> bool:
    """Section 14."""
    if channel not in worker.channels:
        return False
    cost, most = worker.channels[channel]
    if worker.used + cost > worker.capacity:
        return False
    return most is None or worker.jobs.get(channel, 0) < most


def is_eligible(worker: WorkerState, job: JobState, queue: QueueState) -> bool:
    """Section 13.1, point by point."""
    return (
        worker.available
        and job.queue in worker.queues
        and has_room(worker, job.channel)
        and (
            queue.bypass_selectors
            or all(
                compares(
                    one.label_operator, {**worker.labels, "Id": worker.id}.get(one.key), one.value
                )
                for one in active(job)
            )
        )
        and worker.id not in job.open_offers
        and worker.id not in job.declined
        and (worker.max_offers is None or worker.open_offers < worker.max_offers)
    )


def score(worker: WorkerState, job: JobState, queue: QueueState) -> float | None:
    """Section 13.5, term by term."""
    if queue.scoring.rule == "local":
        return local_scores(queue, job, [worker]).get(worker.id)
    has = {**worker.labels, "Id": worker.id}
    terms = [float(compares("equal", has.get(key), value)) for key, value in job.labels.items()]
    for one in active(job):
        label: Any = has.get(one.key)
        value: Any = one.value
        if one.label_operator in ("equal", "notEqual"):
            terms.append(float(compares(one.label_operator, label, value)))
        elif any(isinstance(x, bool) or not isinstance(x, int | float) for x in (label, value)):
            terms.append(0.0)
        else:
            x = (label - value) / (abs(value) or 1)
            if one.label_operator.startswith("less"):
                x = -x
            terms.append(1 / (1 + math.exp(-x)))
    return sum(terms) / len(terms) if terms else 0.0


def chosen(world: World, job: JobState) -> str | None:
    """Section 13.5: whom the mode takes of those that are eligible."""
    queue = world.queues.get(job.queue)
    if queue is None or len(job.open_offers) >= queue.max_concurrent_offers:
        return None
    able = [one for one in world.workers.values() if is_eligible(one, job, queue)]
    if queue.mode == "roundRobin":
        ids = sorted(one.id for one in able)
        behind = [one for one in ids if queue.pointer is not None and one > queue.pointer]
        return next(iter(behind or ids), None)
    idle = sorted(able, key=lambda one: (one.used / one.capacity, one.idle_since, one.id))
    if queue.mode == "bestWorker":
        rated = [(score(one, job, queue), one) for one in idle]
        sign = -1 if queue.scoring.descending else 1
        ranked = sorted((sign * s, at) for at, (s, _) in enumerate(rated) if s is not None)
        return rated[ranked[0][1]][1].id if ranked else None
    return idle[0].id if idle else None


def place(job: JobState) -> tuple[Any, ...]:
    """Section 13.2."""
    expedited = any(one.expedite for one in active(job))
    return (not expedited, -job.priority, job.enqueued_at, job.arrival, job.id)


def expected(world: World) -> list[tuple[str, str]]:
    """Return the offers that must be made, in order; the world is left as it was."""
    after = world.copy()
    made = []
    for job_id in sorted(after.jobs, key=lambda one: place(after.jobs[one])):
        while (worker_id := chosen(after, after.jobs[job_id])) is not None:
            after.offer(job_id, worker_id)
            made.append((job_id, worker_id))
    return made


def drained(index: Index, limit: int = 1000) -> list[tuple[str, str]]:
    """Return all offers that an index has to make, asked for `limit` at a time."""
    made: list[tuple[str, str]] = []
    while answers := index.decide(limit):
        assert len(answers) <= limit
        for one in answers:
            assert isinstance(one, Decision)
            made.append((one.job, one.worker))
        if len(answers) < limit:
            break
    return made
