"""Rules of subscriptions: copies per subscription, actions, and rules that fail alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from relevo.errors import ExpressionFailed, InvalidExpression, InvalidValue, TooLarge
from relevo.messaging.core.rules import (
    RULE_NAME,
    Copy,
    Routing,
    SqlFilter,
    SubscriptionRule,
    TopicRules,
    compiled,
)
from relevo.messaging.model import CorrelationRule, SqlRule


class View(Struct):
    """A message as rules see it."""

    system: dict[str, Any]
    properties: dict[str, Any]


MESSAGE = View({"subject": "order", "priority": 4}, {"Total": 250, "Priority": "high"})
MATCHING: list[str | CorrelationRule] = [
    "TRUE",
    "Total > 100",
    CorrelationRule(subject="order"),
]
OTHER: list[str | CorrelationRule] = [
    "FALSE",
    "missing = 1",
    "Total = 1",
    CorrelationRule(subject="x"),
]
FAILING = ["1 / 0 = 1", "Total + Priority = 1"]
ACTIONS = ["SET Total = Total + 1", "REMOVE Total", "SET sys.Priority = 9"]
FAILING_ACTIONS = ["SET a = 1 / 0", "SET sys.Priority = 'x'"]


def rule(filter_: str | CorrelationRule, action: str | None = None) -> SubscriptionRule:
    if isinstance(filter_, str):
        return compiled(SqlRule(filter_, action))
    return compiled(replace(filter_, action=action))


def routed(rules: dict[tuple[str, str], SubscriptionRule]) -> Routing:
    topic = TopicRules()
    for (subscription, name), one in rules.items():
        topic.set(subscription, name, one)
    return topic.route(MESSAGE)


def test_one_plain_copy_however_many_rules_match() -> None:
    # M21
    found = routed({("s", str(n)): rule(one) for n, one in enumerate([*MATCHING, *OTHER])})
    assert found.copies == (Copy("s", MESSAGE.system, MESSAGE.properties),)
    assert found.failures == ()


def test_each_matching_rule_with_an_action_gives_its_own_copy() -> None:
    # M21
    found = routed(
        {
            ("s", "plain"): rule("TRUE"),
            ("s", "raise"): rule("Total > 100", "SET sys.Priority = 9; SET Total = 1"),
            ("s", "mark"): rule(CorrelationRule(subject="order"), "SET Mark = Total"),
            ("s", "other"): rule("Total < 100", "SET Total = 0"),
            ("t", "none"): rule("FALSE"),
        }
    )
    copies = {copy.rule: copy for copy in found.copies}
    assert set(copies) == {None, "raise", "mark"}
    assert copies["raise"].system == {"subject": "order", "priority": 9}
    assert copies["raise"].properties == {"Total": 1, "Priority": "high", RULE_NAME: "raise"}
    assert copies["mark"].properties == {**MESSAGE.properties, "Mark": 250, RULE_NAME: "mark"}
    # The effects of an action stay in its copy.
    assert copies[None].properties == {"Total": 250, "Priority": "high"}


kinds = st.tuples(
    st.sampled_from([*MATCHING, *OTHER, *FAILING]),
    st.none() | st.sampled_from([*ACTIONS, *FAILING_ACTIONS]),
)


@given(st.dictionaries(st.tuples(st.sampled_from("st"), st.sampled_from("abcd")), kinds))
def test_copies_and_failures_follow_from_each_rule_alone(
    chosen: dict[tuple[str, str], tuple[Any, str | None]],
) -> None:
    # M21 and M22
    found = routed({key: rule(*one) for key, one in chosen.items()})
    failed = {
        key
        for key, (filter_, action) in chosen.items()
        if filter_ in FAILING or (filter_ in MATCHING and action in FAILING_ACTIONS)
    }
    plain = {key[0] for key, one in chosen.items() if one[0] in MATCHING and one[1] is None}
    changed = {key for key, one in chosen.items() if one[0] in MATCHING and one[1] in ACTIONS}
    assert sorted((copy.subscription, copy.rule or "") for copy in found.copies) == sorted(
        [*((subscription, "") for subscription in plain), *changed]
    )
    assert {(failure.subscription, failure.rule) for failure in found.failures} == failed
    assert all(isinstance(failure.error, ExpressionFailed) for failure in found.failures)


def test_a_message_that_no_rule_selects_has_no_copies() -> None:
    assert routed({}) == Routing((), ())
    assert routed({("s", "x"): rule("missing <> 1")}) == Routing((), ())


def test_a_rule_is_replaced_and_removed_by_name() -> None:
    topic = TopicRules()
    topic.set("s", "r", rule(CorrelationRule(subject="order")))
    topic.set("s", "r", rule("FALSE"))
    assert topic.route(MESSAGE).copies == ()
    topic.set("s", "r", rule(CorrelationRule(subject="order")))
    assert len(topic.route(MESSAGE).copies) == 1
    topic.remove("s", "r")
    topic.remove("s", "nothing")
    assert topic.route(MESSAGE).copies == ()


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("SET Text = Text + Text", InvalidValue),
        ("SET a = Text SET b = Text SET c = Text", TooLarge),
        ("SET sys.MessageId = Text", InvalidValue),
        ("SET a = 1.0 / 0", InvalidValue),
    ],
)
def test_a_changed_copy_that_nobody_could_send_fails_its_rule_only(
    action: str, error: type[Exception]
) -> None:
    # M22
    topic = TopicRules()
    topic.set("s", "bad", rule("TRUE", action))
    topic.set("s", "good", rule("TRUE", "SET a = 'x'"))
    found = topic.route(View({}, {"Text": "x" * 20_000}))
    assert [copy.rule for copy in found.copies] == ["good"]
    assert [(one.rule, type(one.error)) for one in found.failures] == [("bad", error)]


def test_routing_leaves_the_message_alone_and_repeats() -> None:
    # M23
    before = repr(MESSAGE)
    rules = {("s", action): rule("TRUE", action) for action in ACTIONS}
    assert routed(rules) == routed(rules)
    assert repr(MESSAGE) == before


def test_a_faulty_rule_is_refused_when_it_is_made() -> None:
    with pytest.raises(InvalidExpression, match="line 1, column 8"):
        compiled("Total = ")
    with pytest.raises(InvalidExpression, match="line 1, column 5"):
        compiled(SqlRule("TRUE", "SET 5"))
    with pytest.raises(InvalidExpression, match="may have 1,024"):
        compiled("a = 1" + " " * 2_000)
    compiled("a = 1" + " " * 2_000, length_max=4_000)
    with pytest.raises(InvalidValue, match="at least one field"):
        compiled(CorrelationRule())
    assert SqlFilter("Total = @t", parameters={"t": 1}).text == "Total = @t"
