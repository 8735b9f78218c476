"""A slot that this host owns: its activations, from the take-over to the release or the loss."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from relevo.actors.core.calls import Chain, MovedTo
from relevo.actors.core.deltas import StoredActor
from relevo.actors.core.numbers import Numbers
from relevo.actors.running.activation import Activation
from relevo.errors import (
    ActivationFailed,
    HostFenced,
    LeaseLost,
    ReentrantActivation,
    RelevoError,
    StatePoisoned,
    StateTooNew,
)
from relevo.kernel import error_text
from relevo.kernel.backoff import Backoff
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from relevo.actors.core.deltas import Delta
    from relevo.actors.core.identity import ActorRef
    from relevo.actors.definitions import ActorDefinition
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.states import DeactivationReason
    from relevo.kernel.leases.held import Lease

log = get_logger(__name__)
AGAIN = Backoff(first=0.1, longest=30.0, jitter=(1.0, 1.0))
POISONED_SECONDS = 30.0
_chains = Numbers()
PAUSE_SECONDS = 0.05
"""What a caller waits before it asks again for a slot that is being handed over."""


class _Failure:
    """An activation that failed: no further attempt before a time."""

    __slots__ = ("again_at", "count", "error")

    def __init__(self, error: BaseException, count: int, again_at: float) -> None:
        self.error = error
        self.count = count
        self.again_at = again_at


class HostHome:
    """What all activations of a host stand on, and the attempts to make some that failed."""

    def __init__(self, runtime: ActorRuntime, lease: Lease) -> None:
        self.runtime = runtime
        self.lease = lease
        self.workers = runtime.workers
        self.deadlines = runtime.deadlines
        self.is_open = True
        self._failures: dict[str, _Failure] = {}
        self._loop = asyncio.get_running_loop()

    async def invoke(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method: a coroutine function here, a plain one in a thread."""
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        return await self.runtime.call_plain(partial(function, *arguments))

    def call_later(
        self, seconds: float, function: Callable[..., None], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Call a function after a time, for timers of actors."""
        return self.runtime.call_later(seconds, function, *arguments)

    async def now(self) -> datetime:
        """Return the time by which Relevo decides."""
        return await self.runtime.now()

    def new_chain(self) -> Chain:
        """Return the chain of work that no call brought."""
        return Chain(_chains.take())

    def failed(self, canonical: str, error: BaseException) -> None:
        """Note that an activation could not begin; the next attempt waits for a while."""
        earlier = self._failures.get(canonical)
        count = 0 if earlier is None else earlier.count + 1
        poisoned = isinstance(error, (StatePoisoned, StateTooNew))
        seconds = POISONED_SECONDS if poisoned else AGAIN.delay(count, self.runtime.random)
        self._failures[canonical] = _Failure(error, count, self._loop.time() + seconds)

    def refusal_now(self, canonical: str) -> RelevoError | None:
        """Return the error of calls that would activate, while no attempt may be made."""
        failure = self._failures.get(canonical)
        if failure is None or self._loop.time() >= failure.again_at:
            return None
        return self._refusal(canonical, failure.error, failure.again_at - self._loop.time())

    def _refusal(self, canonical: str, error: BaseException, seconds: float) -> RelevoError:
        if isinstance(error, (StatePoisoned, StateTooNew)):
            return error
        if isinstance(error, ReentrantActivation):  # to repeat the call would not help
            return ReentrantActivation(error.message)
        failed = ActivationFailed(
            f"{canonical} could not be activated: {error_text.shown(error)}"
            + (f"; the next attempt is in {seconds:.1f} s" if seconds else "")
        )
        failed.retry_after = max(seconds, 0.05)
        return failed


class Slot(HostHome):
    """The actors of one slot on its owner."""

    def __init__(self, runtime: ActorRuntime, group: str, lease: Lease) -> None:
        super().__init__(runtime, lease)
        self.group = group
        self.number = int(lease.name)
        self.activations: dict[str, Activation] = {}
        self.began = self._loop.time()
        self.taken_at: datetime | None = None
        """The time of the store when it began, once that is known."""
        self._leaving: DeactivationReason = "drain"

    # -- what activations stand on ----------------------------------------------------------------

    async def load(self, activation: Activation) -> StoredActor:
        """Return what is stored of an actor; nothing of a volatile one."""
        self.lease.check()
        if not activation.definition.is_durable:
            return StoredActor()
        return await self.runtime.storage.load(activation.canonical)

    def commit(self, delta: Delta) -> asyncio.Future[None]:
        """Store a delta, after those given before; the future ends when it is durable."""
        stored = self.runtime.storage.commit_soon(delta)
        if delta.messages or delta.reminders:
            stored.add_done_callback(partial(self.runtime.note_stored, delta))
        return stored

    async def entry(self, activation: Activation, name: str, key: str) -> bytes | None:
        """Return what is stored under a key of a map."""
        if not activation.definition.is_durable:
            return None
        return await self.runtime.storage.entry(activation.canonical, name, key)

    async def entries(
        self, activation: Activation, name: str, after: str, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return stored entries of a map by key."""
        if not activation.definition.is_durable:
            return []
        page = await self.runtime.storage.entries(activation.canonical, name, after, limit)
        return page.items

    def publish(self, activation: Activation, event: str, body: bytes) -> None:
        """Give an event of an actor to its subscribers."""
        self.runtime.emitter.publish(activation.canonical, event, body)

    def ended(self, activation: Activation, error: BaseException | None) -> None:
        """Forget an activation; one that could not begin is tried again only after a while."""
        if self.activations.get(activation.canonical) is not activation:
            return
        del self.activations[activation.canonical]
        if self.runtime.live.get(activation.canonical) is self:
            del self.runtime.live[activation.canonical]
        self.runtime.activation_ended(activation)
        if error is None or isinstance(error, (LeaseLost, HostFenced)) or self.lease.over:
            return
        if activation.has_begun:
            return  # it had begun: a commit failed, and the next call reads what is stored
        if isinstance(error, (StatePoisoned, StateTooNew)):
            self.runtime.quarantine(activation.canonical, self.lease.fence, error)
        self.failed(activation.canonical, error)

    # -- calls ------------------------------------------------------------------------------------

    def moved(self, *, pause: float = 0.0) -> MovedTo:
        """Say that the slot is not served here, at least not now."""
        return MovedTo(self.lease.epoch, None, pause)

    def activation(
        self, definition: ActorDefinition, ref: ActorRef, chain: Chain | None = None
    ) -> Activation:
        """Return the activation of an actor, made if there is none; raises `ActivationFailed`.

        `chain` is that of the call for which it is made: `on_activate` belongs to it.
        """
        canonical = ref.canonical
        activation = self.activations.get(canonical)
        if activation is not None:
            return activation
        refusal = self.refusal_now(canonical)
        if refusal is not None:
            raise refusal
        activation = Activation(self, definition, ref, chain or self.new_chain())
        self.activations[canonical] = activation
        self.runtime.live[canonical] = self
        self.runtime.activation_began(activation)
        activation.start()
        return activation

    def refusal(self, activation: Activation) -> RelevoError:
        """Say why an activation could not begin."""
        error = activation.error
        if error is None or isinstance(error, (LeaseLost, HostFenced)):
            return ActivationFailed(f"{activation.canonical} left memory; try again")
        return self._refusal(activation.canonical, error, 0.0)

    def activated(self, activation: Activation) -> None:
        """Note that an activation has begun; one of a slot that is handed over leaves again."""
        self._failures.pop(activation.canonical, None)
        if not self.is_open:
            self._loop.call_soon(activation.deactivate, self._leaving)
        if activation.was_quarantined:
            self.runtime.run(self.runtime.storage.actors.retry(activation.canonical))

    # -- the end ----------------------------------------------------------------------------------

    async def drain(self, reason: DeactivationReason) -> None:
        """Accept nothing more; let turns end, deactivate all, wait for what is on its way.

        Calls that such a turn waits for still run here, else it could not end.
        """
        self.is_open = False
        self._leaving = reason
        while self.activations:
            leaving = list(self.activations.values())
            for activation in leaving:
                activation.deactivate(reason)
            await leaving[0].over.wait()

    def waits_for(self, chain: Chain) -> bool:
        """Whether a turn of this slot waits for a call of a chain."""
        for frame in chain.frames:
            activation = self.activations.get(frame.actor)
            turn = None if activation is None else activation.turns.get(frame.turn)
            if turn is not None and not turn.is_over:
                return True
        return False

    def reopen(self) -> None:
        """Accept again: the request for the slot was withdrawn."""
        self.is_open = True

    def lose(self) -> None:
        """Abort what is left: another host may own the slot."""
        self.runtime.emitter.end_slot((self.group, self.number))
        self.is_open = False
        for activation in list(self.activations.values()):
            activation.abort(
                LeaseLost(f"slot {self.number} of {self.group} is no longer this host's")
            )
