"""Calls of change handlers: arguments, time limits, cancellation, metrics and spans."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from relevo.errors import DatabaseUnavailable, LeaseLost, LeaseStoreError, OutcomeUnknown
from relevo.feed.processing.context import wants_context
from relevo.kernel import callables, error_text, uses
from relevo.kernel.leases.hosts import instant
from relevo.kernel.running.calls import HandlerCall, Limits, watched
from relevo.kernel.running.threads import Threads
from relevo.kernel.running.verdicts import verdict_in
from relevo.kernel.telemetry import tracing
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from relevo.feed.model import Change, Mode
    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.leases import Lease, Leases
    from relevo.kernel.telemetry.metrics import Metrics

log = get_logger(__name__)
CANCEL_SECONDS = 5.0
"""How long a call whose lease is lost may take to end."""
FAILURES_MAX = 5
"""After this many failed calls in a row, the lease moves to another host, if there is one."""
SIZES_ASKED = 50
"""Minimum number of changes of a call whose size is sampled."""
NOT_THE_HANDLER = (LeaseLost, LeaseStoreError, OutcomeUnknown)
"""Errors that are no failure of the handler."""


class Observer:
    """Records what happens to a lease on this host, and to one call."""

    def __init__(
        self,
        metrics: Metrics,
        leases: Leases,
        lease: Lease,
        changes: Sequence[Change[Any]] = (),
    ) -> None:
        self._metrics = metrics
        self._leases = leases
        self._lease = lease
        self._changes = changes

    @asynccontextmanager
    async def call(self, attempt: int) -> AsyncIterator[None]:
        """Stand around one call of the handler, from its begin to its end."""
        lease, began = self._lease, instant()
        outcome = "cut"
        self._lag(self._age())
        lease.meter.begin(began)
        work = tracing.TracedWork(
            destination=lease.unit, id=f"{lease.name}/{lease.epoch}", count=len(self._changes),
            first=attempt == 1,
            attributes={
                "relevo.lease": lease.name, "relevo.epoch": lease.epoch, "relevo.attempt": attempt,
            },
        )  # fmt: skip
        try:
            with tracing.processing(work):
                yield
            outcome = "done"
        except NOT_THE_HANDLER:
            raise
        except Exception as error:
            verdict = verdict_in(error)
            outcome = "fail" if verdict is None else verdict.event
            raise
        finally:
            self._ended(outcome, began)
            if outcome == "fail" and lease.failures >= FAILURES_MAX:
                await self._pass_on()

    def caught_up(self, in_flight: int = 0) -> None:
        """There is nothing left to read for the lease, and so much is still in calls."""
        self._lease.caught_up = True
        if not in_flight:
            self._lag(0.0)

    def close(self) -> None:
        """The lease is another host's from here on."""
        self._metrics.feed_lag.drop(self._lease.unit, self._lease.name)

    def _ended(self, outcome: str, began: float) -> None:
        lease, unit, now = self._lease, self._lease.unit, instant()
        lease.meter.end(now, changes=len(self._changes), size=_size_of(self._changes))
        self._metrics.runs.of("feed", unit).ended(outcome, now - began)
        if outcome == "fail":
            lease.failures += 1
        elif outcome == "done":
            lease.failures = 0
            self._metrics.feed_batches.labels(unit=unit).inc()
            self._metrics.feed_changes.labels(unit=unit).inc(len(self._changes))
            if lease.caught_up and not lease.meter.running:
                self._lag(0.0)

    async def _pass_on(self) -> None:
        """Try another host; without one, or without the store, it goes on here."""
        try:
            await self._leases.pass_on(self._lease)
        except (DatabaseUnavailable, OutcomeUnknown, LeaseLost) as error:
            log.info("feed.not_passed_on", lease=self._lease.name, error=str(error))

    def _age(self) -> float:
        """Seconds since the first change was committed, by the database's clock as far as known."""
        now = time.time() + self._leases.skew
        return max(0.0, now - self._changes[0].stamp)

    def _lag(self, seconds: float) -> None:
        self._metrics.feed_lag.set(self._lease.unit, self._lease.name, seconds)


