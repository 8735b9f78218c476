"""Plain functions in threads: where they run, and how they wait for what the event loop does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import queue
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from relevo.errors import Closed, Conflict, HandlerError
from relevo.kernel import callables, error_text, uses

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

    import asyncpg

    from relevo.kernel.postgres import Transaction

T = TypeVar("T")
Inbox = queue.SimpleQueue["tuple[asyncio.Future[Any], Callable[[], Any]] | None"]
TURN_SECONDS: Final = 1.0
"""How often a thread that waits looks whether there is still a loop."""
_ENDED: Final = "the host that ran this handler has ended; nothing more is done"


class Threads:
    """Threads that call plain functions; an idle one takes the next call, else there is another.

    What bounds their number is whoever calls: slots, or lanes of a lease. One that hangs takes no
    place that others need. They are daemons, so it does not keep the process from ending either.
    """

    def __init__(self, idle_max: int = 0) -> None:
        self._idle_max = idle_max
        self._idle: list[Inbox] = []

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call a function in a thread, with the context variables of the caller.

        The future raises what the function raised. What a future or the loop cannot carry
        (`StopIteration`, `SystemExit`, …) becomes a `RuntimeError`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(_note)
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = queue.SimpleQueue()
            threading.Thread(
                target=self._serve, args=(inbox,), daemon=True, name="relevo handler"
            ).start()
        inbox.put((future, partial(contextvars.copy_context().run, function)))
        return future

    def _serve(self, inbox: Inbox) -> None:
        while (call := inbox.get()) is not None:
            (future, function), answer, raised = call, None, None
            try:
                answer = function()
            except BaseException as error:
                raised = error
            is_kept = len(self._idle) < self._idle_max
            if is_kept:  # before the loop hears of the end and may have the next call
                self._idle.append(inbox)
            with suppress(RuntimeError):  # the loop is closed; no task waits any more
                future.get_loop().call_soon_threadsafe(_finish, future, answer, raised)
            del call, function, future, answer, raised  # it may be idle for long
            if not is_kept:
                return
            if not self._idle_max:
                self.close()

    def close(self) -> None:
        """Let threads end: idle ones now, those at work after it."""
        self._idle_max = 0
        with suppress(IndexError):
            while True:
                self._idle.pop().put(None)


def _finish(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    if future.done():
        callables.discard(answer)
    elif error is None:
        future.set_result(answer)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:
        wrapped = HandlerError(f"the handler raised {error_text.shown(error)}")
        wrapped.__cause__ = error
        future.set_exception(wrapped)


def _note(done: asyncio.Future[Any]) -> None:
    """Retrieve the error of a call that was cut off, which has no other reader."""
    if not done.cancelled():
        done.exception()


def is_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs in the loop: then nothing may wait for the loop, it must await.

    A plain function may return a coroutine, which gets the same context and runs in the loop.
    """
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def waited(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Return what a coroutine comes to that runs in a loop; for threads other than the loop's.

    Raises `Closed` if the loop is no more, or ends before the work: a thread outlives a host that
    could not wait for it.
    """
    if is_here(loop):  # which would wait for itself, for ever
        work.close()
        raise Conflict(
            "a transaction of a plain function is used in its thread, not in a coroutine"
        )
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError as error:
        work.close()
        raise Closed(_ENDED) from error
    # A loop that closes leaves what it has not begun or ended as it is, and tells nobody.
    while not concurrent.futures.wait((future,), TURN_SECONDS).done:
        if loop.is_closed():
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()
            raise Closed(_ENDED)
    return future.result()


class BlockingTransaction:
    """The transaction of a plain function: what it does is committed with the work's completion.

    >>> with ctx.transaction() as tx:  # doctest: +SKIP
    ...     tx.execute("update stock set count = count - $1 where sku = $2", 1, "lamp")
    """

    def __init__(self, tx: Transaction, loop: asyncio.AbstractEventLoop) -> None:
        self._tx = tx
        self._loop = loop
        self._over = False

    def execute(self, sql: str, *args: Any) -> str:
        """Run a statement and return its status, such as `UPDATE 1`."""
        return waited(self.running.execute(sql, *args), self._loop)

    def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Return all rows of a statement."""
        return waited(self.running.fetch(sql, *args), self._loop)

    def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        """Return the first row of a statement, or None."""
        return waited(self.running.fetchrow(sql, *args), self._loop)

    def fetchval(self, sql: str, *args: Any) -> Any:
        """Return the first value of the first row of a statement, or None."""
        return waited(self.running.fetchval(sql, *args), self._loop)

    @property
    def running(self) -> Transaction:
        """The transaction as the event loop knows it; raises `Conflict` after its block."""
        if self._over:
            raise Conflict("this transaction is over; use it inside of its `with` block")
        return self._tx

    def end(self) -> None:
        """Refuse further statements."""
        self._over = True


@contextmanager
def entered(
    manager: AbstractAsyncContextManager[Transaction], loop: asyncio.AbstractEventLoop
) -> Iterator[BlockingTransaction]:
    """Enter a transaction from a thread, and leave it as the block was left."""
    given, hold = waited(_enter(manager), loop)
    tx = BlockingTransaction(given, loop)
    try:
        with uses.held_as(hold):
            yield tx
    except GeneratorExit:  # left open and forgotten; the host rolls back when the call ends
        tx.end()
        raise
    except BaseException as error:
        tx.end()
        if not waited(_leave(manager, error), loop):
            raise
    else:
        tx.end()
        waited(_leave(manager, None), loop)


async def _enter(
    manager: AbstractAsyncContextManager[Transaction],
) -> tuple[Transaction, uses.HeldConnection | None]:
    return await manager.__aenter__(), uses.holding()


async def _leave(
    manager: AbstractAsyncContextManager[Transaction], error: BaseException | None
) -> bool:
    trace = None if error is None else error.__traceback__
    kind = None if error is None else type(error)
    return bool(await manager.__aexit__(kind, error, trace))
