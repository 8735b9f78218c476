"""What may happen to a system job: the table against the specification, and its invariants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.jobs.core import codes
from relevo.jobs.core.operation_types import OPERATION_TYPES, is_platform
from relevo.jobs.states import (
    COMMANDS,
    COMPLETED,
    CREATING,
    EVENTS,
    JOB,
    LABELS,
    LIVE,
    LOCKED,
    REMOVED,
    STATE_LABELS,
    STRICT,
    TRANSITIONS,
    CommandRefusal,
    JobMove,
    outcome,
    platform_refusal,
    sql_rows,
    state_of,
)

STATUSES = (0, 10, 20, 21, 22, 30, 31, 32)

# Rows of 3.2, 3.3 and 4.3 (unserved, defer), written anew: statuses across, `-` is refused with
# STATE_CHANGED, a code is a refusal with that code, x is removed.
SPECIFIED = """
                 0        10       20       21       22       30       31       32
due              -        0        -        -        -        -        -        -
signal           -        0        -        -        -        -        -        -
claim            20       -        -        -        -        -        -        -
done             -        -        30       30       32       -        -        -
fail             -        -        31       31       31       -        -        -
retry            -        -        10       10       31       -        -        -
suspend          -        -        10       10       31       -        -        -
await            -        -        10       10       32       -        -        -
yield            -        -        0        10       32       -        -        -
stop             -        -        -        -        32       -        -        -
lost             -        -        0        10       32       -        -        -
crash_out        -        -        31       -        -        -        -        -
return           -        -        0        10       32       -        -        -
defer            -        -        10       10       32       -        -        -
hold             10       -        -        -        -        -        -        -
brake            10       -        -        -        -        -        -        -
unserved         31       -        -        -        -        -        -        -
deactivate       32       32       -        -        -        -        -        -
cancel           32       32       22       22       22       80044165 80044165 80044165
pause            80044167 80044167 21       21       80044162 80044162 80044162 80044162
resume           80044166 0        80044166 20       80044166 80044166 80044166 80044166
postpone         10       10       21       21       80044162 80044162 80044162 80044162
rerun            80044162 80044162 80044162 80044162 80044162 80044162 0        0
delete           x        x        20       21       22       x        x        x
"""


def specified() -> dict[tuple[int, str], str]:
    head, *lines = SPECIFIED.strip("\n").splitlines()
    statuses = [int(one) for one in head.split()]
    return {
        (status, line.split()[0]): cell
        for line in lines
        for status, cell in zip(statuses, line.split()[1:], strict=True)
    }


def told(status: int, event: str) -> str:
    match outcome(status, event):
        case JobMove(to_status):
            return "x" if to_status == REMOVED else str(to_status)
        case CommandRefusal(code):
            return "-" if code == codes.STATE_CHANGED else codes.shown(code).removeprefix("0x")


def test_every_status_and_event_has_the_outcome_of_the_specification() -> None:
    # A3, A10
    table = specified()
    assert {event for _, event in table} == set(EVENTS) - set(CREATING)
    assert {key: told(*key) for key in table} == table


def test_a_job_is_created_ready_or_waiting_and_only_once() -> None:
    assert outcome(None, "create") == JobMove(0, "S1")
    assert outcome(None, "create_deferred") == JobMove(10, "S2")
    assert all(
        isinstance(outcome(at, event), CommandRefusal) for at in STATUSES for event in CREATING
    )


@pytest.mark.parametrize("event", [one for one in EVENTS if one not in CREATING])
def test_nothing_happens_to_a_job_that_does_not_exist(event: str) -> None:
    found = outcome(None, event)
    assert isinstance(found, CommandRefusal)
    assert found.code == codes.NOT_FOUND


def test_the_eight_statuses_have_their_states_and_labels() -> None:
    # A2
    assert tuple(LABELS) == STATUSES == (*LIVE, *COMPLETED)
    assert [state_of(one) for one in STATUSES] == [0, 1, 2, 2, 2, 3, 3, 3]
    assert STATE_LABELS == {0: "Ready", 1: "Suspended", 2: "Locked", 3: "Completed"}
    for stray in (1, 11, 12, 33, -1):
        with pytest.raises(InvalidValue, match=f"no status is {stray}"):
            state_of(stray)


def test_the_table_leads_only_to_statuses_that_exist() -> None:
    # A2
    for row in TRANSITIONS:
        assert row.from_status is None or row.from_status in STATUSES
        assert row.to_status is None or row.to_status in (*STATUSES, REMOVED)
        assert (row.to_status is None) != (row.code is None)
    keys = [(row.from_status, row.event) for row in TRANSITIONS]
    assert len(set(keys)) == len(keys)


def test_completed_is_for_ever_unless_somebody_asks_for_another_run() -> None:
    # A4
    for status in COMPLETED:
        moves = {event: outcome(status, event) for event in EVENTS}
        again = {} if status == 30 else {"rerun": JobMove(0, "S21")}
        assert {e: m for e, m in moves.items() if isinstance(m, JobMove)} == {
            "delete": JobMove(REMOVED, "3.3"), **again,
        }  # fmt: skip


@given(st.lists(st.sampled_from(EVENTS), max_size=40))
def test_whatever_happens_a_job_stays_in_a_status_and_ends_once(events: list[str]) -> None:
    # A2, A3, A4, A11: a walk through anything that hosts, clocks and clients may try.
    status: int | None = None
    canceled = False
    for event in events:
        found = outcome(status, event)
        if isinstance(found, CommandRefusal):
            continue
        if status in COMPLETED:
            assert event in ("delete", "rerun")
            canceled = False
        canceled = canceled or (event == "cancel" and status in LOCKED)
        status = found.to_status
        if status == REMOVED:
            return
        assert status in STATUSES
        assert not (canceled and status in (0, 10, 20, 21, 30))


def test_after_an_accepted_pause_the_job_is_suspended_unless_its_handler_ended_first() -> None:
    # A10
    service = [one for one in EVENTS if one not in COMMANDS]
    ends = {event: outcome(21, event) for event in service}
    found = {event: move.to_status for event, move in ends.items() if isinstance(move, JobMove)}
    assert {event for event, to in found.items() if to != 10} == {"done", "fail"}
    assert (found["done"], found["fail"]) == (30, 31)
    assert all(isinstance(outcome(at, "pause"), CommandRefusal) for at in (0, 10, *COMPLETED))


def test_after_an_accepted_cancel_no_event_ends_in_success_but_another_run_may() -> None:
    # A11
    events = [event for event in EVENTS if event != "rerun"]
    reached, new = set(), {22}
    while new:
        reached |= new
        moves = [outcome(status, event) for status in new for event in events]
        new = {one.to_status for one in moves if isinstance(one, JobMove)} - reached - {REMOVED}
    assert reached == {22, 31, 32}


@pytest.mark.parametrize("status", STATUSES)
def test_a_platform_job_can_only_be_postponed_and_deleted_when_completed(status: int) -> None:
    # A12
    found = {one: platform_refusal(status, one) for one in COMMANDS}
    told = {one: refusal.code for one, refusal in found.items() if refusal is not None}
    kept = {} if status in COMPLETED else {"delete": codes.PLATFORM_DELETE}
    assert told == {
        "cancel": codes.PLATFORM_CANCEL,
        "pause": codes.PLATFORM_PAUSE,
        "resume": codes.PLATFORM_PAUSE,
        "rerun": codes.PLATFORM_PAUSE,
        **kept,
    }


def test_platform_types_are_those_of_the_maintenance_lane() -> None:
    # A12
    kinds = OPERATION_TYPES.values()
    assert all(one.platform == is_platform(one.number) for one in kinds)
    assert all(one.platform == (one.lane == "maintenance") for one in kinds)


def test_repeating_a_command_that_holds_changes_nothing() -> None:
    for status, command in ((22, "cancel"), (21, "pause"), (10, "postpone"), (21, "postpone")):
        assert outcome(status, command) == JobMove(status, outcome(status, command).number)  # type: ignore[union-attr]


def test_a_locked_job_that_is_deleted_stays_until_its_handler_has_stopped() -> None:
    for status in LOCKED:
        assert outcome(status, "delete") == JobMove(status, "R4")


def test_strict_settings_refuse_what_upstream_refuses() -> None:
    for status in LIVE:
        found = outcome(status, "delete", strict=frozenset({"strict_delete"}))
        assert isinstance(found, CommandRefusal)
        assert found.code == codes.CANNOT_DELETE
    found = outcome(10, "postpone", strict=frozenset(STRICT))
    assert isinstance(found, CommandRefusal)
    assert found.code == codes.CANNOT_CHANGE
    assert outcome(0, "postpone", strict=frozenset(STRICT)) == outcome(0, "postpone")
    assert outcome(31, "delete", strict=frozenset(STRICT)) == outcome(31, "delete")
    with pytest.raises(InvalidValue, match="'strict'"):
        outcome(0, "delete", strict=frozenset({"strict"}))


def test_the_rows_for_the_database_say_what_the_table_says() -> None:
    rows = sql_rows()
    assert [row[:2] for row in rows] == sorted(row[:2] for row in rows)
    assert {row[:2] for row in rows} == set(specified())
    for row in rows:
        found = outcome(row.from_status, row.event)
        assert row[2:] == (
            (found.to_status, None) if isinstance(found, JobMove) else (None, found.code)
        )


def test_an_unknown_event_or_status_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(InvalidValue, match="'explode' is not an event"):
        outcome(0, "explode")
    with pytest.raises(InvalidValue, match="no status is 11"):
        outcome(11, "cancel")


def test_a_refusal_says_where_the_job_is_and_what_it_can_do() -> None:
    found = outcome(0, "pause")
    assert isinstance(found, CommandRefusal)
    assert found.text == (
        "A job that has not started cannot be paused. It is 'Waiting For Resources' (0), where"
        " 'pause' cannot happen; cancel, postpone, delete can."
    )
    over = outcome(30, "cancel")
    assert isinstance(over, CommandRefusal)
    assert over.text.endswith("It is 'Succeeded' (30), to which nothing happens but delete.")


def test_the_drawing_has_every_status_and_every_move_that_changes_one() -> None:
    drawn = JOB.mermaid()
    assert len(JOB.states) == len(STATUSES) + 1
    assert "    inProgress --> waiting: retry S8\n" in drawn
    assert "    canceling --> canceled: stop S12\n" in drawn
    assert "canceling --> canceling" not in drawn
