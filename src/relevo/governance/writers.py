"""Exclusive writers: each key has one writer over all hosts, which writes in batches.

events = app.governance.writer("events", sink=CsvSink("{key}.csv"), max_delay=0.05)
receipt = await events["type-7"].write(event, id=event.id)  # returns when it is durable
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, assert_never
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from relevo.errors import (
    DeadlineExceeded,
    InvalidValue,
    OutcomeUnknown,
    Overloaded,
    RelevoError,
    Unavailable,
)  # fmt: skip
from relevo.governance.calls.writer_calls import WRITER_TYPE, WriterCalls
from relevo.governance.errors import Rejected
from relevo.kernel.postgres.grouping import Group, own_copy
from relevo.limits import ACTOR_CALL_SECONDS, MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.actors import Actors
    from relevo.governance.calls.writer_calls import (
        FailedEvent,
        RejectedEvent,
        WriterDefinition,
        WrittenEvents,
    )

CALL_BYTES_MAX: Final = 4 * MIB
"""Events that go to their writer in one call."""


class WriteReceipt(Struct, frozen=True):
    """Proof that an event was accepted for good."""

    number: int | None
    """Its place among the events of its key, which have no gaps; None if it is stored and will be
    written, with `ack="buffer"`.
    """


class ExclusiveWriter:
    """A writer, as its users see it; having one does no I/O."""

    def __init__(self, definition: WriterDefinition, actors: Actors) -> None:
        self.definition = definition
        self._actors = actors
        self._writers: WeakValueDictionary[str, KeyWriter] = WeakValueDictionary()

    def __getitem__(self, key: str) -> KeyWriter:
        """Return the one writer of a key."""
        writer = self._writers.get(key)
        if writer is None:
            ref = f"{self.definition.name}:{key}"
            proxy = self._actors.proxy(WriterCalls, ref, type=WRITER_TYPE)
            writer = self._writers[key] = KeyWriter(proxy)
        return writer


class _EventToWrite(Struct, gc=False):
    data: bytes
    id: str | None
    timeout: float


class KeyWriter:
    """The one writer of a key, wherever it is."""

    def __init__(self, proxy: WriterCalls) -> None:
        self._proxy: Any = proxy
        self._group: Group[_EventToWrite, int | None] = Group(
            "events of a writer", self._write_together, overlapping=True
        )

    async def write(
        self,
        event: Any,
        *,
        id: str | None = None,  # noqa: A002
        timeout: float = ACTOR_CALL_SECONDS,
    ) -> WriteReceipt:
        """Return when the event is durable: in the sink, or with `ack="buffer"` in the store.

        Raises `Rejected` if the sink refuses it, and `OutcomeUnknown` if the writer was lost while
        it wrote; repeat it then with the same `id`, and it is there once.
        """
        try:
            data = msgspec.msgpack.encode(event)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue(f"the event cannot be sent to its writer: {error}") from error
        written = self._group.put(_EventToWrite(data, id, timeout))
        if timeout == ACTOR_CALL_SECONDS:
            return WriteReceipt(await written)
        try:
            async with asyncio.timeout(timeout):
                return WriteReceipt(await written)
        except TimeoutError:
            late = DeadlineExceeded(
                f"the event was not answered within {timeout:g} s; it may have been written"
            )
            late.executed = None
            raise late from None

    async def _write_together(
        self, events: Sequence[_EventToWrite]
    ) -> list[int | Exception | None]:
        """Write events that were given at the same time; returns their numbers, or errors.

        An error of a call is that of all its events: to repeat it would write them twice.
        """
        calls = [
            asyncio.create_task(self._call(part), context=Context()) for part in _parts(events)
        ]
        found: list[int | Exception | None] = []
        for call in calls:  # that of a turn of an actor is not that of all events
            found += await call
        return found

    async def _call(self, events: Sequence[_EventToWrite]) -> list[int | Exception | None]:
        ids = {index: one.id for index, one in enumerate(events) if one.id is not None}
        proxy = self._proxy.with_(timeout=max(one.timeout for one in events))
        try:
            answer: WrittenEvents = await proxy.write([one.data for one in events], ids)
        except Exception as error:
            return [own_copy(error) for _ in events]
        found: list[int | Exception | None] = list(answer.numbers)
        for index, failed in answer.failed.items():
            found[index] = _error_of(failed)
        return found

    async def flush(self) -> None:
        """Write without delay what was accepted; returns when all of it was written or refused."""
        await self._proxy.flush()

    async def rejected(self, *, after: str = "", limit: int = 100) -> dict[str, RejectedEvent]:
        """Return events that were accepted with `ack="buffer"` and that the sink refused."""
        found: dict[str, RejectedEvent] = await self._proxy.rejected(after, limit)
        return found


def _parts(events: Sequence[_EventToWrite]) -> list[Sequence[_EventToWrite]]:
    """Return events in calls that are not too large."""
    if sum(len(one.data) for one in events) <= CALL_BYTES_MAX:
        return [events]
    parts: list[list[_EventToWrite]] = []
    room = 0
    for one in events:
        if not parts or len(one.data) > room:
            parts.append([])
            room = CALL_BYTES_MAX
        parts[-1].append(one)
        room -= len(one.data)
    return list(parts)


def _error_of(failed: FailedEvent) -> RelevoError:
    match failed.outcome:
        case "rejected":
            return Rejected(failed.message)
        case "unknown":
            return OutcomeUnknown(f"the event may have been written: {failed.message}")
        case "overloaded":
            return Overloaded(failed.message)
        case "invalid":
            return InvalidValue(failed.message)
        case "failed":
            return Unavailable(f"the event was not written: {failed.message}")
    assert_never(failed.outcome)
