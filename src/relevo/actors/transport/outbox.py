"""Frames on their way out: those of one pass of the event loop leave in one send."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from relevo import limits
from relevo.actors.transport import frames
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.actors.transport.frames import TransportFrame

log = get_logger(__name__)
FLUSH_BYTES: Final = 256 * 1024
"""So many bytes leave at once, without waiting for the end of the pass."""


class Outbox:
    """Collects frames and gives them to the transport, unless that asked for a pause."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._bytes = bytearray()
        self._scheduled = False
        self._paused = False
        self._writable: asyncio.Event | None = None
        self.appended = 0
        """Bytes of all frames so far: the position behind the last one."""
        self.written = 0
        """Bytes that the transport was given; what lies behind them never left."""
        self.is_closed = False

    def put(self, frame: TransportFrame) -> int:
        """Send a frame at the end of this pass; return the size of its payload."""
        size = self.stage(frame)
        self.send_staged()
        return size

    def stage(self, frame: TransportFrame) -> int:
        """Add a frame, which `send_staged` sends and `unstage` takes back; return its size."""
        size = frames.append(self._bytes, frame)
        self.appended += size + frames.HEADER_BYTES
        return size

    def unstage(self, size: int) -> None:
        """Take back the frame that was staged last."""
        total = size + frames.HEADER_BYTES
        del self._bytes[-total:]
        self.appended -= total

    def send_staged(self) -> None:
        """See to it that frames leave at the end of this pass, or now if there are many."""
        if self._paused:
            if len(self._bytes) > limits.ACTOR_BACKLOG_BYTES_MAX:
                log.warning("actors.peer_does_not_read", bytes=len(self._bytes))
                self._transport.abort()
        elif len(self._bytes) >= FLUSH_BYTES:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def put_payloads(self, payloads: list[bytes]) -> None:
        """Send frames that are encoded already."""
        for payload in payloads:
            data = frames.with_length(payload)
            self._bytes += data
            self.appended += len(data)
        self.flush()

    def flush(self) -> None:
        """Give the transport what has been collected."""
        self._scheduled = False
        if self._paused or self.is_closed or not self._bytes:
            return
        data, self._bytes = self._bytes, bytearray()
        self.written += len(data)
        self._transport.write(data)

    def pause(self) -> None:
        """The transport holds enough: keep frames back, so that it stays known what left."""
        self._paused = True

    def resume(self) -> None:
        """The transport takes more."""
        self._paused = False
        self.flush()
        if self._writable is not None:
            self._writable.set()

    def close(self) -> None:
        """Send nothing more."""
        self.is_closed = True
        if self._writable is not None:
            self._writable.set()

    @property
    def is_empty(self) -> bool:
        """Whether the transport has everything."""
        return not self._bytes

    @property
    def is_congested(self) -> bool:
        """Whether frames are held back because the peer or the network is slow."""
        return self._paused

    async def until_writable(self) -> None:
        """Wait while frames are held back; returns as well when the connection closes."""
        while self._paused and not self.is_closed:
            self._writable = asyncio.Event()
            await self._writable.wait()
