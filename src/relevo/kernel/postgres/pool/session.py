"""A connection that distinguishes Relevo's statements from users', and sets what Relevo's need.

Relevo's statements are marked (`relevo.kernel.postgres.catalog`) and run with a search path of
`pg_catalog` alone, so that no user's function, operator or cast is called in their place.
Statements of users run with the search path of their role. The path is changed when a statement of
the other kind comes, and not before: a connection that only Relevo uses is set once.

A direct session is set when it is opened. Through a pooler in transaction mode nothing outlasts a
transaction, so each begins with its settings, in the message that opens it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import asyncpg
from asyncpg.transaction import Transaction as DriverTransaction

from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.binding import DEFAULT, OWN_PATH, TURN_BACK, TURN_OWN, bound
from relevo.kernel.postgres.failures import Unanswered, explain
from relevo.kernel.postgres.pool import array_types

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

START_UP: Final = {
    "jit": "off",
    "standard_conforming_strings": "on",
    "default_transaction_isolation": "read committed",
}
"""The settings of every direct session; a reset restores them."""
_PIN: Final = f"set search_path = {OWN_PATH}"
_UNPIN: Final = "set search_path to default"
_LOCAL: Final = " set local standard_conforming_strings = on; set local jit = off;"
_LOCAL_PIN: Final = f" set local search_path = {OWN_PATH};"
_LOCAL_DEFAULT: Final = " set local search_path to default;"
_ASK: Final = "select pg_catalog.current_setting('search_path')"
_CONTROL: Final = re.compile(
    r"\s*(begin|start|commit|end|abort|rollback|savepoint|release|listen|unlisten)\b", re.IGNORECASE
)
"""Statements that steer a transaction: they name no object, and run also when it has failed."""
_BLOCK: Final = frozenset({"BEGIN ISOLATION LEVEL READ COMMITTED;", "COMMIT;", "ROLLBACK;"})
"""What a block sends, which changes nothing of the session."""
_UNDOES: Final = re.compile(r"\s*rollback\b", re.IGNORECASE)
_LATE: Final = "the statement was not answered in its time"


class Block(DriverTransaction):
    """A transaction or savepoint out of which the error of its body always comes."""

    theirs = False
    """Whether users run statements in it, and so probably the first."""
    opening = ""
    """Statements sent along with BEGIN, after the settings."""

    def __init__(self, connection: PoolConnection, *options: Any) -> None:
        super().__init__(connection, *options)
        self._at = connection

    async def start(self) -> None:
        """Begin, with the settings of the transaction in the same message."""
        at = self._at
        self._before = at.path
        self._whole = not at.is_in_transaction()
        if self._whole:
            at.open(self)
        self._number = at.transactions
        try:
            await super().start()
        except BaseException:
            at.path = _Path()
            raise

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Leave the block; a rollback that fails does not hide why there is one."""
        if kind is None:
            await super().__aexit__(kind, error, trace)
            self._committed()
            return
        try:
            await super().__aexit__(kind, error, trace)
            self._at.path = self._before
        except Exception:
            if self._number == self._at.transactions:  # else it is another user's by now
                self._at.terminate()  # a failed rollback must not be committed with the rest

    async def commit(self) -> None:
        """Commit, or release a savepoint."""
        await super().commit()
        self._committed()

    async def rollback(self) -> None:
        """Undo everything since the start."""
        await super().rollback()
        self._at.path = self._before

    def _committed(self) -> None:
        if self._whole:  # settings of a transaction end with it; those of a savepoint stay
            self._at.path = self._before


class _Path(NamedTuple):
    """Which search path a session has."""

    own: bool | None = None
    """Whether it is Relevo's; None if that is not known."""
    theirs: str | None = None
    """The path before a statement of Relevo's; None for that of the role."""


