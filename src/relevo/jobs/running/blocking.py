"""A transaction for plain functions: the event loop has it, and a thread waits for each call."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from relevo.errors import Closed, Conflict
from relevo.kernel import uses

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

    import asyncpg

    from relevo.kernel.postgres import Transaction

T = TypeVar("T")
TURN_SECONDS: Final = 1.0
"""How often a thread that waits looks whether there is still a loop."""
_ENDED: Final = "the host that ran this handler has ended; nothing more is done"


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
    """The transaction of a plain function: what it does is committed with the job's completion.

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
) -> tuple[Transaction, uses.Hold | None]:
    return await manager.__aenter__(), uses.holding()


async def _leave(
    manager: AbstractAsyncContextManager[Transaction], error: BaseException | None
) -> bool:
    trace = None if error is None else error.__traceback__
    kind = None if error is None else type(error)
    return bool(await manager.__aexit__(kind, error, trace))
