"""A call that has arrived at its host, until it is answered."""

from __future__ import annotations

import inspect
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.actors.answers import answer_of_error, raised_by_method
from relevo.actors.core.calls import Answer, Raised, Returned
from relevo.actors.core.deltas import RecordedCall
from relevo.actors.running.deferred import Deferred
from relevo.actors.running.turn import Work
from relevo.errors import CallIdReused

if TYPE_CHECKING:
    import asyncio

    from relevo.actors.core.calls import Call
    from relevo.actors.core.mailbox import Mode
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.signatures import MethodSpec

_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_encode = msgspec.msgpack.Encoder().encode


class Arrival:
    """A call, its decoded arguments, and the future of its answer."""

    __slots__ = ("activation", "answer", "arguments", "call", "digest", "method", "runtime", "work")

    def __init__(
        self,
        runtime: ActorRuntime,
        call: Call,
        method: MethodSpec,
        answer: asyncio.Future[Answer],
        deadline: float,
    ) -> None:
        self.runtime = runtime
        self.call = call
        self.method = method
        self.answer = answer
        decode = method.decode_named if call.is_json else method.decode_arguments
        self.arguments = decode(call.body)
        self.activation: Activation | None = None
        self.digest = b"" if call.call_id is None else digest_of(call)
        options = method.options
        mode: Mode = (
            "interleave" if options.interleave else "read" if options.read_only else "write"
        )
        with_id = call.call_id is not None
        self.work = Work(
            f"method {method.name}", self.begin if not with_id else self.begin_once, self.finish,
            mode=mode, call=call, deadline=deadline, is_control=False,
            is_cancelable=options.cancel, confirm=options.confirm, withdraw=self.withdraw,
            encode=self.encode, record=self.record if with_id else None,
        )  # fmt: skip
        answer.add_done_callback(self._answered)

    async def begin(self, instance: Any) -> Any:
        """Run the method; the result is encoded in the turn: it may be part of the state."""
        function = getattr(instance, self.method.name)
        try:
            if inspect.iscoroutinefunction(function):
                value = await self.method.call(function, self.arguments)
            else:
                call = partial(self.method.call, function, self.arguments)
                value = await self.runtime.threads.call(call)
                if inspect.isawaitable(value):
                    value = await value
        except Exception as error:
            raise raised_by_method(error)  # noqa: B904 - it is the same error
        return value if isinstance(value, Deferred) else self.encode(value)

    async def begin_once(self, instance: Any) -> Any:
        """Run the method unless a call of this id was answered before: then give that answer."""
        assert self.activation is not None
        call_id = self.call.call_id
        assert call_id is not None
        if self.activation.definition.is_durable:
            stored = await self.runtime.storage.recorded(self.activation.canonical, call_id)
            if stored is not None:
                if stored.digest != self.digest:
                    raise reused(call_id, self.activation.canonical)
                return Repeated(stored.answer)
        return await self.begin(instance)

    def encode(self, value: Any) -> Answer:
        """Return the answer that carries a result."""
        body = self.method.encode_result(value)
        return Returned(self.method.result_as_json(value) if self.call.is_json else body)

    def record(self, value: Any, error: BaseException | None) -> RecordedCall | None:
        """Return what is kept of the answer: of results and declared errors."""
        if isinstance(value, Repeated):
            return None
        if error is not None:
            value = answer_of_error(error, self.method)
            if not isinstance(value, Raised):
                return None
        call_id = self.call.call_id
        assert call_id is not None
        return RecordedCall(call_id, self.method.name, self.digest, _encode(value))

    def finish(self, value: Any, error: BaseException | None) -> None:
        """Give the answer."""
        if self.answer.done():
            if self.call.one_way and error is not None and self.activation is not None:
                self.activation.log_failed(self.work.name, error)
            return
        if error is not None:
            self.answer.set_result(answer_of_error(error, self.method))
        elif isinstance(value, Repeated):
            self.answer.set_result(_ANSWERS.decode(value.answer))
        else:
            self.answer.set_result(value)

    def withdraw(self) -> None:
        """Let it run elsewhere, or later: it has not begun."""
        if not self.answer.done() or self.call.one_way:
            self.runtime.readmit(self)

    def _answered(self, answer: asyncio.Future[Answer]) -> None:
        self.runtime.pending -= 1
        activation = self.activation
        if activation is not None and self.call.call_id is not None:
            activation.calls_by_id.pop(self.call.call_id, None)
        if not answer.cancelled() or activation is None:
            return
        turn = self.work.turn
        if turn is None:
            activation.mailbox.remove(self.work)
        elif not turn.is_over:
            turn.was_cancelled = True
            if self.work.is_cancelable and turn.task is not None:
                turn.task.cancel()


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
