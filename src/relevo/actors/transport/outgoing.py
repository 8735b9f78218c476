"""Requests of this process on one connection, from the call to its answer.

A request waits here while there is no credit for it, in the order of the calls. What was given to
the transport may have reached the peer; what was not, has not. That decides how a request fails
when the connection is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.actors.core.calls import Answer, Call
from relevo.actors.transport.credit import SendCredit, Window
from relevo.actors.transport.errors import NotSent
from relevo.actors.transport.frames import CallFrame, Cancel, Subscribe, fault_of
from relevo.errors import InvalidValue, OutcomeUnknown, Overloaded, RelevoError, TooLarge

if TYPE_CHECKING:
    from relevo.actors.transport.outbox import Outbox


class Request(Struct, eq=False, gc=False):
    """A call or a subscription, and its answer to come."""

    call: Call | None
    answer: asyncio.Future[Answer]
    asked_at: float
    """When the caller asked, by the loop's clock: its timeout runs from there."""
    number: int = 0
    """0 while it waits for credit."""
    end: int = 0
    """The position behind its frame."""


class Outgoing:
    """Numbers requests, holds them while there is no credit, and gives each its answer."""

    def __init__(self, outbox: Outbox, window: Window) -> None:
        self._outbox = outbox
        self._credit = SendCredit(window)
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Request] = deque()
        self._pending: dict[int, Request] = {}
        self._number = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for anything."""
        return not self._pending and not self._waiting

    def send(self, call: Call, asked_at: float | None = None) -> Request:
        """Send a call, at once or when there is credit. Raises what makes it unfit to travel."""
        if fault := fault_of(call):
            raise InvalidValue(f"the call of {call.actor[:100]!r} cannot be sent: {fault}")
        now = self._loop.time() if asked_at is None else asked_at
        request = Request(call, self._loop.create_future(), now)
        if self._waiting:
            if len(self._waiting) >= limits.ACTOR_HOST_CALLS_MAX:
                raise Overloaded("too many calls wait until a peer takes more; call it less often")
            self._waiting.append(request)
        elif not self._try_send(request):
            self._waiting.append(request)
        return request

    def subscribe(self, subscription: int, body: bytes) -> Request:
        """Send a request for events, which needs no credit."""
        request = Request(None, self._loop.create_future(), self._loop.time())
        self._outbox.stage(Subscribe(self._number + 1, subscription, body))
        self._number += 1
        self._record(request)
        self._outbox.send_staged()
        return request

    def cancel(self, request: Request) -> None:
        """Forget a request whose caller has left; the peer hears of it if it may know it."""
        request.answer.cancel()
        if request.number:
            if self._pending.pop(request.number, None) is not None and request.call is not None:
                self._outbox.put(Cancel(request.number))
        elif self._waiting and self._waiting[0] is request:
            self._waiting.popleft()
            self.send_waiting()  # a smaller one may go now
        else:
            self._waiting.remove(request)

    def on_answer(self, number: int, answer: Answer) -> None:
        """Give a request its answer; one that was canceled is not known any more."""
        request = self._pending.pop(number, None)
        if request is not None and not request.answer.done():
            request.answer.set_result(answer)

    def on_credit(self, calls: int, size: int) -> None:
        """Send what has waited for credit; raises `BadFrame` for a grant beyond the window."""
        self._credit.grant(calls, size)
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send waiting calls in their order, as far as there is credit."""
        while self._waiting:
            request = self._waiting[0]
            try:
                if not self._try_send(request):
                    return
            except (RelevoError, ValueError, TypeError, OverflowError) as error:  # unfit to travel
                if not request.answer.done():
                    request.answer.set_exception(error)
            self._waiting.popleft()

    def refuse_waiting(self, reason: str) -> None:
        """Fail what waits for credit: the peer goes away."""
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if not request.answer.done():
                request.answer.set_exception(NotSent(f"the call was not sent: {reason}"))

    def fail(self, reason: str) -> None:
        """Fail everything: the connection is lost."""
        self.refuse_waiting(reason)
        pending, self._pending = self._pending, {}
        for request in pending.values():
            if request.answer.done():
                continue
            if request.end > self._outbox.written:
                error: Exception = NotSent(f"the call was not sent: {reason}")
            else:
                error = OutcomeUnknown(f"the call was sent and not answered: {reason}")
            request.answer.set_exception(error)

    def _try_send(self, request: Request) -> bool:
        """Write a call if there is credit for it; one whose caller has left counts as sent."""
        if request.answer.done():
            return True
        if self._credit.calls < 1:
            return False
        call = request.call
        assert call is not None
        if (waited := self._loop.time() - request.asked_at) > 0.001:
            call = msgspec.structs.replace(call, timeout=max(0.0, call.timeout - waited))
        number = self._number + 1
        size = self._outbox.stage(CallFrame(number, call))
        if not self._credit.take(size):
            self._outbox.unstage(size)
            if size > self._credit.window.bytes:
                raise TooLarge(
                    f"a call of {size} bytes; the peer takes at most {self._credit.window.bytes}"
                )
            return False
        self._number = number
        self._record(request)
        self._outbox.send_staged()
        return True

    def _record(self, request: Request) -> None:
        request.number = self._number
        request.end = self._outbox.appended
        self._pending[self._number] = request
