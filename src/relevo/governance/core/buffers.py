"""The buffer of an exclusive writer: events wait in it until a batch of them is written.

    buffer = WriterBuffer(BufferOptions())
    buffer.accept(ticket=1, event=b"...", id="e1", now=0.0)
    piece = buffer.close_batch(now=0.05)  # a closed snapshot; new events go to the next
    answers = buffer.written(now=0.06)  # after the sink confirmed the piece

One piece is in flight at a time, and events keep the order in which they were accepted. Every
ticket that was accepted is answered exactly once, by one of the methods that return answers.

An event whose id is in the buffer, in flight, or was written lately joins the first: it gets the
same answer and is not written again. If a sink rejects events without saying which, the batch is
written in halves, the first one first, until the bad ones are found.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo.errors import Overloaded
from relevo.governance.core.written_ids import WrittenIds
from relevo.limits import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EVENT_OVERHEAD_BYTES: Final = KIB // 4
"""What an event takes in memory beside its data, about."""


class BufferOptions(Struct, frozen=True, kw_only=True):
    """When a batch is closed, and how much may wait."""

    max_batch: int = 500
    max_bytes: int = 4 * MIB
    max_delay: float = 0.05
    max_buffer: int = 100_000
    max_buffer_bytes: int = 256 * MIB
    id_seconds: float = 600.0
    """For how long a repeated id joins the event that was written."""


class BufferedEvent(Struct, gc=False):
    """An event that waits, and the tickets that wait for it."""

    data: bytes
    tickets: list[int]
    id: str | None = None
    at: float = 0.0


class Piece(Struct, frozen=True):
    """Events that go to the sink together; the first has the number `first`."""

    first: int
    events: tuple[BufferedEvent, ...]

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.first + len(self.events) - 1

    @property
    def ids(self) -> tuple[str | None, ...]:
        """The ids of the events, in their order."""
        return tuple(event.id for event in self.events)


class Intent(Struct, frozen=True):
    """What is about to be written; stored before, to know later whether it was."""

    first: int
    ids: tuple[str | None, ...]

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.first + len(self.ids) - 1


class WriteAnswer(Struct, frozen=True, gc=False):
    """The end of a ticket: written under a number, rejected, failed or of unknown outcome."""

    ticket: int
    outcome: Literal["written", "rejected", "failed", "unknown"]
    number: int = 0
    message: str = ""


class WriterBuffer:
    """Events of one key of a writer, from their acceptance to their answer."""

    def __init__(self, options: BufferOptions, *, next_number: int = 1) -> None:
        self.options = options
        self.next_number = next_number
        """The number of the next event that is written; numbers have no gaps."""
        self._filling: deque[BufferedEvent] = deque()
        self._bytes = 0
        self._queued: list[tuple[BufferedEvent, ...]] = []
        """Parts of the batch in flight that are not written yet, the next one last."""
        self._piece: Piece | None = None
        self._by_id: dict[str, BufferedEvent] = {}
        self._written = WrittenIds(options.id_seconds)
        self._flush_to: BufferedEvent | None = None
        """Everything up to this event is to be written without delay."""

    def __len__(self) -> int:
        return len(self._filling) + self.in_flight

    @property
    def in_flight(self) -> int:
        """How many events are on their way to the sink."""
        current = 0 if self._piece is None else len(self._piece.events)
        return current + (sum(map(len, self._queued)) if self._queued else 0)

    @property
    def piece(self) -> Piece | None:
        """What is being written."""
        return self._piece

    def accept(
        self,
        ticket: int,
        event: bytes,
        *,
        now: float,
        id: str | None = None,  # noqa: A002
    ) -> WriteAnswer | None:
        """Take in an event; returns the answer at once if its id was written lately.

        Raises `Overloaded` if the buffer is full: nothing was accepted.
        """
        if id is not None:
            number = self._written.number_of(id, now)
            if number is not None:
                return WriteAnswer(ticket, "written", number)
            if (first := self._by_id.get(id)) is not None:
                first.tickets.append(ticket)
                return None
        size = len(event) + EVENT_OVERHEAD_BYTES
        if len(self) >= self.options.max_buffer or (
            self._filling and self._bytes + size > self.options.max_buffer_bytes
        ):
            raise Overloaded(
                f"{len(self)} events wait to be written, which is as many as the buffer holds; try"
                " again later, or raise max_buffer"
            )
        buffered = BufferedEvent(event, [ticket], id, now)
        self._filling.append(buffered)
        self._bytes += size
        if id is not None:
            self._by_id[id] = buffered
        return None

    def flush(self) -> None:
        """Write everything accepted so far without delay; events that come later may wait."""
        if self._filling:
            self._flush_to = self._filling[-1]

    def due(self, now: float) -> float | None:
        """Return the seconds until a batch is to be closed; None if there is nothing to do."""
        if self._piece is not None or not self._filling:
            return None
        options = self.options
        if (
            self._flush_to is not None
            or len(self._filling) >= options.max_batch
            or self._bytes - len(self._filling) * EVENT_OVERHEAD_BYTES >= options.max_bytes
        ):
            return 0.0
        return max(0.0, self._filling[0].at + options.max_delay - now)

    def close_batch(self, now: float) -> Piece | None:
        """Close a batch if one is due, and return it; it is in flight until it is answered."""
        due = self.due(now)
        if due is None or due > 0:
            return None
        events: list[BufferedEvent] = []
        size = 0
        while self._filling and len(events) < self.options.max_batch:
            if events and size + len(self._filling[0].data) > self.options.max_bytes:
                break
            event = self._filling.popleft()
            self._bytes -= len(event.data) + EVENT_OVERHEAD_BYTES
            size += len(event.data)
            events.append(event)
            if event is self._flush_to:
                self._flush_to = None
        self._queued = [tuple(events)]
        return self._next_piece()

    def intent(self) -> Intent:
        """Return what is to be stored before the piece goes to the sink."""
        assert self._piece is not None, "nothing is in flight"
        return Intent(self._piece.first, self._piece.ids)

    def written(self, now: float) -> list[WriteAnswer]:
        """Answer the piece, which the sink confirmed; the next piece is in flight, if any."""
        piece = self._taken()
        answers = []
        for number, event in enumerate(piece.events, piece.first):
            if event.id is not None:
                self._written.add(event.id, number, now)
            answers += [WriteAnswer(ticket, "written", number) for ticket in self._ended(event)]
        self.next_number = piece.last + 1
        self._next_piece()
        return answers

    def rejected(self, message: str, indexes: Sequence[int] | None = None) -> list[WriteAnswer]:
        """Answer events of the piece that the sink refuses; the rest is in flight again.

        Without `indexes` nobody knows which: the piece is split, or it is that single event.
        """
        piece = self._taken()
        events = piece.events
        known = {index for index in indexes or () if 0 <= index < len(events)}
        if known:
            kept = tuple(event for index, event in enumerate(events) if index not in known)
            refused = [events[index] for index in sorted(known)]
            self._queued += [kept] if kept else []
        elif len(events) > 1:
            middle = len(events) // 2
            self._queued += [events[middle:], events[:middle]]
            refused = []
        else:
            refused = list(events)
        answers = self._end_all(refused, "rejected", message)
        self._next_piece()
        return answers

    def fail_all(
        self, message: str, *, in_flight: Literal["failed", "unknown"] = "unknown"
    ) -> list[WriteAnswer]:
        """Answer everything that waits: the writer ends, or is deleted.

        What had not begun to be written has failed; what is in flight may have been written.
        """
        flying = self._taken().events if self._piece is not None else ()
        queued = [event for events in reversed(self._queued) for event in events]
        filling = list(self._filling)
        self._queued, self._flush_to, self._bytes = [], None, 0
        self._filling.clear()
        return [
            *self._end_all(flying, in_flight, message),
            *self._end_all([*queued, *filling], "failed", message),
        ]

    def give_up(self, ticket: int) -> bool:
        """Forget a ticket whose caller has gone; the event is written all the same."""
        for event in self._all_events():
            if ticket in event.tickets:
                event.tickets.remove(ticket)
                return True
        return False

    def recover(self, intent: Intent | None, watermark: int | None, now: float) -> bool | None:
        """Take in what was about to be written when the last owner ended.

        `watermark` is the last number that the sink has, None if it cannot tell. Returns whether
        it was written, None if that cannot be known: then it may be written twice.
        """
        if watermark is not None:
            self.next_number = max(self.next_number, watermark + 1)
        if intent is None:
            return False
        if watermark is None:
            self.next_number = max(self.next_number, intent.last + 1)
            return None
        if watermark < intent.last:
            return False
        self.remember(intent, now)
        return True

    def remember(self, batch: Intent, now: float) -> None:
        """Take in the ids of a batch that is known to be written."""
        for number, id_ in enumerate(batch.ids, batch.first):
            if id_ is not None:
                self._written.add(id_, number, now)

    def _all_events(self) -> list[BufferedEvent]:
        flying = () if self._piece is None else self._piece.events
        return [*flying, *(one for events in self._queued for one in events), *self._filling]

    def _taken(self) -> Piece:
        piece = self._piece
        assert piece is not None, "nothing is in flight"
        self._piece = None
        return piece

    def _next_piece(self) -> Piece | None:
        self._piece = Piece(self.next_number, self._queued.pop()) if self._queued else None
        return self._piece

    def _ended(self, event: BufferedEvent) -> list[int]:
        """Take an event out; returns the tickets that are to be answered."""
        if event.id is not None:
            self._by_id.pop(event.id, None)
        tickets, event.tickets = event.tickets, []
        return tickets

    def _end_all(
        self,
        events: Iterable[BufferedEvent],
        outcome: Literal["rejected", "failed", "unknown"],
        message: str,
    ) -> list[WriteAnswer]:
        return [
            WriteAnswer(ticket, outcome, message=message)
            for event in events
            for ticket in self._ended(event)
        ]
