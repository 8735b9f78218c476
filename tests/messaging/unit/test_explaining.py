"""Why a message waits, and that claims agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.messaging.core.claiming import claim
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.core.explaining import (
    FAR,
    TEXTS,
    ConsumersState,
    WaitingMessage,
    explain,
)
from relevo.messaging.core.hours import Hours
from relevo.messaging.core.reserving import Reservation, Slots
from relevo.messaging.model import Ordering, Strict
from tests.messaging.unit.queues import POLICIES, SENT, Sent, numbers, queue

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
SLOTS = st.builds(
    Slots,
    free=st.integers(0, 6),
    in_use=st.dictionaries(st.sampled_from(["high", "normal", "low"]), st.integers(0, 3)),
    reserved=st.tuples(
        *(st.builds(Reservation, st.just(of), st.integers(0, 3)) for of in CLASSES[:2])
    ),
    max_per_class=st.dictionaries(st.sampled_from(["high", "normal", "low"]), st.integers(0, 3)),
)


@given(SENT, POLICIES, SLOTS)
def test_the_explanation_agrees_with_the_next_claim(
    sent: list[Sent], policy: Ordering, slots: Slots
) -> None:
    source = queue(sent, policy)
    taken = numbers(claim([source], 100, slots=slots).taken)
    consumers = ConsumersState(name="workers", slots=slots)
    places: dict[int, int] = {}
    for of, messages in source.waiting.items():
        for message in messages:
            waiting = WaitingMessage(sequence=message.sequence, of=of)
            found = explain(waiting, source, [consumers], now=NOW)
            if found.reason == "in_order":
                assert found.place is not None
                places[found.place] = message.sequence
            else:
                assert message.sequence not in taken
    assert sorted(places) == list(range(1, len(places) + 1))
    assert taken[:1] == [places[1]] if places else not taken


@pytest.mark.parametrize(
    ("message", "status", "consumers", "reason"),
    [
        ({"state": "scheduled", "visible_at": LATER}, "active", [{}], "scheduled"),
        ({"state": "deferred"}, "active", [{}], "deferred"),
        ({"state": "locked", "locked_until": LATER}, "active", [{}], "locked"),
        ({"expires_at": NOW}, "active", [{}], "expired"),
        ({"visible_at": LATER}, "active", [{}], "invisible"),
        ({"visible_at": NOW}, "active", [{}], "in_order"),
        ({"behind_session": True}, "disabled", [{}], "behind_session"),
        ({"dead_lettered": True}, "active", [], "dead_lettered"),
        ({}, "receive_disabled", [{}], "disabled"),
        ({}, "send_disabled", [{}], "in_order"),
        ({}, "active", [], "no_consumers"),
        ({}, "active", [{"state": "paused"}], "paused"),
        ({}, "active", [{"state": "draining"}, {"state": "paused"}], "draining"),
        ({}, "active", [{"hours": Hours.of("22:00-06:00 UTC")}], "out_of_hours"),
        ({}, "active", [{"slots": Slots(free=0)}], "no_slot"),
        (
            {},
            "active",
            [{"slots": Slots(free=1, reserved=(Reservation(CLASSES[0], 1),))}],
            "reserved",
        ),
        ({}, "active", [{"slots": Slots(free=1, max_per_class={"normal": 0})}], "class_full"),
        ({}, "active", [{"slots": Slots(free=1, max_per_fairness_key=0)}], "key_full"),
        ({}, "active", [{"shortage": "pool 'erp' is empty"}], "no_permit"),
        ({}, "active", [{"slots": Slots(free=0), "shortage": "none"}], "no_slot"),
        ({}, "active", [{"shortage": "none"}, {"slots": Slots(free=0)}], "no_permit"),
        ({}, "active", [{"shortage": "none"}, {"slots": Slots(free=1)}], "in_order"),
        ({}, "active", [{"state": "paused"}, {"slots": Slots(free=1)}], "in_order"),
    ],
)
def test_every_reason_is_found(
    message: dict[str, Any], status: Any, consumers: list[dict[str, Any]], reason: str
) -> None:
    source = queue([Sent(4), Sent(9)], Strict())
    found = explain(
        WaitingMessage(sequence=1, of="normal", **message),
        source,
        [ConsumersState(name=f"c{at}", **one) for at, one in enumerate(consumers)],
        now=NOW,
        status=status,
    )
    assert found.reason == reason
    if reason in ("scheduled", "locked", "invisible"):
        assert found.until == LATER
        assert LATER.isoformat() in found.text
    if reason == "in_order":
        assert (found.place, found.text) == (
            2,
            "it is number 2 of those that its consumers may take now",
        )
    if reason == "no_permit":
        assert found.text.startswith("its consumers get no permit: ")
    if reason == "out_of_hours":
        assert found.until == NOW.replace(hour=22)


def test_the_next_of_a_held_session_goes_before_all_others() -> None:
    source = queue([Sent(4), Sent(9)], Strict())
    held = WaitingMessage(sequence=7, of="normal", behind_session=True)
    consumers = [ConsumersState(name="c", slots=Slots(free=1))]
    found = explain(held, source, consumers, now=NOW, held_next=[5, 7])
    assert (found.reason, found.place) == ("in_order", 2)
    urgent = WaitingMessage(sequence=2, of="high")
    assert explain(urgent, source, consumers, now=NOW, held_next=[5, 7]).place == 3
    other = WaitingMessage(sequence=8, of="normal", behind_session=True)
    assert explain(other, source, consumers, now=NOW, held_next=[5]).reason == "behind_session"


def test_a_message_behind_those_looked_at_has_no_place() -> None:
    source = queue([Sent(4)], Strict())
    far = WaitingMessage(sequence=99, of="normal")
    found = explain(far, source, [ConsumersState(name="c")], now=NOW)
    assert (found.reason, found.place, found.text) == ("in_order", None, FAR)


def test_every_reason_has_a_text() -> None:
    assert all(text for text in TEXTS.values())
