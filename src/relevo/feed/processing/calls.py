"""Calls a handler and watches over the call: says when it stalls, ends it when its time is up."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from relevo.errors import HandlerTimeout
from relevo.feed.processing.context import wants_context
from relevo.feed.processing.observing import Observer
from relevo.kernel import callables, error_text, uses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.feed.model import Change, Mode
    from relevo.feed.processing.context import Context
    from relevo.kernel.leases import Leases

ABANDON_SECONDS = 10.0
"""How long a call whose time is up may take to end before it is left to itself."""
CANCEL_SECONDS = 5.0
"""How long a call whose lease is lost may take to end."""


class CallAbandoned(Exception):
    """A call did not end when its time was up; it may still run, and nothing it does counts."""


class Watch(Struct, frozen=True, kw_only=True):
    """How long a call may take, in seconds."""

    stall_after: float | None = None
    timeout: float | None = None
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
    running = _Running(handler, (ctx, changes) if with_context else (changes,), ctx)
    try:
        await _watched(running.task, ctx, watch, running.end)
    except asyncio.CancelledError:
        ctx.cancel()
        running.end()
        await asyncio.wait([running.task], timeout=CANCEL_SECONDS)
        raise
    if running.task.cancelled():
        raise RuntimeError("the handler cancelled itself")
    running.task.result()


class _Running:
    """One call of a handler: in a thread if it may block, then what it returned on the loop."""

    def __init__(self, handler: Callable[..., Any], arguments: Sequence[Any], ctx: Context) -> None:
        self._handler = handler
        self._arguments = arguments
        self._ctx = ctx
        self._in_thread = not callables.is_async(handler)
        self.task = asyncio.ensure_future(self._run())
        self.task.add_done_callback(_note)

    def end(self) -> None:
        """Cancel the call; a thread cannot be ended, it sees `ctx.cancelled`."""
        if not self._in_thread:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            await self._work()
        except (Exception, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # which would end the host instead of the call
            raise RuntimeError(f"the handler raised {error_text.shown(error)}") from error

    async def _work(self) -> None:
        if not self._in_thread:
            await callables.call(self._handler, *self._arguments)
            return
        answer = await _in_thread(lambda: self._handler(*self._arguments))
        self._in_thread = False
        if self._ctx.cancelled:  # its time is up, and what it wants to be awaited never begins
            callables.discard(answer)
        else:
            await callables.settled(answer)


def documents(changes: Sequence[Change[Any]], mode: Mode) -> list[bytes]:
    """Return changes as JSON: the items, or with all versions the reference's documents."""
    if mode != "all_versions":
        return [(change.raw or "null").encode() for change in changes]
    return [_document(change) for change in changes]


def _document(change: Change[Any]) -> bytes:
    """`current`, `previous` where it is kept, and `metadata`, under the reference's names (2.3)."""
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


async def _watched(
    running: asyncio.Future[None], ctx: Context, watch: Watch, end: Callable[[], object]
) -> None:
    limits = ((watch.stall_after, False), (watch.timeout, True))
    begun = asyncio.get_running_loop().time()
    for seconds, final in sorted((s, f) for s, f in limits if s is not None):
        left = begun + seconds - asyncio.get_running_loop().time()
        await asyncio.wait([running], timeout=max(0.0, left))
        if running.done():
            return
        if final:
            ctx.cancel()
            end()
            await asyncio.wait([running], timeout=ABANDON_SECONDS)
            if not running.done():
                raise CallAbandoned(f"a handler still runs {ABANDON_SECONDS} s after its time")
            raise HandlerTimeout(f"the handler did not end within {seconds} s", context=ctx)
        if watch.on_stall is not None:
            await watch.on_stall()
    await asyncio.wait([running])


def _in_thread(work: Callable[[], Any]) -> asyncio.Future[Any]:
    loop = asyncio.get_running_loop()
    running: asyncio.Future[Any] = loop.create_future()
    running.add_done_callback(_note)

    def finish(answer: Any, error: BaseException | None) -> None:
        if running.done():
            callables.discard(answer)
        elif error is None:
            running.set_result(answer)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            running.set_exception(error)
        else:
            shown = error_text.shown(error)
            running.set_exception(RuntimeError(f"the handler raised {shown}"))

    def run() -> None:
        answer, raised = None, None
        try:
            answer = work()
        except BaseException as error:
            raised = error
        with suppress(RuntimeError):  # the loop is closed; nobody waits any more
            loop.call_soon_threadsafe(finish, answer, raised)

    # Daemons, since a thread that hangs must not keep the process from ending.
    threading.Thread(
        target=contextvars.copy_context().run, args=(run,), daemon=True, name="relevo handler"
    ).start()
    return running


def _note(done: asyncio.Future[None]) -> None:
    """Take notice of an error: of a call that was cut off, nobody else does."""
    if not done.cancelled():
        done.exception()


_TURNS: WeakKeyDictionary[Leases, asyncio.Lock] = WeakKeyDictionary()


def one_by_one(host: Leases) -> asyncio.Lock:
    """Return the one lock of a host process: who holds it is who may have killed the process."""
    return _TURNS.setdefault(host, asyncio.Lock())
