"""Scores: the worked example, every term, and scores that come from outside."""

from __future__ import annotations

from math import exp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relevo.router.core.capacity import ChannelTerms
from relevo.router.core.scoring import default_score, payload
from relevo.router.core.selectors import WorkerSelector
from relevo.router.matching.index import Index
from relevo.router.matching.situation import (
    Decision,
    JobState,
    NeedsScores,
    QueueState,
    Scoring,
    WorkerState,
)
from tests.router.unit.router_worlds import JOBS, WORKERS

FRENCH = (
    WorkerSelector("language", "equal", "french"),
    WorkerSelector("sales", "greaterThanOrEqual", 10),
    WorkerSelector("cost", "lessThanOrEqual", 10),
)
OUTSIDE = QueueState(id="q", mode="bestWorker", scoring=Scoring(rule="outside"))


def worker(name: str, **labels: Any) -> WorkerState:
    return WorkerState(
        id=name, queues=frozenset({"q"}), channels={"c": ChannelTerms(1)}, labels=labels
    )


def job(name: str, **fields: Any) -> JobState:
    return JobState(id=name, queue="q", channel="c", **fields)


def decided(index: Index) -> tuple[list[tuple[str, str]], list[NeedsScores]]:
    answers = index.decide(1000)
    offers = [(one.job, one.worker) for one in answers if isinstance(one, Decision)]
    return offers, [one for one in answers if isinstance(one, NeedsScores)]


def indexed(queue: QueueState, *states: WorkerState | JobState) -> Index:
    index = Index()
    index.put_queue(queue)
    for one in states:
        if isinstance(one, WorkerState):
            index.put_worker(one)
        else:
            index.put_job(one)
    return index


def test_the_worked_example_of_the_spec() -> None:
    plain: dict[str, Any] = {"language": "french", "sales": 10, "cost": 10}
    assert default_score({}, FRENCH, plain) == pytest.approx(0.667, abs=0.0005)
    assert default_score({}, FRENCH, {**plain, "sales": 15}) == pytest.approx(0.707, abs=0.0005)
    assert default_score({}, FRENCH, {**plain, "cost": 9}) == pytest.approx(0.675, abs=0.0005)


def test_the_worked_example_is_offered_in_its_order() -> None:
    workers = [
        worker("plain", language="french", sales=10, cost=10),
        worker("cheap", language="french", sales=10, cost=9),
        worker("seller", language="french", sales=15, cost=10),
    ]
    queue = QueueState(id="q", mode="bestWorker", max_concurrent_offers=3)
    index = indexed(queue, *workers, job("j", selectors=FRENCH))
    assert [who for _, who in decided(index)[0]] == ["seller", "cheap", "plain"]
    lowest = replace(queue, scoring=Scoring(descending=False))
    index = indexed(lowest, *workers, job("j", selectors=FRENCH))
    assert [who for _, who in decided(index)[0]] == ["plain", "cheap", "seller"]


def test_labels_and_selectors_together_make_a_plain_average() -> None:
    asked = (WorkerSelector("level", "greaterThan", 0),)
    half = 1 / (1 + exp(-3))
    assert default_score({"a": 1, "b": "x"}, asked, {"a": 1.0, "level": 3}) == (1 + half) / 3
    assert default_score({"a": True}, (), {"a": 1}) == 0
    assert default_score({}, (), {"a": 1}) == 0


@pytest.mark.parametrize("label", [None, "10", True])
def test_a_label_that_is_no_number_gives_nothing_for_an_order(label: Any) -> None:
    labels = {} if label is None else {"sales": label}
    assert default_score({}, FRENCH[1:2], labels) == 0


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False), st.integers())
def test_every_score_is_between_nothing_and_all(label: float, value: int) -> None:
    both = (WorkerSelector("x", "lessThan", value), WorkerSelector("x", "greaterThan", value))
    one, other = (default_score({}, (asked,), {"x": label}) for asked in both)
    assert 0 <= one <= 1
    assert one + other == pytest.approx(1)


def test_expired_selectors_count_for_nothing() -> None:
    gone = replace(FRENCH[0], status="expired")
    assert default_score({}, (gone,), {}) == 0
    assert default_score({}, (gone, FRENCH[1]), {"sales": 10}) == 0.5


def test_rules_are_told_what_the_parameters_say() -> None:
    asked = job("j", labels={"a": 1}, selectors=(replace(FRENCH[0], expires_after_seconds=3),))
    ana = worker("ana", level=2)
    assert payload(Scoring(rule="outside"), asked, [ana]) == {
        "job": {"a": 1},
        "selectors": [
            {
                "key": "language",
                "operator": "equal",
                "labelOperator": "equal",
                "value": "french",
                "expiresAfterSeconds": 3,
            }
        ],
        "worker": {"level": 2, "Id": "ana"},
    }
    batch = Scoring(rule="outside", batch=True, parameters=("jobLabels",))
    assert payload(batch, asked, [ana]) == {
        "job": {"a": 1},
        "workers": [{"level": 2, "Id": "ana"}],
    }


