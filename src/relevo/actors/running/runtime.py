"""The actors of one host: the slots it owns, and what is delivered to them."""

from __future__ import annotations

import asyncio
import inspect
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from relevo.actors.calls.answers import answer_of_error
from relevo.actors.core.calls import Answer, MovedTo, Returned
from relevo.actors.core.identity import ActorRef, slot_of
from relevo.actors.core.room import CallRoom
from relevo.actors.running import control
from relevo.actors.running.arrivals import Arrival
from relevo.actors.running.emitter import Emitter
from relevo.actors.running.memory.eviction import Eviction
from relevo.actors.running.slots import PAUSE_SECONDS, Slot
from relevo.actors.running.turn import CURRENT
from relevo.actors.running.workers import Workers
from relevo.actors.stateless.serving import StatelessTypes
from relevo.errors import (
    BadArguments,
    NotFound,
    ReadOnlyTurn,
    ReentrancyRefused,
    ReentrancyTooDeep,
    ReentrantActivation,
    RelevoError,
    UnknownMethod,
)
from relevo.kernel import faults
from relevo.kernel.running.deadlines import Deadlines
from relevo.kernel.running.threads import Threads
from relevo.kernel.telemetry.logs import get_logger
from relevo.limits import ACTOR_CHAIN_DEPTH_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from datetime import datetime

    from relevo.actors.core.calls import Call, Chain
    from relevo.actors.core.deltas import Delta
    from relevo.actors.definitions import ActorDefinition, ActorTypes
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.turn import Turn
    from relevo.actors.states import DeactivationReason
    from relevo.actors.storing.storage import ActorStorage
    from relevo.kernel.leases.held import Holder, Lease
    from relevo.kernel.leases.model import Fence

log = get_logger(__name__)
_ADMITTED: Final = Returned(b"\xc0")
CLOSE_SECONDS: Final = 1.0


