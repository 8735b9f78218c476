"""Transactions of user handlers, committed together with the host's own writes.

A handler's effects and the checkpoint or completion that belongs to them are one commit. That
holds only while the transaction is the one that the host began, and the host ends it. So a handler
has one at a time, cannot begin or end it by hand, cannot use it after its block, and whatever it
leaves open is rolled back when its call ends.
"""

from __future__ import annotations

import asyncio
import functools
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from asyncpg.pool import PoolConnectionProxy as _Proxy

from relevo.errors import Conflict, HandlerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from relevo.kernel.postgres.database import Transaction

    Proxy = _Proxy[Any]
else:
    Proxy = _Proxy  # which no one can subscript at run time

LEAVE_SECONDS: Final = 10.0
"""How long a commit that is under way when its call ends may take."""
_STATEMENTS: Final = frozenset({
    "execute", "executemany", "fetch", "fetchmany", "fetchrow", "fetchval", "prepare", "cursor",
    "copy_from_query",
})  # fmt: skip
_ENDING: Final = frozenset({"close", "reset", "terminate"})
_OWN: Final = frozenset({
    "_inner", "_over", "abandon", "check_unbroken", "end_block", "inside_block", "run_statement",
})  # fmt: skip
_SUSPECT: Final = re.compile(
    r"\b(commit|end|rollback|abort|begin|start|prepare)\b", re.IGNORECASE
)  # most SQL has none of these words, and is looked at no closer
_OPAQUE: Final = re.compile(
    r"""
      \bE'(?:[^'\\]|\\.|'')*'                # escape strings
    | '(?:[^']|'')*'                         # strings
    | "(?:[^"]|"")*"                         # quoted names
    | \$(?P<tag>[A-Za-z_]\w*)?\$.*?\$(?(tag)(?P=tag))\$   # dollar quotes
    | --[^\n]*                               # comments
    | /\*.*?\*/
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_CONTROL: Final = re.compile(
    r"""
      (?:commit|end|rollback|abort) (?:\s+(?:work|transaction))? (?:\s+and\s+(?:no\s+)?chain)?
    | (?:begin|start)\b .*
    | (?:commit|rollback)\s+prepared\b .*
    | prepare\s+transaction\b .*
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


class HandlerTransaction(Proxy):
    """A connection inside a transaction that only its block begins and ends.

    It is used as a connection of asyncpg, of whose pool's class it is, so that all that takes such
    a connection takes it, too.
    """

    def __init__(self, inner: Transaction) -> None:
        self._inner = inner
        self._over = False

    def __getattribute__(self, name: str) -> Any:
        """Everything is that of the connection, while the block lasts."""
        if name in _OWN or name.startswith("__"):
            return super().__getattribute__(name)
        if name in _STATEMENTS:
            return functools.partial(self.run_statement, name)
        if name in _ENDING:
            raise Conflict(f"a handler's transaction has no {name}(); leave its block instead")
        return getattr(self.inside_block(), name)

    def run_statement(self, method: str, query: Any, *args: Any, **options: Any) -> Any:
        """Run SQL by a method of the connection, unless it begins or ends a transaction."""
        if isinstance(query, str) and (control := control_in(query)) is not None:
            raise Conflict(
                f"a handler's transaction ends with its block, not by {control[:60]!r}; leave the"
                " block to commit, raise to roll back, and use `tx.transaction()` for a savepoint"
            )
        return getattr(self.inside_block(), method)(query, *args, **options)

    def inside_block(self) -> Transaction:
        """Return the connection; raises `Conflict` after the block."""
        if self._over:
            raise Conflict("this transaction is over; use it inside of its `async with` block")
        return self._inner

    def end_block(self) -> None:
        """Refuse further statements."""
        self._over = True

    def check_unbroken(self) -> None:
        """Raise `Conflict` unless the transaction of the block is still the one that is open."""
        if not self._inner.is_in_transaction():
            raise Conflict(
                "the transaction was ended inside of its block, by a statement of the handler; what"
                " it wrote was committed or rolled back by itself, and the call counts as failed"
            )

    def abandon(self) -> None:
        """Drop the connection: the server rolls back, even while a statement runs."""
        self._over = True
        self._inner.terminate()


@asynccontextmanager
async def lent(connection: Transaction) -> AsyncIterator[HandlerTransaction]:
    """Let a handler have a connection for a block; raises `Conflict` if it ended the transaction.

    What belongs to the handler's effects is written after the block, on the connection itself.
    """
    tx = HandlerTransaction(connection)
    try:
        yield tx
    finally:
        tx.end_block()
    tx.check_unbroken()


class HandlerTransactions:
    """The transactions of one call of a handler: one at a time, none longer than the call."""

    def __init__(self) -> None:
        self._block: TransactionBlock | None = None
        self._over = False

    @property
    def is_open(self) -> bool:
        """Whether the handler is inside of a block."""
        return self._block is not None

    def block(
        self, manager: AbstractAsyncContextManager[HandlerTransaction]
    ) -> AbstractAsyncContextManager[Transaction]:
        """Return the context manager of a handler's transaction; `manager` begins and commits."""
        return cast("AbstractAsyncContextManager[Transaction]", TransactionBlock(self, manager))

    def enter(self, block: TransactionBlock) -> None:
        """Let a block be the one that is open."""
        if self._over:
            raise Conflict("this call is over, and so are its transactions")
        if self._block is not None:
            raise Conflict(
                "a transaction of this call is open already, and another one would commit by"
                " itself; use the open one, or `tx.transaction()` for a savepoint"
            )
        self._block = block

    def holds(self, block: TransactionBlock) -> bool:
        """Whether a block is open; one that is not was ended with its call."""
        return self._block is block

    def leave(self, block: TransactionBlock) -> None:
        """Let a block be open no longer."""
        if self._block is block:
            self._block = None

    async def end(self, *, for_good: bool = True) -> None:
        """End the call. Raises `HandlerError` if that leaves a transaction open: it is rolled back.

        Unless it is `for_good`, tasks of the handler may begin others later, and one that is
        inside of a transaction now goes on.
        """
        self._over = for_good
        block = self._block
        if block is None or (not for_good and block.is_of_another_task()):
            return
        if await block.has_left():
            return
        self._block = None
        error = HandlerError(
            "the handler returned inside of ctx.transaction(), so nothing of it was committed; use"
            " it as `async with ctx.transaction() as tx:` and wait for tasks that are in it"
        )
        await block.abandon(error)
        raise error


class TransactionBlock:
    """One `async with ctx.transaction()`."""

    def __init__(
        self,
        transactions: HandlerTransactions,
        manager: AbstractAsyncContextManager[HandlerTransaction],
    ) -> None:
        self._transactions = transactions
        self._manager = manager
        self._tx: HandlerTransaction | None = None
        self._task: asyncio.Task[Any] | None = None
        self._leaving: asyncio.Event | None = None

    async def __aenter__(self) -> HandlerTransaction:
        self._transactions.enter(self)
        self._task = asyncio.current_task()
        try:
            self._tx = await self._manager.__aenter__()
        except BaseException:
            self._transactions.leave(self)
            raise
        if not self._transactions.holds(self):  # the call ended while it waited for a connection
            error = Conflict("this call is over, and so are its transactions")
            await self.abandon(error)
            raise error
        return self._tx

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if self._leaving is not None or self._tx is None:
            raise Conflict("this transaction is over; enter ctx.transaction() once for each")
        self._leaving = asyncio.Event()
        try:
            return await self._manager.__aexit__(kind, error, trace)
        finally:
            self._transactions.leave(self)
            self._leaving.set()

    def is_of_another_task(self) -> bool:
        """Whether a task that still runs, and is not this one, entered the block."""
        task = self._task
        return task is not None and task is not asyncio.current_task() and not task.done()

    async def has_left(self) -> bool:
        """Whether the block is left: waits for a commit that is under way."""
        if self._leaving is None:
            return False
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                return await self._leaving.wait()
        except TimeoutError:
            return False

    async def abandon(self, error: Exception) -> None:
        """Roll back in the name of `error`; the handler's own way out then fails, too."""
        if self._tx is None:
            return  # it waits for a connection; then it finds its call over
        self._leaving = self._leaving or asyncio.Event()
        self._tx.abandon()
        try:
            await self._manager.__aexit__(type(error), error, None)
        except Exception:
            return


@functools.lru_cache(maxsize=1_024)
def control_in(sql: str) -> str | None:
    """Return the first statement that begins or ends a transaction; savepoints are none.

    >>> control_in("insert into t values ('commit;'); COMMIT")
    'COMMIT'
    >>> control_in("rollback to savepoint one") is None
    True
    """
    if not _SUSPECT.search(sql):
        return None
    statements = (one.strip() for one in _OPAQUE.sub(_blank, sql).split(";"))
    return next((one for one in statements if _CONTROL.fullmatch(one)), None)


def _blank(opaque: re.Match[str]) -> str:
    """A comment is a space; a string keeps its quotes, so that it is not taken for one."""
    return " " if opaque.group().startswith(("--", "/*")) else "''"
