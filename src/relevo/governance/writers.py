"""Exclusive writers: each key has one writer over all hosts, which writes in batches.

events = app.governance.writer("events", sink=CsvSink("{key}.csv"), max_delay=0.05)
receipt = await events["type-7"].write(event, id=event.id)  # returns when it is durable
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.governance.calls.writer_calls import WRITER_TYPE, WriterCalls
from relevo.limits import ACTOR_CALL_SECONDS

if TYPE_CHECKING:
    from relevo.actors.service import Actors
    from relevo.governance.calls.writer_calls import RejectedEvent, WriterDefinition


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

    def __getitem__(self, key: str) -> KeyWriter:
        """Return the one writer of a key."""
        ref = f"{self.definition.name}:{key}"
        return KeyWriter(self._actors.proxy(WriterCalls, ref, type=WRITER_TYPE))


class KeyWriter:
    """The one writer of a key, wherever it is."""

    def __init__(self, proxy: WriterCalls) -> None:
        self._proxy: Any = proxy

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
        return WriteReceipt(await self._proxy.with_(timeout=timeout).write(data, id))

    async def flush(self) -> None:
        """Write without delay what was accepted; returns when all of it was written or refused."""
        await self._proxy.flush()

    async def rejected(self, *, after: str = "", limit: int = 100) -> dict[str, RejectedEvent]:
        """Return events that were accepted with `ack="buffer"` and that the sink refused."""
        found: dict[str, RejectedEvent] = await self._proxy.rejected(after, limit)
        return found
