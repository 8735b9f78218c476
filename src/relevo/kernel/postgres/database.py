"""The pool, transactions, and retries that know what they may repeat.

    fetch, fetchrow, fetchval   reads; repeated freely
    fetch_page                  reads the first rows, no more than a page of them
    write                       one writing statement with its own commit
    run                         a transaction around a function, repeated as a whole

Bounded in attempts and time. A call ends in its result, in the error of its own statement, in
`DatabaseUnavailable` (known not to have happened) or in `OutcomeUnknown`; never in a guess.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import asyncpg

from relevo import limits
from relevo.errors import Closed
from relevo.kernel import uses
from relevo.kernel.backoff import Backoff
from relevo.kernel.postgres import catalog, pages
from relevo.kernel.postgres.attempts import (
    CONNECT_ERRORS,
    Attempt,
    Ending,
    NotConnected,
    OpenTransaction,
    cut,
    ending_of,
    may_repeat,
    verdict,
)
from relevo.kernel.postgres.failures import is_demoted
from relevo.kernel.postgres.pool.connections import Connections, Sleepers
from relevo.kernel.postgres.pool.endpoint import Endpoint
from relevo.kernel.postgres.pool.session import PoolConnection
from relevo.kernel.postgres.user_queries import UserQueries
from relevo.kernel.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres.pool.connections import Pooled
    from relevo.kernel.uses import Use
    from relevo.settings import Settings

T = TypeVar("T")
STAY_AWAKE: Final = " set local idle_in_transaction_session_timeout = '5s';"
"""A single call that needs a transaction, because a pooler stands between, must not sleep in it."""
CLOSE_SECONDS_MAX: Final = 10.0
"""How long calls under way may take when the database is closed."""
Transaction = asyncpg.Connection
"""A connection inside a transaction, on which parts run statements."""


class Database:
    """One PostgreSQL as the parts of Relevo see it.

    >>> async with await Database.open(settings.load()) as database:  # doctest: +SKIP
    ...     await database.fetchval("select relevo.now()")
    """

    page_bytes: int = limits.PAGE_BYTES_MAX
    """How large a page of a list is at most."""

    def __init__(self, endpoint: Endpoint, pool: asyncpg.Pool, metrics: Metrics) -> None:
        self.endpoint = endpoint
        self.schema = endpoint.schema
        self.metrics = metrics
        self.user_queries = UserQueries(self)
        self.sleepers = Sleepers(endpoint)
        self._commits = metrics.statements.commits
        self._connections = Connections(pool, metrics)
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._closed = False

    @classmethod
    async def open(cls, settings: Settings, metrics: Metrics | None = None) -> Database:
        """Connect as the settings say; starts or joins the embedded server if no URL is given."""
        endpoint = await Endpoint.open(settings)
        try:
            database = await cls.at(endpoint, pool_size=settings.pool_size, metrics=metrics)
        except BaseException:
            await endpoint.close()
            raise
        database.page_bytes = settings.page_bytes
        database.user_queries.seconds = settings.query_seconds
        return database

    @classmethod
    async def at(
        cls, endpoint: Endpoint, *, pool_size: int, metrics: Metrics | None = None
    ) -> Database:
        """Open a pool at an endpoint."""
        pool = await asyncpg.create_pool(
            min_size=0,
            max_size=pool_size,
            max_inactive_connection_lifetime=300.0,
            connect=lambda *_, **options: endpoint.connect(**options),
            connection_class=PoolConnection,
        )
        return cls(endpoint, pool, metrics or Metrics())

    async def close(self) -> None:
        """Return every connection and leave the embedded server; calls under way may finish."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.sleepers.close()
            await self._connections.close(CLOSE_SECONDS_MAX)
        finally:
            await self.endpoint.close()

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Return all rows of a reading statement."""
        rows: list[asyncpg.Record] = await self._attempt(
            lambda _: self._statement(sql, args), repeatable=True
        )
        return rows

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        """Return the first row of a reading statement, or None."""
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        """Return the first value of the first row of a reading statement, or None."""
        rows = await self.fetch(sql, *args)
        return rows[0][0] if rows else None

    async def fetch_page(
        self, sql: str, *args: Any, rows: int, bytes_max: int | None = None
    ) -> Fetched[asyncpg.Record]:
        """Return the first rows of a reading statement: at most `rows`, and a page's bytes.

        The statement gives one row more, if there is one. One row is returned in any case.
        """
        most = bytes_max or self.page_bytes
        return await self.read(lambda tx: pages.read(tx, (sql, *args), rows=rows, bytes_max=most))

    async def read(self, work: Callable[[PoolConnection], Awaitable[T]]) -> T:
        """Run `work`, which only reads and leaves nothing behind, in a transaction of its own."""

        async def transaction(attempt: Attempt) -> T:
            opening = STAY_AWAKE if self.endpoint.pooled else ""
            async with (
                self._borrowed() as connection,
                OpenTransaction(connection, attempt, opening=opening),
            ):
                return await work(connection)

        return await self._attempt(transaction, repeatable=True)

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[PoolConnection]:
        use = uses.INSIDE if uses.is_holding(self) else uses.current()
        connection = await self.take(use)
        try:
            yield connection
        except BaseException as error:
            if is_demoted(error):
                cut(connection)
            self._connections.release(_pooled(connection), use)
            raise
        self._connections.keep(_pooled(connection), use)

    async def write(self, sql: str, *args: Any, idempotent: bool = False) -> list[asyncpg.Record]:
        """Run one writing statement in a commit of its own and return its rows.

        `idempotent=True` says that it may be repeated when its outcome is not known.
        """

        return await self._timed(
            lambda attempt: self._statement(sql, args, attempt), repeatable=idempotent
        )

    async def run(
        self, work: Callable[[Transaction], Awaitable[T]], *, idempotent: bool = False
    ) -> T:
        """Run `work` in a READ COMMITTED transaction; it may be called several times.

        It is repeated when the transaction is known not to have happened, so it must have no effect
        outside of it. `idempotent=True` also repeats it when the commit's fate is not known.
        """

        async def transaction(attempt: Attempt) -> T:
            async with _Loan(self, attempt, theirs=False) as connection:
                return await work(connection)

        return await self._timed(transaction, repeatable=idempotent)

    @asynccontextmanager
    async def transaction(self, *, own: bool = False) -> AsyncIterator[Transaction]:
        """Give a transaction for a block that cannot be repeated; errors are as of `run`.

        `own=True` says that Relevo's statements come first in it, which only saves a round trip.
        """
        attempt = Attempt()
        try:
            with self.sleepers.watch():
                async with _Loan(self, attempt, theirs=not own) as connection:
                    yield connection
        except Exception as error:
            self._raise(error, ending_of(error, attempt), unknown=False)

    async def _statement(
        self, sql: str, args: tuple[Any, ...], attempt: Attempt | None = None
    ) -> list[asyncpg.Record]:
        use = uses.INSIDE if uses.is_holding(self) else uses.current()
        connection = await self.take(use)
        try:
            rows: list[asyncpg.Record]
            if self.endpoint.pooled:
                # Parse and execute are two messages; only a transaction keeps them on one server.
                async with OpenTransaction(
                    connection, attempt or Attempt(), theirs=not catalog.is_own(sql),
                    opening=STAY_AWAKE,
                ):  # fmt: skip
                    rows = await connection.fetch(sql, *args)
            else:
                if attempt is not None:
                    attempt.committing = True
                rows = await connection.fetch(sql, *args)
        except BaseException as error:
            if is_demoted(error):
                cut(connection)
            self._connections.release(_pooled(connection), use)
            raise
        self._connections.keep(_pooled(connection), use)
        return rows

    async def take(self, use: Use) -> PoolConnection:
        """Return a connection for a use; it is given back, or kept at hand."""
        if self._closed:
            raise Closed("the database is closed; no further statement is possible")
        try:
            # The pool's stand-in for a connection of ours; it behaves as one.
            return cast(PoolConnection, await self._connections.take(use))
        except CONNECT_ERRORS as error:
            if self._closed:
                raise Closed("the database was closed while the call waited") from error
            raise NotConnected(error) from error

    def give_back(self, connection: PoolConnection, use: Use) -> None:
        """Return a connection that may have to be reset."""
        self._connections.release(_pooled(connection), use)

    async def _timed(self, work: Callable[[Attempt], Awaitable[T]], *, repeatable: bool) -> T:
        started = time.perf_counter()
        result = await self._attempt(work, repeatable=repeatable)
        self._commits.add(time.perf_counter() - started)
        return result

    async def _attempt(self, work: Callable[[Attempt], Awaitable[T]], *, repeatable: bool) -> T:
        began, unknown = time.monotonic(), False
        for number in range(limits.ATTEMPTS_MAX):
            attempt = Attempt()
            try:
                with self.sleepers.watch():
                    return await work(attempt)
            except Exception as error:
                ending = ending_of(error, attempt)
                unknown = unknown or ending == "unknown"
                spent = time.monotonic() - began
                last = number + 1 == limits.ATTEMPTS_MAX or spent > limits.RETRY_SECONDS_MAX
                if last or not may_repeat(error, ending, repeatable=repeatable):
                    self._raise(error, ending, unknown=unknown)
            self.metrics.store_retries.inc()
            await asyncio.sleep(Backoff().delay(number, self._random))
        raise AssertionError("unreachable")

    def _raise(self, error: Exception, ending: Ending, *, unknown: bool) -> NoReturn:
        outcome = verdict(error, ending, str(self.endpoint), unknown=unknown)
        if outcome is error:
            raise error
        raise outcome from error


class _Loan:
    """A connection inside a transaction, for the length of a block."""

    __slots__ = ("_attempt", "_connection", "_database", "_held", "_theirs", "_transaction", "_use")

    def __init__(self, database: Database, attempt: Attempt, *, theirs: bool) -> None:
        self._database, self._attempt, self._theirs = database, attempt, theirs

    async def __aenter__(self) -> Transaction:
        self._use = uses.NESTED if uses.is_holding(self._database) else uses.current()
        self._connection = await self._database.take(self._use)
        self._held = uses.hold(self._database)
        self._transaction = OpenTransaction(self._connection, self._attempt, theirs=self._theirs)
        try:
            await self._transaction.__aenter__()
        except BaseException as error:
            self._end(error)
            raise
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        try:
            await self._transaction.__aexit__(kind, error, trace)
        except BaseException as late:
            error = late
            raise
        finally:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if error is not None and is_demoted(error):
            cut(self._connection)
        uses.let_go(self._held)
        self._database.give_back(self._connection, self._use)


def _pooled(connection: PoolConnection) -> Pooled:
    return cast("Pooled", connection)
