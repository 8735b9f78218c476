"""Values of rules, and what their places make of them (job-router 10)."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import RuleFailed
from relevo.router.core import rules
from relevo.router.core.rules import RuleAnswer, RuleCall
from relevo.router.core.selectors import QueueSelector, WorkerSelector
from relevo.router.wire.policies import (
    DirectMapRule,
    ExpressionRule,
    FunctionCredential,
    FunctionRule,
    RouterRule,
    StaticRule,
    WebhookRule,
)

LABELS = {"Total": 7, "Region": "west", "Vip": True}
INPUT = {"job": LABELS}
ANY = StaticRule()

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def value_of(rule: RouterRule, **answers: RuleAnswer) -> Any:
    return rules.value_of(rule, INPUT, answers, "place")


def test_a_static_rule_gives_its_value() -> None:
    assert value_of(StaticRule(value=5)) == 5


def test_an_expression_sees_the_labels() -> None:
    assert value_of(ExpressionRule(expression="If(job.Total > 5, 10, 1)")) == 10
    assert value_of(ExpressionRule(expression='job.Region & "!"')) == "west!"


@pytest.mark.parametrize("text", ["1 / 0", "job.Region * 2", "1 +"])
def test_an_expression_without_a_result_has_failed(text: str) -> None:
    with pytest.raises(RuleFailed):
        value_of(ExpressionRule(expression=text))


def test_a_direct_map_gives_the_labels() -> None:
    assert value_of(DirectMapRule()) == LABELS


@pytest.mark.parametrize("rule", [FunctionRule(function_uri="https://f.example"), WebhookRule()])
def test_an_external_rule_gives_what_was_answered(rule: RouterRule) -> None:
    assert rules.is_external(rule)
    assert value_of(rule, place=RuleAnswer(7)) == 7
    assert value_of(rule, place=RuleAnswer(None)) is None
    with pytest.raises(RuleFailed, match="it answered 500"):
        value_of(rule, place=RuleAnswer(failure="it answered 500"))
    with pytest.raises(RuleFailed, match="was not called"):
        value_of(rule, elsewhere=RuleAnswer(7))


def test_a_call_does_not_show_its_secrets() -> None:
    rule = FunctionRule(
        function_uri="https://f.example?code=geheim",
        credential=FunctionCredential(function_key="geheim"),
    )
    assert "geheim" not in repr(RuleCall("/prioritizationRule", rule, {}))  # J23


@pytest.mark.parametrize(
    ("value", "priority"),
    [
        (5, 5),
        (-5, -5),
        (2.9, 2),
        (-2.9, -2),
        ("7", 7),
        ("-7.9", -7),
        ("1e1", 10),
        (".5", 0),
        (100, 100),
        (101, 100),
        (-101, -100),
        (10**400, 100),
        (-(10**400), -100),
        (1e300, 100),
        (float("-inf"), -100),
        ("1e9999", 100),
    ],
)
def test_a_priority_is_cut_and_kept_within_the_scale(value: Any, priority: int) -> None:
    assert rules.priority(value) == priority
    assert type(rules.priority(value)) is int


NO_NUMBERS = [
    None, True, False, "", "high", "7 ", "0x10", "1_000", "\u0667", "nan", "inf", "1,5", [], [5],
    {}, {"priority": 5}, float("nan"), "9" * 65,
]  # fmt: skip


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_no_priority(value: Any) -> None:
    with pytest.raises(RuleFailed, match="a number was expected"):
        rules.priority(value)


@pytest.mark.parametrize(
    ("value", "decided"), [(True, True), (False, False), ("true", True), ("false", False)]
)
def test_a_condition_is_true_or_false(value: Any, decided: bool) -> None:
    assert rules.condition(value) is decided


@pytest.mark.parametrize("value", [None, 0, 1, 1.0, "", "yes", "TRUE", " true", [], [True], {}])
def test_anything_else_is_no_condition(value: Any) -> None:
    with pytest.raises(RuleFailed, match="true or false was expected"):
        rules.condition(value)


def test_a_direct_map_is_no_condition() -> None:
    with pytest.raises(RuleFailed, match="the rule gave an object"):
        rules.condition(value_of(DirectMapRule()))


def test_selectors_come_in_the_words_of_the_wire() -> None:
    given_ = [
        {"key": "a", "labelOperator": "equal", "value": "x"},
        {"key": "b", "operator": "GreaterThanOrEqual", "value": 7, "expiresAfterSeconds": 30},
        {"key": "c", "labelOperator": "notequal", "expedite": True, "unknown": [1]},
    ]
    assert rules.worker_selectors(ANY, given_) == (
        WorkerSelector("a", "equal", "x"),
        WorkerSelector("b", "greaterThanOrEqual", 7, expires_after_seconds=30.0),
        WorkerSelector("c", "notEqual", None, expedite=True),
    )
    assert rules.queue_selectors(ANY, given_) == (
        QueueSelector("a", "equal", "x"),
        QueueSelector("b", "greaterThanOrEqual", 7),
        QueueSelector("c", "notEqual", None),
    )
    assert rules.worker_selectors(ANY, []) == ()


def test_an_expression_can_give_selectors() -> None:
    text = 'Table({key: "Region", labelOperator: "equal", value: job.Region})'
    value = value_of(ExpressionRule(expression=text))
    assert rules.worker_selectors(ANY, value) == (WorkerSelector("Region", "equal", "west"),)


def test_of_a_direct_map_each_label_becomes_a_selector() -> None:
    assert rules.queue_selectors(DirectMapRule(), LABELS) == (
        QueueSelector("Total", "equal", 7),
        QueueSelector("Region", "equal", "west"),
        QueueSelector("Vip", "equal", True),
    )


EQUAL = {"key": "a", "labelOperator": "equal"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "a list of selectors was expected"),
        (EQUAL, "the rule gave an object"),
        ("[]", "the rule gave the text"),
        ([[]], "selector 0 is a list instead"),
        ([EQUAL, {}], "selector 1 needs a key"),
        ([EQUAL | {"key": ""}], "needs a key"),
        ([EQUAL | {"key": "k" * 257}], "needs a key"),
        ([EQUAL | {"key": "\0"}], "cannot be kept"),
        ([EQUAL | {"labelOperator": "like"}], "has the operator the text 'like'"),
        ([EQUAL | {"labelOperator": None}], "has the operator nothing"),
        ([EQUAL | {"value": []}], "the value of selector 0 is a list"),
        ([EQUAL | {"value": {}}], "the value of selector 0 is an object"),
        ([EQUAL | {"value": float("inf")}], "the value of selector 0"),
        ([EQUAL | {"value": "x" * 4_097}], "longer than 4096"),
        ([EQUAL | {"value": "a\0"}], "cannot be kept"),
        ([EQUAL | {"expiresAfterSeconds": 0}], "must be a number above 0"),
        ([EQUAL | {"expiresAfterSeconds": "9"}], "must be a number above 0"),
        ([EQUAL | {"expiresAfterSeconds": True}], "must be a number above 0"),
        ([EQUAL | {"expiresAfterSeconds": float("nan")}], "must be a number above 0"),
        ([EQUAL | {"expedite": "yes"}], "expedite of selector 0"),
        ([EQUAL] * 101, "gave 101 selectors; at most 100 are allowed"),
    ],
)
def test_what_is_no_list_of_selectors_is_refused_by_name(value: Any, text: str) -> None:
    with pytest.raises(RuleFailed, match=text):
        rules.worker_selectors(ANY, value)


def test_scores_are_numbers_and_nothing_else() -> None:
    assert rules.score(7) == 7.0
    assert rules.score("0.5") == 0.5
    wrong: list[Any] = [None, True, "best", {}, float("inf"), 10**400, "1e999"]
    for value in wrong:
        with pytest.raises(RuleFailed):
            rules.score(value)


def test_of_many_scores_those_that_count_are_taken() -> None:
    given_ = {"w1": 1, "w2": "2.5", "w3": None, "w4": "best", "w5": 10**400, "stranger": 9}
    assert rules.scores(given_, ["w1", "w2", "w3", "w4", "w5", "w6"]) == {"w1": 1.0, "w2": 2.5}
    wrong: list[Any] = [7, None, [], "x"]
    for value in wrong:
        with pytest.raises(RuleFailed, match="scores by worker id were expected"):
            rules.scores(value, ["w1"])


@given(value=values)
def test_any_value_is_converted_or_refused(value: Any) -> None:
    for convert in (rules.priority, rules.condition, rules.score):
        with contextlib.suppress(RuleFailed):
            convert(value)
    with contextlib.suppress(RuleFailed):
        rules.scores(value, ["", "w"])
    labels = value if isinstance(value, dict) else {}
    for rule, given_ in ((ANY, value), (DirectMapRule(), labels)):
        with contextlib.suppress(RuleFailed):
            found = rules.worker_selectors(rule, given_)
            assert len(rules.queue_selectors(rule, given_)) == len(found)
            msgspec.json.encode(found)


@given(value=values)
def test_a_value_is_named_in_few_words(value: Any) -> None:
    assert len(rules.shown(value)) < 300


@given(value=st.integers() | st.floats(allow_nan=False))
def test_a_priority_is_always_on_the_scale(value: float) -> None:
    assert limits.ROUTER_PRIORITY_MIN <= rules.priority(value) <= limits.ROUTER_PRIORITY_MAX
