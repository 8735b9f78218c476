"""A fresh database per test in milliseconds: clones of one migrated template on one server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from relevo import settings
from relevo.kernel.postgres.binding import DEFAULT
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.embedded.server import EmbeddedServer
from relevo.kernel.postgres.migration import migrate
from relevo.kernel.postgres.migration.migrations import known
from relevo.limits import MIB
from relevo.testing.recycling import Recycler

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

T = TypeVar("T")
_TEMPLATE_LOCK = 727_001
FAST = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off",
    "wal_compression": "off", "max_wal_size": "256MB", "shared_buffers": "128MB",
    "shared_preload_libraries": "plpgsql", "autovacuum_naptime": "60s",
}  # fmt: skip
"""Faster and less durable: acknowledged writes survive a killed process, but not a power cut. To
drop a database takes a look at every buffer, and autovacuum looks at every database in turn."""
PUBLISHED: Final = os.environ.get("RELEVO_TEST_PUBLICATION") == "1"
"""Whether every database publishes all its tables, as before an upgrade or with Debezium: then the
server refuses to change rows of a table without a replica identity."""
PUBLICATION: Final = "create publication relevo_tests for all tables"
_ENDING: Final = "_published" if PUBLISHED else ""
MEMORY: Final = Path("/dev/shm")
MEMORY_BYTES_MIN: Final = 2_048 * MIB
"""Free space needed for a server and the databases of several tests at a time."""


class TestDatabases:
    """Creates and drops databases on one server, from its own thread.

    The server is the embedded one in a folder shared by all test processes of this user, or the one
    at `RELEVO_TEST_DATABASE_URL`, so that the same tests run on PostgreSQL 15. Each has Relevo in
    one schema.
    """

    __test__ = False

    def __init__(self, schema: str = DEFAULT) -> None:
        self.schema = schema
        self._server: EmbeddedServer | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        external = os.environ.get("RELEVO_TEST_DATABASE_URL")
        if external is None:
            logical = {"wal_level": "logical"} if PUBLISHED else {}
            self._server = EmbeddedServer.join(_home(), settings=FAST | logical)
        self._base = external or self._server_url()
        self._admin: asyncpg.Connection = self._do(asyncpg.connect(self.url_of("postgres")))
        self._one_at_a_time = asyncio.Lock()
        self._template = self._do(self._make_template())
        self._empty = self._do(self._make_empty()) if PUBLISHED else "template0"
        first = self._do(self._create(self._template))
        self._recycler = self._do(Recycler.of(self.url_of(first), schema))
        self._ready = deque([first])
        """Databases as good as new, the clones of the template among them."""
        self._used: set[str] = set()
        self._spare = self._start(self._create(self._template))

    def url_of(self, database: str) -> str:
        """Return the URL of a database on this server."""
        parts = urlsplit(self._base)
        return urlunsplit(parts._replace(path=f"/{database}"))

    def create(self, *, migrated: bool = True) -> str:
        """Return the URL of a new database, by default with Relevo's schema.

        A migrated one was created, or made as good as new, while the previous test ran, so it takes
        almost no time.
        """
        if not migrated:
            return self.url_of(self._do(self._create(self._empty)))
        if self._ready:
            name = self._ready.popleft()
        else:
            name = self._spare.result(timeout=120)
            self._spare = self._start(self._create(self._template))
        self._used.add(name)
        return self.url_of(name)

    def drop(self, url: str) -> None:
        """Drop a database in the background, even while clients are connected to it.

        Or it is emptied and gets another name: the next test finds no trace.
        """
        name = urlsplit(url).path.lstrip("/")
        again = name in self._used
        self._used.discard(name)
        self._start(self._recycle(name) if again else self._drop(name))

    def close(self) -> None:
        """Leave the server, which stops with the last test process."""
        self._do(self._drop(self._spare.result(timeout=120)))
        for name in self._ready:
            self._do(self._drop(name))
        self._do(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._server is not None:
            self._server.leave()

    def _server_url(self) -> str:
        assert self._server is not None
        return self._server.url

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._start(work).result(timeout=120)

    async def _create(self, template: str) -> str:
        name = f"relevo_test_{secrets.token_hex(6)}"
        async with self._one_at_a_time:
            await self._admin.execute(
                f'create database "{name}" template "{template}" strategy file_copy'
            )
        return name

    async def _drop(self, name: str) -> None:
        async with self._one_at_a_time:
            await self._admin.execute(f'drop database if exists "{name}" with (force)')

    async def _recycle(self, name: str) -> None:
        async with self._one_at_a_time:
            fresh = await self._recycler.recycle(self._admin, name, self.url_of(name))
        if fresh is None:
            await self._drop(name)
        else:
            self._ready.append(fresh)

    async def _make_template(self) -> str:
        texts = "".join(migration.script or migration.text for migration in known())
        text = f"{migrate.BOOTSTRAP}{texts}{self.schema if self.schema != DEFAULT else ''}"
        name = f"relevo_template_{hashlib.sha256(text.encode()).hexdigest()[:12]}{_ENDING}"
        return await self._made_once(name, migrated=True)

    async def _make_empty(self) -> str:
        return await self._made_once(f"relevo_template_empty{_ENDING}", migrated=False)

    async def _made_once(self, name: str, *, migrated: bool) -> str:
        await self._admin.execute("select pg_advisory_lock($1)", _TEMPLATE_LOCK)
        try:
            if not await self._admin.fetchval("select 1 from pg_database where datname = $1", name):
                await self._fill_template(name, migrated=migrated)
            await self._cache_catalog(name)
        finally:
            await self._admin.execute("select pg_advisory_unlock($1)", _TEMPLATE_LOCK)
        return name

    async def _fill_template(self, name: str, *, migrated: bool) -> None:
        raw = f"{name}_{secrets.token_hex(3)}"
        await self._admin.execute(f'create database "{raw}" template template0')
        chosen = {"database_url": self.url_of(raw), "schema": self.schema}
        async with await Database.open(settings.load(chosen, environ={})) as database:
            if PUBLISHED:
                await database.write(PUBLICATION)
            if migrated:
                await migrate.up(database)
        await self._admin.execute(f'alter database "{raw}" rename to "{name}"')

    async def _cache_catalog(self, name: str) -> None:
        """Let PostgreSQL write its cache file of the catalog, which clones inherit.

        A start of the server and each change of the catalog remove it; without it, the first
        session of every clone writes it.
        """
        connection = await asyncpg.connect(self.url_of(name))
        await connection.close()


def _home() -> Path:
    """Return the folder of the tests' server: in memory if there is space, else on disk.

    A database has 600 files; creating them takes half a second on a disk and almost no time in
    memory.
    """
    name = f"relevo-tests-{os.getuid()}{_ENDING}"
    with contextlib.suppress(OSError):
        if (MEMORY / name).exists() or shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
            return MEMORY / name
    return Path(tempfile.gettempdir()) / name
