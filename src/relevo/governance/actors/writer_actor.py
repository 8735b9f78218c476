"""The actor that is the one writer of a key: it gathers events and writes them in batches.

The rules are in `core/buffers.py`. The sink works outside of turns, so events are accepted while a
batch is being written; callers wait by deferred answers. What is about to be written is stored
before, so that the next owner knows from the sink's watermark whether it was.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.actors import reminder_handler
from relevo.errors import InvalidValue, NotFound, Overloaded
from relevo.governance.actors.event_calls import EventCall
from relevo.governance.actors.kit import KitActor
from relevo.governance.calls.writer_calls import FailedEvent, RejectedEvent
from relevo.governance.core.buffers import Intent, WriterBuffer
from relevo.governance.errors import Rejected, StaleSink
from relevo.kernel import error_text, faults
from relevo.kernel.backoff import Backoff
from relevo.kernel.telemetry.logs import get_logger
from relevo.limits import ACTOR_STATE_BYTES_MAX, KIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relevo.actors import DeactivationReason, Deferred, Offloaded, Tick
    from relevo.governance.core.buffers import Piece, WriteAnswer
    from relevo.governance.sinks import Sink, SinkFence

log = get_logger(__name__)
AGAIN: Final = Backoff(first=0.1, longest=10.0, jitter=(0.5, 1.0))
IDS_STORED_MAX: Final = 100_000
"""Ids of written events of a key that a crash does not forget."""
STORED_BYTES_MAX: Final = ACTOR_STATE_BYTES_MAX - KIB
"""Of an event; its id is stored with it."""
REMIND_SECONDS: Final = 5.0
"""How soon events are written that a crash has left behind."""


class WriterState(Struct):
    """What is stored of a key of a writer, beside its events."""

    next_number: int = 1
    intent: Intent | None = None
    """What is about to be written, or was last."""
    entries: list[str] = []
    """The stored events that it is made of."""
    reminding: bool = False


class StoredEvent(Struct, frozen=True):
    """An event that was accepted and is not known to be written."""

    data: bytes
    id: str | None = None


class WriterActor(KitActor[WriterState]):
    """Writes the events of one key, in batches."""

    async def on_activate(self) -> None:
        name, _, self._key = str(self.ctx.key).partition(":")
        definition = self.kit.writers.get(name)
        if definition is None:
            raise NotFound(f"this program defines no writer {name!r}, and cannot serve it")
        self._stores = definition.ack == "buffer"
        self._buffer = WriterBuffer(definition.options, next_number=self.state.next_number)
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._events = self.map("events", StoredEvent)
        self._refused = self.map("rejected", RejectedEvent)
        self._batches = self.map("batches", Intent)
        """Written batches with ids, by the number of their first event."""
        self._stored_ids: deque[tuple[str, int]] = deque()
        """Their keys, the oldest first, and how many ids each has."""
        self._ticket = self._entry = self._attempt = 0
        self._open: dict[int, EventCall | None] = {}
        """Tickets that are not answered, the oldest first, and the calls that wait for them."""
        self._entries: dict[int, str] = {}
        """Stored events by ticket."""
        self._flushes: list[tuple[int, Deferred[None]]] = []
        """Who waits until everything up to a ticket is answered."""
        self._sink: Sink = definition.sink.for_key()
        async for key, batch in self._batches.scan():
            self._stored_ids.append((key, sum(id_ is not None for id_ in batch.ids)))
            self._buffer.remember(batch, _now())
        watermark = await self._sink.open(self._key, self.ctx.fence)
        written = self._buffer.recover(self.state.intent, watermark, _now())
        if written is None:
            self.state.intent = None  # nobody knows, so its ids are not those of written events
        await self._take_up(set(self.state.entries) if written else set())
        await self._plan()

    async def _take_up(self, written: set[str]) -> None:
        """Take in stored events, and remove those that the sink has."""
        async for key, stored in self._events.scan():
            self._entry = int(key)
            if key in written:
                await self._events.delete(key)
            else:
                self._accept(stored.data, stored.id, _now(), entry=key)

    async def write(self, events: list[bytes], ids: dict[int, str]) -> Any:
        call, now = EventCall(self._ticket + 1, len(events)), _now()
        for index, event in enumerate(events):
            try:
                if self._stores:
                    await self._accept_stored(event, ids.get(index), now)
                else:
                    self._accept(event, ids.get(index), now, call=call)
            except Overloaded as error:
                call.fail(index, FailedEvent("overloaded", str(error)))
            except InvalidValue as error:
                call.fail(index, FailedEvent("invalid", str(error)))
        await self._plan()
        return call.answer() if self._stores else call.wait(self.defer)

    async def _accept_stored(
        self, event: bytes, id: str | None, now: float  # noqa: A002
    ) -> None:  # fmt: skip
        """Take in an event that is stored before its caller is answered."""
        if len(event) > STORED_BYTES_MAX:
            raise InvalidValue(
                f"the event has {len(event):,} bytes; at most {STORED_BYTES_MAX:,} can be stored,"
                ' which ack="buffer" does'
            )
        entry = f"{self._entry + 1:016d}"
        if self._accept(event, id, now, entry=entry):
            self._entry += 1
            await self._events.set(entry, StoredEvent(event, id))
            await self._remind()

    def _accept(
        self, event: bytes, id: str | None, now: float, *,  # noqa: A002
        call: EventCall | None = None, entry: str | None = None,
    ) -> bool:  # fmt: skip
        """Take an event in; False if it was written already, or joins one that waits."""
        self._ticket += 1
        ticket, waiting = self._ticket, 0 if id is None else len(self._buffer)
        answer = self._buffer.accept(ticket, event, id=id, now=now)
        if answer is not None:
            if call is not None:
                call.written(ticket, answer.number)
            return False
        joins = id is not None and len(self._buffer) == waiting
        if call is not None or not joins:
            self._open[ticket] = call
        if entry is not None and not joins:
            self._entries[ticket] = entry
        return not joins

    async def _remind(self) -> None:
        if not self.state.reminding:
            self.state.reminding = True
            await self.reminders.set("remainder", self.remainder, every=REMIND_SECONDS)

    @reminder_handler
    async def remainder(self, _: Tick[None]) -> None:
        """Bring the actor back after a crash; what it found is then written."""
        if not self._entries:
            self.state.reminding = False
            await self.reminders.cancel("remainder")

    async def flush(self) -> Any:
        if not self._open:
            return None
        self._buffer.flush()
        deferred: Deferred[None] = self.defer()
        self._flushes.append((self._ticket, deferred))
        await self._plan()
        return deferred

    async def rejected(self, after: str, limit: int) -> dict[str, RejectedEvent]:
        return {key: one async for key, one in self._refused.scan(after, limit)}

    # -- batches ------------------------------------------------------------------------------

    async def _plan(self) -> None:
        """Begin a batch if one is due, or come back when it will be."""
        due = self._buffer.due(_now())
        if due is None:
            return
        if due <= 0:
            await self._begin()
        elif "flush" not in self.timers.names:
            self.timers.set("flush", self._flush_due, after=due)

    async def _flush_due(self) -> None:
        self.timers.cancel("flush")
        await self._plan()

    async def _begin(self) -> None:
        self.timers.cancel("flush")
        if self._buffer.close_batch(_now()) is not None:
            await self._send()

    async def _send(self) -> None:
        """Store what is about to be written; the sink gets it when that is durable."""
        piece = await self._note_intent()
        self.offload(_written(self._sink, piece, self.ctx.fence), then=self._sent)

    async def _send_again(self) -> None:
        if self._buffer.piece is not None:
            await self._send()

    async def _note_intent(self) -> Piece:
        piece = self._buffer.piece
        assert piece is not None
        before = self.state.intent
        if before is not None and before.last < piece.first:
            await self._keep_ids(before)
        self.state.intent, self.state.next_number = self._buffer.intent(), piece.first
        if self._stores:
            self.state.entries = [
                self._entries[ticket]
                for event in piece.events for ticket in event.tickets
                if ticket in self._entries
            ]  # fmt: skip
        return piece

    async def _keep_ids(self, batch: Intent) -> None:
        """Store the ids of a batch that was written: its answers may be lost with this host.

        Then callers repeat events that were written before those of the stored intent.
        """
        ids = sum(id_ is not None for id_ in batch.ids)
        if not ids:
            return
        key = f"{batch.first:020d}"
        await self._batches.set(key, batch)
        self._stored_ids.append((key, ids))
        while sum(count for _, count in self._stored_ids) > IDS_STORED_MAX:
            await self._batches.delete(self._stored_ids.popleft()[0])

    async def _sent(self, outcome: Offloaded[None]) -> None:
        if not await self._ended(outcome.error):
            delay = AGAIN.delay(self._attempt, self._random)
            self._attempt += 1
            self.timers.set("again", self._send_again, after=delay, keep_alive=True)
        elif self._buffer.piece is not None:
            await self._send()
        else:
            await self._plan()

    async def _ended(self, error: BaseException | None) -> bool:
        """Take in what the sink did with the piece; False if it is to be tried again."""
        if error is None:
            answers = self._buffer.written(_now())
        elif isinstance(error, Rejected):
            answers = self._buffer.rejected(error.message, error.indexes)
        elif isinstance(error, StaleSink):
            answers = self._buffer.fail_all(error.message, in_flight="failed")
            self.ctx.deactivate_when_idle()
        else:
            log.warning(
                "writer.sink_failed", writer=self.ctx.key, attempt=self._attempt + 1,
                error=error_text.shown(error),
            )  # fmt: skip
            return False
        self._attempt = 0
        await self._answer(answers)
        return True

    async def _answer(self, answers: Iterable[WriteAnswer]) -> None:
        for answer in answers:
            call = self._open.pop(answer.ticket, None)
            entry = self._entries.pop(answer.ticket, None) if self._stores else None
            if call is not None:
                if answer.outcome == "written":
                    call.written(answer.ticket, answer.number)
                else:
                    failed = FailedEvent(answer.outcome, answer.message)
                    call.fail(answer.ticket - call.first, failed)
            if entry is not None and answer.outcome in ("written", "rejected"):
                await self._settle(entry, answer)
        oldest = next(iter(self._open), self._ticket + 1)
        while self._flushes and self._flushes[0][0] < oldest:
            self._flushes.pop(0)[1].resolve(None)

    async def _settle(self, entry: str, answer: WriteAnswer) -> None:
        """Remove a stored event that was written; keep one that the sink refuses apart."""
        if answer.outcome == "rejected" and (stored := await self._events.get(entry)):
            event = msgspec.msgpack.decode(stored.data)
            await self._refused.set(entry, RejectedEvent(event, stored.id, answer.message))
        await self._events.delete(entry)

    # -- the end ------------------------------------------------------------------------------

    async def on_deactivate(self, reason: DeactivationReason) -> None:
        if reason != "deleted":
            await self._write_rest()
        await self._answer(self._buffer.fail_all(f"the writer has ended ({reason})"))
        await self._sink.close()

    async def _write_rest(self) -> None:
        self._buffer.flush()
        while self._buffer.piece is not None or self._buffer.close_batch(_now()) is not None:
            piece = await self._note_intent()
            await self.save()
            failure: BaseException | None = None
            try:
                await _written(self._sink, piece, self.ctx.fence)
            except Exception as error:
                failure = error
            if not await self._ended(failure):
                return


async def _written(sink: Sink, piece: Piece, fence: SinkFence) -> None:
    await faults.point("before_flush")
    events: Sequence[Any] = [msgspec.msgpack.decode(event.data) for event in piece.events]
    await sink.write(events, fence, piece.first)
    await faults.point("after_flush")


def _now() -> float:
    return asyncio.get_running_loop().time()
