"""A TCP proxy that loses, holds, slows and breaks: the bad network between a host and its database.

Two lanes, upstream (client to server) and downstream, carry bytes from socket to socket. Every
byte, end of stream and reset first asks its lane to `admit` it, and nothing is awaited between that
and handing it to the kernel. So all faults follow from what the lane answers, and hold from the
moment the call that orders them returns. Who is not admitted does not read on: the proxy holds at
most one chunk per connection and direction, and the rest backs up into the sender's socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import struct
import threading
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct

from relevo.errors import Closed, InvalidValue

if TYPE_CHECKING:
    from pathlib import Path

Direction = Literal["upstream", "downstream"]

CHUNK_BYTES: Final = 64 * 1024
PATTERN_BYTES_MAX: Final = 1024
DRIPS_PER_SECOND: Final = 50
BACKLOG: Final = 128
CALL_SECONDS_MAX: Final = 10.0
LOOPBACK: Final = "127.0.0.1"


class Bytes(Struct, frozen=True):
    """Byte counts of the two lanes."""

    upstream: int
    downstream: int


class Trigger(Struct, eq=False):
    """What `Proxy.on_bytes` has set up; `fired` counts how often its action was done."""

    pattern: re.Pattern[bytes]
    action: Callable[[], object]
    times: int | None
    fired: int = 0


class _Slowness(Struct, frozen=True):
    latency: float = 0.0
    jitter: float = 0.0
    bytes_per_second: float | None = None


class _Lane:
    """One direction of all connections, and the faults that are in force there."""

    def __init__(self, rng: random.Random, changed: Callable[[], None]) -> None:
        self.delivered = 0
        self.held = 0
        self.triggers: list[Trigger] = []
        self.slowness = _Slowness()
        self._cut = False
        self._rng = rng
        self._changed = changed
        self._healed = asyncio.Event()

    def cut(self) -> None:
        self._cut = True

    def heal(self) -> None:
        self._cut, self.slowness, self.triggers = False, _Slowness(), []
        self._healed.set()
        self._healed = asyncio.Event()

    def due(self, tail: bytes, chunk: bytes) -> list[tuple[int, Trigger]]:
        """Where in `chunk`, which follows `tail`, triggers match: the first byte, if it is here."""
        found = [
            (max(0, match.start() - len(tail)), trigger)
            for trigger in self.triggers
            for match in trigger.pattern.finditer(tail + chunk)
            if match.end() > len(tail)
        ]
        return sorted(found, key=itemgetter(0))

    def fire(self, trigger: Trigger) -> None:
        if trigger in self.triggers:  # else used up, or healed away, while its bytes were held
            trigger.fired += 1
            if trigger.fired == trigger.times:
                self.triggers.remove(trigger)
            trigger.action()
            self._changed()

    async def travel(self) -> None:
        """Take as long as a chunk takes from one end to the other."""
        await self._pause(self.slowness.latency + self._rng.uniform(0.0, self.slowness.jitter))

    async def admit(self, size: int = 0) -> int:
        """How many of `size` bytes may go now; waits while none may."""
        if (rate := self.slowness.bytes_per_second) is not None:
            size = min(size, max(1, int(rate / DRIPS_PER_SECOND)))
            await self._pause(size / rate)
        while self._cut:
            await self._healed.wait()
        return size

    def account(self, *, held: int, delivered: int = 0) -> None:
        self.held += held
        self.delivered += delivered
        self._changed()

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._healed.wait()  # nobody sits out a slowness that is over


class _SourceBroken(Exception):
    """The sending socket was reset, and its lane lets the other side know."""


class _SinkGone(Exception):
    """The receiving socket takes nothing any more."""


class _Connection:
    """A client's connection and the one made for it to the server, with a pump each way."""

    def __init__(self, client: socket.socket) -> None:
        self._sockets = [_prepared(client)]
        self._ended = False

    async def run(self, target: tuple[str, int] | str, up: _Lane, down: _Lane) -> None:
        try:
            await up.admit()  # the server does not hear of a client that is cut off
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
        """Let go of both ends; again does nothing."""
        for each in self._sockets:
            each.close()

    def end(self, *, reset: bool) -> None:
        """Send nothing more; `reset` makes the close to come break off instead of finish."""
        self._ended = True
        for each in self._sockets if reset else ():
            if each.fileno() >= 0:  # the connection may have ended by itself a moment ago
                # To linger for 0 s makes close() send RST.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _pump(self, lane: _Lane, source: socket.socket, sink: socket.socket) -> None:
        tail = b""
        # Who finds the sink gone is silent: the other pump reads there and brings the news, through
        # the lane on which news from there travel.
        with contextlib.suppress(_SinkGone):
            while chunk := await _received(lane, source):
                await self._relay(lane, tail, chunk, sink)
                tail = (tail + chunk)[1 - PATTERN_BYTES_MAX :]
            await lane.travel()
            await lane.admit()
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    async def _relay(self, lane: _Lane, tail: bytes, chunk: bytes, sink: socket.socket) -> None:
        """Carry a chunk over, and do what is due just before the bytes that a trigger waits for."""
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
        if self._ended:  # a cancellation would only arrive at the next wait
            raise _SinkGone
        try:
            return sink.send(data)
        except BlockingIOError:
            await _writable(sink)
            return 0
        except OSError as error:
            raise _SinkGone from error


