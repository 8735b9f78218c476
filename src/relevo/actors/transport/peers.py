"""The peers of a process: one connection to each, made when it is needed and kept."""

from __future__ import annotations

import asyncio
import random
import secrets
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from relevo import limits
from relevo.actors.transport.addresses import PeerAddress
from relevo.actors.transport.connection import PeerConnection, Subscriber, Timing
from relevo.actors.transport.credit import Window
from relevo.actors.transport.errors import NotSent, PeerRefused
from relevo.actors.transport.handshake import (
    CHALLENGE_BYTES,
    Handshake,
    KnownHosts,
    PeerIdentity,
)
from relevo.actors.transport.receiving import NoReceiver
from relevo.actors.transport.tls import PeerTls, binding_of_server
from relevo.errors import SettingsError
from relevo.kernel.backoff import Backoff
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.actors.core.calls import Answer, Call
    from relevo.actors.transport.handshake import Role
    from relevo.actors.transport.receiving import Receiver

log = get_logger(__name__)
CONNECTIONS_TRIED = 3
"""A call moves on when its connection is given up, as one of two between the same hosts is."""
BACKOFF = Backoff(first=0.05, longest=2.0, jitter=(0.5, 1.0))


class _Failure(Struct, frozen=True):
    """The last attempt to connect to an address, and when the next may be made."""

    error: NotSent
    attempts: int
    until: float


class RemoteSubscription:
    """A subscription to events of an actor on another host."""

    def __init__(self, connection: PeerConnection, number: int, subscriber: Subscriber) -> None:
        self._connection = connection
        self._number = number
        self._subscriber = subscriber

    async def renew(self, body: bytes) -> Answer:
        """Ask again, under the same number; raises `NotSent` or `OutcomeUnknown`."""
        return await self._connection.subscribe(self._number, body, self._subscriber)

    def close(self) -> None:
        """End it."""
        self._connection.unsubscribe(self._number)


