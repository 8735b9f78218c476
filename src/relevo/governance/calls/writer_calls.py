"""What travels between an exclusive writer and those who write."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from relevo.actors import Interface, method
from relevo.errors import NotFound, OutcomeUnknown, Overloaded, Unavailable
from relevo.governance.core.buffers import BufferOptions
from relevo.governance.errors import Rejected, StaleSink
from relevo.governance.sinks import Sink

WRITER_TYPE: Final = "relevo.writer"
Ack = Literal["sink", "buffer"]
_ERRORS = (Rejected, StaleSink, NotFound, OutcomeUnknown, Overloaded, Unavailable)


class WriterDefinition(Struct, frozen=True):
    """A writer as a program defines it."""

    name: str
    sink: Sink
    options: BufferOptions
    ack: Ack


class RejectedEvent(Struct, frozen=True):
    """An event that was accepted by `ack="buffer"`, and that the sink refuses."""

    event: Any
    id: str | None
    error: str


class FailedEvent(Struct, frozen=True):
    """Why an event of a call was not written, or perhaps not."""

    outcome: Literal["rejected", "failed", "unknown", "overloaded", "invalid"]
    message: str


class WrittenEvents(Struct, frozen=True):
    """The answer to a call that brings events, in their order."""

    numbers: list[int | None]
    """None where an event is stored and will be written, or has failed."""
    failed: dict[int, FailedEvent] = {}
    """By their place among the events."""


class WriterCalls(Interface):
    """The methods of the actor that owns one key of a writer."""

    @method(raises=_ERRORS)
    async def write(self, events: list[bytes], ids: dict[int, str]) -> WrittenEvents:
        """Write events, some of which have ids; answers when all were written or refused."""

    @method(idempotent=True, raises=_ERRORS)
    async def flush(self) -> None:
        """Return when everything that was accepted before has been written or refused."""

    @method(idempotent=True)
    async def rejected(self, after: str, limit: int) -> dict[str, RejectedEvent]:
        """Return stored events that the sink refused, by their key."""
