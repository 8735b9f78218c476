"""What a match costs: a job arrives, or a slot comes free, in an index of the whole router.

python -m bench.router_matching
"""

from __future__ import annotations

import asyncio
import gc
import time
from itertools import product
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from bench import Figure
from relevo.router.core.capacity import ChannelTerms
from relevo.router.core.selectors import WorkerSelector
from relevo.router.matching.index import Index
from relevo.router.matching.situation import Decision, JobState, QueueState, WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relevo.kernel.labels import Value

HOW: Final = """
Pure matching in one process, processor time, medians of nine turns. Each worker serves two of ten
queues and three channels; language and level make 200 kinds of workers for each pair of queues
("all different": every worker has labels like no other). Jobs ask for a language, at least a level,
and not a line: 1,000 shapes. A decision is everything from `put_job` (with free workers) or
`put_worker` (100,000 jobs waiting, everybody else busy) until `decide` has returned the offer; "in
sets" 500 are put before each `decide`, as after a busy round. What depends on labels alone is
worked out once for each kind of job and of worker and kept; that has happened before.
"""

Put = TypeVar("Put", JobState, WorkerState)

PROMISED: Final = 50_000
WAITING: Final = 100_000
MEASURED: Final = 1_000
ROUNDS: Final = 9
SET: Final = 500
SIZES: Final = (1_000, 10_000, 100_000)
QUEUES: Final = [f"queue{n}" for n in range(10)]
CHANNELS: Final = {"voice": ChannelTerms(100), "chat": ChannelTerms(33), "mail": ChannelTerms(25)}
LANGUAGES, LEVELS, LINES = range(20), range(1, 11), range(5)
SHAPES: Final = [
    (
        WorkerSelector("language", "equal", f"language{language}"),
        WorkerSelector("level", "greaterThanOrEqual", level),
        WorkerSelector("line", "notEqual", line),
    )
    for language, level, line in product(LANGUAGES, LEVELS, LINES)
]


