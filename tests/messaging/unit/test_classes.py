"""Which class a message gets, what a sender may not get, and service targets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relevo.errors import ExpressionFailed, Forbidden, InvalidValue
from relevo.messaging.core import classes
from relevo.messaging.core.classes import CLASSES, Classifier, checked_classes, classify, guard
from relevo.messaging.model import Message, Ordering, PriorityClass
from tests.messaging.unit.queues import POLICIES, Sent, queue, service

HIGH, NORMAL, LOW = CLASSES
PAYING: Classifier = [(lambda message: message.properties.get("tier") == "paying", "high")]
WORDS = st.sampled_from(["high", "Normal", "LOW", "none"])


@st.composite
def lists_of_classes(draw: st.DrawFn) -> tuple[PriorityClass, ...]:
    cuts = sorted(draw(st.sets(st.integers(1, 9), max_size=5)))
    bounds = zip([0, *cuts], [*cuts, 10], strict=True)
    return tuple(
        PriorityClass(name=f"c{low}", priorities=(low, above - 1), base=low)
        for low, above in bounds
    )


MESSAGES = st.builds(
    lambda priority, named, tier, word: Message(
        b"",
        priority=priority,
        priority_class=named,
        properties={"tier": tier, "Priority": word},
    ),
    st.none() | st.integers(0, 9),
    st.none() | st.sampled_from(["high", "NORMAL", "low"]),
    st.sampled_from(["paying", "free"]),
    st.none() | WORDS | st.integers(),
)


@pytest.mark.parametrize(
    ("message", "of", "priority"),
    [
        (Message(b""), "normal", 4),
        (Message(b"", priority=7), "high", 7),
        (Message(b"", priority=2), "low", 2),
        (Message(b"", priority_class="High"), "high", 8),
        (Message(b"", priority_class="low", priority=9), "low", 2),
        (Message(b"", priority=3, properties={"tier": "paying"}), "normal", 3),
        (Message(b"", properties={"tier": "paying"}), "high", 8),
        (Message(b"", properties={"tier": "paying", "Priority": "low"}), "high", 8),
        (Message(b"", properties={"Priority": "LOW"}), "low", 1),
        (Message(b"", properties={"Priority": "urgent"}), "normal", 4),
        (Message(b"", properties={"Priority": 1}), "normal", 4),
    ],
)
def test_the_first_thing_that_names_a_class_decides(
    message: Message, of: str, priority: int
) -> None:
    found = classify(message, CLASSES, PAYING)
    assert (found.of.name, found.priority) == (of, priority)


@given(MESSAGES)
def test_the_priority_is_always_one_of_the_class(message: Message) -> None:
    found = classify(message, CLASSES, PAYING)
    assert found.of.priorities[0] <= found.priority <= found.of.priorities[1]


@pytest.mark.parametrize("priority", [-1, 10, 4.0, True, "4"])
def test_priorities_out_of_range_are_refused(priority: Any) -> None:
    with pytest.raises(InvalidValue, match="from 0 to 9") as refused:
        classify(Message(b"", priority=priority), CLASSES)
    assert refused.value.pointer == "priority"


def test_an_unknown_class_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidValue, match="'gold'; the classes are high, normal, low"):
        classify(Message(b"", priority_class="gold"), CLASSES)


def test_a_filter_without_a_result_selects_nothing_and_hurts_no_other() -> None:
    def fails(message: Message) -> bool:
        raise ExpressionFailed("division by zero")

    rules: Classifier = [
        (fails, "low"),
        (lambda message: None, "low"),
        (lambda message: True, "high"),
    ]
    assert classify(Message(b""), CLASSES, rules).of.name == "high"  # M22


@given(st.lists(MESSAGES, max_size=8), POLICIES, st.sampled_from(["high", "normal", "low"]))
def test_what_waits_keeps_its_class_whatever_the_classifier_says_later(
    messages: list[Message], policy: Ordering, word: str
) -> None:
    stored = [classify(one, CLASSES, PAYING) for one in messages]
    later = classify(Message(b""), CLASSES, [(lambda message: True, word)])
    assert later.of.name == word
    source = queue([Sent(one.priority) for one in [*stored, later]], policy)
    served = {one.message.sequence: one.of for one in service(source)}
    assert [served[n] for n in sorted(served)] == [*(one.of.name for one in stored), word]  # M32


@given(MESSAGES, lists_of_classes() | st.just(CLASSES), WORDS)
def test_a_sender_never_gets_a_class_above_its_own(
    message: Message, own: tuple[PriorityClass, ...], max_class: str
) -> None:
    plain = replace(message, priority_class=None)
    found = classify(plain, own)
    bounded = guard(found, own, max_class)
    usual = next((one for one in CLASSES if one.name == max_class.lower()), None)
    most = usual.priorities[1] if usual else min(one.priorities[1] for one in own)
    assert bounded.of.priorities[0] <= most  # M33
    assert bounded.of.priorities[0] <= bounded.priority <= bounded.of.priorities[1]
    assert bounded.requested == (found.of.name if bounded.of is not found.of else None)
    if bounded.of is not found.of:
        assert bounded.of.base < found.of.base
        with pytest.raises(Forbidden, match="use a key that may"):
            guard(found, own, max_class, "reject")


def test_a_downgraded_message_is_the_most_urgent_of_its_new_class() -> None:
    bounded = guard(classify(Message(b"", priority=9), CLASSES), CLASSES, "normal")
    assert (bounded.of, bounded.priority, bounded.requested) == (NORMAL, 6, "high")
    assert guard(classify(Message(b"", priority=9), CLASSES), CLASSES, None).requested is None


@given(lists_of_classes())
def test_bands_that_cover_everything_once_are_taken(own: tuple[PriorityClass, ...]) -> None:
    found = checked_classes(own)
    assert [one.base for one in found] == sorted((one.base for one in own), reverse=True)
    assert [classes.band_of(found, priority).name for priority in range(10)]


@pytest.mark.parametrize(
    ("own", "said", "pointer"),
    [
        ((), "0 classes", "classes"),
        ((HIGH, LOW), "priority 6 belongs to no class", "classes/low/priorities"),
        ((HIGH, NORMAL), "priority 2 belongs to no class", "classes"),
        ((NORMAL, LOW), "priority 9 belongs to no class", "classes/normal/priorities"),
        (
            (HIGH, replace(NORMAL, priorities=(3, 7)), LOW),
            "priority 7 belongs to two classes",
            "classes/normal/priorities",
        ),
        ((HIGH, replace(NORMAL, name="High"), LOW), "the same name", "classes"),
        ((HIGH, NORMAL, replace(LOW, base=3)), "base must be", "classes/low/base"),
        ((HIGH, NORMAL, replace(LOW, priorities=(2, 0))), "lower first", "classes/low/priorities"),
        ((replace(HIGH, slo=0.0), NORMAL, LOW), "slo must be", "classes/high/slo"),
        (
            (replace(HIGH, slo_percentile=1.0), NORMAL, LOW),
            "between",
            "classes/high/slo_percentile",
        ),
        ((replace(HIGH, weight=0), NORMAL, LOW), "weight must", "classes/high/weight"),
        ((replace(HIGH, reserved=-1), NORMAL, LOW), "reserved must", "classes/high/reserved"),
        ((replace(HIGH, on_breach="shout"), NORMAL, LOW), "on_breach", "classes/high/on_breach"),
        ((replace(HIGH, name="$high"), NORMAL, LOW), "no name of a class", "classes"),
    ],
)
def test_classes_that_cannot_be_are_refused_by_name(
    own: tuple[PriorityClass, ...], said: str, pointer: str
) -> None:
    with pytest.raises(InvalidValue, match=said) as refused:
        checked_classes(own)
    assert refused.value.pointer == pointer


def test_a_breach_can_forward_to_a_queue() -> None:
    own = (replace(HIGH, on_breach="forward:late/orders"), NORMAL, LOW)
    assert checked_classes(own) == own


@pytest.mark.parametrize(
    ("wait", "status"), [(0, "in"), (7.9, "in"), (8, "at_risk"), (10, "at_risk"), (10.1, "out")]
)
def test_a_target_is_at_risk_from_four_fifths_on(wait: float, status: str) -> None:
    assert classes.target_status(wait, HIGH) == status
    assert classes.target_status(wait, LOW) is None


def test_escalation_goes_one_class_up_and_ends_at_the_highest() -> None:
    assert [classes.escalated(CLASSES, one).name for one in CLASSES] == ["high", "high", "normal"]
