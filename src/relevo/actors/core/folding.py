"""Deltas of one batch folded into one change per actor: the last of each thing wins."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct, field

from relevo.actors.core.deltas import (
    EntryChange,
    OutgoingMessage,
    RecordedCall,
    ReminderChange,
)
from relevo.kernel.events import EventRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relevo.actors.core.deltas import Delta

ROW_BYTES = 200
"""The bytes counted for a row beside its values."""


class Folded(Struct):
    """The changes of consecutive turns of one actor, written as one."""

    actor: str
    fence: tuple[int, int]
    """Lease and epoch."""
    placement_group: str
    slot: int
    base: int
    revision: int
    old_incarnation: int
    incarnation: int
    places: list[int] = field(default_factory=list)
    """Of its deltas in the batch."""
    wiped: bool = False
    """What is stored goes before the changes are written."""
    deleted: bool = False
    document: bytes | None = None
    schema: int = 1
    entries: dict[tuple[str, str], EntryChange] = field(default_factory=dict)
    reminders: dict[str, ReminderChange] = field(default_factory=dict)
    recorded: dict[str, RecordedCall] = field(default_factory=dict)
    messages: list[OutgoingMessage] = field(default_factory=list)
    logged: list[EventRow] = field(default_factory=list)
    handled: list[int] = field(default_factory=list)
    """Numbers of messages."""
    occurrences: dict[str, datetime] = field(default_factory=dict)
    """Reminders that must be stored as due then."""
    size: int = 0
    """About how many bytes it has."""

    @property
    def is_document_alone(self) -> bool:
        """Whether nothing is written but the actor's row."""
        return not (
            self.wiped or self.deleted or self.entries or self.reminders or self.recorded
            or self.messages or self.logged or self.handled or self.occurrences
        )  # fmt: skip

    def follows(self, delta: Delta) -> bool:
        """Whether a delta builds on what is folded here."""
        if (delta.base, delta.incarnation) != (self.revision, self.incarnation):
            return False
        if delta.handled_message is not None and delta.handled_message in self.handled:
            return False
        if delta.handled_reminder is None:
            return True
        name, due = delta.handled_reminder
        if name in self.reminders:
            return self.reminders[name].due == due
        return not self.wiped

    def add(self, delta: Delta, place: int) -> None:
        """Fold one more delta in."""
        self.places.append(place)
        self.revision = delta.revision
        self.deleted = delta.deleted
        self.size += _bytes(delta)
        if delta.handled_message is not None:
            self.handled.append(delta.handled_message)
        if delta.handled_reminder is not None:
            name, due = delta.handled_reminder
            if name not in self.reminders:
                self.occurrences[name] = due
        if delta.messages:
            self.messages += delta.messages
        if delta.logged:
            self.logged += delta.logged
        if delta.deleted:
            self._wipe()
            return
        if delta.document is not None:
            self.document, self.schema = delta.document, delta.schema
        for entry in delta.entries:
            self.entries[entry.map, entry.key] = entry
        for reminder in delta.reminders:
            self.reminders[reminder.name] = reminder
        for call in delta.recorded:
            self.recorded[call.call_id] = call

    def _wipe(self) -> None:
        self.wiped, self.document, self.schema = True, None, 1
        self.incarnation += 1
        self.entries.clear()
        self.reminders.clear()
        self.recorded.clear()


def fold(deltas: Sequence[Delta]) -> tuple[list[Folded], set[int]]:
    """Return one change per actor, by actor, and the places of deltas that build on none of them.

    Those are refused, with all later ones of the same actor. Deltas of two periods of one owner
    stay apart: only one of the two can still hold the slot.
    """
    folded: dict[tuple[str, int, int], Folded] = {}
    refused: set[int] = set()
    cut: set[tuple[str, int, int]] = set()
    for place, delta in enumerate(deltas):
        key = (delta.actor, delta.lease_id, delta.epoch)
        change = folded.get(key)
        if change is None:
            change = folded[key] = Folded(
                delta.actor, (delta.lease_id, delta.epoch), delta.placement_group, delta.slot,
                delta.base, delta.base, delta.incarnation, delta.incarnation,
            )  # fmt: skip
        if key in cut or not change.follows(delta):
            cut.add(key)
            refused.add(place)
        else:
            change.add(delta, place)
    return [folded[key] for key in sorted(folded)], refused


def parts(changes: Sequence[Folded], bytes_max: int) -> Iterator[list[Folded]]:
    """Yield the changes in parts of so many bytes at most, or of one change."""
    part: list[Folded] = []
    size = 0
    for change in changes:
        if part and size + change.size > bytes_max:
            yield part
            part, size = [], 0
        part.append(change)
        size += change.size
    if part:
        yield part


def _bytes(delta: Delta) -> int:
    size = ROW_BYTES + len(delta.document or b"")
    for entry in delta.entries:
        size += ROW_BYTES + len(entry.value or b"")
    for reminder in delta.reminders:
        size += ROW_BYTES + len(reminder.payload)
    for message in delta.messages:
        size += ROW_BYTES + len(message.body)
    for call in delta.recorded:
        size += ROW_BYTES + len(call.answer)
    for event in delta.logged:
        size += ROW_BYTES + len(event.body)
    return size
