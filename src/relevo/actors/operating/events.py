"""Events of actors that operators cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.kernel import events
from relevo.kernel.events import Catalogue, Event, EventType

if TYPE_CHECKING:
    from typing import Any

    from relevo.kernel.postgres import Database, Transaction


class ActorData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A change of an actor by an operator."""

    actor: str
    """Its canonical id."""
    by: str | None = None
    """The name of the key whose holder asked for it; none from a program."""
    name: str | None = None
    """The reminder, or the number of the message."""
    to: str | None = None
    """The host that it was sent to."""


class SlotsData(Struct, frozen=True, kw_only=True, rename="camel"):
    """Another number of slots for a placement group."""

    placement_group: str
    slots: int
    slots_before: int


BY: Final = "relevo-by"
"""The header of a call that changes something: the name of the key whose holder asked for it."""

DELETED: Final = "relevo.actor.deleted"
DEACTIVATED: Final = "relevo.actor.deactivated"
MOVED: Final = "relevo.actor.moved"
REMINDER_FIRED: Final = "relevo.actor.reminder_fired"
REMINDER_CANCELED: Final = "relevo.actor.reminder_canceled"
LETTER_REDRIVEN: Final = "relevo.actor.letter_redriven"
LETTER_DISCARDED: Final = "relevo.actor.letter_discarded"
STATE_REPLACED: Final = "relevo.actor.state_replaced"
STATE_RESET: Final = "relevo.actor.state_reset"
STATE_RETRIED: Final = "relevo.actor.state_retried"
SLOTS_CHANGED: Final = "relevo.actor.slots_changed"


def _type(name: str, sentence: str) -> EventType:
    return EventType(name=name, payload=ActorData, sentence=sentence)


TYPES: Final = (
    _type(DELETED, "An operator deleted an actor."),
    _type(DEACTIVATED, "An operator had an actor leave memory."),
    _type(MOVED, "An operator sent the slot of an actor to another host."),
    _type(REMINDER_FIRED, "An operator made a reminder due at once."),
    _type(REMINDER_CANCELED, "An operator canceled a reminder."),
    _type(LETTER_REDRIVEN, "A dead message or reminder is tried again."),
    _type(LETTER_DISCARDED, "A dead message or reminder was removed."),
    _type(STATE_REPLACED, "The state of an actor in quarantine was replaced."),
    _type(STATE_RESET, "The state of an actor in quarantine was reset to its default."),
    _type(STATE_RETRIED, "An actor was let out of quarantine with its state as it is."),
    EventType(
        name=SLOTS_CHANGED,
        payload=SlotsData,
        sentence="A placement group was given another number of slots, while nobody served it.",
    ),
)


CATALOGUE: Final = Catalogue(TYPES)


def event_of(name: str, data: ActorData, revision: int = 1) -> Event:
    """Return an event of an actor, which has this revision after it if that is known."""
    return Event(name, f"actor/{data.actor}", revision, data)


async def append(tx: Transaction, event: Event) -> None:
    """Write an event of an actor to the log, as the last statement of a transaction."""
    await events.append(tx, CATALOGUE, [event])


async def change(database: Database, sql: str, *arguments: Any, event: Event | None) -> list[Any]:
    """Run a writing statement and return its rows; if there are any, the event is written, too."""
    if event is None:
        return await database.write(sql, *arguments, idempotent=True)

    async def work(tx: Transaction) -> list[Any]:
        rows = await tx.fetch(sql, *arguments)
        if rows:
            await append(tx, event)
        return list(rows)

    return await database.run(work)
