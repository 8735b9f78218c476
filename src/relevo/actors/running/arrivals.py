"""A call that has arrived at its host, until it is answered."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.actors.calls.answers import answer_of_error, raised_by_method
from relevo.actors.core.calls import Answer, Raised, Returned
from relevo.actors.core.deltas import RecordedCall
from relevo.actors.running.deferred import Deferred
from relevo.actors.running.turn import Work
from relevo.errors import CallIdReused, DeadlineExceeded

if TYPE_CHECKING:
    import asyncio

    from relevo.actors.core.calls import Call
    from relevo.actors.core.mailbox import Mode
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.signatures import MethodSpec
    from relevo.actors.stateless.pool import WaitingCall

_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_encode = msgspec.msgpack.Encoder().encode


class Arrival:
    """A call, its decoded arguments, and the future of its answer."""

    __slots__ = (
        "activation", "answer", "arguments", "call", "digest", "expiry", "followers", "method",
        "queued", "runtime", "work",
    )  # fmt: skip

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
        self.queued: WaitingCall | None = None
        """Its place in the queue of a stateless type."""
        self.followers: list[Arrival] = []
        """Repeats of this call, by its id: they get its answer."""
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
        self.expiry = answer.get_loop().call_at(deadline, self._expire)
        answer.add_done_callback(self._cancelled)
        runtime.room.enter(call)

    async def begin(self, instance: Any) -> Any:
        """Run the method; the result is encoded in the turn: it may be part of the state."""
        assert self.activation is not None
        function = getattr(instance, self.method.name)
        try:
            if self.method.name not in self.activation.definition.plain_methods:
                value = await self.method.call(function, self.arguments)
            else:
                value = await self.runtime.call_plain(
                    partial(self.method.call, function, self.arguments)
                )
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
        """Give the answer to the caller, and to those who repeated the call meanwhile."""
        followers = self._leave_ids()
        del self.work  # it holds this: without circles less is collected
        if self.answer.done() and not followers:
            if self.call.one_way and error is not None and self.activation is not None:
                self.activation.log_failed(f"method {self.method.name}", error)
            return
        if error is not None:
            answer: Answer = answer_of_error(error, self.method)
        else:
            answer = _ANSWERS.decode(value.answer) if isinstance(value, Repeated) else value
        for arrival in (self, *followers):
            arrival.give(answer)

    def give(self, answer: Answer) -> None:
        """Answer the caller; the first answer counts."""
        if not self.answer.done():
            self.answer.remove_done_callback(self._cancelled)
            self.answer.set_result(answer)
            self._close()

    def withdraw(self) -> None:
        """Let it run elsewhere, or later: it has not begun."""
        followers = self._leave_ids()
        for arrival in (self, *followers):
            if not arrival.answer.done() or arrival.call.one_way:
                self.runtime.readmit(arrival)

    def _close(self) -> None:
        self.expiry.cancel()
        self.runtime.room.leave(self.call)

    def _leave_ids(self) -> list[Arrival]:
        """Let calls of the same id no longer wait for this one; returns those who did."""
        activation, call_id = self.activation, self.call.call_id
        if (
            activation is not None and call_id is not None
            and activation.calls_by_id.get(call_id) is self
        ):  # fmt: skip
            del activation.calls_by_id[call_id]
        followers, self.followers = self.followers, []
        return followers

    def _expire(self) -> None:
        if self.answer.done():
            return
        turn = self.work.turn
        late = DeadlineExceeded(
            f"{self.call.method} of {self.call.actor} waited for its turn until its deadline passed"
            if turn is None
            else f"{self.call.method} of {self.call.actor} did not answer before its deadline; it"
            " goes on, and may take effect",
            executed=False if turn is None else None,
        )
        self.give(answer_of_error(late, None))
        self._abandon()

    def _cancelled(self, answer: asyncio.Future[Answer]) -> None:
        self._close()
        if answer.cancelled():
            self._abandon()

    def _abandon(self) -> None:
        """Nobody waits any more: a call that has not begun never runs."""
        work: Work | None = getattr(self, "work", None)
        if self.queued is not None:
            self.queued.cancel()
            return
        if self.activation is None or work is None:  # it has just ended
            return
        turn = work.turn
        if turn is None:
            self.activation.mailbox.remove(work)
            for arrival in self._leave_ids():
                self.runtime.readmit(arrival)
            return
        if self.call.call_id is None:
            work.is_abandoned = True
            if work.deferred is not None:
                self.activation.forget_deferred(work.deferred)
        if not turn.is_over:
            turn.was_cancelled = True
            if work.is_cancelable:
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
