"""What a turn of a durable actor commits, as one value."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from relevo.kernel.events import EventRow

Missed = Literal["coalesce", "skip", "all"]
OnDead = Literal["continue", "block"]


class EntryChange(Struct, frozen=True, array_like=True, gc=False):
    """A new value of an entry of a map; None removes it."""

    map: str
    key: str
    value: bytes | None


class ReminderChange(Struct, frozen=True, gc=False):
    """A reminder as it is to be stored; `due` None removes it."""

    name: str
    due: datetime | None
    method: str = ""
    schedule: bytes = b""
    """The encoded `ReminderSchedule`, which only the owner of the actor reads."""
    payload: bytes = b""
    attempt: int = 0
    """Failed attempts of the occurrence that is due."""


class OutgoingMessage(Struct, frozen=True, gc=False):
    """A durable send to an actor: a row of the receiver."""

    receiver: str
    """Canonical id."""
    placement_group: str
    slot: int
    method: str
    body: bytes
    digest: str = ""
    headers: dict[str, str] = {}
    sender: str = ""
    """Canonical id of the sender; order holds for a sender and a receiver. Empty from outside."""
    attempts: int = 20
    on_dead: OnDead = "continue"


class RecordedCall(Struct, frozen=True, gc=False):
    """The answer of a call with an id, kept so that a repeat gets it without running."""

    call_id: str
    method: str
    digest: bytes
    """Of the method and its arguments."""
    answer: bytes
    """The encoded answer."""


class Delta(Struct, gc=False):
    """The changes of one turn, and the revision of the actor that they build on.

    Each delta raises the actor's revision by one, whatever it changes.
    """

    actor: str
    lease_id: int
    epoch: int
    placement_group: str
    slot: int
    incarnation: int
    base: int
    """The revision that this delta builds on; 0 if the actor has no row."""
    document: bytes | None = None
    """The new state; None leaves it as it is."""
    schema: int = 1
    entries: tuple[EntryChange, ...] = ()
    reminders: tuple[ReminderChange, ...] = ()
    messages: tuple[OutgoingMessage, ...] = ()
    recorded: tuple[RecordedCall, ...] = ()
    logged: tuple[EventRow, ...] = ()
    """Events for the event log."""
    handled_message: int | None = None
    """The durable message whose turn this was; its row goes, and must still be there."""
    handled_reminder: tuple[str, datetime] | None = None
    """Name and due time of the reminder whose turn this was; it must still be due then."""
    deleted: bool = False
    """Remove everything of the actor, and raise its incarnation."""

    @property
    def revision(self) -> int:
        """The revision after this delta."""
        return self.base + 1


class StoredActor(Struct, frozen=True, gc=False):
    """An actor as it is stored; one that never was has revision 0."""

    revision: int = 0
    incarnation: int = 0
    document: bytes | None = None
    schema: int = 1
    quarantine: str | None = None
    """Why its state is in quarantine; None if it is not."""


class DueReminder(Struct, frozen=True, gc=False):
    """A reminder whose time has come."""

    actor: str
    name: str
    method: str
    due: datetime
    now: datetime
    schedule: bytes
    payload: bytes
    attempt: int
    since: datetime
    """When it became due, or due again after a failed attempt."""
    crashes: int | None = None
    begun_epoch: int | None = None


class DueMessage(Struct, frozen=True, gc=False):
    """A durable message that is to be handled next for its pair of sender and receiver."""

    number: int
    receiver: str
    sender: str
    method: str
    body: bytes
    digest: str
    headers: dict[str, str]
    attempt: int
    attempts: int
    on_dead: OnDead
    since: datetime
    """When it was sent, or became due again after a failed attempt."""
    crashes: int | None = None
    """Owners in a row that were lost while it ran; None until one may have been."""
    begun_epoch: int | None = None
    """The epoch in which it began last, noted of what may have ended a host before."""


def may_be_deadly(item: DueReminder | DueMessage, epoch: int) -> bool:
    """Whether an owner before that of `epoch` noted that the item began, and may have been lost."""
    return bool(item.crashes) or (item.begun_epoch is not None and item.begun_epoch != epoch)
