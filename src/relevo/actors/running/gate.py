"""The output gate: nothing leaves an activation before the commits queued before it are durable.

Turns run on while their changes are on the way. What leaves waits for the last delta that was
queued when it was made: since each delta builds on the revision before it, that one being durable
means that all before it are.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from relevo.actors.running.deferred import Deferred
from relevo.errors import ActivationLost, CommitFailed, OutcomeUnknown
from relevo.kernel import faults
from relevo.kernel.leases.hosts import instant

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.actors.core.deltas import Delta
    from relevo.actors.running.activation import Activation
    from relevo.actors.running.turn import Turn, Work

Mark = asyncio.Future[None] | None
FENCED_SECONDS: Final = 0.1
"""How often a host past its deadline looks whether it may act again."""


class Gate:
    """The commits of one activation, in order; the first that fails ends it."""

    def __init__(
        self,
        commit: Callable[[Delta], asyncio.Future[None]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._commit = commit
        self._failed = failed
        self._last: Mark = None
        self.error: BaseException | None = None

    @property
    def mark(self) -> Mark:
        """The last delta on its way, or None if all are durable."""
        return self._last

    def put(self, delta: Delta) -> Mark:
        """Queue a delta; the order of calls is the order of commits."""
        mark = self._commit(delta)
        mark.add_done_callback(self._ended)
        self._last = mark
        return mark

    async def passed(self, mark: Mark) -> None:
        """Wait until what was queued up to a mark is durable; raises the error of its commit."""
        if mark is not None and not mark.done():
            await asyncio.wait((mark,))
        if self.error is not None and (mark is None or mark.exception() is not None):
            raise self.error
        if mark is not None:
            mark.result()

    def _ended(self, mark: asyncio.Future[None]) -> None:
        if self._last is mark:
            self._last = None
        error = asyncio.CancelledError() if mark.cancelled() else mark.exception()
        if error is not None and self.error is None:
            self.error = error
            self._failed(error)


class Outlet:
    """What leaves an activation: the answers and outputs of its turns."""

    def __init__(self, activation: Activation) -> None:
        self._activation = activation

    def release(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        """Let the answer and the outputs leave when all that was queued before is durable."""
        if isinstance(value, Deferred):
            self._activation.deferred.add(value)
        turn.revision = self._activation.revision
        mark = self._activation.gate.mark
        if mark is None:
            self._leave(turn, value, error)
            return
        if not turn.work.confirm and turn.outer is None:
            self._finish(turn.work, value, error)
            value, turn.is_answered = None, True
        mark.add_done_callback(partial(self._durable, turn, value, error, time.perf_counter()))

    def _durable(
        self,
        turn: Turn,
        value: Any,
        error: BaseException | None,
        since: float,
        mark: asyncio.Future[None],
    ) -> None:
        self._activation.definition.gate_waits.add(time.perf_counter() - since)
        failure = asyncio.CancelledError() if mark.cancelled() else mark.exception()
        if failure is not None:
            self._forget(value)
            value, error = None, commit_error(failure)
        self._leave(turn, value, error)

    def _leave(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        if faults.LIVE and error is None and turn.outer is None:
            faults.hit("before_output")
        self._pass(turn, value, error)  # after the point: the host may have stood still

    def _pass(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        home = self._activation.home
        recorder = home.workers.recorder
        at = 0.0 if recorder is None else instant()
        if not home.lease.may_act:
            self._activation.spawn(self._leave_later(turn, value, error))
            return
        if recorder is not None and error is None and not isinstance(value, Deferred):
            recorder.left(turn, at)
        self._give(turn, value, error)

    async def _leave_later(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        try:
            await self.may_release()
        except BaseException as lost:
            self._forget(value)
            self._give(turn, None, commit_error(lost))
        else:
            self._pass(turn, value, error)

    def _give(self, turn: Turn, value: Any, error: BaseException | None) -> None:
        if error is None and turn.noted is not None and turn.outer is None:
            for output in turn.noted.take_outputs():
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


def commit_error(error: BaseException) -> BaseException:
    """Say of a turn whose delta was not stored, or may not have been, what is known."""
    if isinstance(error, (OutcomeUnknown, ActivationLost, CommitFailed)):
        return error
    if isinstance(error, asyncio.CancelledError):
        return ActivationLost("the activation was aborted before its answer left")
    failed = CommitFailed(f"the turn was not stored: {error}; nothing of it took effect")
    failed.__cause__ = error
    return failed
