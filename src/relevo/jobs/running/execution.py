"""One run of one job: the handler is called, and what it came to becomes a settlement."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from relevo.errors import HandlerError, HandlerTimeout
from relevo.jobs import states
from relevo.jobs.core import outcomes
from relevo.jobs.errors import JobCanceled, JobPaused
from relevo.jobs.running.claims import Settlement
from relevo.jobs.running.context import BlockingContext, encoded_result
from relevo.kernel import error_text
from relevo.kernel.running.calls import Call

if TYPE_CHECKING:
    from relevo.jobs.model import Lane
    from relevo.jobs.registry import Handler
    from relevo.jobs.running.context import JobContext

Caller = Callable[["Handler", "JobContext"], Awaitable[Any]]
"""How a handler is called; data operations and processes have ways of their own."""
log = structlog.get_logger(__name__)
_DECODER: Final = msgspec.json.Decoder()
_RANDOM = random.Random()  # noqa: S311 - jitter, not a secret


class HostStops(Exception):
    """The host has to stop: the run ends here and begins anew elsewhere."""


class Run(Call):
    """A handler of a job at work, and the ways to end it."""

    dropped = False
    _ending: asyncio.TimerHandle | None = None

    def __init__(
        self, ctx: JobContext, handler: Handler, lane: Lane, call: Caller, task: asyncio.Task[Any],
        over: asyncio.Event,
    ) -> None:  # fmt: skip
        super().__init__(task, in_thread=handler.kind == "thread")
        self.ctx = ctx
        self.began = ctx.beaten_at
        self.handler = handler
        self.lane = lane
        self._call = call
        self._over = over
        """Set before the host cancels the task itself."""

    def cut(self, reason: BaseException) -> None:
        """As `Call.cut`; a thread is told by its context. If it asks nothing, it keeps its slot."""
        super().cut(reason)
        self.ctx.cut_for = self.cut_for

    def end_within(self, seconds: float, reason: BaseException) -> None:
        """Give the handler so long to reach a checkpoint; asking again gives no more."""
        if self._ending is None:
            self._ending = self.ctx.loop.call_later(seconds, self.cut, reason)

    def drop(self, reason: BaseException) -> None:
        """End the handler; what it comes to is nobody's business any more."""
        self.dropped = self.ctx.gone = True
        self.cut(reason)

    async def execute(self) -> Settlement | None:
        """Run to the end; None if there is nothing to settle: it is done, or not ours any more."""
        ctx = self.ctx
        try:
            value = await self._called()
            # What takes the context alone decides by itself: a bulk job notes the row and goes on.
            if ctx.refusal is not None and not self.handler.raw:
                raise ctx.refusal
            result = None if value is None else encoded_result(value)
        except asyncio.CancelledError as error:
            return self._cancelled(error)
        except (JobPaused, JobCanceled) as error:
            return self._failed(self.cut_for or error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self._failed(error)
        finally:
            self.end()
            if self._ending is not None:
                self._ending.cancel()
        if ctx.settled or self.dropped:
            return None
        return Settlement(
            claim=ctx.claim, event="done", result=result,
            friendly=None if ctx.friendly is None else outcomes.shortened(str(ctx.friendly)),
            seconds=time.monotonic() - self.began,
        )  # fmt: skip

    async def _called(self) -> Any:
        """Call the handler, and roll back what it leaves open of its transactions."""
        try:
            value = await self._call(self.handler, self.ctx)
            if value is not None:
                value = await self.settled(value)
        except BaseException as error:
            if not (self.in_thread and isinstance(error, asyncio.CancelledError)):
                with suppress(HandlerError):  # what the handler raised counts
                    await self.ctx.end_call()
            raise  # else its thread is still at work, and finds out at its next call
        await self.ctx.end_call()
        return value

    def _cancelled(self, error: BaseException) -> Settlement | None:
        """Tell apart who cancelled: the host that ends, this class, or the handler itself."""
        if self._over.is_set():
            raise error
        return self._failed(self.cut_for or error)

    def watch(self, now: float) -> None:
        """Cut the handler off if it has used up its time, or gave no sign of life for too long.

        Whoever runs it calls this several times a second: cheaper than a timer for every run.
        """
        limit, quiet = self.handler.time_limit or self.lane.time_limit, self.lane.stall_after
        if limit is not None:
            late = now - self.began >= limit
        else:
            late = quiet is not None and now - self.ctx.beaten_at >= quiet
        if late:
            self.cut(HandlerTimeout(f"the job ran longer than {limit or quiet:g} s"))

    def _failed(self, error: BaseException) -> Settlement | None:
        ctx, claim = self.ctx, self.ctx.claim
        if ctx.settled:
            log.warning(
                "jobs.failed_after_completion", job=str(claim.id), error=error_text.shown(error)
            )
            return None
        if self.dropped:
            return None
        if isinstance(self.cut_for, HostStops):
            return Settlement(claim=claim, event="return", seconds=time.monotonic() - self.began)
        if ctx.gone:  # deleted: nothing of it is kept
            return Settlement(claim=claim, event="fail")
        found = outcomes.classify(
            error, workflow=self.lane.name == "workflow", retries=claim.retries,
            random=_RANDOM, limits=self.handler.attempts,
            canceling=ctx.asked == states.CANCELING, deferred=claim.deferred,
        )  # fmt: skip
        if not isinstance(error, (JobCanceled, JobPaused)):
            log.warning(
                "jobs.handler_failed", job=str(claim.id), handler=claim.handler,
                attempt=claim.attempt, outcome=found.event, error=error_text.shown(error),
            )  # fmt: skip
        return Settlement(
            claim=claim, event=found.event, delay=found.delay, error=found.error_code,
            message=found.message, friendly=found.friendly, seconds=time.monotonic() - self.began,
        )  # fmt: skip


def call(handler: Handler, ctx: JobContext) -> Awaitable[Any]:
    """Call a handler: a coroutine in the loop, a plain function in a thread."""
    arguments: dict[str, Any] = {}
    if not handler.raw:
        data = ctx.claim.data
        arguments = handler.arguments({} if data is None else _DECODER.decode(data))
    if handler.kind == "async":
        running: Awaitable[Any] = handler.function(ctx, **arguments)
        return running
    function = partial(handler.function, BlockingContext(ctx), **arguments)
    return ctx.threads.call(function)
