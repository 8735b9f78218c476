"""Runs the API on a port: uvicorn in the current event loop, with the bounds it lacks."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from relevo import limits
from relevo.api.problem import HeadersTooLarge
from relevo.errors import InvalidValue, RelevoError, SettingsError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterator

    from relevo.api.http import HttpApi

GRACE_SECONDS: Final = 10
"""How long requests in flight may take to end when the server stops."""
KEEP_ALIVE_SECONDS: Final = 75
"""How long an idle connection is kept: longer than clients do, so that they are not surprised."""
LINGER_SECONDS: Final = 2.0
"""How long the rest of a request is read and thrown away after its answer was sent early."""
_BACKLOG: Final = 2_048


class Address(Struct, frozen=True):
    """Where a server listens."""

    host: str
    port: int
    scheme: Literal["http", "https"] = "http"

    @property
    def url(self) -> str:
        """The base of its URLs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@asynccontextmanager
async def serving(
    api: HttpApi,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    grace_seconds: int = GRACE_SECONDS,
) -> AsyncIterator[Address]:
    """Serve while the block runs, then stop: no new connections, requests in flight may end.

    Port 0 takes a free one; the address says which. With `tls` nothing but https is answered.
    Raises `SettingsError` if the port is taken. Signals are the caller's business.
    """
    listener = await asyncio.to_thread(_listen, host, port)
    server = _Server(_config(api, tls, grace_seconds))
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http server")
    try:
        await _first(task, server.up.wait())
        yield Address(host, listener.getsockname()[1], "https" if tls else "http")
    finally:
        api.stop()
        server.should_exit = True
        await task
        if cut_off := server.server_state.tasks:  # past the grace; they are about to say so
            await asyncio.wait(cut_off, timeout=LINGER_SECONDS)
        await server.drop_connections()


async def serve(
    api: HttpApi, host: str, port: int, *, on_started: Callable[[Address], None]
) -> None:
    """Serve until cancelled, then stop as `serving` does; `on_started` hears of the address."""
    async with serving(api, host, port) as address:
        on_started(address)
        await asyncio.Event().wait()


async def _first(task: asyncio.Task[None], up: Any) -> None:
    """Wait until the server is up, or raise what kept it from that."""
    waiting = asyncio.ensure_future(up)
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if task.done():
        task.result()


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name such as localhost may mean several; the old family is the one all clients try.
        family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingsError(f"cannot listen on host {host!r}: {error}; see --host") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        why = error.strerror
        if error.errno == errno.EADDRINUSE:
            why = "another program listens there; stop it, or choose another port with --port"
        raise SettingsError(f"cannot listen on {host} port {port}: {why}") from None
    return listener


def _config(api: HttpApi, tls: ssl.SSLContext | None, grace_seconds: int) -> uvicorn.Config:
    class Protocol(_BoundedProtocol):
        refuse = staticmethod(api.refuse)

    config = uvicorn.Config(
        api,
        http=Protocol,
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="error",  # a stranger's malformed request is answered, not worth a line of log
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace_seconds,
    )
    config.load()
    config.ssl = tls  # its own options take neither a least version nor care of encrypted keys
    return config


class _Server(uvicorn.Server):
    """A uvicorn that leaves signals alone and says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def drop_connections(self) -> None:
        """Close what is still open past the grace: over TLS, peers that do not say goodbye."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # in which the loop closes them


class _BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, with a bound on the head in bytes and time, and the target kept verbatim.

    uvicorn leaves all of it open: a peer could send headers without end, or one byte a minute.
    """

    refuse: Callable[[bytes, RelevoError], Any]
    _head_bytes = 0
    _refused = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_in(limits.REQUEST_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_in(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._close_in(limits.REQUEST_SECONDS_MAX)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._close_in(None)
        super().on_headers_complete()
        self.scope["target"] = self.url  # type: ignore[typeddict-unknown-key]

    def on_message_complete(self) -> None:
        self._close_in(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and self.cycle.response_complete and self.cycle.more_body:
            self._close_in(LINGER_SECONDS)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, or too much of it, in the manner of its surface."""
        error: RelevoError = InvalidValue("this is not a valid HTTP/1.1 request")
        if self._head_bytes > limits.HEADER_BYTES_MAX:
            error = HeadersTooLarge(
                f"the head of the request has more than {limits.HEADER_BYTES_MAX} bytes; send less"
            )
        answer = self.refuse(getattr(self, "url", b""), error)
        lines = [STATUS_LINE[answer.status]]
        lines += [b"%s: %s\r\n" % header for header in answer.headers]
        lines.append(b"content-length: %d\r\nconnection: close\r\n\r\n" % len(answer.body))
        self.transport.write(b"".join(lines) + answer.body)
        self._refused = True
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        # Closing with unread data would reset the connection, and the peer might lose the answer.
        self.transport.write_eof()
        self._close_in(LINGER_SECONDS)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > limits.HEADER_BYTES_MAX:
            raise ValueError("the head is too large")

    def _close_in(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = (
            None if seconds is None else self.loop.call_later(seconds, self.transport.close)
        )
