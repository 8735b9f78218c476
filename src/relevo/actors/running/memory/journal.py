"""What a turn has done besides changing its state, until it commits: undone with the turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.actors.core.deltas import (
    EntryChange,
    OutgoingMessage,
    RecordedCall,
    ReminderChange,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from relevo.kernel.events import EventRow


class Journal:
    """Map entries, reminders, sends and outputs of one outermost turn."""

    __slots__ = (
        "deleted", "discards", "entries", "handled_message", "handled_reminder", "logged",
        "messages", "outputs", "recorded", "reminders",
    )  # fmt: skip

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], EntryChange] = {}
        self.reminders: dict[str, ReminderChange] = {}
        self.messages: list[OutgoingMessage] = []
        self.logged: list[EventRow] = []
        self.recorded: list[RecordedCall] = []
        self.outputs: list[Callable[[], None]] = []
        """What leaves once the turn is durable: resolutions, events, offloads."""
        self.discards: list[Callable[[], None]] = []
        """To be called when the turn is undone: what was made for outputs that never leave."""
        self.deleted = False
        self.handled_message: int | None = None
        """The durable message that the turn handles; it goes with the commit."""
        self.handled_reminder: tuple[str, datetime] | None = None
        """The reminder that the turn handles, and when it was due."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not (
            self.entries or self.reminders or self.messages or self.recorded or self.deleted
            or self.logged or self.handled_message is not None or self.handled_reminder is not None
        )  # fmt: skip

    def mark(self) -> JournalMark:
        """Return what `restore` needs to undo later entries."""
        return (
            dict(self.entries), dict(self.reminders), len(self.messages), len(self.recorded),
            len(self.logged), len(self.outputs), len(self.discards), self.deleted,
        )  # fmt: skip

    def restore(self, mark: JournalMark) -> None:
        """Undo what was noted since a mark."""
        entries, reminders, messages, recorded, logged, outputs, discards, self.deleted = mark
        self.entries = dict(entries)
        self.reminders = dict(reminders)
        del self.messages[messages:]
        del self.recorded[recorded:]
        del self.logged[logged:]
        del self.outputs[outputs:]
        self._discard(discards)

    def stored(self) -> None:
        """Forget what was queued for the store; outputs stay until it is durable."""
        self.entries, self.reminders, self.messages, self.logged = {}, {}, [], []
        self.recorded, self.handled_message, self.handled_reminder = [], None, None

    def forget(self) -> None:
        """Undo all that was not stored."""
        self.stored()
        self.outputs, self.deleted = [], False
        self._discard(0)

    def _discard(self, since: int) -> None:
        for discard in self.discards[since:]:
            discard()
        del self.discards[since:]

    def take_outputs(self) -> list[Callable[[], None]]:
        """Return what leaves now."""
        outputs, self.outputs, self.discards = self.outputs, [], []
        return outputs


JournalMark = tuple[
    dict[tuple[str, str], EntryChange], dict[str, ReminderChange], int, int, int, int, int, bool
]
