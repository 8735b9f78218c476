"""What a process does with the calls of its peers, as the transport sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from relevo.actors.core.calls import MovedTo

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from relevo.actors.core.calls import Answer, Call
    from relevo.actors.transport.handshake import PeerIdentity


class Peer(Protocol):
    """The process at the other end of a connection."""

    @property
    def identity(self) -> PeerIdentity:
        """Who it has proved to be."""

    @property
    def is_congested(self) -> bool:
        """Whether frames to it are held back."""

    async def until_writable(self) -> None:
        """Wait while frames are held back, or until the connection closes."""

    def emit(self, subscription: int, sequence: int, body: bytes) -> None:
        """Send an event; nothing happens if the connection is closed."""

    def send_probe(self, body: bytes) -> None:
        """Send a probe for deadlocks; nothing happens if the connection is closed."""


class Receiver(Protocol):
    """Takes what peers send. Nothing here may wait: work goes on behind the awaitable."""

    def deliver(self, call: Call, peer: Peer) -> Awaitable[Answer]:
        """Take in a call; return its answer to come. Whatever it raises is answered as unknown."""

    def cancel(self, call: Call, answer: Awaitable[Answer], peer: Peer) -> None:
        """The caller no longer waits for a call; `answer` is what `deliver` returned."""

    def subscribe(self, subscription: int, body: bytes, peer: Peer) -> Awaitable[Answer]:
        """Begin or renew a subscription, whose number is unique for the peer."""

    def unsubscribe(self, subscription: int, peer: Peer) -> None:
        """End a subscription."""

    def probe(self, body: bytes, peer: Peer) -> None:
        """Take in a probe for deadlocks."""

    def lost(self, peer: Peer) -> None:
        """The connection is closed: its subscriptions are over, its answers go nowhere."""


class NoReceiver:
    """A process that only calls."""

    def deliver(self, call: Call, peer: Peer) -> Awaitable[Answer]:
        """Refuse: the process owns no slot."""
        return _refusal()

    def cancel(self, call: Call, answer: Awaitable[Answer], peer: Peer) -> None:
        """Nothing runs here."""

    def subscribe(self, subscription: int, body: bytes, peer: Peer) -> Awaitable[Answer]:
        """Refuse: the process owns no slot."""
        return _refusal()

    def unsubscribe(self, subscription: int, peer: Peer) -> None:
        """Nothing to end."""

    def probe(self, body: bytes, peer: Peer) -> None:
        """Nothing waits here."""

    def lost(self, peer: Peer) -> None:
        """Nothing to forget."""


async def _refusal() -> Answer:
    return MovedTo(0)
