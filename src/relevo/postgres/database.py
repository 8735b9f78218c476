"""The pool, transactions, and retries that know what they may repeat.

    fetch, fetchrow, fetchval   reads; repeated freely
    write                       one writing statement with its own commit
    run                         a transaction around a function, repeated as a whole

Bounded in attempts and time. A call ends in its result, in the error of its own statement, in
`DatabaseUnavailable` (known not to have happened) or in `OutcomeUnknown`; never in a guess.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import asyncpg

from relevo import limits
from relevo.core.backoff import Backoff
from relevo.errors import Closed, DatabaseUnavailable, EmbeddedServerError, OutcomeUnknown
from relevo.postgres.endpoint import Connection, Endpoint
from relevo.postgres.failures import is_demoted, meaning
from relevo.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from relevo.settings import Settings

T = TypeVar("T")
Transaction = asyncpg.Connection
"""A connection inside a transaction: what parts are handed and what they run statements on."""


class _Commit:
    """Whether an attempt got as far as its commit: from then on its fate may be unknown."""

    under_way = False


class Database:
    """One PostgreSQL as the parts of Relevo see it.

    >>> async with await Database.open(settings.load()) as database:  # doctest: +SKIP
    ...     await database.fetchval("select relevo.now()")
    """

    def __init__(self, endpoint: Endpoint, pool: asyncpg.Pool, metrics: Metrics) -> None:
        self.endpoint = endpoint
        self.metrics = metrics
        self._pool = pool
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._closed = False

    @classmethod
    async def open(cls, settings: Settings, metrics: Metrics | None = None) -> Database:
        """Connect as the settings say; starts or joins the embedded server if no URL is given."""
        endpoint = await Endpoint.open(settings)
        try:
            return await cls.at(endpoint, pool_size=settings.pool_size, metrics=metrics)
        except BaseException:
            await endpoint.close()
            raise

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
            connection_class=Connection,
        )
        return cls(endpoint, pool, metrics or Metrics())

    async def close(self) -> None:
        """Return every connection and leave the embedded server; calls under way may finish."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.wait_for(self._pool.close(), timeout=10.0)
        except TimeoutError:
            self._pool.terminate()
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

    async def write(self, sql: str, *args: Any, idempotent: bool = False) -> list[asyncpg.Record]:
        """Run one writing statement in a commit of its own and return its rows.

        `idempotent=True` says that it may be repeated when its outcome is not known.
        """

        async def statement(commit: _Commit) -> list[asyncpg.Record]:
            commit.under_way = not self.endpoint.pooled
            return await self._statement(sql, args, commit)

        return await self._timed(statement, repeatable=idempotent)

    async def run(
        self, work: Callable[[Transaction], Awaitable[T]], *, idempotent: bool = False
    ) -> T:
        """Run `work` in a READ COMMITTED transaction; it may be called several times.

        It is repeated when the transaction is known not to have happened, so it must have no effect
        outside of it. `idempotent=True` also repeats it when the commit's fate is not known.
        """

        async def transaction(commit: _Commit) -> T:
            async with self._connection() as connection:
                async with _transaction(connection, commit):
                    result = await work(connection)
                return result

        return await self._timed(transaction, repeatable=idempotent)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Give a transaction for a block that cannot be repeated; errors are told apart as in `run`."""
        commit = _Commit()
        try:
            async with self._connection() as connection, _transaction(connection, commit):
                yield connection
        except Exception as error:
            self._raise(error, commit, repeatable=False)

    async def _statement(
        self, sql: str, args: tuple[Any, ...], commit: _Commit | None = None
    ) -> list[asyncpg.Record]:
        async with self._connection() as connection:
            if not self.endpoint.pooled:
                return await connection.fetch(sql, *args)
            # Parse and execute are two messages; only a transaction keeps them on one server.
            async with _transaction(connection, commit or _Commit()):
                return await connection.fetch(sql, *args)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        if self._closed:
            raise Closed("the database is closed; no further statement is possible")
        try:
            connection = await self._pool.acquire(timeout=limits.CONNECT_SECONDS_MAX)
        except asyncpg.InterfaceError as error:
            raise Closed(f"the database is closing: {error}") from error
        except (OSError, asyncpg.PostgresError, EmbeddedServerError) as error:
            raise _NotConnected(error) from error
        try:
            yield connection
        except BaseException as error:
            if is_demoted(error):
                connection.terminate()
            raise
        finally:
            await asyncio.shield(self._pool.release(connection, timeout=5.0))

    async def _timed(self, work: Callable[[_Commit], Awaitable[T]], *, repeatable: bool) -> T:
        started = time.perf_counter()
        result = await self._attempt(work, repeatable=repeatable)
        seconds = time.perf_counter() - started
        self.metrics.store_commit_seconds.labels(engine="postgresql").observe(seconds)
        return result

    async def _attempt(self, work: Callable[[_Commit], Awaitable[T]], *, repeatable: bool) -> T:
        backoff = Backoff()
        give_up = time.monotonic() + limits.RETRY_SECONDS_MAX
        for attempt in range(limits.ATTEMPTS_MAX):
            commit = _Commit()
            try:
                return await work(commit)
            except Exception as error:
                last = attempt + 1 == limits.ATTEMPTS_MAX or time.monotonic() > give_up
                if last or not _may_repeat(error, commit, repeatable=repeatable):
                    self._raise(error, commit, repeatable=repeatable)
            self.metrics.store_retries.inc()
            await asyncio.sleep(backoff.delay(attempt, self._random))
        raise AssertionError("unreachable")

    def _raise(self, error: Exception, commit: _Commit, *, repeatable: bool) -> NoReturn:
        """Tell the caller how a call ended that is not tried again."""
        if isinstance(error, _NotConnected):
            raise DatabaseUnavailable(
                f"cannot connect to the database at {self.endpoint}: {error.reason}"
            ) from error.__cause__
        match meaning(error):
            case "lost" if commit.under_way and not repeatable:
                raise OutcomeUnknown(
                    "the connection to the database broke during a commit; it may or may not have"
                    f" happened ({type(error).__name__})"
                ) from error
            case "lost" | "aborted" | "refused":
                raise DatabaseUnavailable(
                    f"the database at {self.endpoint} did not take the call: {error}"
                ) from error
            case _:
                raise error


class _NotConnected(Exception):
    """No connection could be had, so nothing was sent."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.reason = str(reason) or type(reason).__name__


def _may_repeat(error: Exception, commit: _Commit, *, repeatable: bool) -> bool:
    if isinstance(error, _NotConnected):
        return True
    match meaning(error):
        case "aborted" | "refused":
            return not isinstance(error, asyncpg.DiskFullError)
        case "lost":
            return repeatable or not commit.under_way
        case _:
            return False


@asynccontextmanager
async def _transaction(connection: asyncpg.Connection, commit: _Commit) -> AsyncIterator[None]:
    """A transaction that notes when its commit is sent."""
    transaction = connection.transaction(isolation="read_committed")
    await transaction.start()
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the connection may be gone; the server rolls back by itself
            await asyncio.shield(transaction.rollback())
        raise
    commit.under_way = True
    await transaction.commit()
