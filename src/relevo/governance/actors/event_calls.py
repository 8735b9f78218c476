"""Calls that bring events to a writer: each is answered once, when all of its events are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.governance.calls.writer_calls import FailedEvent, WrittenEvents

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.actors import Deferred


class EventCall:
    """A call with events, whose tickets follow each other."""

    __slots__ = ("_deferred", "_failed", "_left", "_numbers", "first")

    def __init__(self, first: int, events: int) -> None:
        self.first = first
        """The ticket of the first event."""
        self._numbers: list[int | None] = [None] * events
        self._failed: dict[int, FailedEvent] = {}
        self._left = events
        self._deferred: Deferred[WrittenEvents] | None = None

    def written(self, ticket: int, number: int) -> None:
        """Take in that an event was written under a number."""
        self._numbers[ticket - self.first] = number
        self._ended()

    def fail(self, index: int, failed: FailedEvent) -> None:
        """Take in what became of an event that was not written."""
        self._failed[index] = failed
        self._ended()

    def answer(self) -> WrittenEvents:
        """Return what is known of the events."""
        return WrittenEvents(self._numbers, self._failed)

    def wait(self, defer: Callable[[], Deferred[Any]]) -> Any:
        """Return the answer, or a deferred one that is given with the last event."""
        if not self._left:
            return self.answer()
        self._deferred = defer()
        return self._deferred

    def _ended(self) -> None:
        self._left -= 1
        if not self._left and self._deferred is not None:
            self._deferred.resolve(self.answer())
