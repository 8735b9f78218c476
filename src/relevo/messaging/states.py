"""What may happen to a message, and what it is then.

    MESSAGE.next("locked", "abandon")  # "active"
    refusal("complete", "active")  # MessageLockLost

One table says it for the code, for tests and for the diagram in the documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import Conflict, EntityDisabled, MessageLockLost, MessageNotFound
from relevo.kernel.machine import END, Machine, Transition

if TYPE_CHECKING:
    from relevo.messaging.model import EntityStatus

NEW: Final = "new"
"""Not sent yet."""
GONE: Final = END
ACTIVE: Final = "active"
SCHEDULED: Final = "scheduled"
LOCKED: Final = "locked"
DEFERRED: Final = "deferred"
RELOCKED: Final = "relocked"
"""Deferred, and locked by its number: whatever gives it back makes it deferred again."""
DEAD: Final = "dead_lettered"
"""Active in the dead-letter queue, where the same table applies but for `NOT_IN_DEAD_LETTERS`."""

PEEKED: Final = {ACTIVE: 0, LOCKED: 0, DEFERRED: 1, RELOCKED: 1, SCHEDULED: 2}
"""The numbers that clients of Azure Service Bus know the states by."""


STORED: Final = (ACTIVE, LOCKED, DEFERRED, RELOCKED, SCHEDULED, ACTIVE, ACTIVE)
"""By the number in the row; 5 is invisible until its time, 6 behind others of its session."""
BEHIND: Final = 6


class MessageTransition(Struct, frozen=True):
    """In state `from_`, `event` leads to `to`; `number` is the row of the specification."""

    number: str
    from_: str
    event: str
    to: str
    effect: str = ""


def _row(number: str, from_: str, event: str, to: str, effect: str = "") -> MessageTransition:
    return MessageTransition(number, from_, event, to, effect)


_KEEPS_COUNT: Final = "delivery count unchanged"
TRANSITIONS: Final = (
    _row("T1", NEW, "send", ACTIVE, "gets its sequence number, arrival and rank"),
    _row("T2", NEW, "schedule", SCHEDULED, "gets a sequence number until it is due"),
    _row("T3", SCHEDULED, "due", ACTIVE, "gets a new sequence number; its time to live begins"),
    _row("T4", SCHEDULED, "cancel", GONE),
    _row("T5", ACTIVE, "lock", LOCKED, "gets a lock token"),
    _row("T6", ACTIVE, "take", GONE, "delivered at most once"),
    _row("T7", LOCKED, "complete", GONE),
    _row("T8", LOCKED, "abandon", ACTIVE, "delivery count + 1"),
    _row("T8", LOCKED, "exhaust", DEAD, "as often delivered as it may be"),
    _row("T9", LOCKED, "lose_lock", ACTIVE, "delivery count + 1"),
    _row("T10", LOCKED, "defer", DEFERRED, _KEEPS_COUNT),
    _row("T11", LOCKED, "dead_letter", DEAD, "stores the reason"),
    _row("T12", LOCKED, "release", ACTIVE, _KEEPS_COUNT),
    _row("T13", LOCKED, "suspend", ACTIVE, f"{_KEEPS_COUNT}; stores the checkpoint"),
    _row("T14", DEFERRED, "receive_deferred", RELOCKED, "gets a lock token"),
    _row("T7", RELOCKED, "complete", GONE),
    _row("T8", RELOCKED, "abandon", DEFERRED, "delivery count + 1"),
    _row("T8", RELOCKED, "exhaust", DEAD, "as often delivered as it may be"),
    _row("T9", RELOCKED, "lose_lock", DEFERRED, "delivery count + 1"),
    _row("T10", RELOCKED, "defer", DEFERRED, _KEEPS_COUNT),
    _row("T11", RELOCKED, "dead_letter", DEAD, "stores the reason"),
    _row("T12", RELOCKED, "release", DEFERRED, _KEEPS_COUNT),
    _row("T13", RELOCKED, "suspend", DEFERRED, f"{_KEEPS_COUNT}; stores the checkpoint"),
    _row("T15", ACTIVE, "expire", GONE, "where the entity discards what has expired"),
    _row("T15", ACTIVE, "expire_to_dead_letters", DEAD, "where the entity keeps what has expired"),
    _row("T16", ACTIVE, "forward", GONE, "is at the destination, in the same transaction"),
    _row("T17", DEAD, "redrive", ACTIVE, "back at its queue or subscription, with a new number"),
)
"""A message that becomes active again keeps its sequence number, arrival and rank (T8, T9, T12,
T13): it goes back to its own place."""

MESSAGE: Final = Machine(
    "message",
    initial=NEW,
    transitions=[
        Transition(row.from_, row.event, row.to, f"{row.event} {row.number}") for row in TRANSITIONS
    ],
)

NOT_IN_DEAD_LETTERS: Final = frozenset(
    {"send", "schedule", "due", "dead_letter", "exhaust", "expire", "expire_to_dead_letters"}
)
"""Events that nothing in a dead-letter queue knows: it stays until it is settled or redriven."""

SETTLEMENTS: Final = ("complete", "abandon", "defer", "dead_letter", "suspend", "release", "renew")
"""What the holder of a lock token may do with it; `renew` changes no state."""
COUNTED: Final = frozenset({"abandon", "lose_lock"})
"""Events after which the delivery counts as failed."""


def refusal(
    operation: str, state: str, *, holds: bool = False
) -> type[MessageLockLost | MessageNotFound] | None:
    """Return the error of an operation that does not fit the state of a message; None if it fits.

    Settlements need the token of the current lock: `holds` says whether the caller has it. The
    others, `receive_deferred` and `cancel`, need a sequence number.
    """
    if operation in SETTLEMENTS:
        return None if state in (LOCKED, RELOCKED) and holds else MessageLockLost
    return None if MESSAGE.may(state, operation) else MessageNotFound


def next_state(state: str, event: str, *, in_dead_letters: bool = False) -> str:
    """Return what the event makes of a message, in an entity or in its dead-letter queue."""
    if in_dead_letters and event in NOT_IN_DEAD_LETTERS:
        raise Conflict(
            f"a message in a dead-letter queue cannot {event!r}; complete it, or redrive it to its"
            " queue or subscription"
        )
    return MESSAGE.next(state, event)


SENDING: Final[frozenset[EntityStatus]] = frozenset({"active", "receive_disabled"})
RECEIVING: Final[frozenset[EntityStatus]] = frozenset({"active", "send_disabled"})
"""The statuses in which an entity takes messages, and gives them. Locks that are held are settled,
and messages peeked at, in every status."""


def require_sending(entity: str, status: EntityStatus) -> None:
    """Refuse to send to an entity that takes nothing now."""
    if status not in SENDING:
        raise EntityDisabled(
            f"{entity!r} is {status!r} and takes no messages; set its status to 'active'"
        )


def require_receiving(entity: str, status: EntityStatus) -> None:
    """Refuse to receive from an entity that gives nothing now."""
    if status not in RECEIVING:
        raise EntityDisabled(
            f"{entity!r} is {status!r} and gives no messages; set its status to 'active'"
        )