class Proxy:
    """A proxy on 127.0.0.1 to one server, which breaks the network between as it is told.

    `target` is an IPv4 address or the path of a Unix socket. The proxy runs in a thread of its own,
    so it works while the test's event loop is busy. Its methods may be called from any thread and
    from triggers, are quick, and hold when they return. TLS passes untouched. `seed` settles what
    is drawn at random (jitter). A context manager, plain or async:

        with Proxy.to(database_url) as proxy:
            connection = await asyncpg.connect(proxy.url(database_url))
            proxy.on_bytes("upstream", b"COMMIT", proxy.cut_downstream)  # sent, never answered
    """

    def __init__(self, target: tuple[str, int] | str | Path, seed: int = 0) -> None:
        self._target = target if isinstance(target, tuple) else str(target)
        self._news = threading.Condition()
        self._upstream = _Lane(random.Random(f"{seed} upstream"), self._changed)
        self._downstream = _Lane(random.Random(f"{seed} downstream"), self._changed)
        self._open: dict[asyncio.Task[None], _Connection] = {}
        self._failures: list[BaseException] = []
        self._listener: socket.socket | None = None
        self._reserved: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def to(cls, database_url: str, seed: int = 0) -> Self:
        """A proxy to the one server that a postgresql:// URL names."""
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
        """Where clients connect, on 127.0.0.1; the same through `refuse` and `heal`."""
        if self._reserved is None:
            raise Closed("the proxy is not running; use it in a `with` block")
        port: int = self._reserved.getsockname()[1]
        return port

    def url(self, base_url: str) -> str:
        """`base_url` by way of the proxy: user, password, database and options are kept."""
        parts = urlsplit(base_url)
        user, at, _ = parts.netloc.rpartition("@")
        options = parse_qsl(parts.query, keep_blank_values=True)
        kept = [each for each in options if each[0] not in {"host", "hostaddr", "port"}]
        netloc, query = f"{user}{at}{LOOPBACK}:{self.port}", urlencode(kept, quote_via=quote)
        return parts._replace(netloc=netloc, query=query).geturl()

    @property
    def connections(self) -> int:
        """Client connections that are open at present."""
        return len(self._open)

    @property
    def transferred(self) -> Bytes:
        """Bytes delivered so far, over all connections."""
        return Bytes(self._upstream.delivered, self._downstream.delivered)

    @property
    def held(self) -> Bytes:
        """Bytes taken from their sender and not delivered yet."""
        return Bytes(self._upstream.held, self._downstream.held)

    def cut(self) -> None:
        """Lose everything, both ways: nothing is delivered or refused, connections stay half-open.

        New connections are accepted, but by the kernel only: the server does not hear of them.
        """
        self._apply(self._upstream.cut, self._downstream.cut)

    def cut_upstream(self) -> None:
        """Lose what clients send; what the server sends arrives."""
        self._apply(self._upstream.cut)

    def cut_downstream(self) -> None:
        """Lose what the server sends; what clients send arrives."""
        self._apply(self._downstream.cut)

    def slow(
        self, *, latency: float = 0.0, jitter: float = 0.0, bytes_per_second: float | None = None
    ) -> None:
        """Delay each chunk (64 KiB at most) by `latency` plus up to `jitter` seconds, each way.

        One chunk is under way per connection and direction, as with a small TCP window; the rate is
        that of each connection.
        """
        self._upstream.slowness = self._downstream.slowness = _Slowness(
            latency, jitter, bytes_per_second
        )

    def reset(self) -> None:
        """Break all present connections: both ends get RST (a Unix socket: end of stream)."""
        self._apply(lambda: self._end(reset=True))

    def refuse(self) -> None:
        """Refuse new connections; present ones go on."""
        self._apply(self._unlisten)

    def heal(self, *, drop: bool = False) -> None:
        """Back to normal: cuts, slowness, refusal and triggers are over.

        What was held is delivered late, as by retransmission; with `drop`, all present connections
        are reset instead.
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
        """Do `action` when `pattern` passes, the first `times` times (None: always).

        It runs in the proxy's thread, just before the match is delivered (what of it came in an
        earlier chunk has gone): on an upstream COMMIT, `cut` means that the server never saw it,
        `cut_downstream` that only the answer is lost. A match spans at most 1024 bytes. An action
        that fails breaks the connection and is raised again by `close`.
        """
        if isinstance(pattern, bytes):
            pattern = re.compile(re.escape(pattern))
        trigger = Trigger(pattern, action, times)
        lane = {"upstream": self._upstream, "downstream": self._downstream}[direction]
        self._apply(lambda: lane.triggers.append(trigger))
        return trigger

    def wait(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """Block until `condition`, over the counts of this proxy, is true, else `TimeoutError`."""
        with self._news:
            if not self._news.wait_for(condition, timeout):
                raise TimeoutError(
                    f"the proxy did not get there in {timeout} s: {self.connections} connections,"
                    f" transferred {self.transferred}, held {self.held}"
                )

    async def until(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """`wait` for async tests: the event loop goes on meanwhile."""
        await asyncio.to_thread(self.wait, condition, timeout)

    def close(self) -> None:
        """Close everything; raises what actions of `on_bytes` had failed with."""
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
        """Make changes in the proxy's thread, in one go, and return when they hold."""

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
        except (BlockingIOError, ConnectionAbortedError):  # the client thought better of it
            return
        connection = _Connection(client)
        running = connection.run(self._target, self._upstream, self._downstream)
        task = asyncio.get_running_loop().create_task(running)
        self._open[task] = connection
        task.add_done_callback(self._forget)
        self._changed()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task).close()  # a task that ends before it began has closed nothing
        if not task.cancelled() and (error := task.exception()):
            self._failures.append(error)
        self._changed()


def _bound(port: int) -> socket.socket:
    """A bound socket. One that never listens keeps the port ours while connections are refused."""
    bound = socket.socket(socket.AF_INET)
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((LOOPBACK, port))
    return bound


def _prepared(raw: socket.socket) -> socket.socket:
    raw.setblocking(False)
    if raw.family != socket.AF_UNIX:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return raw


async def _received(lane: _Lane, source: socket.socket) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(source, CHUNK_BYTES)
    except OSError as error:
        await lane.admit()  # a reset travels like bytes do
        raise _SourceBroken from error


async def _writable(sink: socket.socket) -> None:
    ready = asyncio.Event()
    asyncio.get_running_loop().add_writer(sink, ready.set)
    try:
        await ready.wait()
    finally:
        asyncio.get_running_loop().remove_writer(sink)
