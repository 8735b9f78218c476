"""Where the database is and how to open a connection to it, from any thread or event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import asyncpg

from relevo import limits
from relevo.errors import DatabaseUnavailable, SettingsError
from relevo.postgres.embedded import EmbeddedServer
from relevo.postgres.failures import meaning

if TYPE_CHECKING:
    from relevo.settings import Settings

VERSION_MIN = 150_000
VERSION_MAX = 190_000


class Connection(asyncpg.Connection):
    """A connection that never takes a rollback for a commit.

    PostgreSQL answers COMMIT of a failed transaction with ROLLBACK and no error; whoever swallowed
    the failure inside the transaction would then believe in a commit.
    """

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Run a command; see asyncpg."""
        status: str = await super().execute(query, *args, timeout=timeout)
        if query == "COMMIT;" and status != "COMMIT":
            raise asyncpg.InFailedSQLTransactionError(
                "the transaction had failed before its commit and was rolled back"
            )
        return status


class Endpoint:
    """A database to connect to: the embedded one, or the one at a URL."""

    def __init__(self, url: str, *, embedded: EmbeddedServer | None = None) -> None:
        self.url = _checked(url)
        self.embedded = embedded
        self.pooled = False
        """True when PgBouncer stands between: no statement cache, no LISTEN."""

    @classmethod
    async def open(cls, settings: Settings) -> Endpoint:
        """Start or join the embedded server, or take the URL; find out about PgBouncer."""
        if settings.database_url:
            endpoint = cls(settings.database_url)
        else:
            server = await asyncio.to_thread(EmbeddedServer.join, settings.home)
            endpoint = cls(server.url, embedded=server)
        try:
            await endpoint._probe(settings.pgbouncer)
        except BaseException:
            await endpoint.close()
            raise
        return endpoint

    async def close(self) -> None:
        """Leave the embedded server, which stops if nobody else uses it."""
        if self.embedded is not None:
            await asyncio.to_thread(self.embedded.leave)

    async def connect(self, **options: Any) -> asyncpg.Connection:
        """Open one connection; revives an embedded server that has died."""
        try:
            return await self._connect_once(**options)
        except (OSError, asyncpg.CannotConnectNowError):
            if self.embedded is None:
                raise
        await asyncio.to_thread(self.embedded.ensure_running)
        return await self._connect_once(**options)

    async def _connect_once(self, **options: Any) -> asyncpg.Connection:
        return await asyncpg.connect(
            self.url,
            timeout=options.pop("timeout", limits.CONNECT_SECONDS_MAX),
            command_timeout=options.pop("command_timeout", limits.STATEMENT_SECONDS_MAX),
            statement_cache_size=0 if self.pooled else 200,
            max_cached_statement_lifetime=0,
            connection_class=options.pop("connection_class", Connection),
            server_settings={} if self.pooled else {"application_name": "relevo", "jit": "off"},
            **options,
        )

    async def _probe(self, pgbouncer: str) -> None:
        """Check the version; a pooler shows itself by announcing another backend than it uses."""
        self.pooled = pgbouncer != "off"  # until we know, behave so that it works either way
        try:
            connection = await self.connect()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            if meaning(error) == "fault" and not isinstance(error, asyncpg.PostgresError):
                raise SettingsError(f"the database URL cannot be used: {error}") from error
            raise DatabaseUnavailable(
                f"cannot connect to the database at {self}: {error or type(error).__name__};"
                " check that it runs, the address, the credentials and TLS"
            ) from error
        try:
            async with connection.transaction():
                version = connection.get_server_version()
                backend = await connection.fetchval("select pg_backend_pid()")
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
        parts = urlsplit(self.url)
        where = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["local"])[0]
        return f"{where}{parts.path}"


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise SettingsError(
            f"a database URL starts with postgresql://, not {parts.scheme or 'nothing'}://"
        )
    hosts = parts.netloc.rpartition("@")[2]
    if "," in hosts and "target_session_attrs" not in parts.query:
        # Several hosts are a cluster with one primary, and only that one takes our writes.
        return f"{url}{'&' if parts.query else '?'}target_session_attrs=read-write"
    return url
