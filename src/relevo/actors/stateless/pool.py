"""The activations of a stateless type on a host, and the calls that wait for one."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING

from relevo.actors.calls.answers import answer_of_error
from relevo.actors.core.calls import MovedTo
from relevo.actors.core.deltas import StoredActor
from relevo.actors.core.dispatching import SharedQueue, next_step
from relevo.actors.core.identity import ActorRef
from relevo.actors.running.activation import Activation
from relevo.actors.running.slots import PAUSE_SECONDS, HostHome
from relevo.errors import (
    ActivationFailed,
    HostFenced,
    LeaseLost,
    MailboxFull,
    RelevoError,
)

if TYPE_CHECKING:
    from relevo.actors.core.calls import Chain
    from relevo.actors.core.deltas import Delta
    from relevo.actors.definitions import ActorDefinition
    from relevo.actors.running.arrivals import Arrival
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.running.turn import Turn
    from relevo.actors.states import DeactivationReason
    from relevo.kernel.leases.held import Lease


class StatelessActivation(Activation):
    """One of the activations of a stateless type; it takes one call at a time."""

    home: StatelessPool
    is_reserved = False
    """A call is about to begin here, once it has its permit."""
    _freed: asyncio.Future[None] | None = None

    @property
    def name(self) -> str:
        """Whose calls it takes."""
        return self.canonical

    @property
    def is_free(self) -> bool:
        """Whether it would begin a call at once."""
        return (
            self.state == "active" and self.mailbox.is_idle
            and not (self.is_reserved or self.leave_when_idle)
        )  # fmt: skip

    @property
    def is_leaving(self) -> bool:
        """Whether it ends and makes room for another."""
        return self.state in ("deactivating", "gone")

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, waits or is pending."""
        return super().is_idle and not self.is_reserved

    def pump(self) -> None:
        """Begin what may begin now, and hear of the calls of the type that wait."""
        super().pump()
        if self.is_free:
            self.note_freed()
            self.home.pump()

    def note_freed(self) -> None:
        """Note that the present call has ended."""
        freed, self._freed = self._freed, None
        if freed is not None:
            freed.set_result(None)

    @property
    def runs_code(self) -> bool:
        """Whether a turn has begun and not ended."""
        tasks = (turn.task for turn in self.turns.values())
        return any(task is not None and not task.done() for task in tasks)

    async def until_code_ended(self) -> None:
        """Wait until every turn that has begun has ended."""
        while self.runs_code:
            nested = (one.task for one in self.turns.values() if one.outer is not None)
            running = [task for task in nested if task is not None and not task.done()]
            if running:
                await asyncio.wait(running)
            else:
                self._changed.clear()
                await self._changed.wait()

    async def until_freed(self) -> None:
        """Wait until the present call has ended."""
        if not (self.is_free or self.state == "gone"):
            if self._freed is None:
                self._freed = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._freed,))


class WaitingCall:
    """A call that no activation has taken yet."""

    __slots__ = ("arrival", "is_queued", "name", "permit", "pool")

    def __init__(self, pool: StatelessPool, arrival: Arrival) -> None:
        self.pool = pool
        self.arrival = arrival
        self.name = arrival.call.actor
        self.is_queued = False
        self.permit: asyncio.Task[None] | None = None
        """Waits for a permit, where calls of all hosts are bounded."""

    def cancel(self) -> None:
        """Nobody waits for the answer any more: it does not begin."""
        self.pool.queue.remove(self)
        if self.permit is not None:
            self.permit.cancel()


