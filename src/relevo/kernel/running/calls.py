"""Calls of handlers, in the event loop or in a thread: how long they may take, how they end."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.errors import HandlerTimeout
from relevo.kernel import callables

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ABANDON_SECONDS: Final = 10.0
"""How long a call whose time is up may take to end before it is left to itself."""


class CallAbandoned(Exception):
    """A call did not end when its time was up; it may still run, and nothing it does counts."""


class Limits(Struct, frozen=True, kw_only=True):
    """How long a call may take, in seconds; None is no limit."""

    time_limit: float | None = None
    """When it is cut off."""
    stall_after: float | None = None
    """After how long without a sign of life it counts as stalled."""


class HandlerCall:
    """A handler at work in a task, and the ways to end it."""

    cut_for: BaseException | None = None
    """Why the handler was cut off, if it was."""
    _cancels = False

    def __init__(self, task: asyncio.Task[Any], *, in_thread: bool) -> None:
        self._task: asyncio.Task[Any] | None = task
        """The task to cancel to end the handler; None when it has ended."""
        self.in_thread = in_thread
        """Whether the handler runs in a thread, which cannot be canceled."""

    def cut(self, reason: BaseException) -> None:
        """End the handler in the name of `reason`: a coroutine at its next await.

        A thread learns it at its next call of its context; one that makes none cannot be stopped.
        """
        if self._task is None or self.cut_for is not None:
            return
        self.cut_for = reason
        if not self.in_thread:
            self._cancels = self._task.cancel()

    async def answered(self, answer: Any) -> Any:
        """Return the handler's result; awaits it here if a thread returned an awaitable."""
        if self.cut_for is not None and inspect.isawaitable(answer):
            callables.discard(answer)  # it was to end while it was in its thread
            raise self.cut_for
        self.in_thread = False
        return await callables.settled(answer)

    def end(self) -> None:
        """The handler has ended; from here on nothing is canceled in its name."""
        if self._cancels and self._task is not None:
            self._task.uncancel()
        self._task = None


async def watched(
    call: HandlerCall,
    running: asyncio.Future[Any],
    limits: Limits,
    *,
    on_stall: Callable[[], Awaitable[None]] | None = None,
    on_timeout: Callable[[], None] = lambda: None,
) -> None:
    """Wait until a call has ended; say when it stalls, and cut it off when its time is up.

    Raises `HandlerTimeout` then, or `CallAbandoned` if it does not end even so.
    """
    begun = asyncio.get_running_loop().time()
    stages = ((limits.stall_after, False), (limits.time_limit, True))
    for seconds, final in sorted((s, f) for s, f in stages if s is not None):
        left = begun + seconds - asyncio.get_running_loop().time()
        await asyncio.wait([running], timeout=max(0.0, left))
        if running.done():
            return
        if final:
            error = HandlerTimeout(f"the handler did not end within {seconds} s")
            on_timeout()
            call.cut(error)
            await asyncio.wait([running], timeout=ABANDON_SECONDS)
            if not running.done():
                raise CallAbandoned(f"a handler still runs {ABANDON_SECONDS} s after its time")
            raise error
        if on_stall is not None:
            await on_stall()
    await asyncio.wait([running])
