"""A run of a handler: the call, the cut-off when it must end, and its settlement."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol

from relevo.errors import HandlerError, HandlerTimeout
from relevo.kernel import error_text
from relevo.kernel.running.calls import HandlerCall
from relevo.kernel.running.ledger import C, S
from relevo.kernel.running.verdicts import Interruption, RetryLater, Suspend
from relevo.kernel.telemetry import tracing
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.kernel.running.calls import Limits
    from relevo.kernel.telemetry.tracing import TracedWork

log = get_logger(__name__)


class HostStops(Exception):
    """The host has to stop: the run ends here and begins anew elsewhere."""


class RunContext(Protocol):
    """The state that a run shares with its handler's context."""

    beaten_at: float
    """When the handler last gave a sign of life."""
    cut_for: BaseException | None
    """Why the host wants the run to end."""
    gone: bool
    """Whether the work was deleted, or is not this host's any more."""

    @property
    def settled(self) -> bool:
        """Whether its completion was committed in a transaction of the handler."""

    @property
    def has_transactions(self) -> bool:
        """Whether the handler has begun any, which may be open."""

    async def end_call(self) -> None:
        """Roll back a transaction that the handler left open; raises `HandlerError` then."""


class Run(HandlerCall, ABC, Generic[C, S]):
    """A handler at work on a claim, and the ways to end it; parts interpret its end."""

    part: str
    """Whose work it is."""
    dropped = False
    """Whether its outcome is ignored."""
    _ending: asyncio.TimerHandle | None = None

    def __init__(
        self, claim: C, ctx: RunContext, handler: Any, call: Callable[[Any, Any], Awaitable[Any]],
        limits: Limits, task: asyncio.Task[Any], over: asyncio.Event, *, in_thread: bool,
    ) -> None:  # fmt: skip
        # Not by `super()`: there is one run for each job, and many of them do next to nothing.
        self._task = task
        self.in_thread = in_thread
        self.claim = claim
        self.ctx = ctx
        self.handler = handler
        self.began = ctx.beaten_at
        self._call = call
        """Calls the handler with the context, in the loop, a thread or a process."""
        self._limits = limits
        """How long it may take. What has no time limit is cut off when it stalls."""
        self._over = over

    @abstractmethod
    def done(self, value: Any) -> S:
        """Return what a value that the handler returned means; may raise instead."""

    @abstractmethod
    def failed(self, error: BaseException) -> S:
        """Return what an error means."""

    @abstractmethod
    def returned(self) -> S:
        """Give back what was begun, and is to begin anew elsewhere."""

    @abstractmethod
    def traced(self) -> TracedWork:
        """Return what its span shows."""

    @property
    def seconds(self) -> float:
        """For how long it has run."""
        return time.monotonic() - self.began

    @property
    def settled(self) -> bool:
        """Whether its completion is committed."""
        return self.ctx.settled

    def cut(self, reason: BaseException) -> None:
        """As `HandlerCall.cut`; a thread learns it from its context, or keeps its slot."""
        super().cut(reason)
        self.ctx.cut_for = self.cut_for

    def end_within(self, seconds: float, reason: BaseException) -> None:
        """Give the handler so long to reach a checkpoint; asking again gives no more."""
        self.call_after(seconds, partial(self.cut, reason))

    def call_after(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function then, unless the run has ended; only the first such call counts."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(seconds, function)

    def drop(self, reason: BaseException) -> None:
        """End the handler and ignore its outcome."""
        self.dropped = self.ctx.gone = True
        self.cut(reason)

    def watch(self, now: float) -> None:
        """Cut the handler off if it has used up its time, or gave no sign of life for too long.

        The runner calls this several times a second, which is cheaper than a timer per run.
        """
        limit, quiet = self._limits.time_limit, self._limits.stall_after
        if limit is not None:
            late = now - self.began >= limit
        else:
            late = quiet is not None and now - self.ctx.beaten_at >= quiet
        if late:
            self.cut(HandlerTimeout(f"the handler ran longer than {limit or quiet:g} s"))

    def trace(self) -> None:
        """Have the handler called within a span; before `execute`."""
        self._call = partial(self._in_span, self._call)

    async def _in_span(
        self, call: Callable[[Any, Any], Awaitable[Any]], handler: Any, ctx: Any
    ) -> Any:
        with tracing.processing(self.traced()) as span:
            try:
                return await self.answered(await call(handler, ctx))
            except (RetryLater, Suspend, Interruption) as error:  # decisions are no errors
                span.set_attribute("relevo.outcome", type(error).__name__)
                decision = error
        raise decision

    async def execute(self) -> S | None:
        """Run to the end; None if there is nothing to settle: it is done, or not ours any more."""
        try:
            value = await self._call(self.handler, self.ctx)
            if value is not None:
                value = await self.answered(value)
            if self.ctx.has_transactions:
                await self.ctx.end_call()
            settlement = self.done(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            await self._roll_back(error)
            return self._ended_by(error)
        finally:
            self.end()
            if self._ending is not None:
                self._ending.cancel()
        return None if self.ctx.settled or self.dropped else settlement

    async def _roll_back(self, error: BaseException) -> None:
        """Roll back the transactions that a handler left open when it raised.

        A thread that was cut off is still at work, and finds out at its next call.
        """
        cut_off = self.in_thread and isinstance(error, asyncio.CancelledError)
        if self.ctx.has_transactions and not cut_off:
            with suppress(HandlerError):  # what the handler raised counts
                await self.ctx.end_call()

    def _ended_by(self, error: BaseException) -> S | None:
        """Settle by why the run ended: the host's reason to cut it off goes before its error."""
        if isinstance(error, asyncio.CancelledError):
            if self._over.is_set():  # the host canceled, not this class or the handler itself
                raise error
        elif not isinstance(error, Interruption):
            return self._failed(error)
        return self._failed(self.cut_for or error)

    def _failed(self, error: BaseException) -> S | None:
        if self.ctx.settled:
            log.warning(
                "running.failed_after_completion", id=self.claim.label,
                handler=self.claim.handler, error=error_text.shown(error),
            )  # fmt: skip
            return None
        if self.dropped:
            return None
        return self.returned() if isinstance(self.cut_for, HostStops) else self.failed(error)