class World:
    """Workers and jobs, drawn from a seed, and the index that they are put into."""

    def __init__(self, workers: int, *, unique: bool = False, mode: str = "longestIdle") -> None:
        self.random = Random(1)
        self.index = Index()
        self.jobs = 0
        for queue in QUEUES:
            self.index.put_queue(QueueState(id=queue, mode=mode))  # type: ignore[arg-type]
        self.workers = [self.worker(number, unique) for number in range(workers)]
        self.by_id = {one.id: one for one in self.workers}
        for one in self.workers:
            self.index.put_worker(one)
        self.index.decide(1)

    def worker(self, number: int, unique: bool) -> WorkerState:
        draw = self.random
        at = draw.randrange(len(QUEUES))
        labels: dict[str, Value] = {
            "language": f"language{draw.choice(LANGUAGES)}",
            "level": draw.choice(LEVELS),
            "line": at % len(LINES),
        }
        if unique:
            labels["desk"] = number
        return WorkerState(
            id=f"worker{number}",
            queues=frozenset({QUEUES[at], QUEUES[at - 1]}),
            channels=CHANNELS,
            labels=labels,
            capacity=100,
            idle_since=draw.random(),
        )

    def job(self, number: int | None = None) -> JobState:
        """Return a new job, drawn, or the one of that number among all shapes and queues."""
        draw, self.jobs = self.random, self.jobs + 1
        at = draw.randrange(len(SHAPES) * len(QUEUES)) if number is None else number
        return JobState(
            id=f"job{self.jobs}",
            queue=QUEUES[at % len(QUEUES)],
            channel="chat",
            selectors=SHAPES[at // len(QUEUES)],
            priority=draw.randrange(3),
            enqueued_at=self.jobs,
            arrival=self.jobs,
        )

    def free(self) -> World:
        """Let nobody have anything to do, and every kind of job have been there before."""
        for number in range(len(SHAPES) * len(QUEUES)):
            self.arrive([self.job(number)])
        gc.collect()
        return self

    def busy(self) -> World:
        """Let everybody be busy, jobs wait, and everybody have been free before."""
        for one in self.workers:
            self.index.put_worker(busy(one))
        for _ in range(WAITING + len(self.workers)):
            self.index.put_job(self.job())
        self.index.decide(1)
        self.come_free(self.workers, 1)
        gc.collect()
        return self

    def arrive(self, jobs: Sequence[JobState]) -> float:
        """Let jobs arrive one by one and forget them; return the microseconds per offer."""
        made, spent = _timed(self.index, jobs, self.index.put_job, 1)
        for job in jobs:
            self.index.remove_job(job.id)
        for one in made:
            self.index.put_worker(self.by_id[one.worker])
        self.index.decide(1)
        return spent

    def come_free(self, workers: Sequence[WorkerState], at_once: int) -> float:
        """Let each of some busy workers end a chat; return the microseconds per offer."""
        freed = [replace(busy(one), used=66, jobs={"chat": 2}, open_offers=2) for one in workers]
        made, spent = _timed(self.index, freed, self.index.put_worker, at_once)
        for one in made:
            self.index.remove_job(one.job)
        return spent


def busy(worker: WorkerState) -> WorkerState:
    return replace(worker, used=99, jobs={"chat": 3}, open_offers=3)


def arrivals(world: World) -> float:
    """Microseconds per offer, while jobs arrive one by one and workers are free."""
    return world.arrive([world.job() for _ in range(MEASURED)])


def slots(world: World, at_once: int = 1) -> float:
    """Microseconds per offer, while workers come free and jobs wait."""
    workers = world.random.sample(world.workers, min(MEASURED, len(world.workers)))
    return world.come_free(workers, at_once)


def _timed(
    index: Index, states: Sequence[Put], put: Callable[[Put], None], at_once: int
) -> tuple[list[Decision], float]:
    made: list[Decision] = []
    started = time.process_time()
    for start in range(0, len(states), at_once):
        for state in states[start : start + at_once]:
            put(state)
        made += index.decide(10_000)  # type: ignore[arg-type]
    spent = time.process_time() - started
    return made, spent * 1e6 / max(len(made), 1)


async def run() -> list[Figure]:
    """Measure both directions, and how they change with the number of workers."""
    figures = []
    for name, build, measure in (
        ("a job arrives", World.free, arrivals),
        ("a slot comes free", World.busy, slots),
    ):
        worlds = {workers: build(World(workers)) for workers in SIZES}
        turns = [{n: measure(world) for n, world in worlds.items()} for _ in range(ROUNDS)]
        spent = {workers: median(turn[workers] for turn in turns) for workers in SIZES}
        figures += [_rate(f"{name}, {n:,} workers", spent[n], n == 10_000) for n in SIZES]
        figures.append(
            Figure(
                name=f"{name}: cost at {SIZES[-1]:,} workers beside {SIZES[0]:,}",
                measured=spent[SIZES[-1]],
                unit="µs",
                beside=spent[SIZES[0]],
                bound=1.5,
                sense="at_most",
            )
        )
    in_sets = median(slots(worlds[10_000], SET) for _ in range(ROUNDS))
    return [*figures, _rate("slots come free in sets", in_sets), *_others()]


def _rate(name: str, cost: float, promised: bool = False) -> Figure:
    beside, bound = (PROMISED, 1.0) if promised else (None, None)
    return Figure(name=name, measured=1e6 / cost, unit="/s", beside=beside, bound=bound)


def _others() -> list[Figure]:
    """Harsher worlds, of which nothing was promised."""
    different = [World(10_000, unique=True).free(), World(10_000, unique=True).busy()]
    costs = {
        "a job arrives, all different": arrivals(different[0]),
        "a slot comes free, all different": slots(different[1]),
        "a job arrives, roundRobin": arrivals(World(10_000, mode="roundRobin").free()),
        "a job arrives, bestWorker": arrivals(World(10_000, mode="bestWorker").free()),
    }
    return [_rate(name, cost) for name, cost in costs.items()]


if __name__ == "__main__":
    for figure in asyncio.run(run()):
        print(f"{figure.name:60} {figure.measured:12,.1f} {figure.unit:3} {figure.holds}")