class Peers:
    """Calls to other processes, over connections that either side has made.

    `identity` is asked for each new connection, since a host may begin a new life.
    """

    def __init__(
        self,
        identity: Callable[[], PeerIdentity],
        *,
        cluster: str,
        key: bytes,
        receiver: Receiver | None = None,
        tls: PeerTls | None = None,
        window: Window = Window(),  # noqa: B008 - frozen
        timing: Timing = Timing(),  # noqa: B008 - frozen
    ) -> None:
        self._identity = identity
        self._cluster = cluster
        self._key = key
        self._receiver: Receiver = receiver or NoReceiver()
        self.tls = tls
        self._window = window
        self._timing = timing
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._known = KnownHosts()
        self._all: set[PeerConnection] = set()
        self._by_address: dict[str, PeerConnection] = {}
        self._by_incarnation: dict[str, PeerConnection] = {}
        self._dialing: dict[str, asyncio.Task[PeerConnection]] = {}
        self._failures: dict[str, _Failure] = {}
        self._closing = False

    @property
    def connections(self) -> list[PeerConnection]:
        """Those that are open, whoever made them."""
        return [one for one in self._all if not one.closed.done()]

    async def call(self, address: str, call: Call) -> Answer:
        """Send a call to the process that takes calls at an address; return its answer.

        Raises `NotSent` if nothing was written, so that the call may be sent again, and
        `OutcomeUnknown` if the connection was lost after that. When the caller's task is canceled,
        the peer is told.
        """
        asked_at = asyncio.get_running_loop().time()
        attempts = CONNECTIONS_TRIED
        while True:
            connection = self._by_address.get(address)
            if connection is None or not connection.is_usable:
                connection = await self.connection(address)
            try:
                return await connection.call(call, asked_at)
            except NotSent:
                attempts -= 1
                if connection.is_usable or not attempts:
                    raise  # else the peer keeps another one, or has gone

    async def tell(self, address: str, call: Call) -> Answer:
        """Send a one-way call; the answer says whether it was admitted. Raises as `call` does."""
        call.one_way = True
        return await self.call(address, call)

    async def probe(self, address: str, body: bytes) -> None:
        """Send a probe for deadlocks; raises `NotSent`. There is no answer."""
        (await self.connection(address)).send_probe(body)

    async def subscribe(
        self,
        address: str,
        body: bytes,
        on_event: Callable[[int, bytes], None],
        on_end: Callable[[], None],
    ) -> tuple[Answer, RemoteSubscription]:
        """Ask for events; `on_event` gets the sequence number and body of each.

        `on_end` is called when the connection is lost. Raises `NotSent` or `OutcomeUnknown`.
        """
        connection = await self.connection(address)
        number, subscriber = connection.next_subscription(), Subscriber(on_event, on_end)
        answer = await connection.subscribe(number, body, subscriber)
        return answer, RemoteSubscription(connection, number, subscriber)

    async def connection(self, address: str) -> PeerConnection:
        """Return the connection to an address, made if there is none; raises `NotSent`."""
        connection = self._by_address.get(address)
        if connection is not None and connection.is_usable:
            return connection
        if self._closing:
            raise NotSent("this process is shutting down")
        dialing = self._dialing.get(address)
        if dialing is None:
            self._check_failure(address)
            dialing = asyncio.get_running_loop().create_task(self._dial(address))
            self._dialing[address] = dialing
            dialing.add_done_callback(partial(self._dialed, address))
        return await asyncio.shield(dialing)

    def learn(self, identity: PeerIdentity) -> None:
        """Take note of the life of a host; connections of older lives of its name are closed."""
        if self._known.learn(identity):
            for connection in self.connections:
                if connection.is_usable and self._known.is_superseded(connection.identity):
                    connection.abort(NotSent(f"host {identity.host!r} has begun a new life"))

    def leave_as(self, identity: PeerIdentity) -> None:
        """This process has another identity now: give up the connections made under others."""
        for connection in self.connections:
            if connection.is_usable and connection.handshake.me != identity:
                connection.leave()

    def accept(self) -> PeerConnection:
        """Return the protocol of a connection that a peer has made."""
        return self._protocol("listener")

    async def close(self, timeout: float = 5.0) -> None:
        """Say goodbye: requests under way may end within so many seconds."""
        self._closing = True
        for dialing in list(self._dialing.values()):
            dialing.cancel()
        for connection in self.connections:
            if connection.is_usable:
                connection.leave()
            elif not connection.ready.done():
                connection.abort(NotSent("this process is shutting down"))
        if open_ones := self.connections:
            await asyncio.wait([one.closed for one in open_ones], timeout=timeout)
        for connection in self.connections:
            connection.abort(NotSent("this process has shut down"))
        if open_ones := self.connections:
            await asyncio.wait([one.closed for one in open_ones], timeout=1.0)

    def _protocol(self, role: Role) -> PeerConnection:
        return PeerConnection(
            partial(self._handshake, role), self._receiver, window=self._window,
            timing=self._timing, on_ready=self._on_ready, on_closed=self._on_closed,
        )  # fmt: skip

    def _handshake(
        self, role: Role, connection: PeerConnection, transport: asyncio.Transport
    ) -> Handshake:
        self._all.add(connection)  # not earlier: one whose TLS fails is never heard of again
        if role == "listener":
            if self._closing or len(self._all) > limits.ACTOR_CONNECTIONS_MAX:
                raise PeerRefused("the host takes no more connections", reason="busy")
            has_tls = transport.get_extra_info("ssl_object") is not None
            binding = self.tls.binding if has_tls and self.tls is not None else b""
        else:
            binding = binding_of_server(transport)
        return Handshake(
            role, self._identity(), cluster=self._cluster, key=self._key,
            challenge=secrets.token_bytes(CHALLENGE_BYTES), known=self._known,
            window=self._window, binding=binding,
        )  # fmt: skip

    async def _dial(self, address: str) -> PeerConnection:
        connection: PeerConnection | None = None
        try:
            async with asyncio.timeout(self._timing.handshake):
                connection = await self._open(PeerAddress.read(address))
                await connection.ready
        except TimeoutError:
            error = NotSent(f"{address} does not answer")
        except (OSError, SettingsError) as failure:
            error = NotSent(f"cannot connect to {address}: {failure}")
        except NotSent as failure:
            error = failure
        else:
            self._failures.pop(address, None)
            kept = self._by_incarnation.get(connection.identity.incarnation, connection)
            self._by_address[address] = kept
            return kept
        finally:
            if connection is not None and not connection.ready.done():
                connection.abort(NotSent("the handshake was given up"))
        failed = self._failures.get(address)
        attempts = failed.attempts + 1 if failed is not None else 0
        pause = BACKOFF.delay(attempts, self._random)
        until = asyncio.get_running_loop().time() + pause
        self._failures[address] = _Failure(error, attempts, until)
        raise error

    async def _open(self, address: PeerAddress) -> PeerConnection:
        loop = asyncio.get_running_loop()
        factory = partial(self._protocol, "dialer")
        if address.scheme == "unix":
            return (await loop.create_unix_connection(factory, address.host))[1]
        if address.scheme == "tcp":
            if not address.is_private:
                raise SettingsError(
                    "plain TCP is for loopback only; set tls_cert and tls_key on all hosts"
                )
            return (await loop.create_connection(factory, address.host, address.port))[1]
        if self.tls is None:
            raise SettingsError("the host speaks TLS; set tls_cert and tls_key here, too")
        opened = await loop.create_connection(
            factory, address.host, address.port, ssl=self.tls.client
        )
        return opened[1]

    def _dialed(self, address: str, task: asyncio.Task[PeerConnection]) -> None:
        self._dialing.pop(address, None)
        if not task.cancelled():
            task.exception()  # every caller may have left

    def _check_failure(self, address: str) -> None:
        """Fail at once while the back-off of an address lasts."""
        failed = self._failures.get(address)
        now = asyncio.get_running_loop().time()
        if failed is not None and now < failed.until:
            error = NotSent(str(failed.error))
            error.retry_after = failed.until - now
            raise error

    def _on_ready(self, connection: PeerConnection) -> None:
        """Keep one connection per pair.

        If both sides dial at the same time, the one stays that the smaller incarnation has made;
        both decide alike. A peer that dials again has lost its first connection.
        """
        peer, mine = connection.identity, connection.handshake.me.incarnation
        other = self._by_incarnation.get(peer.incarnation)
        if other is not None and other.is_usable:
            role = connection.handshake.role
            dialer = mine if role == "dialer" else peer.incarnation
            if role == other.handshake.role or dialer < max(mine, peer.incarnation):
                leaving = other
            else:
                leaving, connection = connection, other
            for address in [at for at, one in self._by_address.items() if one is leaving]:
                self._by_address[address] = connection
            leaving.leave()
        self._by_incarnation[peer.incarnation] = connection
        if peer.address is not None:
            self._by_address[peer.address] = connection

    def _on_closed(self, connection: PeerConnection) -> None:
        self._all.discard(connection)
        for places in (self._by_address, self._by_incarnation):
            for place in [place for place, one in places.items() if one is connection]:
                del places[place]
