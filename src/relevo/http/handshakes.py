"""TLS handshakes: connections count from the moment they are accepted, and have little time.

The event loop's own TLS servers report a connection after its handshake. Until then a
client could open any number of them, and so use up all descriptors.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from relevo import limits

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from relevo.http.admission import HttpConnections
    from relevo.http.protocol import BoundedProtocol

NO_DESCRIPTOR_SECONDS: Final = 0.1
"""How long nothing is accepted when the process is out of file descriptors."""


class Handshake:
    """A connection that is not known to speak TLS yet."""

    def __init__(
        self, connection: socket.socket, address: str, connections: HttpConnections
    ) -> None:
        self._connection = connection
        self._connections = connections
        self.address = address
        self._task: asyncio.Task[None] | None = None
        self._succeeded = False
        loop = asyncio.get_running_loop()
        crowded = connections.enter(self, address) is not None
        self.seconds = (
            limits.PROBE_CONNECTION_SECONDS_MAX if crowded else limits.HANDSHAKE_SECONDS_MAX
        )
        self._deadline = loop.time() + self.seconds

    def expire(self, now: float) -> int:
        """Close it if its time is over; nothing is ever unsent here."""
        if now >= self._deadline:
            self.drop("its handshake took too long")
        return 0

    def drop(self, reason: str) -> None:
        """Close it without a word."""
        self._connections.peers.note(self.address, "http.dropped", reason=reason)
        self.over()
        if self._task is not None:
            self._task.cancel()  # which closes it, when the loop does not read from it any more

    def over(self) -> None:
        """Count it no longer: it is closed, or goes on as a connection of HTTP."""
        self._connections.leave(self)

    def begin(
        self, tls: ssl.SSLContext, protocol: Callable[[], BoundedProtocol]
    ) -> asyncio.Task[None]:
        """Start the handshake; the task ends when HTTP has the connection, or it is closed."""
        self._task = asyncio.get_running_loop().create_task(self._make(tls, protocol))
        self._task.add_done_callback(self._finish)
        return self._task

    def _finish(self, _: asyncio.Task[None]) -> None:
        self.over()
        if not self._succeeded:
            self._connection.close()

    async def _make(self, tls: ssl.SSLContext, protocol: Callable[[], BoundedProtocol]) -> None:

        def shaken() -> BoundedProtocol:
            made = protocol()
            made.handshake = self
            return made

        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                shaken, self._connection, ssl=tls, ssl_handshake_timeout=self.seconds
            )
            self._succeeded = True
        except (OSError, ssl.SSLError, TimeoutError) as error:
            reason = f"no TLS handshake: {error}"
            self._connections.peers.note(self.address, "http.refused", reason=reason)


async def accept(
    listener: socket.socket,
    tls: ssl.SSLContext,
    connections: HttpConnections,
    protocol: Callable[[], BoundedProtocol],
) -> None:
    """Take connections until canceled; those that speak TLS go on as HTTP."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    try:
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(NO_DESCRIPTOR_SECONDS)
                continue
            task = Handshake(connection, address[0], connections).begin(tls, protocol)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    finally:
        for task in list(tasks):
            task.cancel()
