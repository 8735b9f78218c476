"""What a process does with the calls of its peers: it gives them to its actors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from relevo.actors.core.calls import Answer, MovedTo
from relevo.actors.running.emitter import subscribe

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from relevo.actors.core.calls import Call
    from relevo.actors.running.deadlocks import Prober
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.transport.receiving import Peer


class CallReceiver:
    """Takes the frames of peers; a process that is no host owns no slot, and says so."""

    def __init__(self) -> None:
        self.runtime: ActorRuntime | None = None
        self.prober: Prober | None = None

    def deliver(self, call: Call, peer: Peer) -> Awaitable[Answer]:
        """Run a call; the answer says under which epoch it ran."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self.runtime is None:
            answer.set_result(MovedTo(0))
            return answer
        given = self.runtime.deliver(call)

        def pass_on(done: asyncio.Future[Answer]) -> None:
            if answer.done():
                return
            if done.cancelled():
                answer.cancel()
                return
            result = done.result()
            if type(result) is not MovedTo:
                result = msgspec.structs.replace(result, epoch=call.epoch)
            answer.set_result(result)

        def pass_back(done: asyncio.Future[Answer]) -> None:
            if done.cancelled():
                given.cancel()

        if given.done():
            pass_on(given)
        else:
            given.add_done_callback(pass_on)
            answer.add_done_callback(pass_back)
        return answer

    def cancel(self, call: Call, answer: Awaitable[Answer], peer: Peer) -> None:
        """Let a call end whose caller has left, if it has not begun or may be canceled."""
        assert isinstance(answer, asyncio.Future)
        answer.cancel()

    async def subscribe(self, subscription: int, body: bytes, peer: Peer) -> Answer:
        """Begin or renew a subscription to events of an actor."""
        if self.runtime is None:
            return MovedTo(0)

        def put(sequence: int, event: bytes) -> None:
            if not peer.is_congested:  # else the subscriber sees a gap
                peer.emit(subscription, sequence, event)

        # When the slot leaves, the next renewal is answered `MovedTo`.
        return subscribe(self.runtime, (peer, subscription), body, put, _nothing)

    def unsubscribe(self, subscription: int, peer: Peer) -> None:
        """End a subscription."""
        if self.runtime is not None:
            self.runtime.emitter.unsubscribe((peer, subscription))

    def probe(self, body: bytes, peer: Peer) -> None:
        """Take in a probe for deadlocks."""
        if self.prober is not None:
            self.prober.receive(body)

    def lost(self, peer: Peer) -> None:
        """Calls of a peer that is gone run on: they may have had effects already."""
        if self.runtime is not None:
            self.runtime.emitter.forget(lambda key: isinstance(key, tuple) and key[0] is peer)


def _nothing() -> None:
    """Nobody is told."""
