"""Requests of a peer on one connection, from the frame to the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo import limits
from relevo.actors.core.calls import Answer, Call, Refused
from relevo.actors.transport.credit import ReceiveCredit, Window
from relevo.actors.transport.frames import AnswerFrame, Credit
from relevo.errors import OutcomeUnknown, Overloaded, TooLarge
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.actors.transport.frames import CallFrame, Subscribe
    from relevo.actors.transport.outbox import Outbox
    from relevo.actors.transport.receiving import Peer, Receiver

log = get_logger(__name__)
GRANT_SECONDS: Final = 0.02
"""How long a small amount of credit may be owed."""


class _Running(Struct, eq=False):
    call: Call | None
    awaited: Awaitable[Answer]
    answer: asyncio.Future[Answer]


class Incoming:
    """Delivers requests once each, answers them, and grants credit for those taken in."""

    def __init__(
        self,
        outbox: Outbox,
        receiver: Receiver,
        peer: Peer,
        window: Window,
        on_idle: Callable[[], None],
    ) -> None:
        self._outbox = outbox
        self._receiver = receiver
        self._peer = peer
        self._credit = ReceiveCredit(window)
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, _Running] = {}
        self._subscriptions: set[int] = set()
        self._highest = 0
        self._granting: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether every request has its answer."""
        return not self._running

    def on_call(self, frame: CallFrame, size: int) -> None:
        """Deliver a call, unless its number came before; raises `BadFrame` without credit."""
        self._credit.receive(size)
        if self._is_new(frame.number):
            call = frame.call
            self._run(frame.number, call, partial(self._receiver.deliver, call, self._peer))
        self._credit.admit(size)
        if self._credit.is_due:
            self._grant()
        elif self._granting is None:
            self._granting = self._loop.call_later(GRANT_SECONDS, self._grant)

    def on_subscribe(self, frame: Subscribe) -> None:
        """Deliver a request for events."""
        if not self._is_new(frame.number):
            return
        known = frame.subscription in self._subscriptions
        crowded = max(len(self._subscriptions), len(self._running))
        if not known and crowded >= limits.ACTOR_SUBSCRIPTIONS_MAX:
            text = f"a connection carries {limits.ACTOR_SUBSCRIPTIONS_MAX} subscriptions at most"
            self._put(frame.number, Refused(Overloaded.code, text, executed=False))
            return
        self._subscriptions.add(frame.subscription)
        asked = partial(self._receiver.subscribe, frame.subscription, frame.body, self._peer)
        self._run(frame.number, None, asked)

    def on_unsubscribe(self, subscription: int) -> None:
        """End a subscription."""
        if subscription in self._subscriptions:
            self._subscriptions.discard(subscription)
            self._receiver.unsubscribe(subscription, self._peer)

    def on_cancel(self, number: int) -> None:
        """Pass on that a caller has left."""
        running = self._running.get(number)
        if running is not None and running.call is not None:
            self._receiver.cancel(running.call, running.awaited, self._peer)

    def close(self) -> None:
        """The connection is lost; calls that run are left to the receiver."""
        if self._granting is not None:
            self._granting.cancel()
        self._running.clear()
        self._receiver.lost(self._peer)

    def _is_new(self, number: int) -> bool:
        if number <= self._highest:
            return False
        self._highest = number
        return True

    def _run(self, number: int, call: Call | None, ask: Callable[[], Awaitable[Answer]]) -> None:
        try:
            awaited = ask()
            answer = asyncio.ensure_future(awaited)
        except Exception:
            log.exception("actors.delivery_failed")
            self._put(number, _unknown("the host failed to take the call in"))
            return
        self._running[number] = _Running(call, awaited, answer)
        if answer.done():
            self._answered(number, answer)
        else:
            answer.add_done_callback(partial(self._answered, number))

    def _answered(self, number: int, future: asyncio.Future[Answer]) -> None:
        if future.cancelled():
            answer: Answer = _unknown("the host dropped the call")
        elif (error := future.exception()) is not None:
            log.error("actors.answer_failed", error=repr(error))
            answer = _unknown("the host failed to answer the call")
        else:
            answer = future.result()
        if self._running.pop(number, None) is None:
            return  # the connection is closed
        self._put(number, answer)
        if not self._running:
            self._on_idle()

    def _put(self, number: int, answer: Answer) -> None:
        try:
            self._outbox.put(AnswerFrame(number, answer))
        except TooLarge as error:
            executed = answer.executed if isinstance(answer, Refused) else True
            self._outbox.put(AnswerFrame(number, Refused(TooLarge.code, str(error), executed)))

    def _grant(self) -> None:
        if self._granting is not None:
            self._granting.cancel()
            self._granting = None
        if self._credit.owed_calls:
            self._outbox.put(Credit(*self._credit.grant()))


def _unknown(text: str) -> Refused:
    return Refused(OutcomeUnknown.code, text, executed=None)
