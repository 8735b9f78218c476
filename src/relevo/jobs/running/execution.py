"""One run of one job: calls its handler, and turns the result into a settlement."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.jobs import states
from relevo.jobs.core import outcomes
from relevo.jobs.running.claims import JobClaim, JobSettlement, encoded_result
from relevo.jobs.running.context import BlockingContext
from relevo.kernel import error_text
from relevo.kernel.running.runs import Run
from relevo.kernel.running.verdicts import Interruption
from relevo.kernel.telemetry.logs import get_logger
from relevo.kernel.telemetry.tracing import TRACEPARENT, TracedWork

if TYPE_CHECKING:
    from relevo.jobs.registry import Handler
    from relevo.jobs.running.context import JobContext

Caller = Callable[["Handler", "JobContext"], Awaitable[Any]]
"""Calls a handler, in the loop, a thread or a process."""
log = get_logger(__name__)
_DECODER: Final = msgspec.json.Decoder()
_RANDOM = random.Random()  # noqa: S311 - jitter, not a secret


class JobRun(Run[JobClaim, JobSettlement]):
    """A handler at work on a job."""

    part = "jobs"
    ctx: JobContext
    handler: Handler

    def traced(self) -> TracedWork:
        """As `Run.traced`."""
        claim, parent = self.claim, self.ctx.details.get(TRACEPARENT)
        return TracedWork(
            destination=claim.handler, id=claim.label, first=claim.attempt == 1,
            parents=(parent,) if isinstance(parent, str) else (),
            attributes={"relevo.lane": claim.lane, "relevo.attempt": claim.attempt},
        )  # fmt: skip

    def done(self, value: Any) -> JobSettlement:
        """Complete the job; raises the error of a refused data operation, even if it was caught."""
        ctx = self.ctx
        # A raw handler decides itself: a bulk job records the row and goes on.
        if ctx.refusal is not None and not self.handler.raw:
            raise ctx.refusal
        return JobSettlement(
            claim=self.claim, event="done",
            result=None if value is None else encoded_result(value),
            friendly=None if ctx.friendly is None else outcomes.shortened(str(ctx.friendly)),
            seconds=time.monotonic() - self.began,
        )  # fmt: skip

    def returned(self) -> JobSettlement:
        """As `Run.returned`."""
        return JobSettlement(
            claim=self.claim, event="return", seconds=time.monotonic() - self.began
        )

    def failed(self, error: BaseException) -> JobSettlement:
        """Classify an error; of a deleted job nothing is kept."""
        ctx, claim = self.ctx, self.claim
        if ctx.gone:
            return JobSettlement(claim=claim, event="fail")
        found = outcomes.classify(
            error, workflow=claim.lane == "workflow", retries=claim.retries,
            random=_RANDOM, policy=self.handler.retry,
            canceling=ctx.asked == states.CANCELING, deferred=claim.deferred,
        )  # fmt: skip
        if not isinstance(error, Interruption):
            log.warning(
                "jobs.handler_failed", job=str(claim.id), handler=claim.handler,
                attempt=claim.attempt, outcome=found.event, error=error_text.shown(error),
            )  # fmt: skip
        return JobSettlement(
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
