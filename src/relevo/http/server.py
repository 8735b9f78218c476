"""Runs the API on a port: uvicorn in the current event loop."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import uvicorn
from msgspec import Struct

from relevo.errors import SettingsError
from relevo.http.admission import ConnectionBounds, HttpConnections
from relevo.http.handshakes import accept
from relevo.http.protocol import KEEP_ALIVE_SECONDS, BoundedProtocol, check_uvicorn
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterator

    from relevo.errors import RelevoError
    from relevo.http.answers import Answer
    from relevo.http.streaming import Message, Receive, Send

log = get_logger(__name__)
GRACE_SECONDS: Final = 10
"""How long requests in flight may take to end when the server stops."""
CUT_OFF_SECONDS: Final = 2.0
"""How long requests past the grace may take to say that they were broken off."""
SWEEP_SECONDS: Final = 0.5
"""How often the deadlines of connections are looked at."""


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


class Served(Protocol):
    """An ASGI application that can be stopped, and answers requests without a readable head."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""

    def stop(self) -> None:
        """End streams and long polls."""

    def refuse(self, target: bytes, error: RelevoError) -> Answer:
        """Return the answer to a request whose head could not be read."""


@asynccontextmanager
async def serving(
    api: Served,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    grace_seconds: int = GRACE_SECONDS,
    bounds: ConnectionBounds | None = None,
) -> AsyncIterator[Address]:
    """Serve while the block runs, then stop: no new connections, requests in flight may end.

    Port 0 takes a free one; the address says which. With `tls` nothing but https is answered.
    `bounds` default to those that this process's descriptors allow. Raises `SettingsError`
    if the port is taken. Signals are the caller's business.
    """
    check_uvicorn()
    connections = HttpConnections(bounds or ConnectionBounds.of_process())
    listener = await asyncio.to_thread(_listen, host, port, connections.bounds.backlog)
    server = _Server(_config(api, grace_seconds, connections), tls, connections)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http server")
    sweeping = asyncio.create_task(_sweep(connections), name="http deadlines")
    try:
        await _first(task, server.up.wait())
        yield Address(host, listener.getsockname()[1], "https" if tls else "http")
    finally:
        api.stop()
        server.should_exit = True
        await task
        if cut_off := server.server_state.tasks:  # past the grace; they are about to say so
            await asyncio.wait(cut_off, timeout=CUT_OFF_SECONDS)
        sweeping.cancel()
        await server.drop_connections()


async def serve(
    api: Served, host: str, port: int, *, on_started: Callable[[Address], None]
) -> None:
    """Serve until canceled, then stop as `serving` does; `on_started` hears of the address."""
    async with serving(api, host, port) as address:
        on_started(address)
        await asyncio.Event().wait()


async def _sweep(connections: HttpConnections) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            connections.sweep(clock())
        except Exception:
            log.exception("http.sweep_failed")  # without it no bound would hold any more


async def _first(task: asyncio.Task[None], up: Any) -> None:
    """Wait until the server is up, or raise its error."""
    waiting = asyncio.ensure_future(up)
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if task.done():
        task.result()


def _listen(host: str, port: int, backlog: int) -> socket.socket:
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
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        why = error.strerror
        if error.errno == errno.EADDRINUSE:
            why = "another program listens there; stop it, or choose another port with --port"
        raise SettingsError(f"cannot listen on {host} port {port}: {why}") from None
    return listener


def _config(api: Served, grace_seconds: int, connections: HttpConnections) -> uvicorn.Config:
    class Protocol(BoundedProtocol):
        refuse = staticmethod(api.refuse)
        admission = connections

    config = uvicorn.Config(
        api,
        http=Protocol,
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="error",  # a malformed request is answered, and not logged
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=connections.bounds.backlog,  # so many are accepted before any can be refused
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace_seconds,
    )
    config.load()
    return config


class _Server(uvicorn.Server):
    """A uvicorn that leaves signals alone, bounds handshakes, and says when it is up."""

    def __init__(
        self, config: uvicorn.Config, tls: ssl.SSLContext | None, connections: HttpConnections
    ) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self._tls = tls
        self._connections = connections
        self._accepting: list[asyncio.Task[None]] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self._accepting = [
                asyncio.create_task(accept(one, self._tls, self._connections, self._protocol))
                for one in sockets or []
            ]
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for one in self._accepting:
            one.cancel()
        await super().shutdown(sockets)

    def _protocol(self) -> BoundedProtocol:
        made: BoundedProtocol = self.config.http_protocol_class(  # type: ignore[call-arg,assignment]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def drop_connections(self) -> None:
        """Close connections past the grace period: over TLS, peers that do not close."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # in which the loop closes them
