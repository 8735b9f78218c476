"""Whose turn it is: floor shares, shares by weight, slots, several sources."""

from __future__ import annotations

import math
from collections import Counter
from itertools import accumulate, combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relevo.errors import InvalidValue
from relevo.messaging.core import reserving, sharing
from relevo.messaging.core.claiming import SourceTurns, claim
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.core.reserving import Reservation, Slots
from relevo.messaging.model import Aging, Ordering, PriorityClass, Strict, Weighted
from tests.messaging.unit.queues import POLICIES, SENT, Sent, left, numbers, queue, service, size

WEIGHTS = {one.name: one.weight for one in CLASSES}
SIZES = st.lists(st.integers(0, 30), max_size=8)
COUNTS = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))


def backlog(high: int, normal: int, low: int) -> list[Sent]:
    return [Sent(8)] * high + [Sent(4)] * normal + [Sent(1)] * low


@given(COUNTS, SIZES, st.sampled_from([0.5, 0.34, 0.25, 0.1, 0.07, 0.05, 0.02]))
def test_the_floor_share_goes_to_the_other_classes(
    counts: tuple[int, int, int], sizes: list[int], share: float
) -> None:
    taken = service(queue(backlog(*counts), Aging(floor_share=share)), sizes)
    express = [one.of == "high" for one in taken]
    run = math.ceil(1 / share)
    for start in range(len(express) - run + 1):
        if not all(express[start:]):  # other work was claimable throughout; M9
            assert not all(express[start : start + run])
    others = [one for one in taken[: len(taken) - 1] if one.floor]
    assert all(one.of != "high" for one in others)


def test_without_a_floor_share_express_work_always_comes_first() -> None:
    taken = service(queue(backlog(200, 1, 1), Aging(floor_share=0)))
    assert [one.of for one in taken] == ["high"] * 200 + ["normal", "low"]


def test_the_twentieth_claim_is_for_the_others() -> None:
    taken = service(queue(backlog(40, 0, 5), Aging()))
    assert [at for at, one in enumerate(taken, 1) if one.of == "low"][:2] == [20, 40]


def test_the_counter_moves_only_where_there_was_a_choice() -> None:
    alone = claim([queue(backlog(50, 0, 0), Aging())], 50)
    assert alone.tallies["queue"].express_run == 0
    weighted = claim([queue(backlog(50, 0, 0), Weighted())], 50)
    assert weighted.tallies["queue"].vtimes == {}


@given(COUNTS, SIZES)
def test_weighted_classes_get_their_shares(counts: tuple[int, int, int], sizes: list[int]) -> None:
    taken = service(queue(backlog(*counts), Weighted()), sizes)
    assert len(taken) == sum(counts)  # work-conserving
    names = [one.of for one in taken]
    for a, b in (("high", "normal"), ("high", "low"), ("normal", "low")):
        end = min(
            max((at for at, n in enumerate(names) if n == name), default=0) for name in (a, b)
        )
        bound = 1 / WEIGHTS[a] + 1 / WEIGHTS[b] + 1e-9
        both = [(name == a) / WEIGHTS[a] - (name == b) / WEIGHTS[b] for name in names[: end + 1]]
        so_far = [0.0, *accumulate(both)]
        assert max(so_far) - min(so_far) <= bound  # over any interval; M10


PHASES = st.lists(
    st.tuples(st.sets(st.sampled_from("abcd"), min_size=1), st.integers(1, 30)), max_size=6
)
"""The keys with work, and for how many claims."""


@given(PHASES)
def test_idle_time_is_not_saved_up(phases: list[tuple[set[str], int]]) -> None:
    weights, vtimes = {"a": 1, "b": 2, "c": 3, "d": 8}, dict[str, int]()
    served: list[tuple[set[str], str]] = []
    for waiting in (waiting for waiting, claims in phases for _ in range(claims)):
        turn, new = sharing.share_turn(sorted(waiting), weights, vtimes)
        vtimes = dict(new)
        served.append((waiting, turn))
    for a, b in combinations(weights, 2):
        bound = 1 / weights[a] + 1 / weights[b] + 1e-9
        so_far = [0.0]
        for waiting, turn in served:
            if {a, b} <= waiting:
                step = (turn == a) / weights[a] - (turn == b) / weights[b]
                so_far.append(so_far[-1] + step)
            else:
                so_far = [0.0]
            assert max(so_far) - min(so_far) <= bound  # over any interval with both; M10


