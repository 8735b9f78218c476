"""A TCP proxy that simulates a bad network between a host and its database.

Two lanes, upstream (client to server) and downstream, carry bytes from socket to socket. A lane
must `admit` every byte, end of stream and reset, and nothing is awaited between that and the send.
So a fault is in force as soon as the call that orders it returns. A pump that is not admitted does
not read on: the proxy holds at most one chunk per connection and direction, and the rest backs up
into the sender's socket.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import threading
from typing import TYPE_CHECKING, Final, Literal, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct

from relevo.errors import Closed, InvalidValue
from relevo.testing.proxy_connections import ProxiedConnection, ProxyLane, Slowness, Trigger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Direction = Literal["upstream", "downstream"]

BACKLOG: Final = 128
CALL_SECONDS_MAX: Final = 10.0
LOOPBACK: Final = "127.0.0.1"


class Bytes(Struct, frozen=True):
    """Byte counts of the two lanes."""

    upstream: int
    downstream: int


class Proxy:
    """A proxy on 127.0.0.1 to one server, with faults on demand.

    `target` is an IPv4 address or the path of a Unix socket. The proxy runs in its own thread, so
    it works while the test's event loop is busy. Its methods may be called from any thread and from
    triggers; they are quick, and in force when they return. TLS passes unchanged. `seed` fixes the
    random jitter. A context manager, plain or async:

        with Proxy.to(database_url) as proxy:
            connection = await asyncpg.connect(proxy.url(database_url))
            proxy.on_bytes("upstream", b"COMMIT", proxy.cut_downstream)  # sent, never answered
    """

    def __init__(self, target: tuple[str, int] | str | Path, seed: int = 0) -> None:
        self._target = target if isinstance(target, tuple) else str(target)
        self._news = threading.Condition()
        self._upstream = ProxyLane(random.Random(f"{seed} upstream"), self._changed)
        self._downstream = ProxyLane(random.Random(f"{seed} downstream"), self._changed)
        self._open: dict[asyncio.Task[None], ProxiedConnection] = {}
        self._failures: list[BaseException] = []
        self._listener: socket.socket | None = None
        self._reserved: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def to(cls, database_url: str, seed: int = 0) -> Self:
        """Return a proxy to the server of a postgresql:// URL, which must name one host."""
        parts = urlsplit(database_url)
        query = dict(parse_qsl(parts.query))
        host, _, number = parts.netloc.rpartition("@")[2].partition(":")
        host, port = unquote(host) or query.get("host", ""), number or query.get("port", "5432")
        if not host or set("[,") & set(host) or not port.isdecimal():
            raise InvalidValue(
                "a proxy needs a URL with one host (a name, an IPv4 address or a socket folder)"
                f" and one port, not {host!r} and {port!r}"
            )
        return cls(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, int(port)), seed)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; `refuse` and `heal` do not change it."""
        if self._reserved is None:
            raise Closed("the proxy is not running; use it in a `with` block")
        port: int = self._reserved.getsockname()[1]
        return port

    def url(self, base_url: str) -> str:
        """Return `base_url` through the proxy; user, password, database and options stay."""
        parts = urlsplit(base_url)
        user, at, _ = parts.netloc.rpartition("@")
        options = parse_qsl(parts.query, keep_blank_values=True)
        kept = [each for each in options if each[0] not in {"host", "hostaddr", "port"}]
        netloc, query = f"{user}{at}{LOOPBACK}:{self.port}", urlencode(kept, quote_via=quote)
        return parts._replace(netloc=netloc, query=query).geturl()

    @property
    def connections(self) -> int:
        """The number of open client connections."""
        return len(self._open)

    @property
    def transferred(self) -> Bytes:
        """Bytes delivered so far, over all connections."""
        return Bytes(self._upstream.delivered, self._downstream.delivered)

    @property
    def held(self) -> Bytes:
        """Bytes received and not yet delivered."""
        return Bytes(self._upstream.held, self._downstream.held)

    def cut(self) -> None:
        """Deliver and refuse nothing, in both directions; connections stay half-open.

        The kernel still accepts new connections, but the server does not see them.
        """
        self._apply(self._upstream.cut, self._downstream.cut)

    def cut_upstream(self) -> None:
        """Deliver nothing to the server; clients still receive."""
        self._apply(self._upstream.cut)

    def cut_downstream(self) -> None:
        """Deliver nothing to clients; the server still receives."""
        self._apply(self._downstream.cut)

    def slow(
        self, *, latency: float = 0.0, jitter: float = 0.0, bytes_per_second: float | None = None
    ) -> None:
        """Delay each chunk (at most 64 KiB) by `latency` plus up to `jitter` seconds, each way.

        One chunk is in flight per connection and direction, as with a small TCP window; the rate
        applies to each connection.
        """
        self._upstream.slowness = self._downstream.slowness = Slowness(
            latency, jitter, bytes_per_second
        )

    def reset(self) -> None:
        """Reset all open connections: both ends get RST (a Unix socket: end of stream)."""
        self._apply(lambda: self._end(reset=True))

    def refuse(self) -> None:
        """Refuse new connections; open ones continue."""
        self._apply(self._unlisten)

    def heal(self, *, drop: bool = False) -> None:
        """End all cuts, delays, refusals and triggers.

        Held bytes are delivered late, as by retransmission; with `drop`, all open connections are
        reset instead.
        """
        if drop:
            self.reset()
        self._apply(self._upstream.heal, self._downstream.heal, self._listen)

    def on_bytes(
        self,
        direction: Direction,
        pattern: bytes | re.Pattern[bytes],
        action: Callable[[], object],
        *,
        times: int | None = 1,
    ) -> Trigger:
        """Run `action` when `pattern` passes, the first `times` times (None: always).

        It runs in the proxy's thread, just before the match is delivered (except bytes of the match
        in an earlier chunk): on an upstream COMMIT, `cut` means that the server never sees it, and
        `cut_downstream` that only the answer is lost. A match spans at most 1024 bytes. An action
        that fails breaks the connection, and `close` raises its error.
        """
        if isinstance(pattern, bytes):
            pattern = re.compile(re.escape(pattern))
        trigger = Trigger(pattern, action, times)
        lane = {"upstream": self._upstream, "downstream": self._downstream}[direction]
        self._apply(lambda: lane.triggers.append(trigger))
        return trigger

    def wait(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """Block until `condition`, over this proxy's counts, holds; raises `TimeoutError`."""
        with self._news:
            if not self._news.wait_for(condition, timeout):
                raise TimeoutError(
                    f"condition not met within {timeout} s: {self.connections} connections,"
                    f" transferred {self.transferred}, held {self.held}"
                )

    async def until(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """Wait as `wait` does, without blocking the event loop."""
        await asyncio.to_thread(self.wait, condition, timeout)

    def close(self) -> None:
        """Close everything; raises the errors of actions of `on_bytes`."""
        if self._loop is None or self._thread is None or self._reserved is None:
            return
        self._apply(self._unlisten, lambda: self._end(reset=False))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()
        self._reserved.close()
        self._loop = self._thread = self._reserved = None
        failures, self._failures = self._failures, []
        if failures:
            raise BaseExceptionGroup("connections of the proxy failed", failures)

    def __enter__(self) -> Self:
        self._reserved = _bound(0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.heal()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _apply(self, *changes: Callable[[], object]) -> None:
        """Make changes in the proxy's thread, together, and return when they are in force."""

        def make() -> list[asyncio.Task[None]]:
            for change in changes:
                change()
            return [task for task in self._open if task.cancelling()]

        async def settle() -> None:
            if ending := make():
                await asyncio.wait(ending)

        if threading.current_thread() is self._thread:  # a trigger's action
            make()
        elif self._loop is not None:
            asyncio.run_coroutine_threadsafe(settle(), self._loop).result(CALL_SECONDS_MAX)
        else:
            raise Closed("the proxy is not running; use it in a `with` block")

    def _changed(self) -> None:
        with self._news:
            self._news.notify_all()

    def _end(self, *, reset: bool) -> None:
        for task, connection in self._open.items():
            connection.end(reset=reset)
            task.cancel()

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = _bound(self.port)
            self._listener.listen(BACKLOG)
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _unlisten(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client has already left
            return
        connection = ProxiedConnection(client)
        running = connection.run(self._target, self._upstream, self._downstream)
        task = asyncio.get_running_loop().create_task(running)
        self._open[task] = connection
        task.add_done_callback(self._forget)
        self._changed()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task).close()  # a task canceled before its start has closed nothing
        if not task.cancelled() and (error := task.exception()):
            self._failures.append(error)
        self._changed()


def _bound(port: int) -> socket.socket:
    """Return a bound socket; one that never listens reserves the port during `refuse`."""
    bound = socket.socket(socket.AF_INET)
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((LOOPBACK, port))
    return bound
