"""One thread with an event loop, on which blocking callers run coroutines.

A caller waits in its own thread. Calls of its blocking database driver come back to that thread
(`foreign.BLOCKING`), so a statement that waits for another transaction holds up nobody else.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from relevo.errors import Closed, Conflict
from relevo.kernel.postgres import foreign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class LoopThread:
    """Starts with the first call, and again after a fork or `close`."""

    def __init__(
        self,
        open_: Callable[[], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        forked: Callable[[], None],
    ) -> None:
        self._open, self._close, self._forked = open_, close, forked
        self._guard = threading.Lock()
        self._running: _Running | None = None
        self._inherited: list[_Running] = []
        """Loops of a parent process: closing them here would disturb it."""
        me = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _call(me, LoopThread._after_fork))
        atexit.register(lambda: _call(me, LoopThread.close))

    def run(self, awaitable: Awaitable[T], *, connected: bool = True) -> T:
        """Return what an awaitable returns, or raise what it raises; connects first if asked to."""
        if _in_event_loop():
            _drop(awaitable)
            raise Conflict(
                "this is called inside a running event loop, which it would block; use the async"
                " API there: `await` the methods of relevo.App"
            )
        running = self._started()

        async def call() -> T:
            try:
                if connected:
                    await running.connect(self._open)
            except BaseException:
                _drop(awaitable)
                raise
            return await awaitable

        return _Call[T](running.loop).result(call())

    def close(self) -> None:
        """Close what is connected and end the thread; calls under way raise `Closed`."""
        with self._guard:
            running, self._running = self._running, None
        if running is not None:
            running.stop(self._close)

    def _started(self) -> _Running:
        with self._guard:
            if self._running is None:
                self._running = _Running()
            return self._running

    def _after_fork(self) -> None:
        self._guard = threading.Lock()
        if self._running is not None:
            self._inherited.append(self._running)
            self._running = None
            self._forked()


class _Running:
    """A loop in its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._connecting = asyncio.Lock()
        self._connected = False
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="relevo.sync", daemon=True
        )
        self._thread.start()

    async def connect(self, open_: Callable[[], Awaitable[None]]) -> None:
        """Connect if no call has done so."""
        if self._connected:
            return
        async with self._connecting:
            if not self._connected:
                await open_()
                self._connected = True

    def stop(self, close: Callable[[], Awaitable[None]]) -> None:
        """Cancel calls under way, close, and end the thread."""

        async def end() -> None:
            this = asyncio.current_task()
            calls = [task for task in asyncio.all_tasks() if task.get_name() == CALL]
            for task in calls:
                if task is not this:
                    task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            if self._connected:
                await close()

        try:
            asyncio.run_coroutine_threadsafe(end(), self.loop).result()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


CALL = "relevo.sync call"


class _Call(Generic[T]):
    """A coroutine on the loop, and the thread that waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._task: asyncio.Task[T] | None = None

    def result(self, coroutine: Any) -> T:
        """Wait, and meanwhile do what the coroutine asks of this thread."""
        context = contextvars.copy_context()
        context.run(foreign.BLOCKING.set, self._in_callers_thread)

        def start() -> None:
            self._task = self._loop.create_task(coroutine, name=CALL, context=context)
            self._task.add_done_callback(lambda _: self._inbox.put(None))

        self._loop.call_soon_threadsafe(start)
        try:
            while (work := self._inbox.get()) is not None:
                work()
        except BaseException:  # Ctrl-C
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
            raise
        assert self._task is not None
        if self._task.cancelled():
            raise Closed("the client was closed while the call ran; its outcome is not known")
        return self._task.result()

    async def _in_callers_thread(self, work: Callable[[], Any]) -> Any:
        answer: asyncio.Future[Any] = self._loop.create_future()

        def set_answer(result: Any, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        def do() -> None:
            result, error = None, None
            try:
                result = work()
            except Exception as raised:
                error = raised
            self._loop.call_soon_threadsafe(set_answer, result, error)

        self._inbox.put(do)
        return await answer


def _drop(awaitable: Awaitable[Any]) -> None:
    """Give up a call that has not begun, without the warning that it was never awaited."""
    if asyncio.iscoroutine(awaitable):
        awaitable.close()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _call(me: weakref.ref[LoopThread], method: Callable[[LoopThread], None]) -> None:
    there = me()
    if there is not None:
        method(there)
