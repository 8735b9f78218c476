"""The subscriber's side of actor events: a stream that follows its actor when that moves."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from relevo.actors.calls.answers import error_of
from relevo.actors.core.calls import Answer, MovedTo, Returned
from relevo.actors.core.identity import slot_of
from relevo.actors.events import ActorEvent, EventMessage, Gap, SubscribeRequest
from relevo.actors.transport.errors import NotSent
from relevo.errors import NoHost, OutcomeUnknown
from relevo.limits import (
    ACTOR_CALL_SECONDS,
    ACTOR_SUBSCRIBER_EVENTS_MAX,
    ACTOR_SUBSCRIPTION_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from relevo.actors.calls.ways import ActorWays
    from relevo.actors.core.identity import ActorRef
    from relevo.actors.events import Event, Events
    from relevo.actors.interfaces import Interfaces

RENEW_SECONDS: Final = ACTOR_SUBSCRIPTION_SECONDS / 3
AGAIN_SECONDS: Final = 0.1


class OpenSubscription(Protocol):
    """A subscription at the host of the actor."""

    async def renew(self, body: bytes) -> Answer:
        """Keep it for another while."""

    def close(self) -> None:
        """End it."""


class EventStream:
    """Events of one actor: `async with proxy.subscribe(Scores) as stream`."""

    def __init__(
        self, ways: ActorWays, codecs: Interfaces, ref: ActorRef, events: type[Events]
    ) -> None:
        self._ways = ways
        self._codecs = codecs
        self._ref = ref
        self._events: dict[str, Event[Any]] = events.all()
        self._request = msgspec.msgpack.encode(SubscribeRequest(ref.canonical, tuple(self._events)))
        self._messages = msgspec.msgpack.Decoder(EventMessage)
        self._queue: deque[tuple[int, bytes | None]] = deque(maxlen=ACTOR_SUBSCRIBER_EVENTS_MAX)
        self._arrived = asyncio.Event()
        self._ended = asyncio.Event()
        self._base = 0
        """Added to the sequence of the present subscription, which begins at 1 after a move."""
        self._newest = 0
        self._expected = 1
        self._round = 0
        self._open: OpenSubscription | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EventStream:
        async with asyncio.timeout(ACTOR_CALL_SECONDS):
            await self._subscribe()
        self._renewing = asyncio.get_running_loop().create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._round += 1
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait((self._renewing,))
        if self._open is not None:
            self._open.close()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> ActorEvent | Gap:
        """Return the next event, or the gap before it."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        sequence, body = self._queue[0]
        if body is None:
            self._queue.popleft()
            first, self._expected = self._expected, sequence + 1
            return Gap(first, sequence)
        if sequence > self._expected:
            first, self._expected = self._expected, sequence
            return Gap(first, sequence - 1)
        self._queue.popleft()
        self._expected = sequence + 1
        message = self._messages.decode(body)
        event = self._events[message.event]
        return ActorEvent(event, self._codecs.decoder(event.kind).decode(message.value), sequence)

    def _put(self, sequence: int, body: bytes | None) -> None:
        self._newest = sequence
        self._queue.append((sequence, body))  # a full queue loses its oldest
        self._arrived.set()

    async def _subscribe(self) -> None:
        """Subscribe at the owner of the slot, wherever that is."""
        group, slots = await self._ways.slots(self._ref.type)
        slot = slot_of(self._ref.canonical, slots)
        self._round += 1
        on_event, on_end = self._hearing(self._round)
        self._ended.clear()
        while True:
            try:
                answer, self._open = await self._ways.subscribe(
                    group, slot, self._request, on_event, on_end
                )
            except (NoHost, NotSent, OutcomeUnknown):
                await self._ways.changed(group, AGAIN_SECONDS)
                continue
            if type(answer) is Returned:
                return
            if not isinstance(answer, MovedTo):
                raise error_of(answer, None)
            self._ways.learn(group, slot, answer)
            await self._ways.changed(group, AGAIN_SECONDS)

    def _hearing(self, number: int) -> tuple[Callable[[int, bytes], None], Callable[[], None]]:
        """Return what hears of one subscription; later ones silence it."""

        def on_event(sequence: int, body: bytes) -> None:
            if number == self._round:
                self._put(self._base + sequence, body)

        def on_end() -> None:
            if number == self._round:
                self._ended.set()

        return on_event, on_end

    async def _renew(self) -> None:
        while True:
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._ended.wait()
            except TimeoutError:
                if await self._renewed():
                    continue
            self._round += 1  # nothing of the old one is heard any more
            self._base = self._newest + 1
            self._put(self._base, None)
            await self._subscribe()

    async def _renewed(self) -> bool:
        assert self._open is not None
        try:
            return type(await self._open.renew(self._request)) is Returned
        except (NotSent, OutcomeUnknown):
            return False
