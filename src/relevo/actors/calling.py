"""How a call finds its actor: locally or on another host, again when it is known not to have run.

By default a method runs at most once per call. The caller repeats by itself, within the deadline,
only what is known not to have run; methods that are declared idempotent and calls with an id are
also repeated when the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from relevo.actors.answers import error_of
from relevo.actors.core.calls import Answer, Call, Chain, MovedTo, Raised, Refused, Returned
from relevo.actors.core.identity import ActorRef, slot_of
from relevo.actors.gateway import NamedMethod
from relevo.actors.running.turn import CURRENT, Turn
from relevo.actors.transport.errors import NotSent
from relevo.errors import (
    ActivationLost,
    DeadlineExceeded,
    Dropped,
    MailboxFull,
    NoHost,
    OutcomeUnknown,
    Overloaded,
    PoisonCall,
    RelevoError,
)
from relevo.kernel.backoff import Backoff
from relevo.limits import ACTOR_POISON_CRASHES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from relevo.actors.proxies import CallOptions
    from relevo.actors.signatures import MethodSpec

HOST_SECONDS: Final = 0.25
"""How long after its deadline a call waits for the other host to say whether it has run."""
_chains = itertools.count(secrets.randbits(62))
AGAIN: Final = Backoff(first=0.02, longest=1.0, jitter=(0.5, 1.0))


class Way:
    """Where the calls of a slot go: to this process, or to an address."""

    __slots__ = ("deliver", "epoch", "is_local")

    def __init__(
        self,
        deliver: Callable[[Call], Awaitable[Answer]],
        epoch: int,
        *,
        is_local: bool = False,
    ) -> None:
        self.deliver = deliver
        """Raises `NotSent`, or `OutcomeUnknown` if the connection broke after sending."""
        self.epoch = epoch
        self.is_local = is_local
        """To this process, which keeps the deadline itself."""


class Ways:
    """Finds the owner of a slot."""

    async def slots(self, type_name: str) -> tuple[str, int]:
        """Return the placement group of a type and its number of slots; raises `NotFound`."""
        raise NotImplementedError

    async def find(self, group: str, slot: int) -> Way | None:
        """Return how to reach the owner of a slot, or None if nobody is known to own it."""
        raise NotImplementedError

    def learn(self, group: str, slot: int, moved: MovedTo) -> None:
        """Note where a slot has gone."""
        raise NotImplementedError

    async def changed(self, group: str, seconds: float) -> None:
        """Wait until owners of a group have changed, at most so long."""
        raise NotImplementedError


class Calling:
    """Carries out the calls that proxies make."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        self._random = random.Random()  # noqa: S311 - jitter, not a secret

    async def call(
        self, ref: ActorRef, method: MethodSpec | NamedMethod, body: bytes, options: CallOptions
    ) -> Any:
        """Return what the method returns, or raise what it raised."""
        now = asyncio.get_running_loop().time()
        deadline = now + options.timeout
        turn = CURRENT.get()
        if turn is not None and turn.is_over:
            turn = None
        chain = Chain(next(_chains))
        if turn is not None:
            chain = turn.chain.with_turn(turn.activation.canonical, turn.id)
            if turn.deadline is not None:
                deadline = min(deadline, turn.deadline)
            activation = turn.activation
            if activation.gate.mark is not None:
                await activation.gate.passed(activation.gate.mark)
            if not activation.home.lease.may_act:
                await activation.runner.may_release()
        call = Call(
            ref.canonical, method.name, body, deadline - now, chain, digest=method.digest,
            call_id=options.call_id, headers=_headers(turn, options), one_way=options.one_way,
            made_at=time.time(), is_json=isinstance(method, NamedMethod),
        )  # fmt: skip
        if turn is not None:
            turn.waiting_for.append(call)
        try:
            answer = await self._deliver(ref, method, call, deadline)
        finally:
            if turn is not None:
                turn.waiting_for.remove(call)
        if type(answer) is Returned:
            return None if options.one_way else method.decode_result(answer.body)
        raise error_of(answer, method)

    async def _deliver(
        self, ref: ActorRef, method: MethodSpec | NamedMethod, call: Call, deadline: float
    ) -> Returned | Raised | Refused:
        group, slots = await self._ways.slots(ref.type)
        slot = slot_of(call.actor, slots)
        may_repeat = method.options.idempotent or call.call_id is not None
        attempt = crashes = 0
        reason: RelevoError | None = None
        while True:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise self._too_late(call, reason)
            call.timeout = left
            way = await self._ways.find(group, slot)
            if way is None:
                reason = NoHost(f"no host serves slot {slot} of placement group {group!r} now")
                await self._pause(group, attempt, left, 0.0)
                attempt += 1
                continue
            call.epoch = way.epoch
            try:
                answer = await self._answer(way, call, left)
            except NotSent as error:
                reason = NoHost(f"the owner of slot {slot} of {group!r} cannot be reached: {error}")
                await self._pause(group, attempt, left, 0.0)
                attempt += 1
                continue
            except OutcomeUnknown as error:
                crashes += 1
                if not may_repeat:
                    raise
                if crashes >= ACTOR_POISON_CRASHES:
                    raise PoisonCall(
                        f"{call.actor} lost its host {crashes} times in a row while"
                        f" {call.method} ran; it is not repeated"
                    ) from error
                reason = error
                continue
            if type(answer) is MovedTo:
                self._ways.learn(group, slot, answer)
                await self._pause(group, attempt, left, answer.pause)
                attempt += 1
                continue
            assert not isinstance(answer, MovedTo)
            refusal = self._repeatable(answer, may_repeat=may_repeat)
            if refusal is None:
                return answer
            reason = refusal
            assert isinstance(answer, Refused)
            await self._pause(group, attempt, left, answer.retry_after)
            attempt += 1

    async def _answer(self, way: Way, call: Call, seconds: float) -> Answer:
        if way.is_local:
            return await way.deliver(call)
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
        if answer.executed is False and error.retryable and not isinstance(error, Dropped):
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

    async def _pause(self, group: str, attempt: int, left: float, least: float) -> None:
        seconds = max(least, AGAIN.delay(attempt, self._random))
        await self._ways.changed(group, min(seconds, left))


def _headers(turn: Turn | None, options: CallOptions) -> dict[str, str]:
    inherited = {} if turn is None or turn.work.call is None else turn.work.call.headers
    if not options.headers:
        return inherited
    return inherited | dict(options.headers)


def headers() -> Mapping[str, str]:
    """Return the headers of the call in whose turn this code runs; they flow down the chain."""
    turn = CURRENT.get()
    if turn is None or turn.work.call is None:
        return {}
    return dict(turn.work.call.headers)
