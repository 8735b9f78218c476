"""Runs the turns of an activation, and lets out what they give once it may leave.

    begin ─► coroutine ends ─► changes found ─► delta queued ─► the next turn may begin
                                                     └─► durable, and the host may act ─► answer

A turn ends when its coroutine has returned and the calls that run nested in it have ended. Its
answer and outputs leave by a callback of the commit, while the next turn runs on the new state.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from relevo.actors.core.deltas import Delta
from relevo.actors.running import around
from relevo.actors.running.deferred import Deferred
from relevo.actors.running.turn import CURRENT, FunctionWork, Turn, Work
from relevo.errors import (
    ActivationLost,
    ReadOnlyTurn,
    TurnTimeout,
)
from relevo.kernel import error_text, faults
from relevo.kernel.telemetry.logs import get_logger
from relevo.limits import ACTOR_ABORT_SECONDS, ACTOR_STATE_BYTES_WARN

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from relevo.actors.core.calls import Chain
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.gate import Mark
    from relevo.actors.running.memory.journal import Journal

log = get_logger(__name__)


class TurnRunner:
    """The turns of one activation."""

    def __init__(self, activation: Activation) -> None:
        self._activation = activation
        self._loop = asyncio.get_running_loop()
        self._warned_of_size = False

    def begin(self, work: Work, chain: Chain) -> None:
        """Begin a turn; `Activation.turn_ended` hears when the next one may begin."""
        activation = self._activation
        turn = Turn.of(activation, work, chain)
        activation.turns[turn.id] = work.turn = turn
        activation.home.workers.run(turn)

    async def run_hook(self, name: str, chain: Chain, *arguments: Any) -> BaseException | None:
        """Run a method of the life cycle as a turn of its own; returns what it raised."""
        activation = self._activation
        ended: asyncio.Future[BaseException | None] = self._loop.create_future()

        def finish(_: Any, error: BaseException | None) -> None:
            if not ended.done():
                ended.set_result(error)

        async def run(instance: Any) -> None:
            await activation.home.invoke(getattr(instance, name), *arguments)

        self.begin(FunctionWork(name, is_hook=True, function=run, ended=finish), chain)
        return await ended

    async def execute(self, turn: Turn) -> None:
        """Run a turn to its end, then let the next one begin."""
        activation, work = self._activation, turn.work
        until = self._loop.time() + activation.definition.options.turn_timeout
        deadlines, recorder = activation.home.deadlines, activation.home.workers.recorder
        began = 0.0 if recorder is None else recorder.begin(turn)
        deadlines.add(until, turn)
        turn.has_begun = True
        value: Any = None
        error: BaseException | None = None
        try:
            if turn.is_cut:
                raise asyncio.CancelledError
            if faults.LIVE:
                await faults.point("before_turn")
            value = await self._value(turn)
            self._count(turn, "done")
            if faults.LIVE:
                await faults.point("after_turn")
            if turn.inner:
                turn.is_closing = True
                await asyncio.wait(turn.inner)
            if work.call is not None and work.call.call_id is not None:
                self._record(turn, value, None)
            if turn.given_up:
                raise ActivationLost(f"{activation.canonical} was aborted")
            if turn.view is not None and not activation.document.check_view(turn.view):
                raise read_only(turn)
            self.commit(turn)
        except BaseException as raised:
            value, error = None, await self._failed(turn, raised)
        deadlines.remove(until, turn)
        turn.is_over = True
        if recorder is not None:
            recorder.ended(turn, began)
        del activation.turns[turn.id]
        turn.task = None
        activation.outlet.release(turn, value, error)
        activation.turn_ended(turn)

    def _value(self, turn: Turn) -> Awaitable[Any]:
        """Return the code of a turn, with what is around it; from now on its time counts."""
        work, activation = turn.work, self._activation
        definition = activation.definition
        if work.queued_at:
            waited = self._loop.time() - work.queued_at
            definition.figures_of(work.name).waits.add(waited)
        turn.began = time.perf_counter()
        if work.held is not None or definition.incoming or activation.home.workers.traced:
            return around.run(turn)
        return work.begin(activation.instance)

    def _count(self, turn: Turn, outcome: str) -> None:
        """Count the code of a turn, which has ended."""
        if turn.began:
            figures = self._activation.definition.figures_of(turn.work.name)
            figures.runs.ended(outcome, time.perf_counter() - turn.began)
            turn.began = 0.0

    async def _failed(self, turn: Turn, error: BaseException) -> BaseException:
        """Undo a turn, and return the error of its call."""
        self._count(turn, "lost" if turn.given_up else "raised")
        turn.is_closing = True
        await self._cut_nested(turn)
        if turn.given_up:
            return self._lost(turn)
        self._undo(turn)
        error = self._as_error(turn, error)
        if self._record(turn, None, error):
            self.commit(turn)
        return error

    async def _cut_nested(self, turn: Turn) -> None:
        """End what runs nested in a turn that has failed: it must not outlive that turn."""
        while turn.inner and not turn.given_up:
            if turn.inner_turn is not None and not turn.inner_turn.is_over:
                turn.inner_turn.cut()
            try:
                await asyncio.wait(turn.inner)
            except asyncio.CancelledError:
                continue  # aborted, or canceled once more

    def _record(self, turn: Turn, value: Any, error: BaseException | None) -> bool:
        """Note the answer of a call with an id, so that a repeat gets the same."""
        if isinstance(value, Deferred):
            return False
        recorded = turn.work.record(value, error)
        if recorded is not None:
            turn.journal.recorded.append(recorded)
        return recorded is not None

    # -- changes ----------------------------------------------------------------------------------

    def commit(self, turn: Turn) -> Mark:
        """Queue what the turn has changed so far; returns its place at the gate."""
        activation, noted = self._activation, turn.root.noted
        document = activation.document
        changed = document.changed() if turn.root.work.mode == "write" else None
        if changed is None and (noted is None or noted.is_empty):
            return activation.gate.mark
        if changed is not None:
            document.keep(changed)
            self._warn_of_size(changed)
        if noted is not None:
            activation.entries.keep(noted.entries)
            dues = {name: one.due for name, one in noted.reminders.items()}
            activation.reminder_dues |= dues
        if not activation.definition.is_durable:
            return None
        delta = self._delta(changed, noted)
        if noted is not None:
            noted.stored()
        if activation.leaving == "deleted":
            return activation.gate.mark  # its actor is gone, and a fresh one may have begun
        activation.revision += 1
        mark = activation.gate.put(delta)
        recorder = activation.home.workers.recorder
        if recorder is not None and mark is not None:
            mark.add_done_callback(partial(recorder.committed, activation, delta.revision))
        return mark

    def _delta(self, document: bytes | None, noted: Journal | None) -> Delta:
        activation, home = self._activation, self._activation.home
        fence = home.lease.fence
        delta = Delta(
            activation.canonical, fence.lease_id, fence.epoch, fence.unit, int(fence.name),
            activation.incarnation, activation.revision, document,
            activation.definition.codec.schema,
        )  # fmt: skip
        if noted is not None:
            delta.entries = tuple(noted.entries.values())
            delta.reminders = tuple(noted.reminders.values())
            delta.messages = tuple(noted.messages)
            delta.recorded = tuple(noted.recorded)
            delta.logged = tuple(noted.logged)
            delta.handled_message = noted.handled_message
            delta.handled_reminder = noted.handled_reminder
            delta.deleted = noted.deleted
        return delta

    def _warn_of_size(self, document: bytes) -> None:
        if len(document) > ACTOR_STATE_BYTES_WARN and not self._warned_of_size:
            self._warned_of_size = True
            log.warning(
                "actor.large_state", actor=self._activation.canonical, bytes=len(document),
                advice="each changing turn stores all of it; keep large data in self.map(…)",
            )  # fmt: skip

    def _undo(self, turn: Turn) -> None:
        if turn.noted is not None:
            turn.noted.forget()
        if turn.root.work.mode == "write":
            self._activation.document.restore()
            self._rolled_back()

    def _rolled_back(self) -> None:
        try:
            self._activation.instance.on_rollback()
        except Exception:
            log.exception("actor.rollback_failed", actor=self._activation.canonical)

    # -- time limits and losses -------------------------------------------------------------------

    def time_out(self, turn: Turn) -> None:
        """Cut a turn that has used up its time."""
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

    def _as_error(self, turn: Turn, error: BaseException) -> BaseException:
        if turn.timed_out and isinstance(error, asyncio.CancelledError):
            seconds = self._activation.definition.options.turn_timeout
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

    # -- nested turns -----------------------------------------------------------------------------

    def nest(self, outer: Turn, work: Work, chain: Chain) -> None:
        """Run work at once inside of a turn that waits for it."""
        task = self._activation.spawn(self._nested(outer, work, chain))
        if outer.inner is None:
            outer.inner = set()
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
            turn = Turn.of(activation, work, chain, outer)
            turn.task, turn.has_begun = asyncio.current_task(), True
            outer.inner_turn = turn
            activation.turns[turn.id] = work.turn = turn
            CURRENT.set(turn)
            value, error = await self._nested_outcome(turn)
            turn.is_over = True
            del activation.turns[turn.id]
            activation.outlet.release(turn, value, error)

    async def _nested_outcome(self, turn: Turn) -> tuple[Any, BaseException | None]:
        activation = self._activation
        document = activation.document
        state, journal = document.mark(), turn.journal.mark()
        if not turn.may_write:
            turn.view = document.copy(state)
        try:
            value = await self._value(turn)
            self._count(turn, "done")
            if turn.inner:
                turn.is_closing = True
                await asyncio.wait(turn.inner)
            if not turn.may_write and document.encoding(turn.view) != state:
                raise read_only(turn)
            self._record(turn, value, None)
        except BaseException as error:
            self._count(turn, "lost" if turn.given_up else "raised")
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
