"""A call that has arrived at its host, until it is answered."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from relevo.actors.calls.answers import answer_of_error, raised_by_method
from relevo.actors.core.calls import Answer, Raised, Returned
from relevo.actors.core.deltas import RecordedCall
from relevo.actors.running.deferred import Deferred
from relevo.actors.running.turn import Work
from relevo.errors import CallIdReused, DeadlineExceeded
from relevo.kernel import uses
from relevo.kernel.telemetry import tracing

if TYPE_CHECKING:
    import asyncio

    from relevo.actors.core.calls import Call
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.signatures import MethodSpec
    from relevo.actors.stateless.pool import WaitingCall

_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_encode = msgspec.msgpack.Encoder().encode


class Arrival(Work, eq=False, kw_only=True):
    """A call as work: its decoded arguments, and the future of its answer."""

    returns: ClassVar[bool] = True

    runtime: ActorRuntime
    call: Call
    method: MethodSpec
    answer: asyncio.Future[Answer]
    deadline: float
    arguments: tuple[Any, ...]
    activation: Activation | None = None
    queued: WaitingCall | None = None
    """Its place in the queue of a stateless type."""
    followers: list[Arrival] | None = None
    """Repeats of this call, by its id: they get its answer."""
    digest: bytes = b""
    has_ended: bool = False
    is_control: bool = False

    @classmethod
    def of(
        cls, runtime: ActorRuntime, call: Call, method: MethodSpec, answer: asyncio.Future[Answer],
        deadline: float,
    ) -> Self:  # fmt: skip
        """Take a call in; raises `BadArguments`."""
        decode = method.decode_named if call.is_json else method.decode_arguments
        arrival = cls(
            method.work_name, method.mode, runtime=runtime, call=call, method=method,
            answer=answer, deadline=deadline, arguments=decode(call.body), held=uses.holding(),
            is_cancelable=method.cancel, confirm=method.confirm,
        )  # fmt: skip
        if call.call_id is not None:
            arrival.digest = digest_of(call)
        if runtime.workers.traced:
            arrival.parent = tracing.here(call.headers.get(tracing.TRACEPARENT))
        runtime.deadlines.add(deadline, arrival)
        answer.add_done_callback(arrival.canceled)
        runtime.room.enter(call)
        return arrival

    async def begin(self, instance: Any) -> Any:
        """Run the method, unless a call of this id was answered before: then give that answer.

        The result is encoded in the turn: it may be part of the state.
        """
        if self.call.call_id is not None and (repeated := await self._repeated()) is not None:
            return repeated
        assert self.activation is not None
        method = self.method
        function = getattr(instance, method.name)
        try:
            if method.name not in self.activation.definition.plain_methods:
                value = await (
                    function(*self.arguments)
                    if method.is_positional
                    else method.call(function, self.arguments)
                )
            else:
                value = await self.runtime.call_plain(
                    partial(method.call, function, self.arguments)
                )
        except Exception as error:
            raise raised_by_method(error)  # noqa: B904 - it is the same error
        return value if isinstance(value, Deferred) else self.encode(value)

    async def _repeated(self) -> Repeated | None:
        """Return the recorded answer of an earlier call of this id."""
        assert self.activation is not None
        call_id = self.call.call_id
        assert call_id is not None
        if not self.activation.definition.is_durable:
            return None
        stored = await self.runtime.storage.recorded(self.activation.canonical, call_id)
        if stored is None:
            return None
        if stored.digest != self.digest:
            raise reused(call_id, self.activation.canonical)
        return Repeated(stored.answer)

    def joins(self, activation: Activation) -> bool:
        """Wait for the answer of a call of the same id that still runs, if there is one."""
        call_id = self.call.call_id
        assert call_id is not None
        running = activation.calls_by_id.setdefault(call_id, self)
        if running is self:
            return False
        if running.digest != self.digest:
            raise reused(call_id, activation.canonical)
        running.followers = [*(running.followers or ()), self]
        return True

    def encode(self, value: Any) -> Answer:
        """Return the answer that carries a result."""
        body = self.method.encode_result(value)
        return Returned(self.method.result_as_json(value) if self.call.is_json else body)

    def record(self, value: Any, error: BaseException | None) -> RecordedCall | None:
        """Return what is kept of the answer: of results and declared errors."""
        call_id = self.call.call_id
        if call_id is None or isinstance(value, Repeated):
            return None
        if error is not None:
            value = answer_of_error(error, self.method)
            if not isinstance(value, Raised):
                return None
        return RecordedCall(call_id, self.method.name, self.digest, _encode(value))

    def finish(self, value: Any, error: BaseException | None) -> None:
        """Give the answer to the caller, and to those who repeated the call meanwhile."""
        followers = self._leave_ids() if self.call.call_id is not None else ()
        self.has_ended = True
        if self.answer.done() and not followers:
            if self.call.one_way and error is not None and self.activation is not None:
                self.activation.log_failed(f"method {self.method.name}", error)
            return
        if error is not None:
            answer: Answer = answer_of_error(error, self.method)
        else:
            answer = _ANSWERS.decode(value.answer) if isinstance(value, Repeated) else value
        self.give(answer)
        for arrival in followers:
            arrival.give(answer)

    def give(self, answer: Answer) -> None:
        """Answer the caller; the first answer counts."""
        if not self.answer.done():
            self.answer.remove_done_callback(self.canceled)
            self.answer.set_result(answer)
            self.runtime.deadlines.remove(self.deadline, self)
            self.runtime.room.leave(self.call)

    def withdraw(self) -> None:
        """Let it run elsewhere, or later: it has not begun."""
        followers = self._leave_ids()
        for arrival in (self, *followers):
            if not arrival.answer.done() or arrival.call.one_way:
                self.runtime.readmit(arrival)

    def _leave_ids(self) -> list[Arrival]:
        """Let calls of the same id no longer wait for this one; returns those who did."""
        activation, call_id = self.activation, self.call.call_id
        if (
            activation is not None and call_id is not None
            and activation.calls_by_id.get(call_id) is self
        ):  # fmt: skip
            del activation.calls_by_id[call_id]
        followers, self.followers = self.followers, None
        return followers or []

    def expire(self) -> None:
        """Hear that the deadline has passed."""
        if self.answer.done():
            return
        turn = self.turn
        late = DeadlineExceeded(
            f"{self.call.method} of {self.call.actor} waited for its turn until its deadline passed"
            if turn is None
            else f"{self.call.method} of {self.call.actor} did not answer before its deadline; it"
            " goes on, and may take effect",
            executed=False if turn is None else None,
        )
        self.give(answer_of_error(late, None))
        self._abandon()

    def canceled(self, answer: asyncio.Future[Answer]) -> None:
        """Hear that the caller has gone."""
        self.runtime.deadlines.remove(self.deadline, self)
        self.runtime.room.leave(self.call)
        if answer.cancelled():
            self._abandon()

    def _abandon(self) -> None:
        """Nobody waits any more: a call that has not begun never runs."""
        if self.queued is not None:
            self.queued.cancel()
            return
        if self.activation is None or self.has_ended:  # it has just ended
            return
        turn = self.turn
        if turn is None:
            self.activation.mailbox.remove(self)
            for arrival in self._leave_ids():
                self.runtime.readmit(arrival)
            return
        if self.call.call_id is None:
            self.is_abandoned = True
            if self.deferred is not None:
                self.activation.forget_deferred(self.deferred)
        if not turn.is_over:
            turn.was_canceled = True
            if self.is_cancelable:
                turn.cut()


class Repeated:
    """The recorded answer of an earlier call of the same id."""

    __slots__ = ("answer",)

    def __init__(self, answer: bytes) -> None:
        self.answer = answer


def digest_of(call: Call) -> bytes:
    """Return what must be equal in two calls of one id."""
    return blake2b(call.method.encode() + b"\0" + call.body, digest_size=16).digest()


def reused(call_id: str, canonical: str) -> CallIdReused:
    """Return the error for an id that came before with another method or other arguments."""
    return CallIdReused(
        f"call id {call_id!r} of {canonical} was used with another method or other arguments; a"
        " repeat has the same, and another call has another id"
    )
