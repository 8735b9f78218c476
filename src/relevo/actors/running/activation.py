"""An activation: the one object in memory that is an actor for now; its life and its mailbox.

It is loaded, runs `on_activate`, gives work its turns, runs `on_deactivate`, and goes; or it is
aborted. What it has not begun by then goes back to where it came from.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from relevo.actors.core.mailbox import Mailbox
from relevo.actors.running.deferred import Deferred
from relevo.actors.running.gate import FENCED_SECONDS, Gate, Outlet
from relevo.actors.running.memory.document import Document
from relevo.actors.running.memory.maps import EntryCache
from relevo.actors.running.timers import Timers
from relevo.actors.running.turn import Work, turn_of
from relevo.actors.running.turn_runner import TurnRunner
from relevo.actors.states import ACTIVATION
from relevo.errors import ActivationLost, DeadlineExceeded, Dropped, MailboxFull
from relevo.kernel import error_text
from relevo.kernel.telemetry import tracing
from relevo.kernel.telemetry.logs import get_logger
from relevo.limits import ACTOR_DEFERRED_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context
    from datetime import datetime

    from relevo.actors.actor import Actor
    from relevo.actors.core.calls import Chain
    from relevo.actors.core.deltas import Delta, StoredActor
    from relevo.actors.core.identity import ActorRef
    from relevo.actors.definitions import ActorDefinition
    from relevo.actors.running.arrivals import Arrival
    from relevo.actors.running.turn import Turn
    from relevo.actors.running.workers import Workers
    from relevo.actors.states import ActivationState, DeactivationReason
    from relevo.kernel.leases.held import Lease
    from relevo.kernel.running.deadlines import Deadlines

log = get_logger(__name__)
ENTRIES_KEPT: Final = 10_000
"""Entries of maps that an activation keeps in memory between turns."""
SPAN: Final = "relevo.actor.deferred"
"""From the turn that deferred an answer until that leaves."""


class Home(Protocol):
    """What an activation stands on: a slot that its host owns."""

    lease: Lease
    is_open: bool
    """Whether it accepts calls; not while it is handed over."""
    workers: Workers
    deadlines: Deadlines

    async def load(self, activation: Activation) -> StoredActor:
        """Return what is stored of an actor."""

    def commit(self, delta: Delta) -> asyncio.Future[None]:
        """Store a delta, after those given before; the future ends when it is durable."""

    async def invoke(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method: a coroutine function here, a plain one in a thread."""

    async def entry(self, activation: Activation, name: str, key: str) -> bytes | None:
        """Return what is stored under a key of a map."""

    async def entries(
        self, activation: Activation, name: str, after: str, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return stored entries of a map by key."""

    def publish(self, activation: Activation, event: str, body: bytes) -> None:
        """Give an event of an actor to its subscribers."""

    def call_later(
        self, seconds: float, function: Callable[..., None], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Call a function after a time, for timers of actors."""

    async def now(self) -> datetime:
        """Return the time by which Relevo decides."""

    def new_chain(self) -> Chain:
        """Return the chain of work that no call brought."""

    def activated(self, activation: Activation) -> None:
        """Note that an activation has begun."""

    def ended(self, activation: Activation, error: BaseException | None) -> None:
        """Forget an activation that is gone; the error says why it could not begin or go on."""


class Activation:
    """An actor in memory."""

    def __init__(
        self, home: Home, definition: ActorDefinition, ref: ActorRef, chain: Chain
    ) -> None:
        self.home = home
        self.definition = definition
        self.ref = ref
        self.canonical = ref.canonical
        self.state: ActivationState = "loading"
        options = definition.options
        self.mailbox: Mailbox[Work] = Mailbox(options.mailbox, options.overflow)
        self.turns: dict[int, Turn] = {}
        self.timers = Timers(self)
        self.gate = Gate(home.commit, self.abort)
        self.runner = TurnRunner(self)
        self.outlet = Outlet(self)
        self.deferred: set[Deferred[Any]] = set()
        self.offloads: set[asyncio.Task[None]] = set()
        self.offloads_to_come = 0
        """Those that start once the turn that made them is durable."""
        self.calls_by_id: dict[str, Arrival] = {}
        """Calls with an id that wait, run, or are not durable yet."""
        self.entries = EntryCache()
        self.reminder_dues: dict[str, datetime | None] = {}
        """When reminders are due that turns have set, moved on or canceled (None)."""
        self._chain = chain
        """Of the call that activates it."""
        self.incarnation = 0
        self.revision = 0
        self.keep_until = 0.0
        self.leave_when_idle = False
        self.has_begun = False
        self.was_quarantined = False
        self.instance: Actor[Any]
        self.document: Document[Any]
        self.error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self.used_at = self._loop.time()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._left_over: list[Work] = []
        """What came too late for this activation; it is given back when that has ended."""
        self.leaving: DeactivationReason | None = None
        self.over = asyncio.Event()

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the state and run `on_activate`; turns begin after that."""
        self.spawn(self._activate())

    async def _activate(self) -> None:
        try:
            stored = await self.home.load(self)
            self.incarnation, self.revision = stored.incarnation, stored.revision
            self.was_quarantined = stored.quarantine is not None
            self.document = Document(self.definition.codec, stored)
            self.instance = self.definition.make(self)
            self._become("loaded")
            if "on_activate" in self.definition.hooks:
                raised = await self.runner.run_hook("on_activate", self._chain)
                if raised is not None:
                    raise raised
            self._become("activated")
            self.has_begun = True
            self.home.activated(self)
        except BaseException as error:
            if self.state != "gone":
                self._become("fail")
                self._end(error)
            return
        self.definition.set_timers(self)
        self.pump()
        if self.leave_when_idle and self.is_idle:
            self.deactivate("requested")

    def deactivate(self, reason: DeactivationReason) -> None:
        """Let running turns end, run `on_deactivate`, and go; what waits is given back."""
        if self.state == "active":
            self._become("deactivate")
            self.leaving = reason
            self.timers.close()
            self._left_over += self.mailbox.take_back(lambda work: work.returns)
            if not self.home.is_open:
                self._give_back()
            self.spawn(self._leave(reason))

    async def _leave(self, reason: DeactivationReason) -> None:
        while self.offloads or self.offloads_to_come or not self.mailbox.is_idle:
            self._changed.clear()
            await self._changed.wait()
        error = None
        if "on_deactivate" in self.definition.hooks:
            error = await self.runner.run_hook("on_deactivate", self.home.new_chain(), reason)
        if error is not None and self.state != "gone":
            log.warning(
                "actor.deactivation_failed", actor=self.canonical, reason=reason,
                error=error_text.shown(error),
            )  # fmt: skip
        try:
            await self.gate.passed(self.gate.mark)
        except BaseException as failure:
            self.abort(failure)
        if self.state != "gone":
            self._become("deactivated")
            self._end(None)

    def abort(self, error: BaseException) -> None:
        """Drop everything at once: memory, running turns, answers that are held back."""
        if self.state == "gone":
            return
        self._become("lose")
        running = list(self.turns.values())
        for turn in running:
            turn.given_up = True
            turn.cut()
        self._end(error)
        for turn in running:  # now: their code may ignore that it is canceled
            self.runner.give_up(turn)

    def _end(self, error: BaseException | None) -> None:
        self.error = error
        self.timers.close()
        for task in self.offloads:
            task.cancel()
        for deferred in list(self.deferred):
            deferred.finish(None, self.lost_answer())
        self.deferred.clear()
        self.home.ended(self, error)
        self._left_over += self.mailbox.take_back()
        self._give_back()
        self.over.set()
        self._note_change()

    def lost_answer(self) -> ActivationLost:
        """Return the error of an answer that was deferred and can be given no more."""
        return ActivationLost(
            f"{self.canonical} left memory ({self.leaving or 'lost'}) with this answer pending;"
            " the turn that accepted the call was committed"
        )

    def _give_back(self) -> None:
        """Let others run what has not begun here, in its order."""
        left, self._left_over = self._left_over, []
        for work in left:
            work.withdraw()

    def _become(self, event: str) -> None:
        self.state = ACTIVATION.next(self.state, event)  # type: ignore[assignment]

    # -- mailbox --------------------------------------------------------------------------------

    def touch(self) -> None:
        """Note that the actor was used."""
        self.used_at = self._loop.time()

    @property
    def idle_seconds(self) -> float:
        """How long ago the actor was used last."""
        return self._loop.time() - self.used_at

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, waits or is pending."""
        return (
            self.state == "active" and self.mailbox.is_idle and not self.turns
            and not self.deferred and not self.offloads and not self.offloads_to_come
        )  # fmt: skip

    def admit(self, work: Work, *, first: bool = False) -> None:
        """Let work wait for its turn; raises `MailboxFull`."""
        if self.state == "gone" or (self.state == "deactivating" and work.returns):
            self._left_over.append(work)
            if self.state == "gone":
                self._give_back()
            return
        work.queued_at = self._loop.time()
        dropped = self.mailbox.add(work, first=first)
        if dropped is not None:
            dropped.finish(None, Dropped("a newer call took the place of this one"))
        self.pump()

    def pump(self) -> None:
        """Begin every turn that may begin now."""
        if self.state not in ("active", "deactivating"):
            return
        while self.mailbox.may_take:
            if not self.home.lease.may_act:
                if not self.home.lease.over:
                    self._loop.call_later(FENCED_SECONDS, self.pump)
                return
            work = self.mailbox.take()
            if work is None:
                return
            if work.deadline is not None and work.deadline <= self._loop.time():
                self.mailbox.ended(work)
                late = DeadlineExceeded(
                    f"{work.name} waited for its turn until its deadline passed"
                )
                late.executed = False
                work.finish(None, late)
                continue
            self.runner.begin(work, self.home.new_chain() if work.call is None else work.call.chain)

    def turn_ended(self, turn: Turn) -> None:
        """Let the next turn begin."""
        work = turn.work
        if not work.is_hook:
            self.mailbox.ended(work)
        if work.call is not None:
            self.used_at = self._loop.time()
        if turn.noted is not None and turn.noted.deleted:
            self.deactivate("deleted")
            self.leaving = "deleted"
        if len(self.entries) > ENTRIES_KEPT and not self.turns and self.gate.mark is None:
            self.entries.clear(is_durable=self.definition.is_durable)
        if len(self.reminder_dues) > ENTRIES_KEPT and not self.turns and self.gate.mark is None:
            self.reminder_dues.clear()
        self._note_change()
        self.pump()

    # -- answers and work outside of turns --------------------------------------------------------

    def check_deferred(self) -> None:
        """Raise `MailboxFull` if no further answer may be deferred."""
        if len(self.deferred) >= ACTOR_DEFERRED_MAX:
            raise MailboxFull(f"{len(self.deferred):,} answers of {self.canonical} are pending")

    def new_deferred(self, turn: Turn) -> Deferred[Any]:
        """Return an answer for the call of a turn, given by a later one."""
        work = turn.work
        parent = tracing.here() if self.home.workers.traced else None
        began_ns = time.time_ns() if parent is not None else 0

        def settle(deferred: Deferred[Any], value: Any, error: BaseException | None) -> None:
            journal = turn_of(self, "a deferred answer").journal
            if deferred.is_over or deferred.is_settled:
                return
            if error is None:
                value = work.encode(value)
            recorded = work.record(value, error)
            if recorded is not None:
                journal.recorded.append(recorded)
            deferred.is_settled = True
            journal.discards.append(deferred.unsettle)
            if parent is not None:
                span = {"relevo.actor": self.canonical, "relevo.turn": work.name}
                journal.outputs.append(
                    partial(tracing.waited, SPAN, span, parent, began_ns, tracing.here())
                )
            journal.outputs.append(lambda: deferred.finish(value, error))

        return Deferred(settle)

    def forget_deferred(self, deferred: Deferred[Any]) -> None:
        """Note that nobody waits for an answer any more."""
        self.deferred.discard(deferred)
        self._note_change()

    def offload_ended(self, task: asyncio.Task[None]) -> None:
        """Note that a coroutine outside of turns has ended."""
        self.offloads.discard(task)
        self.touch()
        self._note_change()

    # -- tasks and notes --------------------------------------------------------------------------

    def spawn(
        self, work: Coroutine[Any, Any, None], *, context: Context | None = None
    ) -> asyncio.Task[None]:
        """Run a coroutine, and log what it raises."""
        task = self._loop.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("actor.task_failed", actor=self.canonical, error=error_text.shown(error))

    def _note_change(self) -> None:
        if self.leaving is not None or self.state == "gone":
            self._changed.set()
        if self.leave_when_idle and self.is_idle:
            self.deactivate("requested")

    def keep(self, seconds: float) -> None:
        """Stay in memory for so long, though idle."""
        self.keep_until = max(self.keep_until, self._loop.time() + seconds)

    def log_failed(self, what: str, error: BaseException) -> None:
        """Log an error that no caller hears of."""
        log.warning(
            "actor.turn_failed", actor=self.canonical, what=what, error=error_text.shown(error)
        )
