"""Why a message waits: the conditions of a claim, one by one, in the order in which they count."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from relevo.messaging import states
from relevo.messaging.core.claiming import SourceState, claim
from relevo.messaging.core.hours import Hours
from relevo.messaging.core.reserving import Slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.messaging.model import EntityStatus

Reason = Literal[
    "scheduled",
    "deferred",
    "locked",
    "invisible",
    "expired",
    "behind_session",
    "dead_lettered",
    "disabled",
    "no_consumers",
    "paused",
    "draining",
    "out_of_hours",
    "no_slot",
    "class_full",
    "reserved",
    "key_full",
    "no_permit",
    "in_order",
]

TEXTS: Final[dict[Reason, str]] = {
    "scheduled": "it is scheduled and not due before {until}",
    "deferred": "it is deferred; receive it by its sequence number",
    "locked": "a receiver or a handler has it, until {until} unless it renews the lock",
    "invisible": "it was abandoned and is not visible before {until}",
    "expired": "it expired at {until} and is being removed",
    "behind_session": "an earlier message of its session is not settled, or the session is held",
    "dead_lettered": "it is a dead letter, which consumers do not serve; redrive or receive it",
    "disabled": "the status of the entity does not allow to receive; set it to 'active'",
    "no_consumers": "no running host has consumers for the entity; start one",
    "paused": "its consumers are paused; resume them",
    "draining": "its consumers are finishing and claim nothing new; start a host",
    "out_of_hours": "its consumers claim nothing at this hour; they do again at {until}",
    "no_slot": "all slots of its consumers are busy",
    "class_full": "its class has as many slots as it may have (max_per_class)",
    "reserved": "the slots that are free are reserved for higher classes",
    "key_full": "its fairness key has as many slots as it may have (max_per_fairness_key)",
    "no_permit": "its consumers get no permit: {shortage}",
    "in_order": "it is number {place} of those that its consumers may take now",
}
"""What each reason means, in the order in which they are looked for."""
FAR: Final = "its consumers may take it now, after all those that were looked at"
"""What "in_order" means for a message whose place is not known."""
_NEAREST: Final[Sequence[Reason]] = (
    "no_permit", "key_full", "reserved", "class_full", "no_slot", "out_of_hours", "draining",
    "paused",
)  # fmt: skip
"""Of several consumers that cannot take a message, the one that is nearest to it is named."""


class WaitingMessage(Struct, frozen=True, kw_only=True):
    """What the row of a message says that decides whether it is claimable."""

    sequence: int
    of: str
    state: str = states.ACTIVE
    visible_at: datetime | None = None
    """When a scheduled message is due, or an abandoned one visible."""
    locked_until: datetime | None = None
    expires_at: datetime | None = None
    behind_session: bool = False
    fairness_key: str = ""
    dead_lettered: bool = False


class ConsumersState(Struct, frozen=True, kw_only=True):
    """One set of consumers of the entity, on the host that has most room."""

    name: str
    state: Literal["running", "paused", "draining"] = "running"
    hours: Hours | None = None
    slots: Slots | None = None
    shortage: str | None = None
    """Why their pool or limit grants them nothing now."""


class MessageExplanation(Struct, frozen=True):
    """Why a message waits; `place` counts from 1 among those that its consumers may take now.

    It is null for a message behind the first 1,000 of its class.
    """

    reason: Reason
    text: str
    until: datetime | None = None
    place: int | None = None
    consumers: str | None = None
    """Whose limits hold it up."""


def explain(
    message: WaitingMessage,
    source: SourceState,
    consumers: Sequence[ConsumersState],
    *,
    now: datetime,
    status: EntityStatus = "active",
    held_next: Sequence[int] = (),
) -> MessageExplanation:
    """Return why a message of `source` has not been claimed.

    `held_next` are the next messages of sessions that hosts hold and handle nothing of now: these
    hosts take them before all others.
    """
    reason, until = _own_reason(message, now)
    if reason == "behind_session" and message.sequence in held_next:
        reason = None
    if reason is None and message.dead_lettered:
        reason = "dead_lettered"
    if reason is None and status not in states.RECEIVING:
        reason = "disabled"
    if reason is not None:
        return _explanation(reason, until)
    found = [_of_consumers(message, source, one, now, held_next) for one in consumers]
    if not found:
        return _explanation("no_consumers")
    able = next((one for one in found if one.reason == "in_order"), None)
    return able or min(found, key=lambda one: _NEAREST.index(one.reason))


def _own_reason(message: WaitingMessage, now: datetime) -> tuple[Reason | None, datetime | None]:
    if message.state == states.SCHEDULED:
        return "scheduled", message.visible_at
    if message.state == states.DEFERRED:
        return "deferred", None
    if message.state in (states.LOCKED, states.RELOCKED):
        return "locked", message.locked_until
    if message.expires_at is not None and message.expires_at <= now:
        return "expired", message.expires_at
    if message.visible_at is not None and message.visible_at > now:
        return "invisible", message.visible_at
    return ("behind_session", None) if message.behind_session else (None, None)


def _of_consumers(
    message: WaitingMessage,
    source: SourceState,
    consumers: ConsumersState,
    now: datetime,
    held_next: Sequence[int],
) -> MessageExplanation:
    name = consumers.name
    if consumers.state != "running":
        return _explanation(consumers.state, consumers=name)
    if consumers.hours is not None and not consumers.hours.are_open(now):
        opening = consumers.hours.next_change(now)
        return _explanation("out_of_hours", opening, consumers=name)
    of = next(one for one in source.classes if one.name == message.of)
    slots = consumers.slots
    obstacle = slots.obstacle(of, message.fairness_key) if slots else None
    if obstacle is not None:
        return _explanation(obstacle, consumers=name)
    if consumers.shortage is not None:
        return _explanation("no_permit", consumers=name, shortage=consumers.shortage)
    order = [*held_next, *_order(source, slots)]
    place = order.index(message.sequence) + 1 if message.sequence in order else None
    return _explanation("in_order", place=place, consumers=name)


def _order(source: SourceState, slots: Slots | None) -> list[int]:
    """The messages that may have a slot now, in the order in which claims take them."""
    allowed = {
        of.name: [
            one
            for one in source.waiting.get(of.name, ())
            if slots is None or slots.obstacle(of, one.fairness_key) is None
        ]
        for of in source.classes
    }
    count = sum(len(messages) for messages in allowed.values())
    decision = claim([replace(source, waiting=allowed)], count)
    return [one.message.sequence for one in decision.taken]


def _explanation(
    reason: Reason,
    until: datetime | None = None,
    *,
    place: int | None = None,
    consumers: str | None = None,
    shortage: str | None = None,
) -> MessageExplanation:
    said = until.isoformat() if until is not None else "a time that is not known"
    text = FAR if reason == "in_order" and place is None else TEXTS[reason]
    text = text.format(until=said, place=place, shortage=shortage)
    return MessageExplanation(reason, text, until, place, consumers)
