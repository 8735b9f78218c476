"""Tenants of one class are served in turns, by their weights."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from relevo.messaging.core.fairness import SCALE, forgettable, next_tag, tag_all
from relevo.messaging.model import Strict
from tests.conftest import examples
from tests.messaging.unit.queues import Sent, queue, service

KEYS = "abc"
STEPS = st.lists(
    st.one_of(st.tuples(st.sampled_from(KEYS), st.integers(1, 4)), st.integers(1, 5)), max_size=40
)
"""A tenant sends so many, or so many are claimed."""


@settings(max_examples=examples(300))
@given(STEPS, st.fixed_dictionaries({key: st.integers(1, 5) for key in KEYS}))
def test_between_two_messages_of_a_tenant_every_other_one_is_served(
    steps: list[tuple[str, int] | int], weights: dict[str, int]
) -> None:
    waiting: list[tuple[int, int, str]] = []
    last: dict[str, int] = {}
    reached = sequence = 0
    since: dict[tuple[str, str], int | None] = defaultdict(lambda: None)
    for step in [*steps, 1_000]:
        if isinstance(step, tuple):
            key, count = step
            sent = [(sequence + n, key) for n in range(1, count + 1)]
            tags, last = tag_all(sent, reached=reached, last=last, weights=weights)
            waiting += [(tag, n, key) for tag, (n, _) in zip(tags, sent, strict=True)]
            sequence += count
            continue
        for _ in range(min(step, len(waiting))):
            taken = min(waiting)
            waiting.remove(taken)
            key, reached = taken[2], max(reached, taken[0])
            left = {one[2] for one in waiting}
            for other in set(KEYS) - {key}:
                served = since[key, other]
                if served is not None and other in left:  # it waited since the last of this tenant
                    assert served >= weights[other] // weights[key]  # M11
                since[key, other] = 0 if other in left else None
                passed = since[other, key]
                since[other, key] = passed + 1 if passed is not None and key in left else None


NUMBERS = st.integers(0, 10**15)


@given(NUMBERS, NUMBERS, NUMBERS | st.none(), st.integers(1, 1_000))
def test_tags_of_a_tenant_are_a_step_apart_and_above_what_was_reached(
    sequence: int, reached: int, last: int | None, weight: int
) -> None:
    tag = next_tag(sequence, reached=reached, last=last, weight=weight)
    step, floor = SCALE // weight, max(reached, last or 0)
    assert floor < tag <= floor + step
    assert last is None or (tag - last) % step == 0
    assert next_tag(sequence + 1, reached=reached, last=tag, weight=weight) == tag + step


@given(NUMBERS, NUMBERS, st.integers(0, 10**7), st.integers(1, 10))
def test_forgetting_an_idle_tenant_lets_it_begin_no_earlier(
    sequence: int, last: int, more: int, weight: int
) -> None:
    if forgettable(last, reached=last + more, weight=weight):
        tag = next_tag(sequence, reached=last + more, last=None, weight=weight)
        assert last + SCALE // weight < tag <= last + more + SCALE // weight


def test_a_single_message_does_not_wait_for_a_thousand_of_another_tenant() -> None:
    sent = [*[Sent(4, key="many")] * 1_000, Sent(4, key="one")]
    taken = service(queue(sent, Strict(), fair=True), (1, 1))
    assert [one.message.fairness_key for one in taken[:3]] == ["many", "one", "many"]


def test_a_fair_queue_still_serves_the_higher_class_first() -> None:
    sent = [*[Sent(1, key="a")] * 3, *[Sent(9, key="b")] * 3, Sent(7, key="c")]
    assert [one.of for one in service(queue(sent, Strict(), fair=True))] == ["high"] * 4 + [
        "low"
    ] * 3


def test_messages_without_a_key_are_one_tenant() -> None:
    sent = [*[Sent(4)] * 3, *[Sent(4, key="a")] * 3]
    taken = service(queue(sent, Strict(), fair=True))
    assert [one.message.fairness_key for one in taken] == ["", "a"] * 3