def _size_of(changes: Sequence[Change[Any]]) -> int:
    """Return about how many bytes the bodies have, by a sample; it is only for balancing."""
    step = max(1, len(changes) // SIZES_ASKED)
    return step * sum([len(change.raw or "") for change in changes[::step]])


class CallWatch(Struct, frozen=True, kw_only=True):
    """Limits and observers of a call."""

    limits: Limits
    on_stall: Callable[[], Awaitable[None]] | None = None
    with_context: bool | None = None
    """Whether the handler takes a context; None inspects it."""
    observer: Observer | None = None
    """Records the outcome of the call."""


async def call(
    handler: Callable[..., Any], ctx: ChangeContext, changes: Any, watch: CallWatch
) -> None:
    """Call a handler: coroutines on the loop, plain functions in a thread of their own.

    If a plain function returns an awaitable, the loop awaits it. Each call has its own thread, so
    that a call that hangs takes no place in a shared pool. Raises the handler's error,
    `HandlerTimeout`, or `CallAbandoned`.
    """
    async with watch.observer.call(ctx.attempt) if watch.observer else nullcontext():
        with uses.used_for("handlers"):
            await _call(handler, ctx, changes, watch)


async def _call(
    handler: Callable[..., Any], ctx: ChangeContext, changes: Any, watch: CallWatch
) -> None:
    with_context = wants_context(handler) if watch.with_context is None else watch.with_context
    running = ChangeCall(handler, (ctx, changes) if with_context else (changes,), ctx)
    try:
        await watched(
            running, running.task, watch.limits, on_stall=watch.on_stall, on_timeout=ctx.cancel
        )
    except asyncio.CancelledError as error:
        ctx.cancel()
        running.cut(error)
        await asyncio.wait([running.task], timeout=CANCEL_SECONDS)
        raise
    if running.task.cancelled():
        raise RuntimeError("the handler canceled itself")
    running.task.result()


class ChangeCall(HandlerCall):
    """One call of a handler, as a task: in a thread if it may block, then on the loop."""

    def __init__(
        self, handler: Callable[..., Any], arguments: Sequence[Any], ctx: ChangeContext
    ) -> None:
        self._called = partial(handler, *arguments)
        self._ctx = ctx
        self.task = asyncio.ensure_future(self._run())
        self.task.add_done_callback(_note)
        super().__init__(self.task, in_thread=not callables.is_async(handler))

    async def _run(self) -> None:
        try:
            answer = await Threads().call(self._called) if self.in_thread else self._called()
            if self._ctx.canceled and self.in_thread:
                callables.discard(answer)  # a returned coroutine never starts
            else:
                await self.answered(answer)
        except (Exception, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # which would end the host instead of the call
            raise RuntimeError(f"the handler raised {error_text.shown(error)}") from error


def _note(done: asyncio.Future[None]) -> None:
    """Retrieve the error of a call that was cut off, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()


def documents(changes: Sequence[Change[Any]], mode: Mode) -> list[bytes]:
    """Return changes as JSON: the items, or with all versions the reference's documents."""
    if mode != "all_versions":
        return [(change.raw or "null").encode() for change in changes]
    return [_document(change) for change in changes]


def _document(change: Change[Any]) -> bytes:
    """`current`, `previous` where it is kept, and `metadata`, under the reference's names."""
    facts = change.metadata
    metadata: dict[str, Any] = {
        "lsn": facts.lsn, "crts": int(facts.crts.timestamp()),
        "operationType": facts.operation_type, "previousImageLSN": facts.previous_image_lsn or 0,
        "timeToLiveExpired": facts.time_to_live_expired,
    }  # fmt: skip
    if facts.operation_type == "delete":
        metadata |= {"id": facts.id, "partitionKey": list(facts.partition_key)}
    document = {"current": msgspec.Raw((change.raw or "null").encode()), "metadata": metadata}
    if change.raw_previous is not None:
        document["previous"] = msgspec.Raw(change.raw_previous.encode())
    return msgspec.json.encode(document)


_TURNS: WeakKeyDictionary[Leases, asyncio.Lock] = WeakKeyDictionary()


def one_by_one(host: Leases) -> asyncio.Lock:
    """Return the one lock of a host process around calls that may kill it."""
    return _TURNS.setdefault(host, asyncio.Lock())