class ActorRuntime:
    """Delivers calls to activations of the slots that this host owns."""

    def __init__(
        self,
        types: ActorTypes,
        storage: ActorStorage,
        *,
        activations_max: int,
        slots_of: Callable[[str], int],
        now: Callable[[], Awaitable[datetime]],
    ) -> None:
        self.types = types
        self.storage = storage
        self.slots: dict[tuple[str, int], Slot] = {}
        self.stateless = StatelessTypes(self)
        self.live: dict[str, Slot] = {}
        """Slots of the actors in memory."""
        self._loop = asyncio.get_running_loop()
        self.emitter = Emitter()
        self.threads = Threads(idle_max=32)
        self.workers = Workers()
        self.deadlines = Deadlines()
        self.random = random.Random()  # noqa: S311 - jitter, not a secret
        self.call_later: Callable[..., asyncio.TimerHandle] = self._loop.call_later
        """The time of timers, which a test may move."""
        self.room = CallRoom()
        self.activations = 0
        self.waiting: set[Activation] = set()
        """Activations at which something may wait for a turn."""
        self.stored: list[Callable[[Delta], None]] = []
        """Hear of deltas that were stored, to wake those whom they concern."""
        self.draining: DeactivationReason = "drain"
        self.began: Callable[[str], None] = lambda _: None
        """Hears of placement groups of which this host begins to run a slot."""
        self.owner_elsewhere: Callable[[str, int], MovedTo] = lambda *_: MovedTo(0)
        """Says what is known of the owner of a slot that is not this host's."""
        self.eviction = Eviction(self, activations_max)
        self.slots_of = slots_of
        self.now = now
        """Returns the time by which Relevo decides."""
        self._background: set[asyncio.Task[object]] = set()

    # -- calls ------------------------------------------------------------------------------------

    def deliver(self, call: Call) -> asyncio.Future[Answer]:
        """Run a call on this host; the future is the answer. Cancelling it cancels the call."""
        answer = self.take(call)
        if answer is None:
            answer = self._loop.create_future()
            try:
                answer.set_result(self._elsewhere(call.actor))
            except RelevoError as error:
                answer.set_result(answer_of_error(error, None))
        return answer

    def take(self, call: Call) -> asyncio.Future[Answer] | None:
        """Run a call as `deliver` does; None if this host does not own the slot of the actor."""
        slot = self.slot_of(call.actor)
        definition = self.types.by_name.get(call.actor.partition("/")[0])
        if definition is None or (slot is None and not definition.is_stateless):
            return None
        answer: asyncio.Future[Answer] = self._loop.create_future()
        try:
            arrival = self._arrival(call, definition, answer)
        except RelevoError as error:
            answer.set_result(answer_of_error(error, None))
            return answer
        self._admit(arrival, definition, slot)
        if call.one_way:
            arrival.give(_ADMITTED)
        return answer

    def slot_of(self, canonical: str) -> Slot | None:
        """Return the slot of an actor, if it is this host's."""
        slot = self.live.get(canonical)
        if slot is None:
            definition = self.types.by_name.get(canonical.partition("/")[0])
            if definition is None or definition.is_stateless:
                return None
            group = definition.options.placement_group
            with suppress(RelevoError):  # nobody has served its placement group yet
                slot = self.slots.get((group, slot_of(canonical, self.slots_of(group))))
        return None if slot is None or slot.lease.over else slot

    def _elsewhere(self, canonical: str) -> MovedTo:
        group = self.definition_of(canonical).options.placement_group
        return self.owner_elsewhere(group, slot_of(canonical, self.slots_of(group)))

    def _arrival(
        self, call: Call, definition: ActorDefinition, answer: asyncio.Future[Answer]
    ) -> Arrival:
        deadline = self._loop.time() + call.timeout
        method = definition.methods.get(call.method)
        if method is None:
            if call.method.startswith(control.PREFIX) and not definition.is_stateless:
                return control.ControlArrival.to_control(self, call, definition, answer, deadline)
            raise UnknownMethod(
                f"{definition.name!r} has no method {call.method!r}; it has"
                f" {', '.join(sorted(definition.methods))}"
            )
        self.room.check(call)
        if call.call_id is not None and not definition.is_durable:
            raise BadArguments(
                f"{definition.name!r} is {definition.options.persist} and records no calls; a call"
                ' id needs a type with persist="durable"'
            )
        if len(call.chain.frames) >= ACTOR_CHAIN_DEPTH_MAX:
            raise ReentrancyTooDeep(
                f"{call.chain.depth} calls wait for each other, and no more may; the last is of"
                f" {call.actor}"
            )
        return Arrival.of(self, call, method, answer, deadline)

    def readmit(self, arrival: Arrival) -> None:
        """Deliver a call that was withdrawn before it began."""
        arrival.is_removed = False
        canonical = arrival.call.actor
        self._admit(arrival, self.definition_of(canonical), self.slot_of(canonical))

    def _admit(self, arrival: Arrival, definition: ActorDefinition, slot: Slot | None) -> None:
        try:
            if definition.is_stateless:
                self.stateless.admit(arrival, definition)
            elif slot is None:
                arrival.give(self._elsewhere(arrival.call.actor))
            else:
                self._enter(slot, arrival)
        except RelevoError as error:
            arrival.give(answer_of_error(error, None))

    def _enter(self, slot: Slot, arrival: Arrival) -> None:
        call, lease = arrival.call, slot.lease
        if lease.epoch < call.epoch or not lease.may_act:
            # It is lost, and that has not been seen here yet; or it soon will be.
            arrival.give(MovedTo(max(lease.epoch, call.epoch), None, PAUSE_SECONDS))
            return
        if 0 < call.epoch < lease.epoch and not call.chain.frames:
            # The slot was away meanwhile: calls that were made before wait for its owner.
            arrival.give(slot.moved())
            return
        call.epoch = lease.epoch
        activation = slot.activations.get(call.actor)
        if isinstance(arrival, control.ControlArrival) and arrival.answers_at_once(
            activation, None if slot.is_open else slot.moved(pause=PAUSE_SECONDS)
        ):
            return
        if activation is not None and call.chain.frames:
            outer = self._outer(activation, arrival)
            if outer is not None:
                arrival.activation = activation
                activation.runner.nest(outer, arrival, call.chain)
                return
        if not slot.is_open and not slot.waits_for(call.chain):
            arrival.give(slot.moved(pause=PAUSE_SECONDS))
            return
        if activation is None:
            definition = self.definition_of(call.actor)
            activation = slot.activation(definition, ActorRef.read(call.actor), call.chain)
        if call.call_id is not None and arrival.joins(activation):
            return
        arrival.activation = activation
        activation.admit(arrival)
        self.waiting.add(activation)

    def _outer(self, activation: Activation, arrival: Arrival) -> Turn | None:
        """Return the turn in which the call runs nested: one that waits for it."""
        for frame in reversed(arrival.call.chain.frames):
            turn = activation.turns.get(frame.turn) if frame.actor == activation.canonical else None
            if turn is None or turn.is_closing or turn.is_over:
                continue
            if activation.state in ("loading", "activating"):
                raise ReentrantActivation(
                    f"on_activate of {activation.canonical} made a call that came back to it"
                )
            if activation.definition.options.reentrancy == "none":
                raise ReentrancyRefused(
                    f"{activation.canonical} waits for this call itself, and its type has"
                    ' reentrancy="none"'
                )
            if turn.root.work.mode == "interleave":
                return None
            if turn.root.work.mode == "read" and arrival.mode == "write":
                refused = ReadOnlyTurn(
                    f"{turn.root.work.name} of {activation.canonical} only reads, and waits for"
                    f" {arrival.name}, which writes"
                )
                refused.executed = False
                raise refused
            return turn
        return None

    def definition_of(self, canonical: str) -> ActorDefinition:
        """Return the definition of an actor's type; raises `NotFound`."""
        definition = self.types.by_name.get(canonical.partition("/")[0])
        if definition is None:
            raise NotFound(
                f"no actor type of {canonical!r} is defined here; there are"
                f" {', '.join(sorted(self.types.by_name)) or 'none'}"
            )
        return definition

    async def call_plain(self, function: Callable[[], Any]) -> Any:
        """Call a function in a thread. A turn that is cut waits for the end of its thread."""
        call = self.threads.call(function)
        try:
            value = await asyncio.shield(call)
        except asyncio.CancelledError:
            turn = CURRENT.get()
            while not call.done() and not (turn is None or turn.given_up):
                with suppress(asyncio.CancelledError):
                    await asyncio.wait((call,))
            raise
        return await value if inspect.isawaitable(value) else value

    # -- slots ------------------------------------------------------------------------------------

    def holder(self, group: str) -> Holder:
        """Return what runs a slot of a placement group while this host owns it."""

        async def hold(lease: Lease) -> None:
            slot = Slot(self, group, lease)
            key = (group, slot.number)
            self.slots[key] = slot
            self.began(group)
            try:
                while True:
                    await lease.stopping.wait()
                    await slot.drain(self.draining)
                    await faults.point("during_move")
                    if lease.stopping.is_set():
                        return
                    slot.reopen()  # the request was withdrawn
            finally:
                slot.lose()
                if self.slots.get(key) is slot:
                    del self.slots[key]

        return hold

    def activation_of(self, canonical: str) -> Activation | None:
        """Return the activation of an actor, if it is in memory here."""
        slot = self.slot_of(canonical)
        return None if slot is None else slot.activations.get(canonical)

    def all_activations(self, canonical: str) -> list[Activation]:
        """Return every object in memory that is an actor: one at most, unless it is stateless."""
        return [one for one in self.in_memory() if one.canonical == canonical]

    def owns(self, canonical: str) -> bool:
        """Whether the slot of an actor is this host's."""
        slot = self.slot_of(canonical)
        return slot is not None and not slot.lease.over

    def note_stored(self, delta: Delta, stored: asyncio.Future[None]) -> None:
        """Tell those who wait for sends and reminders that some were stored."""
        if not stored.cancelled() and stored.exception() is None:
            for hear in self.stored:
                hear(delta)

    def quarantine(self, canonical: str, fence: Fence, error: BaseException) -> None:
        """Note, once per attempt, that the state of an actor cannot be read."""
        log.error("actor.quarantined", actor=canonical, error=str(error))
        self.run(self.storage.actors.quarantine(canonical, fence, str(error)))

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Run something beside the actors, which `close` waits for."""
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- memory -----------------------------------------------------------------------------------

    def in_memory(self) -> Iterator[Activation]:
        """Yield all activations."""
        for slot in list(self.slots.values()):
            yield from slot.activations.values()
        yield from self.stateless.activations()

    def waits_for(self, chain: Chain) -> bool:
        """Whether a turn on this host waits for a call of a chain."""
        return self.stateless.turn_waiting(chain) is not None or any(
            slot.waits_for(chain) for slot in self.slots.values()
        )

    def activation_began(self, activation: Activation) -> None:
        """Count an activation; above the bound the longest unused leave."""
        self.activations += 1
        self.types.figures.activations[activation.definition.name] += 1
        self.eviction.note_activation()

    def activation_ended(self, activation: Activation) -> None:
        """Count it no longer."""
        self.activations -= 1
        self.waiting.discard(activation)
        figures, name = self.types.figures, activation.definition.name
        figures.activations[name] -= 1
        reason = activation.leaving or ("lost" if activation.has_begun else "failed")
        figures.deactivations[name, reason] += 1

    async def close(self) -> None:
        """Let threads go."""
        if self._background:
            await asyncio.wait(self._background, timeout=CLOSE_SECONDS)
        for task in self._background:
            task.cancel()
        self.workers.close()
        self.threads.close()
