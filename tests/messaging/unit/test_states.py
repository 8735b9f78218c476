"""The table of transitions, and what operations of clients meet in each state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo.errors import Conflict, EntityDisabled, MessageLockLost, MessageNotFound
from relevo.messaging import states
from relevo.messaging.states import MESSAGE, next_state, refusal

if TYPE_CHECKING:
    from relevo.messaging.model import EntityStatus

STATES = ["active", "locked", "deferred", "scheduled", "dead_lettered"]


def test_the_table_has_every_transition_of_the_specification() -> None:
    assert {row.number for row in states.TRANSITIONS} == {f"T{n}" for n in range(1, 18)}


@pytest.mark.parametrize(
    ("event", "state"),
    [("abandon", "deferred"), ("lose_lock", "deferred"), ("release", "deferred")],
)
def test_a_deferred_message_that_is_given_back_is_deferred_again(event: str, state: str) -> None:
    assert MESSAGE.next(MESSAGE.next("deferred", "receive_deferred"), event) == state


def test_only_failed_deliveries_count() -> None:  # M5
    ends = {row.event for row in states.TRANSITIONS if row.from_ in ("locked", "relocked")}
    assert {"release", "suspend", "defer"} <= ends - states.COUNTED
    counted = {row.event for row in states.TRANSITIONS if "delivery count + 1" in row.effect}
    assert counted == states.COUNTED


@pytest.mark.parametrize("operation", states.SETTLEMENTS)
def test_a_settlement_needs_the_token_of_the_current_lock(operation: str) -> None:  # M3
    for state in (*STATES, states.GONE):
        assert refusal(operation, state) is MessageLockLost
        assert refusal(operation, state, holds=True) is (
            None if state == "locked" else MessageLockLost
        )


def test_numbers_find_only_what_is_in_the_state_that_they_are_for() -> None:
    for state in (*STATES, states.GONE):
        deferred = refusal("receive_deferred", state)
        assert deferred is (None if state == "deferred" else MessageNotFound)
        scheduled = refusal("cancel", state)
        assert scheduled is (None if state == "scheduled" else MessageNotFound)


def test_nothing_is_dead_lettered_out_of_a_dead_letter_queue() -> None:
    assert next_state("locked", "complete", in_dead_letters=True) == states.GONE
    with pytest.raises(Conflict, match="redrive"):
        next_state("locked", "dead_letter", in_dead_letters=True)


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        ("active", True, True),
        ("send_disabled", False, True),
        ("receive_disabled", True, False),
        ("disabled", False, False),
    ],
)
def test_the_status_of_an_entity_says_what_it_takes_and_gives(
    status: EntityStatus, sends: bool, receives: bool
) -> None:
    for check, good in ((states.require_sending, sends), (states.require_receiving, receives)):
        if good:
            check("render", status)
        else:
            with pytest.raises(EntityDisabled, match="'render' is"):
                check("render", status)
