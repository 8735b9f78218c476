"""How long one waits, and the table of a job's life."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import Conflict
from relevo.router.core.estimates import Past, by_priority, minutes
from relevo.router.core.states import CANCELABLE, JOB, STATUSES


def test_a_steady_queue_has_the_rate_that_it_has() -> None:
    every_half_minute = tuple(n / 2 for n in range(120))
    assert Past(every_half_minute).rate == pytest.approx(2, rel=0.03)
    assert minutes(5, 2.0) == 3


def test_what_happened_lately_weighs_more() -> None:
    early = Past(tuple(50 + n / 10 for n in range(20))).rate
    late = Past(tuple(n / 10 for n in range(20))).rate
    assert early is not None
    assert late is not None
    assert late > 8 * early


def test_a_young_queue_is_judged_by_its_own_time() -> None:
    rate = Past(tuple(n / 5 for n in range(10)), watched=2).rate
    assert rate == pytest.approx(5, rel=0.05)


def test_fewer_than_five_departures_make_no_rate() -> None:
    assert Past((1.0, 2.0, 3.0, 4.0)).rate is None
    assert Past((1.0, 2.0, 3.0, 4.0, 61.0)).rate is None
    assert Past((1.0, 2.0, 3.0, 4.0, 5.0)).rate is not None


def test_without_a_rate_the_slots_serve_and_without_workers_a_default() -> None:
    assert minutes(4, None, slots=3) == 7
    assert minutes(4, None, slots=3, handling=1.5) == 2
    assert minutes(4, None) == 20


@given(
    st.integers(1, 10**6),
    st.none() | st.floats(0.001, 1000),
    st.integers(0, 50),
    st.floats(0.01, 100),
)
def test_nobody_behind_waits_shorter(
    position: int, rate: float | None, slots: int, handling: float
) -> None:
    here, next_one = (
        minutes(at, rate, slots=slots, handling=handling) for at in (position, position + 1)
    )
    assert 1 <= here <= next_one


def test_each_priority_waits_as_its_last_job_does() -> None:
    assert by_priority({5: 2, -1: 10}, 2.0) == {"5": 1, "-1": 5}


def test_every_status_is_in_the_table_and_finished_ones_stay() -> None:
    assert set(STATUSES) == {
        "created",
        "pendingClassification",
        "classificationFailed",
        "pendingSchedule",
        "scheduled",
        "scheduleFailed",
        "waitingForActivation",
        "queued",
        "assigned",
        "completed",
        "closed",
        "cancelled",
    }
    # J5
    for finished in ("closed", "cancelled"):
        assert [event for event in JOB.events if JOB.may(finished, event)] == ["delete"]
    assert set(CANCELABLE) == set(STATUSES) - {"completed", "closed", "cancelled"}


def test_the_way_of_a_job_that_is_done() -> None:
    status = JOB.initial
    for event in ("submit", "enqueue", "accept", "complete", "close"):
        status = JOB.next(status, event)
    assert status == "closed"
    with pytest.raises(Conflict, match="cannot 'cancel'"):
        JOB.next("completed", "cancel")