def test_a_rule_outside_is_asked_first_and_then_decides() -> None:
    index = indexed(OUTSIDE, worker("a"), worker("b"), worker("c"), job("j"))
    offers, (asked,) = decided(index)
    assert offers == []
    assert (asked.job, sorted(asked.workers)) == ("j", ["a", "b", "c"])
    assert decided(index) == ([], [])
    index.scored(asked, {"a": 1, "b": 3})
    (decision,) = index.decide(10)
    assert isinstance(decision, Decision)
    assert (decision.worker, decision.score) == ("b", 3)


def test_jobs_behind_one_that_waits_for_scores_do_not_get_its_workers() -> None:
    # J8, also for a queue that needs no scores
    index = indexed(OUTSIDE, job("first"), job("second", priority=0))
    index.put_queue(QueueState(id="other"))
    index.put_job(replace(job("third", priority=-1), queue="other"))
    index.put_worker(replace(worker("a"), queues=frozenset({"q", "other"})))
    offers, (asked,) = decided(index)
    assert (offers, asked.job) == ([], "first")
    index.put_job(replace(job("urgent", priority=9), queue="other"))
    assert decided(index)[0] == [("urgent", "a")]
    index.remove_job("urgent")
    index.put_worker(replace(worker("a"), queues=frozenset({"q", "other"})))
    assert decided(index) == ([], [])
    index.scored(asked, {"a": 0})
    assert decided(index) == ([("first", "a")], [])


def test_several_jobs_ask_side_by_side_and_are_served_in_order() -> None:
    index = indexed(OUTSIDE, worker("a"), worker("b"), *[job(one) for one in JOBS])
    offers, asked = decided(index)
    assert offers == []
    assert [one.job for one in asked] == ["j1", "j2"]  # no slot would be left for more
    index.scored(asked[1], {"a": 2, "b": 1})
    assert decided(index) == ([], [])
    index.scored(asked[0], {"a": 2, "b": 1})
    assert decided(index) == ([("j1", "a"), ("j2", "b")], [])


def test_who_has_no_score_is_not_considered_until_something_changes() -> None:
    index = indexed(OUTSIDE, worker("a"), job("j"))
    _, (asked,) = decided(index)
    index.scored(asked, {})
    assert decided(index) == ([], [])
    index.put_job(job("j", declined={"z": None}))
    _, (again,) = decided(index)
    assert again.workers == ("a",)
    index.scored(again, {"a": 1})
    assert decided(index)[0] == [("j", "a")]


def test_after_a_failure_the_job_rests_until_it_is_put_again_and_others_go_on() -> None:
    index = indexed(OUTSIDE, worker("a"), job("j"), job("k", priority=0))
    _, (asked,) = decided(index)
    index.scored(asked, None)
    offers, (other,) = decided(index)
    assert (offers, other.job) == ([], "k")
    index.scored(other, {"a": 1})
    assert decided(index) == ([("k", "a")], [])
    index.remove_job("k")
    index.put_worker(replace(worker("a"), idle_since=1))
    assert decided(index) == ([], [])
    index.put_job(job("j"))
    assert [one.job for one in decided(index)[1]] == ["j"]


def test_scores_for_another_version_are_not_used() -> None:
    index = indexed(OUTSIDE, worker("a"), job("j"))
    _, (asked,) = decided(index)
    index.put_job(job("j", version=1))
    _, (again,) = decided(index)
    index.scored(asked, {"a": 5})
    assert decided(index) == ([], [])
    index.put_worker(replace(worker("a"), version=1, labels={"new": 1}))
    index.scored(again, {"a": 5})
    _, (third,) = decided(index)
    index.scored(third, {"a": 5})
    assert decided(index)[0] == [("j", "a")]


@given(st.data())
def test_with_instant_answers_a_rule_outside_decides_like_one_inside(data: Any) -> None:
    ratings = {(j, w): data.draw(st.integers(0, 3)) for j in JOBS for w in WORKERS}
    priorities = {one: data.draw(st.integers(0, 1)) for one in JOBS}

    def rate(_: QueueState, asked: JobState, workers: Any) -> dict[str, float]:
        return {one.id: ratings[asked.id, one.id] for one in workers}

    inside, outside = Index(rate), Index()
    inside.put_queue(replace(OUTSIDE, scoring=Scoring(rule="local")))
    outside.put_queue(OUTSIDE)
    for index in (inside, outside):
        for name in WORKERS:
            index.put_worker(worker(name))
        for name in JOBS:
            index.put_job(job(name, priority=priorities[name]))
    made: list[tuple[str, str]] = []
    waiting: list[NeedsScores] = []
    while True:
        offers, asked = decided(outside)
        made, waiting = made + offers, waiting + asked
        if not waiting:
            break
        one = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
        outside.scored(one, {name: ratings[one.job, name] for name in one.workers})
    assert made == decided(inside)[0]
