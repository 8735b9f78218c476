"""Matching against the spec's text, worked out naively: J1, J2, J8 and J9 in small worlds."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from relevo.router.core.capacity import ChannelTerms
from relevo.router.core.selectors import WorkerSelector
from relevo.router.matching.index import Index
from relevo.router.matching.situation import Decision, JobState, QueueState, WorkerState
from tests.conftest import examples
from tests.router.unit.router_worlds import (
    MANY_JOBS,
    QUEUES,
    WORKERS,
    World,
    alike_jobs,
    alike_workers,
    drained,
    expected,
    has_room,
    is_eligible,
    job_states,
    local_scores,
    queue_states,
    worker_states,
    worlds,
)

limits = st.sampled_from([1, 2, 1000])


@settings(max_examples=examples(500))
@given(worlds(), limits)
def test_the_offers_are_those_that_the_spec_names(world: World, limit: int) -> None:
    assert drained(world.indexed(), limit) == expected(world)


def every_world(workers: int, jobs: int) -> None:
    """Each job asks for a label of its own; every way in which workers can have these labels."""
    for able in product([False, True], repeat=workers * jobs):
        world = World(queues={"qa": QueueState(id="qa")})
        for w in range(workers):
            has: dict[str, Any] = {f"can{j}": able[w * jobs + j] for j in range(jobs)}
            name = f"w{w}"
            world.workers[name] = WorkerState(
                id=name, queues=frozenset({"qa"}), channels={"c": ChannelTerms(1)}, labels=has
            )
        for j in range(jobs):
            asks = (WorkerSelector(f"can{j}", "equal", True),)
            world.jobs[f"j{j}"] = JobState(
                id=f"j{j}", queue="qa", channel="c", selectors=asks, arrival=j
            )
        assert drained(world.indexed()) == expected(world)


def test_every_way_in_which_three_workers_can_suit_three_jobs() -> None:
    every_world(3, 3)


@pytest.mark.soak
def test_every_way_in_which_four_workers_can_suit_four_jobs() -> None:
    every_world(4, 4)


@given(worlds())
def test_searching_for_jobs_and_for_workers_gives_the_same_offers(world: World) -> None:
    # J9: all jobs are there and the workers come, or the other way round, one decision at the end.
    by_worker, by_job = Index(local_scores), Index(local_scores)
    for index in (by_worker, by_job):
        for queue in world.queues.values():
            index.put_queue(queue)
    for job in world.jobs.values():
        by_worker.put_job(job)
    assert by_worker.decide(1000) == []
    for worker in world.workers.values():
        by_worker.put_worker(worker)
        by_job.put_worker(worker)
    assert by_job.decide(1000) == []
    for job in world.jobs.values():
        by_job.put_job(job)
    assert drained(by_worker) == drained(by_job) == expected(world)


@given(worlds(), st.data())
def test_a_worker_that_is_not_eligible_changes_nothing(world: World, data: Any) -> None:
    # J9
    stranger = data.draw(worker_states("w0"))
    if not any(is_eligible(stranger, job, world.queues[job.queue]) for job in world.jobs.values()):
        before = drained(world.indexed())
        world.workers["w0"] = stranger
        assert drained(world.indexed()) == before


@given(worlds(), st.data())
def test_raising_a_priority_never_delays_a_job(world: World, data: Any) -> None:
    # J8: with one mode whose choice does not depend on the job, it gets at least what it got.
    world.queues = {one: QueueState(id=one) for one in QUEUES}
    if world.jobs:
        job_id = data.draw(st.sampled_from(sorted(world.jobs)))
        before = [worker for job, worker in drained(world.indexed()) if job == job_id]
        job = world.jobs[job_id]
        world.jobs[job_id] = replace(job, priority=job.priority + data.draw(st.integers(1, 3)))
        after = [worker for job, worker in drained(world.indexed()) if job == job_id]
        assert len(after) >= len(before)


class History(RuleBasedStateMachine):
    """Everything that may happen, one after the other; after each step the offers are the spec's.

    The index sees only what changed, the oracle looks at the whole world anew each time.
    """

    workers = staticmethod(worker_states)
    jobs = staticmethod(job_states)

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.index = Index(scorer=local_scores)
        self.assigned: list[tuple[str, str]] = []

    def put_worker(self, worker_id: str) -> None:
        self.index.put_worker(self.world.workers[worker_id])

    def put_job(self, job_id: str) -> None:
        self.index.put_job(self.world.jobs[job_id])

    @property
    def offers(self) -> list[tuple[str, str]]:
        return sorted((j.id, w) for j in self.world.jobs.values() for w in j.open_offers)

    def end_offer(self, job_id: str, worker_id: str) -> None:
        job = self.world.jobs[job_id]
        self.world.jobs[job_id] = replace(job, open_offers=job.open_offers - {worker_id})
        self.world.load(worker_id, job.channel, offers=-1, jobs=-1)
        self.put_worker(worker_id)

    @rule(data=st.data(), worker_id=st.sampled_from(WORKERS))
    def worker_comes(self, data: Any, worker_id: str) -> None:
        if worker_id not in self.world.workers:
            self.world.workers[worker_id] = data.draw(self.workers(worker_id))
            self.put_worker(worker_id)

    @rule(data=st.data(), worker_id=st.sampled_from(WORKERS))
    def worker_changes(self, data: Any, worker_id: str) -> None:
        old = self.world.workers.get(worker_id)
        if old is not None:
            new = data.draw(self.workers(worker_id))
            keep = {} if not old.used and not old.jobs else {"channels": old.channels}
            self.world.workers[worker_id] = replace(
                new, used=old.used, jobs=old.jobs, open_offers=old.open_offers, **keep
            )
            self.put_worker(worker_id)

    @rule(worker_id=st.sampled_from(WORKERS))
    def worker_goes(self, worker_id: str) -> None:
        if worker_id in self.world.workers:
            for job_id, one in self.offers:
                if one == worker_id:
                    self.end_offer(job_id, one)
                    self.put_job(job_id)
            del self.world.workers[worker_id]
            self.assigned = [one for one in self.assigned if one[0] != worker_id]
            self.index.remove_worker(worker_id)

    @rule(data=st.data(), job_id=st.sampled_from(MANY_JOBS))
    def job_arrives_or_changes(self, data: Any, job_id: str) -> None:
        old = self.world.jobs.get(job_id)
        new = data.draw(self.jobs(job_id))
        if old is not None:
            new = replace(new, open_offers=old.open_offers, declined=old.declined)
            new = replace(new, channel=old.channel)
        self.world.jobs[job_id] = new
        self.put_job(job_id)

    @rule(job_id=st.sampled_from(MANY_JOBS))
    def job_is_cancelled(self, job_id: str) -> None:
        if job_id in self.world.jobs:
            for one, worker_id in self.offers:
                if one == job_id:
                    self.end_offer(job_id, worker_id)
            del self.world.jobs[job_id]
            self.index.remove_job(job_id)

    @rule(data=st.data(), queue_id=st.sampled_from(QUEUES))
    def queue_changes(self, data: Any, queue_id: str) -> None:
        self.world.queues[queue_id] = data.draw(queue_states(queue_id))
        self.index.put_queue(self.world.queues[queue_id])

    @rule(queue_id=st.sampled_from(QUEUES))
    def queue_goes(self, queue_id: str) -> None:
        self.world.queues.pop(queue_id, None)
        self.index.remove_queue(queue_id)

    @precondition(lambda self: self.offers)
    @rule(data=st.data(), again=st.booleans())
    def offer_ends(self, data: Any, again: bool) -> None:
        job_id, worker_id = data.draw(st.sampled_from(self.offers))
        self.end_offer(job_id, worker_id)
        if not again:
            job = self.world.jobs[job_id]
            self.world.jobs[job_id] = replace(job, declined={**job.declined, worker_id: None})
        self.put_job(job_id)

    @precondition(lambda self: any(job.declined for job in self.world.jobs.values()))
    @rule(data=st.data())
    def decline_is_forgotten(self, data: Any) -> None:
        declined = sorted(job.id for job in self.world.jobs.values() if job.declined)
        job_id = data.draw(st.sampled_from(declined))
        self.world.jobs[job_id] = replace(self.world.jobs[job_id], declined={})
        self.put_job(job_id)

    @precondition(lambda self: self.offers)
    @rule(data=st.data())
    def offer_is_accepted(self, data: Any) -> None:
        job_id, winner = data.draw(st.sampled_from(self.offers))
        channel = self.world.jobs[job_id].channel
        for one, worker_id in self.offers:
            if one == job_id and worker_id != winner:
                self.end_offer(job_id, worker_id)
        self.world.load(winner, channel, offers=-1, jobs=0)
        self.put_worker(winner)
        self.assigned.append((winner, channel))
        del self.world.jobs[job_id]
        self.index.remove_job(job_id)

    @precondition(lambda self: self.assigned)
    @rule(data=st.data())
    def assignment_is_closed(self, data: Any) -> None:
        at = data.draw(st.integers(0, len(self.assigned) - 1))
        worker_id, channel = self.assigned.pop(at)
        self.world.load(worker_id, channel, offers=0, jobs=-1)
        self.put_worker(worker_id)

    @rule(limit=limits, refuse=st.booleans())
    def decide(self, limit: int, refuse: bool) -> None:
        if refuse:
            self.refuse_some(limit)
        fits_before = {one.id: one for one in self.world.workers.values()}
        wanted = expected(self.world)
        assert drained(self.index, limit) == wanted
        for job_id, worker_id in wanted:
            worker, job = self.world.workers[worker_id], self.world.jobs[job_id]
            assert is_eligible(worker, job, self.world.queues[job.queue])  # J2
            assert has_room(worker, job.channel)  # J1: before each offer, so also after it
            self.world.offer(job_id, worker_id)
        assert fits_before.keys() == self.world.workers.keys()

    def refuse_some(self, limit: int) -> None:
        """What could not be committed is as if it had never been decided."""
        for one in reversed(self.index.decide(limit)):
            assert isinstance(one, Decision)
            self.index.reject(one)

    @invariant()
    def snapshots_are_what_rows_say(self) -> None:
        for queue_id, queue in self.world.queues.items():
            assert self.index.queue(queue_id) == queue
        assert {one.id for one in self.index.jobs()} == self.world.jobs.keys()
        for job_id, job in self.world.jobs.items():
            assert self.index.job(job_id) == job
        for worker_id, worker in self.world.workers.items():
            assert self.index.worker(worker_id) == worker


class CrowdedHistory(History):
    """The same where everybody is in everybody's way."""

    workers = staticmethod(alike_workers)
    jobs = staticmethod(alike_jobs)


TestHistory = History.TestCase
TestCrowdedHistory = CrowdedHistory.TestCase
TestCrowdedHistory.settings = settings(max_examples=examples(150), stateful_step_count=60)
TestHistory.settings = settings(max_examples=examples(150), stateful_step_count=40)