class PoolConnection(asyncpg.Connection):
    """A connection that never takes a rollback for a commit, and is reset only if need be.

    PostgreSQL answers COMMIT of a failed transaction with ROLLBACK, not an error. Code that
    swallowed the failure inside the transaction would then take it for a commit.
    """

    path = _Path()
    pooled = False
    """Whether a pooler stands between: every transaction begins with its settings."""
    schema = DEFAULT
    """Where Relevo's objects are; its statements are bound to it."""
    server = ""
    """The server's version, in its own words."""
    transactions = 0
    """How many were begun, which identifies the current user of the connection."""
    _lent = False
    """Whether users ran statements on it, which may have changed its session."""
    _opening = ""
    _unseen = False
    """Whether users keep statements that they may run at any time, without our seeing it."""

    async def pin(self) -> None:
        """Set the search path, which start-up options cannot: `reset` must restore the role's."""
        await super().execute(_PIN)
        self.path = _Path(own=True)

    def transaction(
        self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False
    ) -> Block:
        """Return a transaction, or a savepoint within one; see asyncpg."""
        return Block(self, isolation, readonly, deferrable)

    def open(self, block: Block) -> None:
        """Set the statements that go along with the next BEGIN."""
        self.transactions += 1
        self._unseen = False
        if self.pooled:
            self._opening = _LOCAL + ("" if block.theirs else _LOCAL_PIN) + block.opening
            self.path = _Path(own=not block.theirs)
        elif block.theirs:
            self._opening = _LOCAL_DEFAULT + block.opening
            self.path = _Path(own=False)
        else:
            self._opening = block.opening

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Run a command; see asyncpg."""
        own = query.startswith(catalog.OWN_MARK)
        if not own and query not in _BLOCK:
            self._lent = True
        if own is not self.path.own:
            await self._turn(query, own=own)
        opening, self._opening = self._opening, ""
        if self.schema != DEFAULT:
            query = bound(query, self.schema)
        try:
            status: str = await super().execute(query + opening, *args, timeout=timeout)
        except TimeoutError as error:
            raise Unanswered(_LATE) from error
        except asyncpg.PostgresError as error:
            explain(error, query, self.server)
            raise
        if query == "COMMIT;" and status != "COMMIT":
            raise asyncpg.InFailedSQLTransactionError(
                "the transaction had failed before its commit and was rolled back"
            )
        if own:
            if self._unseen:
                await self._turn("", own=False)
        elif _UNDOES.match(query) and self.is_in_transaction():
            self.path = _Path()  # unknown after a rollback to a savepoint
        return status

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        """Return all rows; see asyncpg."""
        return await self._run(super().fetch, query, args, options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        """Return the first row or None; see asyncpg."""
        return await self._run(super().fetchrow, query, args, options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        """Return a value of the first row or None; see asyncpg."""
        return await self._run(super().fetchval, query, args, options)

    async def fetchmany(self, query: str, args: Any, **options: Any) -> Any:
        """Return the rows of all executions; see asyncpg."""
        return await self._run(super().fetchmany, query, (args,), options)

    async def executemany(self, command: str, args: Any, **options: Any) -> Any:
        """Run a command for each of many arguments; see asyncpg."""
        return await self._run(super().executemany, command, (args,), options)

    async def prepare(self, query: str, **options: Any) -> Any:
        """Return a statement that can be run many times; see asyncpg."""
        self._unseen = self._unseen or not catalog.is_own(query)
        return await self._run(super().prepare, query, (), options)

    def cursor(self, query: str, *args: Any, **options: Any) -> Any:
        """Return a cursor, to be iterated or awaited; see asyncpg."""
        self._unseen = self._lent = True
        query = bound(query, self.schema) if self.schema != DEFAULT else query
        return _Cursor(self, query, partial(super().cursor, query, *args, **options))

    async def copy_from_table(self, table_name: str, **options: Any) -> Any:
        """Copy a table out; see asyncpg."""
        return await self._run(super().copy_from_table, table_name, (), options)

    async def copy_from_query(self, query: str, *args: Any, **options: Any) -> Any:
        """Copy the rows of a query out; see asyncpg."""
        return await self._run(super().copy_from_query, query, args, options)

    async def copy_to_table(self, table_name: str, **options: Any) -> Any:
        """Copy data into a table; see asyncpg."""
        return await self._run(super().copy_to_table, table_name, (), options)

    async def copy_records_to_table(self, table_name: str, **options: Any) -> Any:
        """Copy rows into a table; see asyncpg."""
        return await self._run(super().copy_records_to_table, table_name, (), options)

    def get_reset_query(self) -> str:
        """The statements that reset the connection for the next user; none if it is clean."""
        lent, self._lent = self._lent, False
        if not lent or self.pooled:  # there, session state is not ours to reset
            return ""
        self.path = _Path(own=True)
        return catalog.own("postgres.reset", f"{super().get_reset_query()}\n{_PIN};")

    async def _introspect_types(self, typeoids: Any, timeout: float | None) -> Any:
        """Describe types to the driver, which asks before the first statement that uses them."""
        if (types := array_types.known(typeoids)) is not None:
            return types, array_types.Asked()
        return await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]

    async def turn_to_theirs(self, query: str) -> None:
        """Set the search path for a statement of users that is about to be run."""
        if self.path.own is not False:
            await self._turn(query, own=False)

    async def _run(self, method: Any, query: str, args: Any, options: Any) -> Any:
        own = query.startswith(catalog.OWN_MARK)
        if not own and not query.startswith(catalog.ANY_MARK):
            self._lent = True
        if own is not self.path.own:
            await self._turn(query, own=own)
        if self.schema != DEFAULT:
            query = bound(query, self.schema)
        try:
            result = await method(query, *args, **options)
        except TimeoutError as error:
            raise Unanswered(_LATE) from error
        except asyncpg.PostgresError as error:
            explain(error, query, self.server)
            raise
        if self._unseen and own:
            await self._turn("", own=False)
        return result

    async def _turn(self, query: str, *, own: bool) -> None:
        """Set the search path for a statement of Relevo's own, or of a user's."""
        if query.startswith(catalog.ANY_MARK) or _CONTROL.match(query):
            return
        within = self.is_in_transaction()
        if self.pooled and not within:
            return
        before, self.path = self.path, _Path()  # unknown if this fails
        self._lent = self._lent or not own
        if before.own is None:
            found = await super().fetchval(_ASK)
            before = _Path(own=found == OWN_PATH)
        if before.own is own:
            self.path = before
        elif not within:
            await super().execute(_PIN if own else _UNPIN)
            self.path = _Path(own=own)
        elif own:
            theirs = await super().fetchval(TURN_OWN)
            self.path = _Path(own=True, theirs=theirs)
        else:
            if before.theirs is None:
                await super().execute(_LOCAL_DEFAULT)
            else:
                await super().fetchval(TURN_BACK, before.theirs)
            self.path = _Path(own=False)


class _Cursor:
    """A cursor of a user's transaction that turns to their search path before it is opened."""

    def __init__(self, connection: PoolConnection, query: str, make: Callable[[], Any]) -> None:
        self._connection = connection
        self._query = query
        self._make = make

    def __aiter__(self) -> AsyncIterator[asyncpg.Record]:
        return self._rows()

    async def _rows(self) -> AsyncIterator[asyncpg.Record]:
        await self._connection.turn_to_theirs(self._query)
        async for row in self._make():
            yield row

    def __await__(self) -> Generator[Any, None, Any]:
        return self._opened().__await__()

    async def _opened(self) -> Any:
        await self._connection.turn_to_theirs(self._query)
        return await self._make()