class StatelessPool(HostHome):
    """The activations of one stateless type: as many as calls run, up to `max_local`.

    A call goes to the first free activation in the order in which they were made, so those at the
    end become idle and are collected. Only if none is free another is made.
    """

    def __init__(
        self,
        runtime: ActorRuntime,
        definition: ActorDefinition,
        lease: Lease,
        former: StatelessPool | None = None,
    ) -> None:
        super().__init__(runtime, lease)
        self.definition = definition
        self.former = former
        """That of an earlier life of the host; what is left of it counts."""
        self.successor: StatelessPool | None = None
        if former is not None:
            former.successor = self
        self.activations: list[StatelessActivation] = []
        """Also those that leave, until they are gone: they count."""
        self.queue: SharedQueue[WaitingCall] = SharedQueue(definition.options.mailbox)
        self._leaving: DeactivationReason | None = None
        self._is_pumping = False
        self._left = asyncio.Event()

    # -- calls ------------------------------------------------------------------------------------

    def admit(self, arrival: Arrival) -> None:
        """Take in a call; raises `MailboxFull`, or `ActivationFailed` after failed attempts."""
        call = arrival.call
        outer = self.turn_waiting(call.chain)
        if outer is not None and (self.definition.permit or not self._has_room(call.actor)):
            # It would wait for the turn that waits for it.
            arrival.activation = outer.activation
            outer.activation.runner.nest(outer, arrival, call.chain)
            return
        if not self.is_open and not self.runtime.waits_for(call.chain):
            arrival.give(MovedTo(0, None, PAUSE_SECONDS))
            return
        refusal = self.refusal_now(call.actor)
        if refusal is not None and not self._has_activation(call.actor):
            raise refusal
        arrival.queued = waiting = WaitingCall(self, arrival)
        self.queue.add(waiting)
        self.pump()

    def pump(self) -> None:
        """Let activations take calls, and make or end some, until all that waits has to wait."""
        if self._is_pumping or not self.queue.calls:
            return
        self._is_pumping = True
        try:
            while step := next_step(
                self.queue.names(), self.activations, self._most, self._may_make
            ):
                if step.action == "evict":
                    assert step.worker is not None
                    step.worker.deactivate("pressure")
                else:
                    self._begin(step.worker or self._made(step.name), self.queue.take(step.name))
        finally:
            self._is_pumping = False

    def turn_waiting(self, chain: Chain) -> Turn | None:
        """Return the turn of this pool, if any, that waits for a call of a chain."""
        for frame in reversed(chain.frames):
            for activation in self.activations:
                turn = activation.turns.get(frame.turn)
                if turn is not None and not (turn.is_closing or turn.is_over):
                    return turn
        return None

    @property
    def _most(self) -> int:
        most = self.definition.options.max_local
        assert most is not None
        return most if self.former is None else most - self.former.remaining

    @property
    def remaining(self) -> int:
        """How many activations there are, also of earlier lives."""
        earlier = 0 if self.former is None else self.former.remaining
        return len(self.activations) + earlier

    def _may_make(self, name: str) -> bool:
        return self.refusal_now(name) is None

    def _has_room(self, name: str) -> bool:
        return len(self.activations) < self._most or any(
            one.is_free and one.name == name for one in self.activations
        )

    def _has_activation(self, name: str) -> bool:
        return any(one.name == name and not one.is_leaving for one in self.activations)

    def _made(self, name: str) -> StatelessActivation:
        ref = ActorRef.read(name)
        made = StatelessActivation(self, self.definition, ref, self.new_chain())
        self.activations.append(made)
        self.runtime.activation_began(made)
        made.start()
        return made

    def _begin(self, activation: StatelessActivation, waiting: WaitingCall) -> None:
        if self.definition.permit is None:
            self._give(activation, waiting)
            return
        activation.is_reserved = True
        begin = self._begin_with_permit(activation, waiting)
        waiting.permit = activation.spawn(begin, context=Context())  # outside of any turn

    def _give(self, activation: StatelessActivation, waiting: WaitingCall) -> None:
        arrival = waiting.arrival
        arrival.queued = None
        arrival.activation = activation
        activation.is_reserved = False
        activation.touch()
        activation.admit(arrival)

    async def _begin_with_permit(
        self, activation: StatelessActivation, waiting: WaitingCall
    ) -> None:
        """Run a call under a permit of the pool that bounds the calls of all hosts."""
        assert self.definition.permit is not None
        arrival, is_given = waiting.arrival, False
        try:
            async with self.definition.permit():
                waiting.permit, is_given = None, True
                self._give(activation, waiting)
                await activation.until_freed()
        except (RelevoError, asyncio.CancelledError) as error:
            if is_given:
                if arrival.turn is not None:
                    arrival.turn.cut()  # the permit may have ended: the call must, too
                return
            refusal = MailboxFull(f"no permit for {arrival.call.actor}: {error}")
            arrival.give(answer_of_error(refusal, None))
            activation.is_reserved = False
            activation.pump()

    # -- activations ------------------------------------------------------------------------------

    async def load(self, activation: Activation) -> StoredActor:
        """Return that nothing is stored."""
        self.lease.check()
        return StoredActor()

    def commit(self, delta: Delta) -> asyncio.Future[None]:
        """Store nothing."""
        raise AssertionError(f"{self.definition.name!r} is stateless, and has nothing to store")

    async def entry(self, activation: Activation, name: str, key: str) -> bytes | None:
        """Return that a map has no such entry."""
        return None

    async def entries(
        self, activation: Activation, name: str, after: str, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return that a map is empty."""
        return []

    def publish(self, activation: Activation, event: str, body: bytes) -> None:
        """Nobody can subscribe."""

    def activated(self, activation: Activation) -> None:
        """Note that an activation has begun."""
        self._failures.pop(activation.canonical, None)
        if self._leaving is not None:
            self._loop.call_soon(activation.deactivate, self._leaving)

    def ended(self, activation: Activation, error: BaseException | None) -> None:
        """Forget an activation once all of its code has ended."""
        assert isinstance(activation, StatelessActivation)
        activation.note_freed()
        lost = self.lease.over or isinstance(error, (LeaseLost, HostFenced))
        if error is not None and not lost and not activation.has_begun:
            self.failed(activation.canonical, error)
        if activation.runs_code:  # it was aborted, and still counts while its code runs
            self.runtime.run(self._forget_later(activation))
        else:
            self._forget(activation)

    def refusal(self, activation: Activation) -> RelevoError:
        """Say why an activation could not begin."""
        return ActivationFailed(f"{activation.canonical} left memory; try again")

    async def _forget_later(self, activation: StatelessActivation) -> None:
        await activation.until_code_ended()
        self._forget(activation)

    def _forget(self, activation: StatelessActivation) -> None:
        self.activations.remove(activation)
        self.runtime.activation_ended(activation)
        self._left.set()
        name = activation.canonical
        refusal = self.refusal_now(name)
        if refusal is not None and not self._has_activation(name):
            for waiting in self.queue.take_all(name):
                waiting.arrival.give(answer_of_error(refusal, None))
        (self.successor or self).pump()

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Take no calls but those for which turns of this host wait."""
        self.is_open = False
        for waiting in self.queue.take_all():
            waiting.arrival.withdraw()

    async def until_quiet(self) -> None:
        """Wait until no call runs or waits."""
        while busy := [one for one in self.activations if not (one.is_free or one.is_leaving)]:
            await busy[0].until_freed()

    async def drain(self, reason: DeactivationReason) -> None:
        """Let all activations leave; those that run end first."""
        self.close()
        self._leaving = reason
        while self.activations:
            for activation in list(self.activations):
                activation.deactivate(reason)
            self._left.clear()
            await self._left.wait()

    def lose(self) -> None:
        """Abort all activations: the life of the host in which they were made has ended."""
        self.close()
        self.lease.over = True
        for activation in list(self.activations):
            activation.abort(LeaseLost(f"{self.definition.name!r} ran in a life that has ended"))
