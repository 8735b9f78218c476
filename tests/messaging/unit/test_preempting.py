"""Which handler is asked to suspend for a message of a higher class."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relevo.errors import InvalidValue
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.core.preempting import (
    RunningMessage,
    checked,
    choose_victim,
    choose_victims,
)
from relevo.messaging.model import Preemption

HIGH = replace(CLASSES[0], preempts=True)
NORMAL, LOW = (replace(one, preemptible=True) for one in CLASSES[1:])
RULES = Preemption()

RUNNING = st.lists(
    st.builds(
        RunningMessage,
        st.integers(1, 9),
        st.sampled_from([HIGH, NORMAL, LOW, CLASSES[2]]),
        st.floats(0, 5),
        st.integers(0, 4),
        st.booleans(),
    ),
    max_size=8,
    unique_by=lambda one: one.sequence,
)


@given(RUNNING)
def test_a_victim_may_be_asked_and_no_other_is_better(running: list[RunningMessage]) -> None:
    victim = choose_victim(HIGH, running, RULES)
    able = [
        one
        for one in running
        if one.of in (NORMAL, LOW)
        and one.elapsed >= 1
        and one.preempt_count < RULES.max_preemptions
        and not one.asked
    ]
    if victim is None:
        assert not able
    else:
        assert victim in able
        assert min((one.of.base, one.elapsed) for one in able) == (victim.of.base, victim.elapsed)


@given(RUNNING, st.integers(0, 6))
def test_each_waiting_message_has_a_victim_of_its_own(
    running: list[RunningMessage], waiting: int
) -> None:
    victims = choose_victims([HIGH] * waiting, running, RULES)
    found = [one.sequence for one in victims if one is not None]
    assert len(victims) == waiting
    assert len(set(found)) == len(found)


@given(st.integers(0, 5), st.integers(1, 20))
def test_a_message_is_preempted_only_so_often(most: int, attempts: int) -> None:
    rules, running = Preemption(max_preemptions=most), RunningMessage(1, LOW, 60.0)
    for _ in range(attempts):
        if choose_victim(HIGH, [running], rules) is not None:
            running = replace(running, preempt_count=running.preempt_count + 1)
    assert running.preempt_count == min(most, attempts)  # M15


def test_classes_that_do_not_preempt_or_are_too_near_ask_nobody() -> None:
    running = [RunningMessage(1, LOW, 60.0)]
    assert choose_victim(CLASSES[0], running, RULES) is None
    assert choose_victim(replace(NORMAL, preempts=True), running, RULES) is not None
    assert choose_victim(replace(NORMAL, preempts=True), running, Preemption(gap=4)) is None


@pytest.mark.parametrize(
    ("rules", "pointer"),
    [
        (Preemption(gap=-1), "preempt/gap"),
        (Preemption(grace=float("nan")), "preempt/grace"),
        (Preemption(mode="kill"), "preempt/mode"),
    ],
)
def test_rules_that_cannot_be_are_refused_by_name(rules: Any, pointer: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        checked(rules, process=False)
    assert refused.value.pointer == pointer
    assert checked(Preemption(mode="kill"), process=True).mode == "kill"
