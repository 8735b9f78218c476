"""The five policies of order, as claims of any size follow them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.messaging.core import ordering
from relevo.messaging.core.classes import CLASSES, band_of
from relevo.messaging.model import Aging, Deadline, Fifo, Ordering, Strict, Weighted
from tests.messaging.unit.queues import POLICIES, SENT, Sent, left, numbers, queue, service

SIZES = st.lists(st.integers(0, 5), max_size=8)


@given(SENT, SIZES)
def test_strict_leaves_no_higher_priority_behind(sent: list[Sent], sizes: list[int]) -> None:
    taken = numbers(service(queue(sent, Strict()), sizes))
    priorities = [sent[number - 1].priority for number in taken]
    assert priorities == sorted(priorities, reverse=True)  # M7


@given(SENT, SIZES, st.sampled_from([0.0, 0.05, 0.3]), st.integers(0, 100))
def test_aging_serves_a_tier_by_arrival_less_priority(
    sent: list[Sent], sizes: list[int], floor: float, seconds: int
) -> None:
    policy = Aging(seconds_per_level=seconds, floor_share=floor)
    taken = service(queue(sent, policy), sizes)
    for express in (True, False):
        inside = [sent[one.message.sequence - 1] for one in taken if (one.of == "high") is express]
        keys = [one.second - one.priority * seconds for one in inside]
        assert keys == sorted(keys)  # M8


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_message_is_only_passed_by_what_came_before_its_bound(
    priority: int, other: int, second: int, later: int
) -> None:
    policy, levels = Aging(seconds_per_level=60), other - priority
    first, passing = (
        ordering.rank(policy, band_of(CLASSES, level), priority=level, arrived=at * ordering.MICROS)
        for level, at in ((priority, second), (other, later))
    )
    assert (passing < first) == (later < second + levels * 60)


@given(SENT, SIZES, POLICIES)
def test_equal_messages_are_served_in_the_order_of_their_numbers(
    sent: list[Sent], sizes: list[int], policy: Ordering
) -> None:
    taken = service(queue(sent, policy), sizes)
    assert sorted(numbers(taken)) == list(range(1, len(sent) + 1))
    for a, b in pairwise(sorted(taken, key=lambda one: (one.of, one.message.rank))):
        if (a.of, a.message.rank) == (b.of, b.message.rank):  # M13
            assert a.message.sequence < b.message.sequence


@given(SENT, SIZES)
def test_fifo_ignores_priorities(sent: list[Sent], sizes: list[int]) -> None:
    assert numbers(service(queue(sent, Fifo()), sizes)) == list(range(1, len(sent) + 1))


@given(SENT, SIZES, POLICIES)
def test_the_size_of_claims_does_not_change_the_order(
    sent: list[Sent], sizes: list[int], policy: Ordering
) -> None:
    assert service(queue(sent, policy), sizes) == service(queue(sent, policy))


@given(SENT, st.sampled_from([Fifo(), Strict(), Aging(floor_share=0), Deadline()]), st.data())
def test_a_returned_message_goes_back_to_its_place(
    sent: list[Sent], policy: Ordering, data: st.DataObject
) -> None:
    source = queue(sent, policy)
    order = service(source)
    taken = order[: data.draw(st.integers(0, len(order)))]
    kept = [one for one in taken if data.draw(st.booleans())]  # the others are abandoned
    assert service(left(source, kept)) == [one for one in order if one not in kept]  # M6


def test_deadline_serves_the_earliest_target_first() -> None:
    sent = [
        Sent(priority=1, second=0),
        Sent(priority=9, second=3_580),
        Sent(priority=9, second=3_591),
    ]
    assert numbers(service(queue(sent, Deadline()))) == [2, 1, 3]


def test_an_express_class_overtakes_whatever_is_older() -> None:
    sent = [*[Sent(priority=2)] * 5, Sent(priority=7, second=100_000)]
    assert numbers(service(queue(sent, Aging())))[0] == 6


@pytest.mark.parametrize(
    ("policy", "fair", "pointer"),
    [
        (Aging(floor_share=0.6), False, "ordering/floor_share"),
        (Aging(floor_share=float("nan")), False, "ordering/floor_share"),
        (Aging(seconds_per_level=-1), False, "ordering/seconds_per_level"),
        (Deadline(otherwise=-1), False, "ordering/otherwise"),
        ("strict", False, "ordering"),
        (Aging(), True, "fair"),
        (Fifo(), True, "fair"),
    ],
)
def test_policies_that_cannot_be_are_refused_by_name(
    policy: Ordering, fair: bool, pointer: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        ordering.checked(policy, fair=fair)
    assert refused.value.pointer == pointer


def test_policies_that_can_be_are_taken() -> None:
    for policy in (Fifo(), Strict(), Aging(), Deadline(), Weighted()):
        assert ordering.checked(policy) is policy
    for policy in (Strict(), Weighted()):
        assert ordering.checked(policy, fair=True) is policy
