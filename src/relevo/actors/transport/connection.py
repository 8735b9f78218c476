"""One connection to a peer: handshake, frames in both directions, signs of life, and its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_never, cast

from msgspec import Struct

from relevo import limits
from relevo.actors.transport import frames
from relevo.actors.transport.credit import Window
from relevo.actors.transport.errors import BadFrame, NotSent, PeerRefused
from relevo.actors.transport.incoming import Incoming
from relevo.actors.transport.outbox import Outbox
from relevo.actors.transport.outgoing import Outgoing
from relevo.errors import TooLarge
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.actors.core.calls import Answer, Call
    from relevo.actors.transport.handshake import Handshake, PeerIdentity
    from relevo.actors.transport.receiving import Receiver

log = get_logger(__name__)
TICKS_PER_PING = 5


class Timing(Struct, frozen=True, kw_only=True):
    """When a connection counts as silent, and as lost. Seconds."""

    handshake: float = limits.ACTOR_HANDSHAKE_SECONDS
    ping: float = limits.ACTOR_PING_SECONDS
    silence: float = limits.ACTOR_SILENCE_SECONDS


class Subscriber(Struct, eq=False):
    """What a subscription of this process hears."""

    on_event: Callable[[int, bytes], None]
    on_end: Callable[[], None]


class PeerConnection(asyncio.Protocol):
    """A connection that either side has made; both use it alike.

    `ready` has the outcome of the handshake, `closed` is done when the connection is over.
    """

    def __init__(
        self,
        begin: Callable[[PeerConnection, asyncio.Transport], Handshake],
        receiver: Receiver,
        *,
        window: Window = Window(),  # noqa: B008 - frozen
        timing: Timing = Timing(),  # noqa: B008 - frozen
        on_ready: Callable[[PeerConnection], None] = lambda _: None,
        on_closed: Callable[[PeerConnection], None] = lambda _: None,
    ) -> None:
        self._begin = begin
        self._receiver = receiver
        self._window = window
        self._timing = timing
        self._on_ready = on_ready
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._reader = frames.FrameReader(limits.ACTOR_HELLO_BYTES_MAX)
        self._subscribers: dict[int, Subscriber] = {}
        self._subscription = 0
        self._silent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reason: Exception | None = None
        self._transport: asyncio.Transport
        self._outbox: Outbox
        self.handshake: Handshake
        self._outgoing: Outgoing | None = None
        self._incoming: Incoming | None = None
        self.is_leaving = False
        """This process sends no further requests on it."""
        self.is_left = False
        """The peer sends no further requests on it."""
        self.ready: asyncio.Future[PeerConnection] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # --- what this process asks of the peer ---

    @property
    def identity(self) -> PeerIdentity:
        """Who the peer has proved to be."""
        assert self.handshake.peer is not None
        return self.handshake.peer

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent."""
        return self._outgoing is not None and not self.is_leaving and not self.closed.done()

    async def call(self, call: Call, asked_at: float | None = None) -> Answer:
        """Send a call and return its answer; raises `NotSent` or `OutcomeUnknown`."""
        outgoing = self._usable()
        request = outgoing.send(call, asked_at)
        try:
            return await request.answer
        except asyncio.CancelledError:
            outgoing.cancel(request)
            self._close_if_done()
            raise

    async def subscribe(self, subscription: int, body: bytes, subscriber: Subscriber) -> Answer:
        """Begin or renew a subscription under a number of `next_subscription`."""
        outgoing = self._usable()
        self._subscribers[subscription] = subscriber
        request = outgoing.subscribe(subscription, body)
        try:
            return await request.answer
        except asyncio.CancelledError:
            outgoing.cancel(request)
            self._close_if_done()
            raise

    def next_subscription(self) -> int:
        """Return a number that no subscription of this process has on this connection."""
        self._subscription += 1
        return self._subscription

    def unsubscribe(self, subscription: int) -> None:
        """End a subscription; events on their way are dropped."""
        if self._subscribers.pop(subscription, None) is not None and self._is_open:
            self._outbox.put(frames.Unsubscribe(subscription))

    def emit(self, subscription: int, sequence: int, body: bytes) -> None:
        """Send an event to a subscription of the peer; nothing if the connection is closed."""
        if self._is_open:
            self._outbox.put(frames.EventFrame(subscription, sequence, body))

    def send_probe(self, body: bytes) -> None:
        """Send a probe for deadlocks; nothing if the connection is closed."""
        if self._is_open:
            self._outbox.put(frames.Probe(body))

    @property
    def is_congested(self) -> bool:
        """Whether frames are held back because the peer or the network is slow."""
        return self._outbox.is_congested

    async def until_writable(self) -> None:
        """Wait while frames are held back, or until the connection closes."""
        await self._outbox.until_writable()

    def leave(self) -> None:
        """Ask nothing more, and have nothing asked; the connection closes when all is answered."""
        if self.is_leaving or not self._is_open:
            return
        self.is_leaving = True
        assert self._outgoing is not None
        self._outgoing.refuse_waiting("the connection is being given up")
        self._outbox.put(frames.GoAway())
        self._close_if_done()

    def abort(self, reason: Exception) -> None:
        """Close at once; what was sent and not answered is unknown."""
        self._reason = self._reason or reason
        if not self.closed.done():
            self._transport.abort()

    # --- what the event loop tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(transport)
        transport.set_write_buffer_limits(high=1024 * 1024)
        self._timer = self._loop.call_later(self._timing.handshake, self._handshake_is_late)
        try:
            self.handshake = self._begin(self, transport)
        except PeerRefused as error:
            self._refuse(error)
            return
        self._outbox.put_payloads(self.handshake.begin())

    def data_received(self, data: bytes) -> None:
        """Take in frames; the first that is none ends the connection."""
        self._silent = 0
        try:
            for payload in self._reader.feed(data):
                if self._reason is not None:
                    return
                if self._outgoing is None:
                    self._shake_hands(bytes(payload))
                else:
                    self._take(frames.decode(payload), len(payload))
        except (BadFrame, PeerRefused) as error:
            if self._reason is None:
                self._refuse(error)

    def pause_writing(self) -> None:
        """The peer or the network is slow."""
        self._outbox.pause()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._outbox.resume()
        self._close_if_done()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is pending, and tell both ends of what was going on."""
        if self._timer is not None:
            self._timer.cancel()
        self._outbox.close()
        self.closed.set_result(None)
        reason = str(self._reason or exc or "the peer closed the connection")
        if self._outgoing is not None and self._incoming is not None:
            self._outgoing.fail(reason)
            self._incoming.close()
        elif not self.ready.done():
            error = self._reason
            if not isinstance(error, NotSent):
                error = NotSent(f"connecting failed: {reason}")
            self.ready.set_exception(error)
            self.ready.exception()  # an accepted connection has nobody that waits for it
        subscribers, self._subscribers = self._subscribers, {}
        for subscriber in subscribers.values():
            subscriber.on_end()
        self._on_closed(self)

    # --- frames ---

    @property
    def _is_open(self) -> bool:
        return self._outgoing is not None and not self.closed.done()

    def _usable(self) -> Outgoing:
        if not self.is_usable or self._outgoing is None:
            raise NotSent("the connection is closed or being given up")
        return self._outgoing

    def _shake_hands(self, payload: bytes) -> None:
        replies = self.handshake.receive(payload)
        self._outbox.put_payloads(replies)
        if self.handshake.peer is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._reader.bytes_max = limits.ACTOR_FRAME_BYTES_MAX
        self._outgoing = Outgoing(self._outbox, self.handshake.window)
        self._incoming = Incoming(
            self._outbox, self._receiver, self, self._window, self._close_if_done
        )
        self._tick()
        self._on_ready(self)
        if not self.ready.done():
            self.ready.set_result(self)

    def _take(self, frame: frames.TransportFrame, size: int) -> None:
        """Take in a frame; an error of the code behind it costs that frame, not the connection."""
        try:
            self._on_frame(frame, size)
        except BadFrame:
            raise
        except Exception:
            log.exception("actors.frame_failed", frame=type(frame).__name__)

    def _on_frame(self, frame: frames.TransportFrame, size: int) -> None:
        assert self._incoming is not None
        assert self._outgoing is not None
        match frame:
            case frames.CallFrame():
                if self.is_left:
                    raise BadFrame("a call after the peer said that none follows")
                self._incoming.on_call(frame, size)
            case frames.AnswerFrame():
                self._outgoing.on_answer(frame.number, frame.answer)
                if self.is_leaving:
                    self._close_if_done()
            case frames.Credit():
                self._outgoing.on_credit(frame.calls, frame.bytes)
            case frames.Cancel():
                self._incoming.on_cancel(frame.number)
            case frames.EventFrame():
                subscriber = self._subscribers.get(frame.subscription)
                if subscriber is not None:
                    subscriber.on_event(frame.sequence, frame.body)
            case frames.Subscribe():
                self._incoming.on_subscribe(frame)
            case frames.Unsubscribe():
                self._incoming.on_unsubscribe(frame.subscription)
            case frames.Probe():
                self._receiver.probe(frame.body, self)
            case frames.Ping():
                if not self.is_congested:  # else what is held back is the sign
                    self._outbox.put(frames.Pong())
            case frames.Pong():
                pass
            case frames.GoAway():
                self._on_go_away(frame)
            case frames.Hello() | frames.Proof():
                raise BadFrame(f"{type(frame).__name__} after the handshake")
            case _:
                assert_never(frame)

    def _on_go_away(self, frame: frames.GoAway) -> None:
        if frame.reason:
            self.abort(NotSent(f"the peer ended the connection: {frame.message}"))
            return
        self.is_left = True
        self.leave()
        self._close_if_done()

    def _close_if_done(self) -> None:
        """Close once both sides have said that no request follows, and all are answered."""
        if not (self.is_leaving and self.is_left) or self._outgoing is None:
            return
        assert self._incoming is not None
        if self._outgoing.is_idle and self._incoming.is_idle and not self.closed.done():
            self._outbox.flush()
            if self._outbox.is_empty:
                self._transport.close()

    def _refuse(self, error: BadFrame | PeerRefused) -> None:
        """Say why, and close; a peer that does not read is not waited for."""
        self._reason = error
        reason = error.reason if isinstance(error, PeerRefused) else error.code
        log.warning("actors.peer_refused", reason=reason, error=str(error))
        with contextlib.suppress(TooLarge):
            self._outbox.put(frames.GoAway(reason, str(error)[:2_048]))
        self._outbox.flush()
        self._transport.close()
        self._loop.call_later(1.0, self._transport.abort)

    # --- time ---

    def _handshake_is_late(self) -> None:
        self.abort(NotSent(f"no handshake within {self._timing.handshake} s"))

    def _tick(self) -> None:
        """Count silent ticks, not time: a loop that stood still has not listened meanwhile."""
        self._timer = self._loop.call_later(self._timing.ping / TICKS_PER_PING, self._tick)
        self._silent += 1
        if self._silent > TICKS_PER_PING * self._timing.silence / self._timing.ping:
            self.abort(NotSent(f"no sign of life for {self._timing.silence} s"))
        elif self._silent % TICKS_PER_PING == 0:
            self._outbox.put(frames.Ping())

    def __repr__(self) -> str:
        peer: Any = self._outgoing and self.identity
        return f"PeerConnection({peer})"
