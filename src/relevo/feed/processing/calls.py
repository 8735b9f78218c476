"""Calls of change handlers: what they are called with, and what watches over each call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from relevo.feed.processing.context import wants_context
from relevo.feed.processing.observing import Observer
from relevo.kernel import callables, error_text, uses
from relevo.kernel.running.calls import HandlerCall, Limits, watched
from relevo.kernel.running.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.feed.model import Change, Mode
    from relevo.feed.processing.context import Context
    from relevo.kernel.leases import Leases

CANCEL_SECONDS = 5.0
"""How long a call whose lease is lost may take to end."""


class Watch(Struct, frozen=True, kw_only=True):
    """What watches over a call."""

    limits: Limits
    on_stall: Callable[[], Awaitable[None]] | None = None
    with_context: bool | None = None
    """Whether the handler takes a context, if that is known; finding out takes its time."""
    observer: Observer | None = None
    """Who notes what came of the call."""


async def call(handler: Callable[..., Any], ctx: Context, changes: Any, watch: Watch) -> None:
    """Call a handler: coroutines on the loop, plain functions in a thread of their own.

    What a plain function returns is awaited on the loop if it can be. Its thread is its own, so
    that one that hangs takes no place in a pool that others need. Raises what the handler raised,
    `HandlerTimeout`, or `CallAbandoned`.
    """
    async with watch.observer.call(ctx.attempt) if watch.observer else nullcontext():
        with uses.used_for("handlers"):
            await _call(handler, ctx, changes, watch)


async def _call(handler: Callable[..., Any], ctx: Context, changes: Any, watch: Watch) -> None:
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
        raise RuntimeError("the handler cancelled itself")
    running.task.result()


class ChangeCall(HandlerCall):
    """One call of a handler, as a task: in a thread if it may block, then on the loop."""

    def __init__(self, handler: Callable[..., Any], arguments: Sequence[Any], ctx: Context) -> None:
        self._called = partial(handler, *arguments)
        self._ctx = ctx
        self.task = asyncio.ensure_future(self._run())
        self.task.add_done_callback(_note)
        super().__init__(self.task, in_thread=not callables.is_async(handler))

    async def _run(self) -> None:
        try:
            answer = await Threads().call(self._called) if self.in_thread else self._called()
            if self._ctx.canceled and self.in_thread:
                callables.discard(answer)  # what it wants to be awaited never begins
            else:
                await self.answered(answer)
        except (Exception, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # which would end the host instead of the call
            raise RuntimeError(f"the handler raised {error_text.shown(error)}") from error


def _note(done: asyncio.Future[None]) -> None:
    """Take notice of an error: of a call that was cut off, nobody else does."""
    if not done.cancelled():
        done.exception()


def documents(changes: Sequence[Change[Any]], mode: Mode) -> list[bytes]:
    """Return changes as JSON: the items, or with all versions the reference's documents."""
    if mode != "all_versions":
        return [(change.raw or "null").encode() for change in changes]
    return [_document(change) for change in changes]


def _document(change: Change[Any]) -> bytes:
    """`current`, `previous` where it is kept, and `metadata`, under the reference's names."""
    told = change.metadata
    metadata: dict[str, Any] = {
        "lsn": told.lsn, "crts": int(told.crts.timestamp()), "operationType": told.operation_type,
        "previousImageLSN": told.previous_image_lsn or 0,
        "timeToLiveExpired": told.time_to_live_expired,
    }  # fmt: skip
    if told.operation_type == "delete":
        metadata |= {"id": told.id, "partitionKey": list(told.partition_key)}
    document = {"current": msgspec.Raw((change.raw or "null").encode()), "metadata": metadata}
    if change.raw_previous is not None:
        document["previous"] = msgspec.Raw(change.raw_previous.encode())
    return msgspec.json.encode(document)


_TURNS: WeakKeyDictionary[Leases, asyncio.Lock] = WeakKeyDictionary()


def one_by_one(host: Leases) -> asyncio.Lock:
    """Return the one lock of a host process: who holds it is who may have killed the process."""
    return _TURNS.setdefault(host, asyncio.Lock())
