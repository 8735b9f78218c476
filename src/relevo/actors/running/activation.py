"""An activation: the one object in memory that is an actor for now, and its turns.

    mailbox ─► turn ─► changes found ─► delta queued ─► next turn may begin
                                              └─► durable, and the host may act ─► answer, outputs

A turn ends when its coroutine has returned. Its task goes on to wait at the gate and to give the
answer, while the next turn runs on the new state in memory.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from relevo.actors.core.deltas import Delta, StoredActor
from relevo.actors.core.mailbox import Mailbox
from relevo.actors.running.deferred import Deferred
from relevo.actors.running.document import Document
from relevo.actors.running.gate import Gate
from relevo.actors.running.timers import Timers
from relevo.actors.running.turn import CURRENT, Turn, Work, turn_of
from relevo.actors.states import ACTIVATION
from relevo.errors import (
    ActivationLost,
    CommitFailed,
    DeadlineExceeded,
    MailboxFull,
    OutcomeUnknown,
    ReadOnlyTurn,
    TurnTimeout,
)
from relevo.kernel import error_text, faults
from relevo.limits import ACTOR_ABORT_SECONDS, ACTOR_DEFERRED_MAX

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime

    from relevo.actors.actor import Actor
    from relevo.actors.core.calls import Chain
    from relevo.actors.core.identity import ActorRef
    from relevo.actors.definitions import ActorDefinition
    from relevo.actors.running.gate import Mark
    from relevo.actors.states import ActivationState, DeactivationReason
    from relevo.kernel.leases.held import Lease

log = structlog.get_logger(__name__)
FENCED_SECONDS: Final = 0.1
"""How often a host past its deadline looks whether it may act again."""
ENTRIES_KEPT: Final = 10_000
"""Entries of maps that an activation keeps in memory."""


class Home(Protocol):
    """What an activation stands on: a slot that its host owns."""

    lease: Lease
    is_open: bool
    """Whether it accepts calls; not while it is handed over."""

    async def load(self, activation: Activation) -> StoredActor:
        """Return what is stored of an actor."""

    async def commit(self, delta: Delta) -> None:
        """Store a delta; returns when it is durable."""

    async def entry(self, activation: Activation, name: str, key: str) -> bytes | None:
        """Return what is stored under a key of a map."""

    async def entries(
        self, activation: Activation, name: str, after: str, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return stored entries of a map by key."""

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

    def __init__(self, home: Home, definition: ActorDefinition, ref: ActorRef) -> None:
        self.home = home
        self.definition = definition
        self.ref = ref
        self.canonical = ref.canonical
        self.state: ActivationState = "loading"
        options = definition.options
        self.mailbox: Mailbox[Work] = Mailbox(options.mailbox, options.overflow)
        self.turns: dict[int, Turn] = {}
        self.timers = Timers(self)
        self.gate = Gate(home.commit, self._commit_failed)
        self.deferred: set[Deferred[Any]] = set()
        self.offloads: set[asyncio.Task[None]] = set()
        self.calls_by_id: dict[str, tuple[bytes, asyncio.Future[Any]]] = {}
        """Calls with an id that run or wait: digest and answer."""
        self.entries: dict[tuple[str, str], bytes | None] = {}
        """Entries of maps as of the last ended turn, as far as they are known."""
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
        self._leaving: DeactivationReason | None = None
        self.over = asyncio.Event()

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the state and run `on_activate`; turns begin after that."""
        self._run(self._activate())

    async def _activate(self) -> None:
        try:
            stored = await self.home.load(self)
            self.incarnation, self.revision = stored.incarnation, stored.revision
            self.was_quarantined = stored.quarantine is not None
            self.document = Document(self.definition.codec, stored)
            self.instance = self.definition.make(self)
            self._become("loaded")
            raised = await self._run_hook("on_activate")
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

    async def _run_hook(self, name: str, *arguments: Any) -> BaseException | None:
        """Run a method of the life cycle as a turn of its own; returns what it raised."""
        errors: list[BaseException | None] = []

        async def begin(instance: Any) -> None:
            answer = getattr(instance, name)(*arguments)
            if inspect.isawaitable(answer):
                await answer

        work = Work(name, begin, lambda _, error: errors.append(error))
        turn = Turn(self, work, self.home.new_chain())
        self.turns[turn.id] = work.turn = turn
        turn.task = self._run(self._execute(turn))
        await asyncio.wait((turn.task,))
        return errors[0] if errors else (self.error or ActivationLost(f"{name} was cut off"))

    def deactivate(self, reason: DeactivationReason) -> None:
        """Let running turns end, run `on_deactivate`, and go; what waits is given back."""
        if self.state == "active":
            self._become("deactivate")
            self._leaving = reason
            self.timers.close()
            for work in self.mailbox.queued():
                if work.withdraw is not None:
                    self.mailbox.remove(work)
                    self._left_over.append(work)
            if not self.home.is_open:
                self._give_back()
            self._run(self._leave(reason))

    async def _leave(self, reason: DeactivationReason) -> None:
        while self.offloads or not self.mailbox.is_idle:
            self._changed.clear()
            await self._changed.wait()
        error = await self._run_hook("on_deactivate", reason)
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
        for turn in list(self.turns.values()):
            turn.given_up = True
            if turn.task is not None:
                turn.task.cancel()
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self.error = error
        self.timers.close()
        for task in self.offloads:
            task.cancel()
        lost = ActivationLost(
            f"{self.canonical} left memory ({self._leaving or 'lost'}) with this answer pending;"
            " the turn that accepted the call was committed"
        )
        for deferred in list(self.deferred):
            deferred.finish(None, lost)
        self.deferred.clear()
        self.home.ended(self, error)
        self._left_over += self.mailbox.empty()
        self._give_back()
        self.over.set()
        self._note_change()

    def _give_back(self) -> None:
        """Let others run what has not begun here, in its order."""
        left, self._left_over = self._left_over, []
        for work in left:
            if work.withdraw is not None:
                work.withdraw()

    def _commit_failed(self, error: BaseException) -> None:
        self.abort(error)

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
            and not self.deferred and not self.offloads
        )  # fmt: skip

    def admit(self, work: Work, *, first: bool = False) -> None:
        """Let work wait for its turn; raises `MailboxFull`."""
        if self.state == "gone" or (self.state == "deactivating" and work.withdraw is not None):
            self._left_over.append(work)
            if self.state == "gone" or not self.home.is_open:
                self._give_back()
            return
        work.queued_at = self._loop.time()
        dropped = self.mailbox.add(work, first=first)
        if dropped is not None:
            dropped.finish(None, MailboxFull("a newer call took the place of this one"))
        self.pump()

    def pump(self) -> None:
        """Begin every turn that may begin now."""
        if self.state not in ("active", "deactivating"):
            return
        while True:
            if not self.home.lease.may_act:
                if self.mailbox.head is not None and not self.home.lease.over:
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
            chain = self.home.new_chain() if work.call is None else work.call.chain
            turn = Turn(self, work, chain)
            self.turns[turn.id] = turn
            work.turn = turn
            turn.task = self._run(self._execute(turn))

    # -- turns ----------------------------------------------------------------------------------

    async def _execute(self, turn: Turn) -> None:
        """Run a turn, let the next one begin, then give the answer once it may leave."""
        value, error = await self._outcome(turn)
        mark = self.gate.mark
        turn.is_over = True
        del self.turns[turn.id]
        self._ended(turn)
        await self._release(turn, mark, value, error)

    def _ended(self, turn: Turn) -> None:
        work = turn.work
        if work.turn is turn and turn.outer is None and work.name not in _HOOKS:
            self.mailbox.ended(work)
        if work.call is not None:
            self.touch()
        if turn.journal.deleted and self.state == "active":
            self.deactivate("deleted")
        elif self.leave_when_idle and self.is_idle:
            self.deactivate("requested")
        self._note_change()
        self.pump()

    async def _outcome(self, turn: Turn) -> tuple[Any, BaseException | None]:
        CURRENT.set(turn)
        seconds = self.definition.options.turn_timeout
        timer = self._loop.call_later(seconds, self._time_out, turn)
        try:
            await faults.point("before_turn")
            value = await turn.work.begin(self.instance)
            self._record(turn, value, None)
            self._keep(turn)
        except BaseException as error:
            if turn.given_up:
                return None, self._lost(turn)
            self._undo(turn)
            if self._record(turn, None, error):
                self.commit(turn)
            return None, self._as_error(turn, error, seconds)
        finally:
            timer.cancel()
        return value, None

    def _record(self, turn: Turn, value: Any, error: BaseException | None) -> bool:
        """Note the answer of a call with an id, so that a repeat gets the same."""
        record = turn.work.record
        recorded = None if record is None or isinstance(value, Deferred) else record(value, error)
        if recorded is not None:
            turn.journal.recorded.append(recorded)
        return recorded is not None

    def _keep(self, turn: Turn) -> None:
        """Take over what the turn did, and queue what is to be stored."""
        if turn.given_up:
            raise ActivationLost(f"{self.canonical} was aborted")
        if turn.view is not None and not self.document.check_view(turn.view):
            raise ReadOnlyTurn(
                f"{turn.work.name} of {self.canonical} changed the state, and is declared as"
                " one that only reads; nothing was changed"
            )
        self.commit(turn)

    def commit(self, turn: Turn) -> Mark:
        """Queue what the turn has changed so far; returns its place at the gate."""
        changed = self.document.changed() if turn.root.work.mode == "write" else None
        journal = turn.journal
        if changed is None and journal.is_empty:
            return self.gate.mark
        if changed is not None:
            self.document.keep(changed)
        for key, entry in journal.entries.items():
            self.entries[key] = entry.value
        if not self.definition.is_durable:
            return None
        lease, saved = self.home.lease, self._leaving != "deleted"
        delta = Delta(
            actor=self.canonical, lease_id=lease.fence.lease_id, epoch=lease.epoch,
            placement_group=lease.unit, slot=int(lease.name), incarnation=self.incarnation,
            base=self.revision, document=changed, schema=self.definition.codec.schema,
            entries=tuple(journal.entries.values()), reminders=tuple(journal.reminders.values()),
            messages=tuple(journal.messages), recorded=tuple(journal.recorded),
            handled_message=journal.handled_message,
            handled_reminder=journal.handled_reminder, deleted=journal.deleted,
        )  # fmt: skip
        journal.stored()
        if not saved:
            return self.gate.mark
        self.revision += 1
        return self.gate.put(delta)

    def _undo(self, turn: Turn) -> None:
        if turn.root.work.mode == "write" and hasattr(self, "document"):
            self.document.restore()
        turn.journal.forget()
        if hasattr(self, "instance"):
            try:
                self.instance.on_rollback()
            except Exception:
                log.exception("actor.rollback_failed", actor=self.canonical)

    def _time_out(self, turn: Turn) -> None:
        if turn.is_over or turn.task is None:
            return
        turn.timed_out = True
        turn.task.cancel()
        self._loop.call_later(ACTOR_ABORT_SECONDS, self._abort_stubborn, turn)

    def _abort_stubborn(self, turn: Turn) -> None:
        if not turn.is_over and self.state != "gone":
            log.error("actor.ignores_cancellation", actor=self.canonical, turn=turn.work.name)
            self.abort(
                ActivationLost(f"{turn.work.name} of {self.canonical} ignored its time limit")
            )

    def _as_error(self, turn: Turn, error: BaseException, seconds: float) -> BaseException:
        if turn.timed_out and isinstance(error, asyncio.CancelledError):
            return TurnTimeout(
                f"{turn.work.name} of {self.canonical} did not end within {seconds:g} s and was"
                " undone"
            )
        return error

    def _lost(self, turn: Turn) -> BaseException:
        return ActivationLost(
            f"{self.canonical} was aborted while {turn.work.name} ran"
            f" ({error_text.shown(self.error) if self.error else 'its slot was lost'})"
        )

    async def _release(
        self, turn: Turn, mark: Mark, value: Any, error: BaseException | None
    ) -> None:
        """Wait until all that was queued before is durable and the host may act, then answer."""
        work = turn.work
        try:
            if work.confirm:
                await self.gate.passed(mark)
            await self.may_release()
        except asyncio.CancelledError:
            value, error = None, self._lost(turn)
        except BaseException as failure:
            value, error = None, _commit_error(failure)
        if error is None:
            await faults.point("before_output")
            for output in turn.journal.take_outputs():
                output()
        if isinstance(value, Deferred) and error is None:
            self._await_deferred(value, work)
        else:
            work.finish(value, error)

    async def may_release(self) -> None:
        """Wait until this host is within its deadline; raises `ActivationLost` at a loss."""
        lease = self.home.lease
        while not lease.may_act:
            if lease.over or self.state == "gone":
                raise ActivationLost(
                    f"the slot of {self.canonical} was lost before the answer left"
                )
            await asyncio.sleep(FENCED_SECONDS)

    def _await_deferred(self, deferred: Deferred[Any], work: Work) -> None:
        def answer(value: Any, error: BaseException | None) -> None:
            self.deferred.discard(deferred)
            self._note_change()
            work.finish(value, error)

        if not deferred.is_over:
            self.deferred.add(deferred)
        deferred.bind(answer)

    def check_deferred(self) -> None:
        """Raise `MailboxFull` if no further answer may be deferred."""
        if len(self.deferred) >= ACTOR_DEFERRED_MAX:
            raise MailboxFull(f"{len(self.deferred):,} answers of {self.canonical} are pending")

    # -- nested turns ---------------------------------------------------------------------------

    def nest(self, outer: Turn, work: Work, chain: Chain) -> None:
        """Run work at once inside of a turn that waits for it."""
        self._run(self._nested(outer, work, chain))

    async def _nested(self, outer: Turn, work: Work, chain: Chain) -> None:
        if outer.nested is None:
            outer.nested = asyncio.Lock()
        async with outer.nested:
            if outer.is_over or outer.given_up:
                self.admit(work)
                return
            turn = Turn(self, work, chain, outer)
            turn.task = asyncio.current_task()
            self.turns[turn.id] = work.turn = turn
            CURRENT.set(turn)
            state, journal = self.document.mark(), turn.journal.mark()
            value, error = None, None
            try:
                value = await work.begin(self.instance)
                self._record(turn, value, None)
            except BaseException as raised:
                error = self._lost(turn) if turn.given_up else raised
                if not turn.given_up and not outer.is_over:
                    if turn.may_write:
                        self.document.restore(state)
                    turn.journal.restore(journal)
                    self.instance.on_rollback()
            turn.is_over = True
            del self.turns[turn.id]
        if isinstance(value, Deferred) and error is None:
            self._await_deferred(value, work)
        else:
            await self._release_nested(turn, value, error)

    async def _release_nested(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        """Answer what waits inside of the outer turn: what that has done is not durable yet."""
        try:
            await self.gate.passed(self.gate.mark)
            await self.may_release()
        except BaseException as failure:
            value, error = None, _commit_error(failure)
        turn.work.finish(value, error)

    # -- tasks ----------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("actor.task_failed", actor=self.canonical, error=error_text.shown(error))

    def _note_change(self) -> None:
        self._changed.set()

    def new_deferred(self, turn: Turn) -> Deferred[Any]:
        """Return an answer for the call of a turn, given by a later one."""

        def settle(deferred: Deferred[Any], value: Any, error: BaseException | None) -> None:
            resolving = turn_of(self, "a deferred answer")
            if deferred.is_over:
                return
            if error is None and work.encode is not None:
                value = work.encode(value)
            recorded = None if work.record is None else work.record(value, error)
            if recorded is not None:
                resolving.journal.recorded.append(recorded)
            resolving.journal.outputs.append(lambda: deferred.finish(value, error))

        work = turn.work

        return Deferred(settle)

    def offload_ended(self, task: asyncio.Task[None]) -> None:
        """Note that a coroutine outside of turns has ended."""
        self.offloads.discard(task)
        self.touch()
        self._note_change()

    def keep(self, seconds: float) -> None:
        """Stay in memory for so long, though idle."""
        self.keep_until = max(self.keep_until, self._loop.time() + seconds)

    def remember(self, name: str, key: str, value: bytes | None) -> None:
        """Keep an entry of a map that was read."""
        if len(self.entries) < ENTRIES_KEPT:
            self.entries[name, key] = value

    def log_failed(self, what: str, error: BaseException) -> None:
        """Log an error that no caller hears of."""
        log.warning(
            "actor.turn_failed", actor=self.canonical, what=what, error=error_text.shown(error)
        )

    def metrics_of_failed_tick(self, name: str) -> None:
        """Count a tick that raised."""


_HOOKS: Final = frozenset({"on_activate", "on_deactivate"})


def _commit_error(error: BaseException) -> BaseException:
    """Say of a turn whose delta was not stored, or may not have been, what is known."""
    if isinstance(error, (OutcomeUnknown, ActivationLost, CommitFailed)):
        return error
    if isinstance(error, asyncio.CancelledError):
        return ActivationLost("the activation was aborted before its answer left")
    failed = CommitFailed(f"the turn was not stored: {error}; nothing of it took effect")
    failed.__cause__ = error
    return failed
