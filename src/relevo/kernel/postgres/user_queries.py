"""Statements that users write themselves, by a filter or a document, with bounds of their own.

The cost of such a statement is not known beforehand. So each has a time limit in the server and,
where the role may set it, a limit on temporary files; and all of them together use a few of the
pool's connections, so that the rest is left to other work.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from relevo import limits
from relevo.errors import QueryTooCostly
from relevo.kernel import uses
from relevo.kernel.postgres import catalog, pages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.pool.session import PoolConnection

T = TypeVar("T")
SQL = catalog.load(__package__)


class UserQueries:
    """Runs reading statements of users."""

    seconds: float = limits.QUERY_SECONDS_MAX
    """How long the server may work on one of them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Return all rows of a statement; raises `QueryTooCostly`."""

        async def work(connection: PoolConnection) -> list[asyncpg.Record]:
            rows: list[asyncpg.Record] = await connection.fetch(_marked(sql), *args)
            return rows

        return await self._limited(work)

    async def fetch_page(self, sql: str, *args: Any, rows: int) -> Fetched[asyncpg.Record]:
        """Return a page of rows as `Database.fetch_page` does; raises `QueryTooCostly`."""
        until = time.monotonic() + self.seconds

        def check() -> None:
            if time.monotonic() > until:
                raise self._too_costly()

        async def work(connection: PoolConnection) -> Fetched[asyncpg.Record]:
            return await pages.read(
                connection,
                (_marked(sql), *args),
                rows=rows,
                bytes_max=self._database.page_bytes,
                between=check,
            )

        return await self._limited(work)

    async def _limited(self, work: Callable[[PoolConnection], Awaitable[T]]) -> T:
        async def limited(connection: PoolConnection) -> T:
            bounds = (f"{self.seconds * 1_000:.0f}", f"{limits.QUERY_TEMPORARY_BYTES_MAX // 1024}")
            await connection.fetch(SQL.limit_query, *bounds)
            started = time.monotonic()
            try:
                return await work(connection)
            except asyncpg.ConfigurationLimitExceededError as error:
                raise self._too_costly() from error
            except asyncpg.QueryCanceledError as error:
                if time.monotonic() - started < self.seconds:
                    raise  # canceled by another session
                raise self._too_costly() from error

        with uses.used_for("queries", uses.current().key):  # a key of the HTTP API has its share
            return await self._database.read(limited)

    def _too_costly(self) -> QueryTooCostly:
        space = limits.QUERY_TEMPORARY_BYTES_MAX // limits.MIB
        return QueryTooCostly(
            f"the query took longer than {self.seconds:g} s or more than {space} MiB of temporary"
            " space; narrow it: filter by key, owner or date, drop orders and links, or ask for"
            " fewer rows"
        )


def _marked(sql: str) -> str:
    return catalog.own("querying.query", sql)
