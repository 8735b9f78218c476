"""How a call finds its actor: locally or on another host, again when it is known not to have run.

By default a method runs at most once per call. The caller repeats by itself, within the deadline,
only what is known not to have run; methods that are declared idempotent and calls with an id are
also repeated when the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import TYPE_CHECKING, Any, Final

from relevo.actors.calls.answers import error_of
from relevo.actors.calls.delivery import Delivery, Sent
from relevo.actors.calls.filters import ActorCall, filtered
from relevo.actors.calls.lines import Lines
from relevo.actors.calls.proxies import checked_headers
from relevo.actors.core.calls import Answer, Call, Chain, MovedTo, Refused, Returned
from relevo.actors.core.identity import ActorRef, slot_of
from relevo.actors.core.numbers import Numbers
from relevo.actors.running.turn import CURRENT, Turn
from relevo.actors.transport.errors import NotSent
from relevo.errors import (
    ActivationFailed,
    ActivationLost,
    DatabaseUnavailable,
    DeadlineExceeded,
    MailboxFull,
    NoHost,
    OutcomeUnknown,
    Overloaded,
    PoisonCall,
    RelevoError,
)
from relevo.kernel.backoff import Backoff
from relevo.kernel.telemetry import tracing
from relevo.kernel.telemetry.logs import get_logger
from relevo.limits import ACTOR_POISON_CRASHES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.actors.calls.delivery import Way, Ways
    from relevo.actors.calls.filters import Filter
    from relevo.actors.calls.gateway import NamedMethod
    from relevo.actors.calls.proxies import CallOptions
    from relevo.actors.signatures import MethodSpec

log = get_logger(__name__)
HOST_SECONDS: Final = 0.25
"""How long after its deadline a call waits for the other host to say whether it has run."""
_chains = Numbers()
_NOT_RUN: Final = (NoHost, MailboxFull, ActivationFailed)
"""Errors after which a call is made again by itself: it did not run, and may run later."""
AGAIN: Final = Backoff(first=0.02, longest=1.0, jitter=(0.5, 1.0))
MOVED: Final = Backoff(first=0.02, longest=1.0, jitter=(1.0, 1.0))
"""Without jitter calls of one task stay in their order."""


class _Elsewhere(Exception):
    """A call did not run: its owner is to be found anew."""

    def __init__(
        self,
        reason: RelevoError,
        place: tuple[str, int] | None = None,
        *,
        at_once: bool = False,
        seconds: float = 0.0,
    ) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.place = place
        """The placement group and the slot whose owner may change; None if it is not known."""
        self.seconds = seconds
        """How long to wait at least."""
        self.at_once = at_once
        """The owner is known: there is nothing to wait for."""


class Calling:
    """Carries out the calls that proxies make."""

    def __init__(self, ways: Ways, outgoing: Sequence[Filter] = ()) -> None:
        self._ways = ways
        self._outgoing = outgoing
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._lines = Lines(ways, self._random)
        self._numbers = itertools.count()

    async def call(
        self, ref: ActorRef, method: MethodSpec | NamedMethod, body: bytes, options: CallOptions
    ) -> Any:
        """Return what the method returns, or raise what it raised."""
        turn = CURRENT.get()
        if turn is not None and turn.is_over:
            turn = None
        now = asyncio.get_running_loop().time()
        deadline = now + options.timeout
        if turn is None:
            chain = Chain(_chains.take())
        else:
            chain = turn.chain.with_turn(turn.activation.canonical, turn.id)
            if turn.deadline is not None:
                deadline = min(deadline, turn.deadline)
            await _may_leave(turn)
        call = Call(
            ref.canonical, method.name, body, deadline - now, chain, 0, method.digest,
            options.call_id, _headers(turn, options), options.one_way, time.time(), method.is_json,
        )  # fmt: skip
        if turn is not None:
            turn.waiting_for += (call,)
        try:
            if self._outgoing and not method.name.startswith("$"):
                returned = await self._filtered(ref, method, call, deadline)
            else:
                returned = await self._deliver(ref, method, call, deadline)
        finally:
            if turn is not None:
                turn.waiting_for = tuple(one for one in turn.waiting_for if one is not call)
        return None if options.one_way else method.decode_result(returned.body)

    async def _filtered(
        self, ref: ActorRef, method: MethodSpec | NamedMethod, call: Call, deadline: float
    ) -> Returned:
        around = ActorCall(actor=ref, kind="method", name=method.name, headers=dict(call.headers))

        async def run() -> Returned:
            call.headers = checked_headers(around.headers)
            call.timeout = deadline - asyncio.get_running_loop().time()
            return await self._deliver(ref, method, call, deadline)

        return await filtered(self._outgoing, around, run)

    async def _deliver(
        self, ref: ActorRef, method: MethodSpec | NamedMethod, call: Call, deadline: float
    ) -> Returned:
        """Return the result of a call, made again where that is right; raise its error."""
        number, answer = next(self._numbers), None
        if (call.chain.frames or not self._lines) and (here := self._ways.here(call)) is not None:
            answer = await here  # nearly all calls of actors of this process end here
            if type(answer) is Returned:
                return answer
        delivery = Delivery(ref, method, call, deadline, number)
        while True:
            try:
                if answer is None:
                    answer = await self._try(delivery)
                if type(answer) is MovedTo:
                    raise await self._moved(ref, call, answer)
            except _Elsewhere as elsewhere:
                await self._wait_for_owner(delivery, elsewhere)
            except OutcomeUnknown as error:
                if not delivery.may_repeat:
                    raise
                delivery.note_unknown(error)
                await asyncio.sleep(min(AGAIN.delay(delivery.attempt, self._random), delivery.left))
                delivery.attempt += 1
            else:
                if type(answer) is Returned:
                    return answer
                await self._wait_after(delivery, answer)
            answer = None

    async def _try(self, delivery: Delivery) -> Answer:
        """Make a call once; raises `_Elsewhere` if it did not run, and may run later."""
        ref, call = delivery.ref, delivery.call
        call.timeout = left = delivery.left
        if left <= 0:
            raise delivery.unknown or self._too_late(call, delivery.reason)
        if delivery.unanswered is not None:
            await self._count_crash(delivery, delivery.unanswered)
        if self._lines and not delivery.may_overtake:
            await self._check_lines(ref, call)
        call.epoch = 0
        here = self._ways.here(call)
        return await (self._attempt(delivery) if here is None else here)

    async def _count_crash(self, delivery: Delivery, sent: Sent) -> None:
        """Count whether the owner was lost that did not answer; raises `PoisonCall`.

        A connection that was cut says nothing about the owner, which may be well.
        """
        try:
            if not await self._ways.has_ended(sent.group, sent.slot, sent.way):
                return
        except DatabaseUnavailable as error:
            raise _Elsewhere(error) from None
        delivery.note_crash()
        call, crashes = delivery.call, delivery.crashes
        log.warning(
            "actor.host_lost_in_call", actor=call.actor, method=call.method, times=crashes,
            placement_group=sent.group, slot=sent.slot, epoch=sent.way.epoch,
        )  # fmt: skip
        if crashes >= ACTOR_POISON_CRASHES:
            raise PoisonCall(
                f"{call.actor} lost its host {crashes} times in a row while {call.method} ran; it"
                " is not repeated, and it is not known whether it took effect. See the logs of the"
                " hosts"
            ) from delivery.unknown

    async def _wait_for_owner(self, delivery: Delivery, elsewhere: _Elsewhere) -> None:
        """Wait after a call that did not run until its owner may be known."""
        call, left = delivery.call, delivery.left
        delivery.reason = elsewhere.reason
        if elsewhere.place is None or call.chain.frames:
            await self._pause(elsewhere, delivery.attempt, left)
        else:
            delivery.may_overtake = await self._stand_in_line(
                elsewhere, call, delivery.number, left
            )
        delivery.attempt += 1

    async def _wait_after(self, delivery: Delivery, answer: Answer) -> None:
        """Wait after a refusal until the call may be made again, or raise the error of a call."""
        refusal = self._repeatable(answer, may_repeat=delivery.may_repeat)
        if refusal is None:
            assert not isinstance(answer, Returned)
            error = error_of(answer, delivery.method)
            if delivery.unknown is not None and _is_not_run(answer):
                raise delivery.unknown from error
            raise error
        delivery.reason = refusal
        if not isinstance(refusal, _NOT_RUN):
            delivery.unknown = refusal
        assert isinstance(answer, Refused)
        seconds = max(answer.retry_after, AGAIN.delay(delivery.attempt, self._random))
        await asyncio.sleep(min(seconds, delivery.left))
        delivery.may_overtake = bool(delivery.call.chain.frames)  # it has lost its place
        delivery.attempt += 1

    async def _check_lines(self, ref: ActorRef, call: Call) -> None:
        """Raise `_Elsewhere` if calls that were made before wait for the owner of the slot."""
        try:
            group, slots = await self._slots(ref)
        except DatabaseUnavailable as error:
            raise _Elsewhere(error) from None
        place = group, slot_of(call.actor, slots)
        if place in self._lines:
            waiting = NoHost(f"calls for slot {place[1]} of {group!r} wait for its next owner")
            raise _Elsewhere(waiting, place)

    async def _slots(self, ref: ActorRef) -> tuple[str, int]:
        """Return the placement group and its slots; raises `NoHost` if waiting is of no use."""
        try:
            return await self._ways.slots(ref.type)
        except NoHost as error:
            if self._ways.is_joining(ref.type):
                raise _Elsewhere(error) from None
            raise

    async def _attempt(self, delivery: Delivery) -> Answer:
        """Send a call once; raises `_Elsewhere` if it did not run, and may run later."""
        call = delivery.call
        try:
            group, slots = await self._slots(delivery.ref)
            slot = slot_of(call.actor, slots)
            way = await self._ways.find(group, slot)
        except DatabaseUnavailable as error:
            raise _Elsewhere(error) from None
        if way is None:
            nobody = NoHost(f"no host serves slot {slot} of placement group {group!r} now")
            raise _Elsewhere(nobody, (group, slot))
        call.epoch = way.epoch
        delivery.sent = Sent(group, slot, way)
        try:
            return await self._answer(way, call, delivery.left)
        except NotSent as refused:
            away = NoHost(f"the owner of slot {slot} of {group!r} cannot be reached: {refused}")
            raise _Elsewhere(away, (group, slot)) from None

    async def _moved(self, ref: ActorRef, call: Call, answer: MovedTo) -> _Elsewhere:
        """Note where the actor of a call has gone."""
        group, slots = await self._ways.slots(ref.type)
        place = group, slot_of(call.actor, slots)
        self._ways.learn(*place, answer)
        moved = error_of(answer, None)
        return _Elsewhere(moved, place, at_once=answer.address is not None, seconds=answer.pause)

    async def _answer(self, way: Way, call: Call, seconds: float) -> Answer:
        try:
            # The host of the actor knows whether the call has begun, so its answer is preferred.
            async with asyncio.timeout(seconds + HOST_SECONDS):
                return await way.deliver(call)
        except TimeoutError:
            late = DeadlineExceeded(
                f"{call.method} of {call.actor} did not answer within {seconds:.3g} s; it may have"
                " run"
            )
            late.executed = None
            raise late from None

    def _repeatable(self, answer: Answer, *, may_repeat: bool) -> RelevoError | None:
        """Return the error of an answer after which the call may be tried again."""
        if not isinstance(answer, Refused):
            return None
        error = error_of(answer, None)
        if isinstance(error, _NOT_RUN):
            return error
        if may_repeat and isinstance(error, (ActivationLost, OutcomeUnknown)):
            return error
        return None

    def _too_late(self, call: Call, reason: RelevoError | None) -> RelevoError:
        """Return the reason for which it did not run, or that time has passed."""
        if isinstance(reason, MailboxFull):
            return Overloaded(
                f"{call.actor} had no room for {call.method} until its deadline: {reason.message}"
            )
        if reason is not None:
            return reason
        late = DeadlineExceeded(f"the deadline of {call.method} of {call.actor} has passed")
        late.executed = False
        return late

    async def _pause(self, elsewhere: _Elsewhere, attempt: int, left: float) -> None:
        """Wait until owners of the group have changed, or for a growing time."""
        if elsewhere.at_once and attempt == 0:
            return
        seconds = max(elsewhere.seconds, MOVED.delay(attempt, self._random))
        if elsewhere.place is None:
            await asyncio.sleep(min(seconds, left))
        else:
            await self._ways.changed(elsewhere.place[0], min(seconds, left))

    async def _stand_in_line(
        self, elsewhere: _Elsewhere, call: Call, number: int, left: float
    ) -> bool:
        """Wait until it is this call's turn to be sent; False if that takes too long."""
        assert elsewhere.place is not None
        try:
            await self._lines.wait(
                elsewhere.place, call, number, left,
                at_once=elsewhere.at_once, seconds=elsewhere.seconds,
            )  # fmt: skip
        except TimeoutError:
            return False
        return True


async def _may_leave(turn: Turn) -> None:
    """Wait until what a turn's actor has done before is durable: no call leaves ahead of it."""
    activation = turn.activation
    if activation.gate.mark is not None:
        await activation.gate.passed(activation.gate.mark)
    if not activation.home.lease.may_act:
        await activation.outlet.may_release()


def _headers(turn: Turn | None, options: CallOptions) -> dict[str, str]:
    inherited = {} if turn is None or turn.work.call is None else turn.work.call.headers
    parent = tracing.parent()
    if parent is not None:
        inherited = inherited | {tracing.TRACEPARENT: parent}
    if not options.headers:
        return inherited
    return inherited | dict(options.headers)


def headers() -> Mapping[str, str]:
    """Return the headers of the call in whose turn this code runs; they flow down the chain."""
    turn = CURRENT.get()
    if turn is None or turn.work.call is None:
        return {}
    return dict(turn.work.call.headers)


def _is_not_run(answer: Answer) -> bool:
    return type(answer) is Refused and answer.executed is False
