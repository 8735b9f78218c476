"""How many replicas of consumers there should be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relevo.errors import InvalidValue
from relevo.messaging.core.scaling import (
    ClassLoad,
    ConsumersLoad,
    Proposal,
    Recent,
    checked,
    desired,
    propose,
)
from relevo.messaging.model import Scaling

IDLE = ConsumersLoad(
    active=0, locked=0, arrivals_per_second=0.0, hold=0.0, concurrency=4, idle_for=10_000.0
)
LOADS = st.builds(
    ConsumersLoad,
    active=st.integers(0, 10_000),
    locked=st.integers(0, 100),
    arrivals_per_second=st.floats(0, 1_000),
    hold=st.floats(0, 100),
    concurrency=st.integers(1, 64),
    idle_for=st.floats(0, 1_000),
    classes=st.lists(
        st.builds(
            ClassLoad,
            slo=st.floats(1, 100),
            waiting=st.integers(0, 1_000),
            oldest_age=st.floats(0, 1_000),
            hold=st.floats(0, 100),
        ),
        max_size=3,
    ).map(tuple),
)


@pytest.mark.parametrize(
    ("load", "proposal"),
    [
        (IDLE, Proposal(0, "backlog")),
        (replace(IDLE, active=21, locked=4), Proposal(3, "backlog")),
        (replace(IDLE, arrivals_per_second=16.0, hold=1.0), Proposal(5, "rate")),
        (
            replace(
                IDLE,
                active=20,
                classes=(ClassLoad(slo=10.0, waiting=20, oldest_age=8.0, hold=2.0),),
            ),
            Proposal(5, "slo"),
        ),
        (
            replace(
                IDLE,
                classes=(ClassLoad(slo=10.0, waiting=20, oldest_age=99.0, hold=2.0),),
            ),
            Proposal(5, "slo"),  # too late for the target: all of them within one hold
        ),
    ],
)
def test_the_largest_proposal_wins(load: ConsumersLoad, proposal: Proposal) -> None:
    assert propose(load, Scaling()) == proposal


def test_more_are_wanted_at_once_and_fewer_only_after_a_while() -> None:
    scaling = Scaling(max_replicas=8)
    busy, quiet = replace(IDLE, active=45), replace(IDLE, active=5)
    first, recent = desired(busy, scaling, (), 0.0)
    assert first == Proposal(5, "backlog")
    later, recent = desired(quiet, scaling, recent, 299.0)
    assert later == Proposal(5, "recent")
    last, recent = desired(quiet, scaling, recent, 301.0)
    assert last == Proposal(1, "backlog")
    assert recent == (Recent(299.0, 1), Recent(301.0, 1))
    assert desired(replace(IDLE, active=1_000), scaling, recent, 302.0)[0] == Proposal(8, "max")


def test_the_last_replica_stops_only_after_nothing_was_to_do_for_a_while() -> None:
    scaling = Scaling(min_replicas=0)
    assert desired(IDLE, scaling, (), 0.0)[0] == Proposal(0, "idle")
    assert desired(replace(IDLE, idle_for=299.0), scaling, (), 0.0)[0] == Proposal(1, "min")
    assert desired(replace(IDLE, locked=1), scaling, (), 0.0)[0].value == 1
    assert desired(IDLE, Scaling(min_replicas=2), (), 0.0)[0] == Proposal(2, "min")


@given(LOADS, st.integers(0, 3), st.integers(3, 12), st.lists(st.integers(0, 20), max_size=5))
def test_what_is_desired_stays_in_its_bounds(
    load: ConsumersLoad, least: int, most: int, before: list[int]
) -> None:
    scaling = Scaling(min_replicas=least, max_replicas=most)
    recent = [Recent(float(at), value) for at, value in enumerate(before)]
    found, _ = desired(load, scaling, recent, 10.0)
    assert least <= found.value <= most
    if load.active + load.locked:
        assert found.value >= 1


@pytest.mark.parametrize(
    ("scaling", "pointer"),
    [
        (Scaling(min_replicas=-1), "min_replicas"),
        (Scaling(min_replicas=4, max_replicas=3), "min_replicas"),
        (Scaling(min_replicas=0, max_replicas=0), "min_replicas"),
        (Scaling(by=()), "by"),
        (Scaling(target_per_replica=0), "target_per_replica"),
        (Scaling(utilization=1.1), "utilization"),
        (Scaling(cooldown=-1), "cooldown"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(scaling: Scaling, pointer: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        checked(scaling)
    assert refused.value.pointer == pointer


def test_the_defaults_are_taken() -> None:
    assert checked(Scaling()) == Scaling()
