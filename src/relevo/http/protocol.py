"""HTTP/1.1 on one connection: uvicorn's protocol, with the bounds that it lacks.

Every state of a connection is bounded: a head and a body in time and bytes, an idle pause, an
answer that the peer does not read. Deadlines are numbers that `HttpConnections.sweep` reads, not
timers, so they cost a request nothing.
"""

from __future__ import annotations

import math
import socket
import struct
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from relevo import limits
from relevo.errors import InvalidValue, RateLimited, RelevoError, SettingsError
from relevo.http.answers import HeadersTooLarge

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from relevo.http.admission import HttpConnections
    from relevo.http.answers import Answer
    from relevo.http.handshakes import Handshake

KEEP_ALIVE_SECONDS: Final = 75
"""How long an idle connection is kept: longer than clients do, so that they are not surprised."""
LINGER_SECONDS: Final = 2.0
"""How long the rest of a request is read and thrown away after its answer was sent early."""
_SEPARATORS: Final = 4
"""Bytes of a header beside its name and value."""

_OVERRIDDEN: Final = {
    HttpToolsProtocol: (
        "connection_made", "connection_lost", "data_received", "on_message_begin", "on_url",
        "on_header", "on_headers_complete", "on_body", "on_message_complete",
        "on_response_complete", "send_400_response", "resume_writing",
    ),
    RequestResponseCycle: ("run_asgi", "send", "receive"),
    uvicorn.Server: ("capture_signals", "startup", "serve", "shutdown"),
}  # fmt: skip
_USED: Final = {
    HttpToolsProtocol: (
        "pipeline", "cycle", "scope", "headers", "url", "client", "transport", "loop", "flow",
    ),
    RequestResponseCycle: (
        "disconnected", "response_started", "response_complete", "more_body", "keep_alive",
        "message_event",
    ),
}  # fmt: skip
"""Attributes of its instances that Relevo reads or sets."""


def check_uvicorn() -> None:
    """Raise `SettingsError` unless the installed uvicorn has all that is overridden here.

    A version that calls a method by another name would silently have none of our bounds.
    """
    lacking = [
        f"{kind.__name__}.{name}"
        for kind, names in _OVERRIDDEN.items()
        for name in names
        if not callable(getattr(kind, name, None))
    ]
    for kind, names in _USED.items():
        known = {
            name
            for member in vars(kind).values()
            if hasattr(member, "__code__")
            for name in member.__code__.co_names
        }
        lacking += [f"{kind.__name__}.{name}" for name in names if name not in known]
    if lacking:
        raise SettingsError(
            f"uvicorn {version('uvicorn')} (with httptools {version('httptools')}) lacks"
            f" {', '.join(lacking)}, which Relevo's bounds on HTTP rest on; install a version that"
            " Relevo allows: pip install --upgrade relevo"
        )


