"""Where the database is and how to open a connection to it, from any thread or event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg

from relevo import limits
from relevo.errors import DatabaseUnavailable, SettingsError
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.binding import DEFAULT, application_name
from relevo.kernel.postgres.embedded.server import EmbeddedServer
from relevo.kernel.postgres.pool import address
from relevo.kernel.postgres.pool.session import START_UP, PoolConnection

if TYPE_CHECKING:
    from relevo.settings import Settings

SQL = catalog.load("relevo.kernel.postgres")
VERSION_MIN = 150_000
VERSION_MAX = 190_000


class Endpoint:
    """A database to connect to: the embedded one, or the one at a URL."""

    def __init__(
        self, url: str, *, schema: str = DEFAULT, embedded: EmbeddedServer | None = None
    ) -> None:
        self.url = url
        self.schema = schema
        """Where in the database Relevo's tables are."""
        self.address = address.parse(url)
        self._urls = self.address.urls
        self.embedded = embedded
        self.pooled = False
        """True when PgBouncer stands between: no statement cache, no LISTEN."""

    @classmethod
    async def open(cls, settings: Settings) -> Endpoint:
        """Start or join the embedded server, or take the URL; find out about PgBouncer."""
        if settings.database_url:
            endpoint = cls(settings.database_url, schema=settings.schema)
        else:
            server = await asyncio.to_thread(EmbeddedServer.join, settings.home)
            endpoint = cls(server.url, schema=settings.schema, embedded=server)
        try:
            await endpoint._probe(settings.pgbouncer)
        except BaseException:
            await endpoint.close()
            raise
        return endpoint

    @property
    def url_for_drivers(self) -> str:
        """The URL for other programs' asyncpg, psycopg or SQLAlchemy."""
        return address.for_drivers(self.url)

    @property
    def program(self) -> str:
        """The application name of its sessions, unless a pooler is in between."""
        return application_name(self.schema)

    async def close(self) -> None:
        """Leave the embedded server, which stops without other users."""
        if self.embedded is not None:
            await asyncio.to_thread(self.embedded.leave)

    async def connect(self, **options: Any) -> PoolConnection:
        """Open one connection; revives an embedded server that has died."""
        try:
            return await self._connect_any(**options)
        except (OSError, asyncpg.CannotConnectNowError):
            if self.embedded is None:
                raise
        await asyncio.to_thread(self.embedded.ensure_running)
        return await self._connect_any(**options)

    async def _connect_any(self, timeout: float | None = None, **options: Any) -> PoolConnection:
        """Try host after host, from the last good one; each gets its share of the time.

        A machine that died does not even refuse, and must not use up the time of the others.
        """
        urls, reasons = self._urls, []
        share = (timeout or limits.CONNECT_SECONDS_MAX) / len(urls)
        share = min(share, self.address.connect_seconds or share)
        for url in urls:
            try:
                connection = await self._connect_once(url, timeout=share, **options)
            except _NEXT_HOST as error:
                if len(urls) == 1:
                    raise
                reasons.append(f"{address.place(url)}: {_reason(error)}")
            else:
                self._urls = (url, *(other for other in urls if other != url))
                return connection
        raise ConnectionError("; ".join(reasons))

    async def _connect_once(self, url: str, **options: Any) -> PoolConnection:
        options.setdefault("command_timeout", limits.STATEMENT_SECONDS_MAX)
        options.setdefault("connection_class", PoolConnection)
        connection: PoolConnection = await asyncpg.connect(
            url,
            statement_cache_size=0 if self.pooled else 200,
            max_cached_statement_lifetime=0,
            server_settings={} if self.pooled else START_UP | {"application_name": self.program},
            **options,
        )
        connection.pooled, connection.schema = self.pooled, self.schema
        connection.server = connection.get_settings().server_version
        if not self.pooled:
            try:
                await connection.pin()
            except BaseException:
                connection.terminate()
                raise
        return connection

    async def _probe(self, pgbouncer: str) -> None:
        """Check the version; a pooler shows itself by announcing another backend than it uses."""
        if pgbouncer == "auto" and self.address.is_pooled:
            pgbouncer = "on"
        self.pooled = pgbouncer != "off"  # until we know, behave so that it works either way
        try:
            connection = await self.connect()
        except (OSError, asyncpg.PostgresError, asyncpg.InternalClientError) as error:
            raise DatabaseUnavailable(
                f"cannot connect to the database at {self}: {_reason(error)};"
                " check that it runs, the address, the credentials and TLS"
            ) from error
        except (asyncpg.InterfaceError, ValueError) as error:
            raise SettingsError(f"the database URL cannot be used: {error}") from error
        try:
            async with connection.transaction():
                version = connection.get_server_version()
                backend = await connection.fetchval(SQL.backend_pid)
        finally:
            await connection.close()
        number = version.major * 10_000
        if not VERSION_MIN <= number < VERSION_MAX:
            raise SettingsError(
                f"PostgreSQL {version.major} at {self} is not supported; Relevo needs 15 to 18"
            )
        if pgbouncer == "auto":
            self.pooled = backend != connection.get_server_pid()

    def __str__(self) -> str:
        """The URL without its password."""
        return address.place(self.url)


_NEXT_HOST = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
