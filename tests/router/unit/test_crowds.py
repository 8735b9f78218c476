"""Matching where many are in each other's way: larger worlds, several changes at once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from relevo.router.core.capacity import ChannelTerms
from relevo.router.core.selectors import WorkerSelector
from relevo.router.matching.index import Index
from relevo.router.matching.situation import JobState, Mode, QueueState, WorkerState
from tests.router.unit.router_worlds import World, drained, expected, local_scores

SKILLED = {n: (WorkerSelector("skill", "equal", n),) for n in (1, 2, 3)}


def worker(name: str, **fields: Any) -> WorkerState:
    plain: dict[str, Any] = {"queues": frozenset({"q"}), "channels": {"c": ChannelTerms(1)}}
    return WorkerState(id=name, **{**plain, **fields})


def job(name: str, **fields: Any) -> JobState:
    return JobState(id=name, queue="q", channel="c", **fields)


class Crowd:
    """A world and its index, to which the same happens."""

    def __init__(self, random: Random, queue: QueueState) -> None:
        self.random = random
        self.world = World(queues={"q": queue})
        self.index = Index(local_scores)
        self.index.put_queue(queue)
        self.taken: list[tuple[str, str]] = []
        self.count = 0

    def worker_changes(self) -> None:
        name = f"w{self.random.randrange(12):02}"
        old = self.world.workers.get(name)
        new = worker(
            name,
            labels={"skill": self.random.randint(1, 3)},
            capacity=self.random.randint(1, 3),
            max_offers=self.random.choice([None, None, 1]),
            available=self.random.random() < 0.9,
        )
        if old is not None:
            kept = {"used": old.used, "jobs": old.jobs, "open_offers": old.open_offers}
            new = replace(new, **kept)
            if self.random.random() < 0.5:  # a small change
                new = replace(old, max_offers=new.max_offers)
        self.world.workers[name] = new
        self.index.put_worker(new)

    def job_arrives(self) -> None:
        self.count += 1
        draw = self.random
        state = job(
            f"j{self.count:04}",
            selectors=draw.choice([(), SKILLED[1], SKILLED[2], SKILLED[3]]),
            priority=draw.randint(0, 1),
            arrival=self.count,
            labels={"skill": draw.randint(1, 3)},
        )
        if draw.random() < 0.1:
            mine = WorkerSelector("Id", "equal", f"w{draw.randrange(12):02}", expedite=True)
            state = replace(state, selectors=(*state.selectors, mine))
        self.world.jobs[state.id] = state
        self.index.put_job(state)

    def offer_ends(self) -> None:
        offers = [(j.id, w) for j in self.world.jobs.values() for w in sorted(j.open_offers)]
        if not offers:
            return
        job_id, name = self.random.choice(offers)
        state = self.world.jobs[job_id]
        state = replace(state, open_offers=state.open_offers - {name})
        outcome = self.random.choice(["declined", "revoked", "accepted"])
        self.world.load(name, "c", offers=-1, jobs=0 if outcome == "accepted" else -1)
        if outcome == "accepted":
            for other in state.open_offers:
                self.world.load(other, "c", offers=-1, jobs=-1)
                self.index.put_worker(self.world.workers[other])
            self.taken.append((job_id, name))
            del self.world.jobs[job_id]
            self.index.remove_job(job_id)
        else:
            if outcome == "declined":
                state = replace(state, declined={**state.declined, name: None})
            self.world.jobs[job_id] = state
            self.index.put_job(state)
        self.index.put_worker(self.world.workers[name])

    def job_is_closed(self) -> None:
        if self.taken:
            _, name = self.taken.pop(self.random.randrange(len(self.taken)))
            self.world.load(name, "c", offers=0, jobs=-1)
            self.index.put_worker(self.world.workers[name])

    def decide(self) -> None:
        wanted = expected(self.world)
        assert drained(self.index, self.random.choice([1, 3, 1000])) == wanted
        for job_id, name in wanted:
            self.world.offer(job_id, name)


@pytest.mark.parametrize("mode", ["longestIdle", "roundRobin", "bestWorker"])
@pytest.mark.parametrize("offers", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_crowds_are_served_as_the_spec_says(mode: Mode, offers: int, seed: int) -> None:
    # J8, J9, and J10 for declines
    crowd = Crowd(Random(seed), QueueState(id="q", mode=mode, max_concurrent_offers=offers))
    for _ in range(150):
        for _ in range(crowd.random.choice([1, 1, 4, 12])):
            crowd.random.choice(
                [
                    crowd.worker_changes,
                    crowd.job_arrives,
                    crowd.job_arrives,
                    crowd.offer_ends,
                    crowd.offer_ends,
                    crowd.job_is_closed,
                ]
            )()
        crowd.decide()


def test_a_job_that_all_have_declined_does_not_block_those_behind_it() -> None:
    index = Index()
    index.put_queue(QueueState(id="q"))
    index.put_job(job("j1", declined={"a": None, "b": None}))
    index.put_job(job("j2", arrival=1))
    assert drained(index) == []
    index.put_worker(worker("a"))
    index.put_worker(worker("b"))
    assert drained(index) == [("j2", "a")]


def test_a_worker_that_may_have_more_offers_gets_them() -> None:
    index = Index()
    index.put_queue(QueueState(id="q"))
    index.put_worker(worker("a", capacity=2, max_offers=1))
    index.put_job(job("j1"))
    index.put_job(job("j2", arrival=1))
    assert drained(index) == [("j1", "a")]
    index.put_worker(worker("a", capacity=2, used=1, open_offers=1, jobs={"c": 1}))
    assert drained(index) == [("j2", "a")]


def test_a_class_of_workers_does_not_inherit_what_an_older_one_could() -> None:
    index = Index()
    index.put_queue(QueueState(id="q"))
    index.put_worker(worker("stays", labels={"skill": 3}))
    index.put_worker(worker("a", labels={"skill": 1}))
    index.put_job(job("j1", selectors=SKILLED[1]))
    assert drained(index) == [("j1", "a")]
    index.remove_worker("a")
    index.put_worker(worker("b", labels={"skill": 2}))
    index.put_job(job("j2", selectors=SKILLED[1]))
    index.put_job(job("j3", selectors=SKILLED[2], arrival=1))
    assert drained(index) == [("j3", "b")]


def test_thousands_of_passing_shapes_leave_matching_as_it_was() -> None:
    index = Index()
    index.put_queue(QueueState(id="q"))
    index.put_worker(worker("a", labels={"skill": 1}))
    for number in range(5_000):
        wanted = number % 7 == 0
        asks = WorkerSelector("skill", "lessThan", number / 7 + 2 if wanted else -number)
        index.put_job(job("passing", selectors=(asks,), version=number))
        assert drained(index) == ([("passing", "a")] if wanted else [])
        index.remove_job("passing")
        index.put_worker(worker("a", labels={"skill": 1}))
        index.decide(1)
