"""Runs the turns of an activation, and lets out what they give once it may leave.

    begin ─► coroutine ends ─► changes found ─► delta queued ─► the next turn may begin
                                                     └─► durable, and the host may act ─► answer

A turn ends when its coroutine has returned and the calls that run nested in it have ended. Its
answer and outputs leave by a callback of the commit, while the next turn runs on the new state.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from relevo.actors.core.deltas import Delta
from relevo.actors.running import around
from relevo.actors.running.deferred import Deferred
from relevo.actors.running.turn import CURRENT, Turn, Work
from relevo.errors import (
    ActivationLost,
    CommitFailed,
    OutcomeUnknown,
    ReadOnlyTurn,
    TurnTimeout,
)
from relevo.kernel import error_text, faults
from relevo.limits import ACTOR_ABORT_SECONDS, ACTOR_STATE_BYTES_WARN

if TYPE_CHECKING:
    from relevo.actors.core.calls import Chain
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.gate import Mark

log = structlog.get_logger(__name__)
FENCED_SECONDS: Final = 0.1
"""How often a host past its deadline looks whether it may act again."""


class TurnRunner:
    """The turns of one activation."""

    def __init__(self, activation: Activation) -> None:
        self._activation = activation
        self._loop = asyncio.get_running_loop()
        self._warned_of_size = False

    def begin(self, work: Work, chain: Chain) -> None:
        """Begin a turn; `Activation.turn_ended` hears when the next one may begin."""
        activation = self._activation
        turn = Turn(activation, work, chain)
        activation.turns[turn.id] = work.turn = turn
        turn.task = self._loop.create_task(self._execute(turn))

    async def run_hook(self, name: str, chain: Chain, *arguments: Any) -> BaseException | None:
        """Run a method of the life cycle as a turn of its own; returns what it raised."""
        activation = self._activation
        ended: asyncio.Future[BaseException | None] = self._loop.create_future()

        def finish(_: Any, error: BaseException | None) -> None:
            if not ended.done():
                ended.set_result(error)

        async def run(instance: Any) -> None:
            await activation.home.invoke(getattr(instance, name), *arguments)

        self.begin(Work(name, run, finish, is_hook=True), chain)
        return await ended

    async def _execute(self, turn: Turn) -> None:
        """Run a turn to its end, then let the next one begin."""
        value, error = await self._outcome(turn)
        turn.is_over = True
        del self._activation.turns[turn.id]
        turn.task = None  # it holds the turn by its context: without circles less is collected
        self._release(turn, value, error)
        self._activation.turn_ended(turn)

    async def _outcome(self, turn: Turn) -> tuple[Any, BaseException | None]:
        CURRENT.set(turn)
        activation = self._activation
        seconds = activation.definition.options.turn_timeout
        timer = self._loop.call_later(seconds, self._time_out, turn)
        turn.has_begun = True
        try:
            if turn.is_cut:
                raise asyncio.CancelledError
            await faults.point("before_turn")
            value = await around.run(turn)
            await faults.point("after_turn")
            if turn.inner:
                turn.is_closing = True
                await asyncio.wait(turn.inner)
            self._record(turn, value, None)
            self._keep(turn)
        except BaseException as error:
            turn.is_closing = True
            await self._cut_nested(turn)
            if turn.given_up:
                return None, self._lost(turn)
            self._undo(turn)
            error = self._as_error(turn, error, seconds)
            if self._record(turn, None, error):
                self.commit(turn)
            return None, error
        finally:
            timer.cancel()
        return value, None

    async def _cut_nested(self, turn: Turn) -> None:
        """End what runs nested in a turn that has failed: it must not outlive that turn."""
        while turn.inner and not turn.given_up:
            if turn.inner_turn is not None and not turn.inner_turn.is_over:
                turn.inner_turn.cut()
            try:
                await asyncio.wait(turn.inner)
            except asyncio.CancelledError:
                continue  # aborted, or cancelled once more

    def _record(self, turn: Turn, value: Any, error: BaseException | None) -> bool:
        """Note the answer of a call with an id, so that a repeat gets the same."""
        record = turn.work.record
        recorded = None if record is None or isinstance(value, Deferred) else record(value, error)
        if recorded is not None:
            turn.journal.recorded.append(recorded)
        return recorded is not None

    # -- changes ----------------------------------------------------------------------------------

    def _keep(self, turn: Turn) -> None:
        """Take over what the turn did, and queue what is to be stored."""
        activation = self._activation
        if turn.given_up:
            raise ActivationLost(f"{activation.canonical} was aborted")
        if turn.view is not None and not activation.document.check_view(turn.view):
            raise read_only(turn)
        self.commit(turn)

    def commit(self, turn: Turn) -> Mark:
        """Queue what the turn has changed so far; returns its place at the gate."""
        activation, journal = self._activation, turn.journal
        document = activation.document
        changed = document.changed() if turn.root.work.mode == "write" else None
        if changed is None and journal.is_empty:
            return activation.gate.mark
        if changed is not None:
            document.keep(changed)
            self._warn_of_size(changed)
        activation.entries.keep(journal.entries)
        activation.reminder_dues |= {name: one.due for name, one in journal.reminders.items()}
        if not activation.definition.is_durable:
            return None
        delta = self._delta(turn, changed)
        journal.stored()
        if activation.leaving == "deleted":
            return activation.gate.mark  # its actor is gone, and a fresh one may have begun
        activation.revision += 1
        return activation.gate.put(delta)

    def _delta(self, turn: Turn, document: bytes | None) -> Delta:
        activation, journal, lease = self._activation, turn.journal, self._activation.home.lease
        return Delta(
            actor=activation.canonical, lease_id=lease.fence.lease_id, epoch=lease.epoch,
            placement_group=lease.unit, slot=int(lease.name), incarnation=activation.incarnation,
            base=activation.revision, document=document,
            schema=activation.definition.codec.schema, entries=tuple(journal.entries.values()),
            reminders=tuple(journal.reminders.values()), messages=tuple(journal.messages),
            recorded=tuple(journal.recorded), handled_message=journal.handled_message,
            handled_reminder=journal.handled_reminder, deleted=journal.deleted,
        )  # fmt: skip

    def _warn_of_size(self, document: bytes) -> None:
        if len(document) > ACTOR_STATE_BYTES_WARN and not self._warned_of_size:
            self._warned_of_size = True
            log.warning(
                "actor.large_state", actor=self._activation.canonical, bytes=len(document),
                advice="each changing turn stores all of it; keep large data in self.map(…)",
            )  # fmt: skip

    def _undo(self, turn: Turn) -> None:
        turn.journal.forget()
        if turn.root.work.mode == "write":
            self._activation.document.restore()
            self._rolled_back()

    def _rolled_back(self) -> None:
        try:
            self._activation.instance.on_rollback()
        except Exception:
            log.exception("actor.rollback_failed", actor=self._activation.canonical)

    # -- time limits and losses -------------------------------------------------------------------

    def _time_out(self, turn: Turn) -> None:
        if turn.is_over:
            return
        turn.timed_out = True
        turn.cut()
        self._loop.call_later(ACTOR_ABORT_SECONDS, self._abort_stubborn, turn)

    def _abort_stubborn(self, turn: Turn) -> None:
        activation = self._activation
        if not turn.is_over and activation.state != "gone":
            name = turn.work.name
            log.error("actor.ignores_cancellation", actor=activation.canonical, turn=name)
            activation.abort(
                ActivationLost(f"{name} of {activation.canonical} ignored its time limit")
            )

    def _as_error(self, turn: Turn, error: BaseException, seconds: float) -> BaseException:
        if turn.timed_out and isinstance(error, asyncio.CancelledError):
            return TurnTimeout(
                f"{turn.work.name} of {self._activation.canonical} did not end within"
                f" {seconds:g} s and was undone"
            )
        return error

    def give_up(self, turn: Turn) -> None:
        """Answer the call of a turn that was aborted."""
        turn.is_answered = True
        turn.work.finish(None, self._lost(turn))

    def _lost(self, turn: Turn) -> BaseException:
        reason = self._activation.error
        return ActivationLost(
            f"{self._activation.canonical} was aborted while {turn.work.name} ran"
            f" ({error_text.shown(reason) if reason else 'its slot was lost'})"
        )

    # -- what leaves ------------------------------------------------------------------------------

    def _release(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        """Let the answer and the outputs leave when all that was queued before is durable."""
        if isinstance(value, Deferred):
            self._activation.deferred.add(value)
        mark = self._activation.gate.mark
        if mark is None:
            self._leave(turn, value, error)
            return
        if not turn.work.confirm and turn.outer is None:
            self._finish(turn.work, value, error)
            value, turn.is_answered = None, True
        mark.add_done_callback(partial(self._durable, turn, value, error))

    def _durable(
        self, turn: Turn, value: Any, error: BaseException | None, mark: asyncio.Future[None]
    ) -> None:
        failure = asyncio.CancelledError() if mark.cancelled() else mark.exception()
        if failure is not None:
            self._forget(value)
            value, error = None, commit_error(failure)
        self._leave(turn, value, error)

    def _leave(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        if error is None and turn.outer is None:
            faults.hit("before_output")
        if self._activation.home.lease.may_act:  # after the point: the host may have stood still
            self._give(turn, value, error)
        else:
            self._activation.spawn(self._leave_later(turn, value, error))

    async def _leave_later(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        try:
            await self.may_release()
        except BaseException as lost:
            self._forget(value)
            value, error = None, commit_error(lost)
        self._give(turn, value, error)

    def _give(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        if error is None and turn.outer is None:
            for output in turn.journal.take_outputs():
                output()
        if not turn.is_answered:
            self._finish(turn.work, value, error)

    def _finish(self, work: Work, value: Any, error: BaseException | None) -> None:
        if isinstance(value, Deferred) and error is None:
            self._await_deferred(value, work)
        else:
            work.finish(value, error)
            work.turn = None

    async def may_release(self) -> None:
        """Wait until this host is within its deadline; raises `ActivationLost` at a loss."""
        activation = self._activation
        while not activation.home.lease.may_act:
            if activation.home.lease.over or activation.state == "gone":
                raise ActivationLost(
                    f"the slot of {activation.canonical} was lost before the answer left"
                )
            await asyncio.sleep(FENCED_SECONDS)

    def _await_deferred(self, deferred: Deferred[Any], work: Work) -> None:
        activation = self._activation

        def answer(value: Any, error: BaseException | None) -> None:
            self._forget(deferred)
            work.finish(value, error)

        deferred.bind(answer)
        if deferred.is_over:
            return
        if activation.state == "gone":
            deferred.finish(None, activation.lost_answer())
        elif work.is_abandoned:
            self._forget(deferred)
        else:
            work.deferred = deferred

    def _forget(self, value: Any) -> None:
        if isinstance(value, Deferred):
            self._activation.forget_deferred(value)

    # -- nested turns -----------------------------------------------------------------------------

    def nest(self, outer: Turn, work: Work, chain: Chain) -> None:
        """Run work at once inside of a turn that waits for it."""
        task = self._activation.spawn(self._nested(outer, work, chain))
        outer.inner.add(task)
        task.add_done_callback(outer.inner.discard)

    async def _nested(self, outer: Turn, work: Work, chain: Chain) -> None:
        """Nested turns of one turn run one at a time, each undone by itself if it fails."""
        activation = self._activation
        if outer.nested is None:
            outer.nested = asyncio.Lock()
        async with outer.nested:
            if work.is_removed:
                return
            if outer.is_closing or outer.given_up:
                activation.admit(work)
                return
            turn = Turn(activation, work, chain, outer)
            turn.task, turn.has_begun = asyncio.current_task(), True
            outer.inner_turn = turn
            activation.turns[turn.id] = work.turn = turn
            CURRENT.set(turn)
            value, error = await self._nested_outcome(turn)
            turn.is_over = True
            del activation.turns[turn.id]
            self._release(turn, value, error)

    async def _nested_outcome(self, turn: Turn) -> tuple[Any, BaseException | None]:
        activation = self._activation
        document = activation.document
        state, journal = document.mark(), turn.journal.mark()
        if not turn.may_write:
            turn.view = document.copy(state)
        try:
            value = await around.run(turn)
            if turn.inner:
                turn.is_closing = True
                await asyncio.wait(turn.inner)
            if not turn.may_write and document.encoding(turn.view) != state:
                raise read_only(turn)
            self._record(turn, value, None)
        except BaseException as error:
            turn.is_closing = True
            await self._cut_nested(turn)
            if turn.given_up:
                return None, self._lost(turn)
            turn.journal.restore(journal)
            if turn.may_write:
                document.restore(state)
                self._rolled_back()
            self._record(turn, None, error)
            return None, error
        return value, None


def read_only(turn: Turn) -> ReadOnlyTurn:
    """Return the error of a turn that changed what it may only read."""
    return ReadOnlyTurn(
        f"{turn.work.name} of {turn.activation.canonical} changed the state, and is declared as one"
        " that only reads; nothing was changed"
    )


def commit_error(error: BaseException) -> BaseException:
    """Say of a turn whose delta was not stored, or may not have been, what is known."""
    if isinstance(error, (OutcomeUnknown, ActivationLost, CommitFailed)):
        return error
    if isinstance(error, asyncio.CancelledError):
        return ActivationLost("the activation was aborted before its answer left")
    failed = CommitFailed(f"the turn was not stored: {error}; nothing of it took effect")
    failed.__cause__ = error
    return failed
