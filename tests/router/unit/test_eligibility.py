"""What `explain` says is what matching does: J20."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relevo.router.core.capacity import ChannelTerms
from relevo.router.core.eligibility import Obstacle, explain_job, explain_worker
from relevo.router.core.selectors import WorkerSelector
from relevo.router.matching.situation import Decision, JobState, QueueState, WorkerState
from tests.router.unit.router_worlds import (
    World,
    drained,
    is_eligible,
    job_states,
    local_scores,
    score,
    worlds,
)

CHAT = {"chat": ChannelTerms(1)}
QUEUE = QueueState(id="q", max_concurrent_offers=2)


def worker(name: str, **fields: Any) -> WorkerState:
    plain: dict[str, Any] = {"queues": frozenset({"q"}), "channels": CHAT}
    return WorkerState(id=name, **{**plain, **fields})


@given(worlds(), st.data())
def test_the_worker_that_is_named_gets_the_job(world: World, data: Any) -> None:
    index = world.indexed()
    drained(index)
    job = data.draw(job_states("new"))
    index.put_job(job)
    told = explain_job(job, index.queue(job.queue), list(index.workers()), scorer=local_scores)
    answers = index.decide(1)
    if told.chosen is None:
        assert answers == []
    else:
        (decision,) = answers
        assert isinstance(decision, Decision)
        assert (decision.job, decision.worker) == ("new", told.chosen.worker)
        assert decision.score == told.chosen.score


@given(worlds())
def test_a_job_that_waits_is_told_reasons_that_hold(world: World) -> None:
    index = world.indexed()
    drained(index)
    workers = {one.id: one for one in index.workers()}
    for job in index.jobs():
        queue = index.queue(job.queue)
        assert queue is not None
        told = explain_job(job, queue, list(workers.values()), scorer=local_scores)
        assert told.verdict in ("offered", "nobody")
        named = [one for group in told.ruled_out for one in group.workers]
        named += [one.worker for one in told.candidates]
        assert sorted(named) == sorted(workers)
        for group in told.ruled_out:
            for one in group.workers:
                if group.obstacle.reason == "unrated":
                    assert score(workers[one], job, queue) is None
                else:
                    assert not is_eligible(workers[one], job, queue)


@given(worlds())
def test_a_worker_is_told_the_jobs_that_it_is_eligible_for(world: World) -> None:
    for one in world.workers.values():
        told = explain_worker(one, world.jobs.values(), world.queues)
        able = [
            job.id for job in world.jobs.values() if is_eligible(one, job, world.queues[job.queue])
        ]
        assert sorted(told.eligible_for) == sorted(able)
        others = [job for group in told.ruled_out for job in group.jobs]
        assert sorted([*told.eligible_for, *others]) == sorted(world.jobs)


def test_each_condition_has_its_reason() -> None:
    asks = WorkerSelector("level", "greaterThan", 5)
    job = JobState(
        id="j",
        queue="q",
        channel="chat",
        selectors=(asks,),
        open_offers=frozenset({"offered"}),
        declined={"declined": 9.0},
    )
    good = {"level": 7}
    limited = {"chat": ChannelTerms(1, 1)}
    workers = [
        worker("away", available=False),
        worker("elsewhere", queues=frozenset({"other"})),
        worker("mute", channels={}),
        worker("busy", used=1),
        worker("sated", channels=limited, jobs={"chat": 1}, capacity=9),
        worker("beginner", labels={"level": 5}),
        worker("novice", labels={"level": 5, "Id": "novice"}),
        worker("offered", labels=good),
        worker("declined", labels=good),
        worker("courted", labels=good, max_offers=1, open_offers=1),
        worker("able", labels=good),
    ]
    told = explain_job(job, QUEUE, workers)
    assert told.verdict == "chosen"
    assert [one.worker for one in told.candidates] == ["able"]
    reasons = {group.workers: group.obstacle for group in told.ruled_out}
    assert reasons == {
        ("away",): Obstacle("unavailable"),
        ("elsewhere",): Obstacle("queue"),
        ("mute",): Obstacle("channel"),
        ("busy",): Obstacle("capacity"),
        ("sated",): Obstacle("channelLimit"),
        ("beginner", "novice"): Obstacle("selector", asks),
        ("offered",): Obstacle("offered"),
        ("declined",): Obstacle("declined", retry_at=9.0),
        ("courted",): Obstacle("offerLimit"),
    }
    assert explain_job(job, None, workers).verdict == "noQueue"
    full = replace(job, open_offers=frozenset({"offered", "able"}))
    assert explain_job(full, QUEUE, workers).verdict == "offered"