@given(SENT, POLICIES, st.integers(1, 10), st.data())
def test_lower_classes_never_use_reserved_slots(
    sent: list[Sent], policy: Ordering, total: int, data: st.DataObject
) -> None:
    reserved = {
        "high": (high := data.draw(st.integers(0, total))),
        "normal": data.draw(st.integers(0, total - high)),
    }
    kept = reserving.reservations(CLASSES, reserved, total)
    source, running, slots = queue(sent, policy), list[str](), Slots(free=total, reserved=kept)
    while size(source) or running:
        decision = claim([source], slots.free, slots=slots)
        source = replace(left(source, decision.taken), tally=decision.tallies["queue"])
        running += [one.of for one in decision.taken]
        used = Counter(running)
        assert used["normal"] + used["low"] <= total - reserved["high"]  # M12
        assert used["low"] <= total - reserved["high"] - reserved["normal"]
        assert used.total() <= total
        if not decision.taken and not running:
            assert all(slots.obstacle(of) for of in CLASSES if source.waiting.get(of.name))
            break
        finished = data.draw(st.sets(st.integers(0, max(0, len(running) - 1)), min_size=1))
        running = [of for at, of in enumerate(running) if at not in finished]
        slots = Slots(free=total - len(running), in_use=Counter(running), reserved=kept)


@given(SENT, POLICIES, st.integers(0, 3), st.integers(1, 8))
def test_a_class_never_has_more_slots_than_it_may(
    sent: list[Sent], policy: Ordering, most: int, total: int
) -> None:
    slots = Slots(free=total, max_per_class={"low": most})
    taken = claim([queue(sent, policy)], 100, slots=slots).taken
    assert sum(one.of == "low" for one in taken) <= most
    assert len(taken) <= total


def test_a_full_tenant_lets_the_next_one_pass() -> None:
    sent = [*[Sent(4, key="acme")] * 3, Sent(4, key="other")]
    slots = Slots(free=4, max_per_fairness_key=2)
    assert numbers(claim([queue(sent, Strict())], 4, slots=slots).taken) == [1, 2, 4]


def test_reserved_slots_come_from_the_classes_unless_consumers_say_otherwise() -> None:
    high = replace(CLASSES[0], reserved=2)
    classes = (high, *CLASSES[1:])
    assert reserving.reservations(classes, None, 4) == (Reservation(high, 2),)
    assert reserving.reservations(classes, {"HIGH": 1}, 4) == (Reservation(high, 1),)
    assert reserving.reservations(classes, {"high": 0}, 4) == ()
    with pytest.raises(InvalidValue, match="no source has"):
        reserving.reservations(classes, {"gold": 1}, 4)
    for bad in ({"high": 5}, {"high": -1}):
        with pytest.raises(InvalidValue, match="4 slots"):
            reserving.reservations(classes, bad, 4)


def test_a_reservation_holds_for_the_classes_of_other_sources() -> None:
    gold = PriorityClass(name="gold", priorities=(0, 9), base=9)
    slots = Slots(free=2, reserved=(Reservation(gold, 1),))
    plain = queue([Sent(9)] * 2, Strict(), name="plain")
    rich = replace(plain, name="rich", classes=(gold,), waiting={"gold": plain.waiting["high"]})
    assert [one.of for one in claim([plain, rich], 9, slots=slots).taken] == ["high", "gold"]


def test_several_sources_are_looked_at_in_their_order_on_every_claim() -> None:
    high, low = (queue([Sent(4)] * 10, Aging(), name=name) for name in ("high", "low"))
    assert [one.source for one in claim([high, low], 20).taken] == ["high"] * 10 + ["low"] * 10
    nothing = replace(high, waiting={})
    assert claim([nothing, low], 1).taken[0].source == "low"


@given(st.lists(st.integers(1, 60), min_size=2, max_size=4), SIZES)
def test_every_source_gets_at_least_a_floor_share(counts: list[int], sizes: list[int]) -> None:
    sources = [queue([Sent(4)] * count, Aging(), name=f"q{at}") for at, count in enumerate(counts)]
    turns, taken = SourceTurns(), list[str]()
    for wanted in (*sizes, sum(counts)):
        decision = claim(sources, wanted, turns=turns, floor_share=0.25)
        turns, sources = decision.turns, [left(one, decision.taken) for one in sources]
        taken += [one.source for one in decision.taken]
    assert Counter(taken) == {f"q{at}": count for at, count in enumerate(counts)}
    for name in set(taken):
        turns_of = [-1, *(at for at, one in enumerate(taken) if one == name)]
        gaps = [b - a for a, b in pairwise(turns_of)]
        assert max(gaps) <= 4 + len(counts)


def test_sources_can_take_turns() -> None:
    sources = [queue([Sent(4)] * 4, Aging(), name=name) for name in ("a", "b")]
    taken = claim(sources, 6, across="weighted").taken
    assert [one.source for one in taken] == ["a", "b", "a", "b", "a", "b"]