class BoundedProtocol(HttpToolsProtocol):
    """One connection; `refuse` and `admission` are those of the server it belongs to."""

    refuse: Callable[[bytes, RelevoError], Answer]
    admission: HttpConnections
    handshake: Handshake | None = None
    """The handshake that precedes the connection, if it uses TLS."""
    _deadline = math.inf
    _expired = False
    _peer = ""
    _crowded: str | None = None
    """The bound that this connection exceeds: then it may only probe."""
    _head_bytes = 0
    _in_head = False
    _advanced = False
    """Whether the last read began or ended something, or brought a part of a body."""
    _unfinished_bytes = 0
    """How many bytes have come in reads that did not: of a head, a trailer or a chunk's head, or
    after the connection was refused."""
    _fault: RelevoError | None = None
    _refused = False
    _refusal: bytes | None = None
    """A refusal still to be sent, after the answers to earlier requests."""
    _running: RequestResponseCycle | None = None
    """The request that is being answered; `cycle` is the last one that came."""
    _unsent_bytes = 0
    _read_by = math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and wait for its first head."""
        if self.handshake is not None:
            self.handshake.over()
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        if peer is not None:  # else the kernel takes megabytes for a client that reads nothing
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SEND_BUFFER_BYTES)
        self._peer = self.client[0] if self.client else ""
        self._crowded = self.admission.enter(self, self._peer)
        crowded = self._crowded is not None
        self._close_in(
            limits.PROBE_CONNECTION_SECONDS_MAX if crowded else limits.REQUEST_SECONDS_MAX
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Uncount the connection, and tell the running request that its client is gone.

        uvicorn tells the last request, which may still wait behind others.
        """
        self.admission.leave(self)
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; refuse a head that exceeds its bound."""
        if self._refused:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > limits.BODY_BYTES_MAX:
                self.drop("it kept sending although it was refused")
            return
        self._advanced = False
        super().data_received(data)
        if self._advanced:
            self._unfinished_bytes = 0
            return
        self._unfinished_bytes += len(data)
        if self._unfinished_bytes > limits.HEADER_BYTES_MAX and not self._refused:
            self._refuse(_head_too_large())

    def on_message_begin(self) -> None:
        """Give the head its time."""
        super().on_message_begin()
        self._advanced = self._in_head = True
        self._head_bytes = 0
        if self._crowded is None:
            self._close_in(limits.REQUEST_SECONDS_MAX)

    def on_url(self, url: bytes) -> None:
        """Count the target."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header, or a trailer, which is kept as well."""
        self._count(len(name) + len(value) + _SEPARATORS)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request, with its target as it came, unless too many wait already."""
        self._in_head, self._advanced = False, True
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle
        self.scope["target"] = self.url  # type: ignore[typeddict-unknown-key]
        if self._crowded is not None:
            self.scope["crowded"] = self._crowded  # type: ignore[typeddict-unknown-key]
            self.cycle.keep_alive = False
            return
        self._deadline = math.inf
        if len(self.pipeline) > limits.PIPELINED_REQUESTS_MAX:
            self._fault = RateLimited(
                f"more than {limits.PIPELINED_REQUESTS_MAX} requests were sent before the first"
                " was answered; send the others when answers have come"
            )
            raise ValueError("too many pipelined requests")

    def on_body(self, body: bytes) -> None:
        """Note that the message goes on."""
        self._advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the message has ended."""
        self._advanced = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send a refusal that was held back, or wait for the next request."""
        last = not self.pipeline
        self._running = None if last else self.pipeline[-1][0]
        super().on_response_complete()
        if not last:
            return
        if self._refusal is not None:
            self._send(self._refusal)
        elif self.cycle.response_complete and self.cycle.more_body:
            self._close_in(LINGER_SECONDS)
        elif not self._in_head:
            self._close_in(KEEP_ALIVE_SECONDS)

    def resume_writing(self) -> None:
        """Note that the peer reads."""
        self._read_by = math.inf
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is not HTTP, or too large."""
        self._refuse(self._fault or InvalidValue("this is not a valid HTTP/1.1 request"))

    def expire(self, now: float) -> int:
        """Close an expired connection; return the bytes that its peer has not read."""
        if now >= self._deadline:
            if self._expired:
                self.drop("it was closed, and did not read the rest in time")
                return 0
            self._expired, self._deadline = True, now + limits.UNSENT_SECONDS_MAX
            if not self.transport.is_closing():
                self.transport.close()
        unsent: int = self.transport.get_write_buffer_size()
        if not unsent:
            self._read_by = math.inf
        elif self._read_by == math.inf or unsent <= self._unsent_bytes - limits.UNSENT_BYTES_MIN:
            self._read_by, self._unsent_bytes = now + limits.UNSENT_SECONDS_MAX, unsent
        elif now >= self._read_by:
            self.drop(f"it read less than {limits.UNSENT_BYTES_MIN} bytes of its answers in time")
        return unsent

    def drop(self, reason: str) -> None:
        """Close the connection without an answer, and discard unsent bytes."""
        self.admission.peers.note(self._peer, "http.dropped", reason=reason)
        self.admission.leave(self)
        peer = self.transport.get_extra_info("socket")
        if peer is not None:  # else the kernel would keep its part until the peer reads it
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > limits.HEADER_BYTES_MAX:
            self._fault = _head_too_large()
            raise ValueError("the head is too large")

    def _refuse(self, error: RelevoError) -> None:
        """Refuse in the form of the surface, after the answers to earlier requests."""
        self._refused = True
        self.admission.peers.note(self._peer, "http.refused", reason=error.message)
        answer = self.refuse(getattr(self, "url", b""), error)
        lines = [STATUS_LINE[answer.status]]
        lines += [b"%s: %s\r\n" % header for header in answer.headers]
        lines.append(b"content-length: %d\r\nconnection: close\r\n\r\n" % len(answer.body))
        self._refusal = b"".join(lines) + answer.body
        if not self._others_are_answered():
            self._send(self._refusal)

    def _others_are_answered(self) -> bool:
        """Whether requests before the one at fault still have to be answered."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        if not cycle.more_body:
            return True  # it is complete; the fault is behind it
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            return True
        cycle.disconnected = True  # its handler need not wait for the rest
        cycle.message_event.set()
        if cycle.response_started:
            self._refusal = b""
        return False

    def _send(self, refusal: bytes) -> None:
        """Send the refusal and close."""
        self._refusal = None
        if self.transport.is_closing():
            return
        self.transport.write(refusal)
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        # Closing with unread data would reset the connection, and the peer might lose the answer.
        self.transport.write_eof()
        self._close_in(LINGER_SECONDS)

    def _close_in(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds


def _head_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"the head of the request has more than {limits.HEADER_BYTES_MAX} bytes; send less"
    )
