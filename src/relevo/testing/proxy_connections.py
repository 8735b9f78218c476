"""The lanes of a `Proxy`, which hold, slow and cut bytes, and the connections through them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    import random

CHUNK_BYTES: Final = 64 * 1024
PATTERN_BYTES_MAX: Final = 1024
DRIPS_PER_SECOND: Final = 50


class Trigger(Struct, eq=False):
    """An action of `Proxy.on_bytes`; `fired` counts how often it ran."""

    pattern: re.Pattern[bytes]
    action: Callable[[], object]
    times: int | None
    fired: int = 0


class Slowness(Struct, frozen=True):
    """The delays of a lane, in seconds, and its rate."""

    latency: float = 0.0
    jitter: float = 0.0
    bytes_per_second: float | None = None


class ProxyLane:
    """One direction of all connections, and its current faults."""

    def __init__(self, rng: random.Random, changed: Callable[[], None]) -> None:
        self.delivered = 0
        self.held = 0
        self.triggers: list[Trigger] = []
        self.slowness = Slowness()
        self._cut = False
        self._rng = rng
        self._changed = changed
        self._healed = asyncio.Event()

    def cut(self) -> None:
        """Deliver nothing until `heal`."""
        self._cut = True

    def heal(self) -> None:
        """End all faults."""
        self._cut, self.slowness, self.triggers = False, Slowness(), []
        self._healed.set()
        self._healed = asyncio.Event()

    def due(self, tail: bytes, chunk: bytes) -> list[tuple[int, Trigger]]:
        """Return the offsets in `chunk`, which follows `tail`, at which triggers match."""
        matches = [
            (max(0, match.start() - len(tail)), trigger)
            for trigger in self.triggers
            for match in trigger.pattern.finditer(tail + chunk)
            if match.end() > len(tail)
        ]
        return sorted(matches, key=itemgetter(0))

    def fire(self, trigger: Trigger) -> None:
        """Run the action of a trigger, unless it was used up or healed meanwhile."""
        if trigger in self.triggers:
            trigger.fired += 1
            if trigger.fired == trigger.times:
                self.triggers.remove(trigger)
            trigger.action()
            self._changed()

    async def travel(self) -> None:
        """Wait for the latency of one chunk."""
        await self._pause(self.slowness.latency + self._rng.uniform(0.0, self.slowness.jitter))

    async def admit(self, size: int = 0) -> int:
        """Return how many of `size` bytes may pass now; waits while none may."""
        if (rate := self.slowness.bytes_per_second) is not None:
            size = min(size, max(1, int(rate / DRIPS_PER_SECOND)))
            await self._pause(size / rate)
        while self._cut:
            await self._healed.wait()
        return size

    def account(self, *, held: int, delivered: int = 0) -> None:
        """Add to the counts of held and delivered bytes."""
        self.held += held
        self.delivered += delivered
        self._changed()

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._healed.wait()  # `heal` ends a delay at once


class _SourceBroken(Exception):
    """The sending socket was reset, and its lane passes the reset on."""


class _SinkGone(Exception):
    """The receiving socket accepts no more bytes."""


class ProxiedConnection:
    """A client's connection and its connection to the server, with a pump for each direction."""

    def __init__(self, client: socket.socket) -> None:
        self._sockets = [_prepared(client)]
        self._ended = False

    async def run(self, target: tuple[str, int] | str, up: ProxyLane, down: ProxyLane) -> None:
        """Connect to the server and carry bytes both ways until the end."""
        try:
            await up.admit()  # while the lane is cut, the server sees no connection
            family = socket.AF_UNIX if isinstance(target, str) else socket.AF_INET
            client, server = self._sockets[0], _prepared(socket.socket(family))
            self._sockets.append(server)
            try:
                await asyncio.get_running_loop().sock_connect(server, target)
            except OSError as error:
                await down.admit()
                raise _SourceBroken from error
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(up, client, server))
                pumps.create_task(self._pump(down, server, client))
        except* _SourceBroken:
            self.end(reset=True)
        finally:
            self.close()

    def close(self) -> None:
        """Close both ends; repeating it does nothing."""
        for each in self._sockets:
            each.close()

    def end(self, *, reset: bool) -> None:
        """Send nothing more; with `reset`, the next close sends RST."""
        self._ended = True
        for each in self._sockets if reset else ():
            if each.fileno() >= 0:  # else it has just closed by itself
                # SO_LINGER of 0 s makes close() send RST.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _pump(self, lane: ProxyLane, source: socket.socket, sink: socket.socket) -> None:
        tail = b""
        # A closed sink is not reported here: the other pump reads from it and reports the end
        # through its own lane.
        with contextlib.suppress(_SinkGone):
            while chunk := await _received(lane, source):
                await self._relay(lane, tail, chunk, sink)
                tail = (tail + chunk)[1 - PATTERN_BYTES_MAX :]
            await lane.travel()
            await lane.admit()
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    async def _relay(self, lane: ProxyLane, tail: bytes, chunk: bytes, sink: socket.socket) -> None:
        """Deliver a chunk; run each trigger just before the bytes that it matches."""
        lane.account(held=len(chunk))
        at = 0
        try:
            await lane.travel()
            for offset, trigger in [*lane.due(tail, chunk), (len(chunk), None)]:
                while at < offset:
                    size = await lane.admit(offset - at)
                    sent = await self._send(sink, chunk[at : at + size])
                    at += sent
                    lane.account(held=-sent, delivered=sent)
                if trigger is not None:
                    await lane.admit()
                    lane.fire(trigger)
        finally:
            lane.account(held=at - len(chunk))

    async def _send(self, sink: socket.socket, data: bytes) -> int:
        if self._ended:  # a cancellation would take effect only at the next wait
            raise _SinkGone
        try:
            return sink.send(data)
        except BlockingIOError:
            await _writable(sink)
            return 0
        except OSError as error:
            raise _SinkGone from error


def _prepared(raw: socket.socket) -> socket.socket:
    raw.setblocking(False)
    if raw.family != socket.AF_UNIX:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return raw


async def _received(lane: ProxyLane, source: socket.socket) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(source, CHUNK_BYTES)
    except OSError as error:
        await lane.admit()  # a reset is held like bytes
        raise _SourceBroken from error


async def _writable(sink: socket.socket) -> None:
    ready = asyncio.Event()
    asyncio.get_running_loop().add_writer(sink, ready.set)
    try:
        await ready.wait()
    finally:
        asyncio.get_running_loop().remove_writer(sink)
