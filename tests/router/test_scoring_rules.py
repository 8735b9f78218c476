"""Scores by rule (job-router 13.5): payloads, batches, and who is left out."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import RuleFailed
from relevo.router.core import scoring_rules
from relevo.router.core.rules import RuleAnswer
from relevo.router.core.selectors import WorkerSelector
from relevo.router.matching.situation import JobState, Scoring, WorkerState
from relevo.router.wire.policies import (
    DirectMapRule,
    ExpressionRule,
    FunctionRule,
    RouterRule,
    StaticRule,
    WebhookRule,
)

SINGLE, BATCH = Scoring(rule="local"), Scoring(rule="outside", batch=True, batch_size=2)
JOB = JobState(
    id="j",
    queue="q",
    channel="c",
    labels={"Total": 7},
    selectors=(
        WorkerSelector("Level", "greaterThan", 3, expires_after_seconds=30.0),
        WorkerSelector("Old", "equal", 1, status="expired"),
    ),
)
WORKERS = [WorkerState(id=f"w{number}", labels={"Level": number}) for number in range(5)]
FUNCTION = FunctionRule(function_uri="https://f.example")


def test_single_scoring_asks_about_each_worker() -> None:
    calls = scoring_rules.calls(FUNCTION, SINGLE, JOB, WORKERS)
    assert len({one.place for one in calls}) == 5
    assert calls[3].rule is FUNCTION
    assert calls[3].payload == {
        "job": {"Total": 7},
        "selectors": [
            {
                "key": "Level",
                "operator": "greaterThan",
                "labelOperator": "greaterThan",
                "value": 3,
                "expiresAfterSeconds": 30.0,
            }
        ],
        "worker": {"Level": 3, "Id": "w3"},
    }


def test_batch_scoring_asks_about_as_many_as_a_batch_holds() -> None:
    calls = scoring_rules.calls(WebhookRule(), BATCH, JOB, WORKERS)
    asked = [[worker["Id"] for worker in one.payload["workers"]] for one in calls]
    assert asked == [["w0", "w1"], ["w2", "w3"], ["w4"]]
    assert "worker" not in calls[0].payload


@pytest.mark.parametrize("parameters", [(), ("jobLabels",), ("workerSelectors",)])
def test_only_what_was_asked_for_is_sent(parameters: Any) -> None:
    scoring = Scoring(parameters=parameters)
    (call,) = scoring_rules.calls(FUNCTION, scoring, JOB, WORKERS[:1])
    assert ("job" in call.payload) == ("jobLabels" in parameters)
    assert ("selectors" in call.payload) == ("workerSelectors" in parameters)


def test_rules_of_ours_need_no_calls() -> None:
    own: list[RouterRule] = [StaticRule(), ExpressionRule(expression="1"), DirectMapRule()]
    for rule in own:
        assert scoring_rules.calls(rule, SINGLE, JOB, WORKERS) == ()


def test_an_expression_rates_each_worker() -> None:
    rule = ExpressionRule(expression="job.Total + worker.Level")
    assert scoring_rules.scores(rule, SINGLE, JOB, WORKERS[:2]) == {"w0": 7.0, "w1": 8.0}


def test_an_expression_rates_a_batch_by_a_record() -> None:
    rule = ExpressionRule(expression="{w0: 5, w1: 1 + 1}")
    assert scoring_rules.scores(rule, BATCH, JOB, WORKERS[:2]) == {"w0": 5.0, "w1": 2.0}


def test_a_static_rule_rates_all_alike() -> None:
    assert scoring_rules.scores(StaticRule(value=3), SINGLE, JOB, WORKERS[:2]) == {
        "w0": 3.0,
        "w1": 3.0,
    }


def test_a_worker_without_a_score_is_left_out() -> None:
    rule = ExpressionRule(expression="1 / worker.Level")
    assert scoring_rules.scores(rule, SINGLE, JOB, WORKERS[:3]) == {"w1": 1.0, "w2": 0.5}


def test_answers_are_taken_by_their_calls() -> None:
    calls = scoring_rules.calls(FUNCTION, BATCH, JOB, WORKERS)
    answers = {
        calls[0].place: RuleAnswer({"w0": 1, "w1": "x", "w4": 9}),
        calls[1].place: RuleAnswer(failure="it answered 500"),
        calls[2].place: RuleAnswer({"w4": 0.5}),
    }
    found = scoring_rules.scores(FUNCTION, BATCH, JOB, WORKERS, answers)
    assert found == {"w0": 1.0, "w4": 0.5}


def test_an_answer_without_scores_is_no_failure_of_the_rule() -> None:
    calls = scoring_rules.calls(FUNCTION, BATCH, JOB, WORKERS[:2])
    answers = {calls[0].place: RuleAnswer({})}
    assert scoring_rules.scores(FUNCTION, BATCH, JOB, WORKERS[:2], answers) == {}


@pytest.mark.parametrize(
    "rule",
    [
        FUNCTION,
        DirectMapRule(),
        StaticRule(value="best"),
        ExpressionRule(expression="1 / 0"),
        ExpressionRule(expression="worker.Missing"),
    ],
)
def test_a_rule_that_fails_for_all_has_failed(rule: RouterRule) -> None:
    with pytest.raises(RuleFailed, match="no score at all"):
        scoring_rules.scores(rule, SINGLE, JOB, WORKERS)


def test_nobody_is_rated_when_nobody_is_there() -> None:
    assert scoring_rules.scores(FUNCTION, BATCH, JOB, []) == {}
    assert scoring_rules.calls(FUNCTION, BATCH, JOB, []) == ()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.dictionaries(st.sampled_from(["w0", "w1", "w4"]), inner) | st.lists(inner),
    max_leaves=8,
)


@given(batch=st.booleans(), size=st.integers(1, 7), given_=st.lists(values, max_size=6))
def test_whatever_is_answered_scores_are_numbers_of_those_asked_about(
    batch: bool, size: int, given_: list[Any]
) -> None:
    scoring = Scoring(rule="outside", batch=batch, batch_size=size)
    calls = scoring_rules.calls(FUNCTION, scoring, JOB, WORKERS)
    answers = {call.place: RuleAnswer(it) for call, it in zip(calls, given_, strict=False)}
    try:
        found = scoring_rules.scores(FUNCTION, scoring, JOB, WORKERS, answers)
    except RuleFailed:
        return
    assert found.keys() <= {one.id for one in WORKERS}
    assert all(math.isfinite(one) for one in found.values())
