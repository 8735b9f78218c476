"""Reading the feed from a streaming replica while writers run: nothing arrives late there."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import defaultdict
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from relevo import App, settings
from relevo.feed.reading import log as reading
from relevo.kernel.postgres import Database
from relevo.kernel.postgres.embedded.account import server_account, usable_binaries
from relevo.kernel.postgres.embedded.server import EmbeddedServer
from relevo.kernel.postgres.embedded.settings import ROLE
from relevo.store.ranges import WHOLE
from tests.feed.writers import Writers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.feed import FeedContainer
    from relevo.feed.model import Mode
    from relevo.feed.reading.log import FeedSource

pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(600)]
WRITES = 20_000


class Replica:
    """A standby of an embedded server, made and run with the binaries that Relevo brings."""

    def __init__(self, primary: EmbeddedServer, folder: Path) -> None:
        self._account = server_account()
        self._programs = usable_binaries(self._account)
        self._primary = primary
        self._data = folder / "replica"
        self._sockets = folder / "sockets"
        for one in (self._data, self._sockets):
            one.mkdir(mode=0o700)
            shutil.chown(one, self._account.uid, self._account.gid)
        self._do(
            "pg_basebackup", "-h", str(primary.socket_dir), "-p", str(primary.port), "-U", ROLE,
            "-D", self._data, "-R", "-X", "stream", "-c", "fast",
        )  # fmt: skip

    def start(self) -> str:
        """Return the URL of the replica, once it answers."""
        rules = self._primary.log.parent
        told = {
            "hba_file": rules / "pg_hba.conf",
            "ident_file": rules / "pg_ident.conf",
            "max_connections": 200,
            "listen_addresses": "",
            "unix_socket_directories": self._sockets,
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in told.items())
        log = self._data / "server.log"
        self._do("pg_ctl", "start", "-w", "-D", self._data, "-l", log, "-o", options)
        return f"postgresql://{ROLE}@/relevo?host={quote(str(self._sockets), safe='')}"

    def stop(self) -> None:
        self._do("pg_ctl", "stop", "-w", "-m", "immediate", "-D", self._data)

    def _do(self, program: str, *arguments: str | Path) -> None:
        with open(os.devnull, "w") as nowhere:  # pg_ctl's child would keep a pipe open
            done = self._account.run(
                [self._programs / program, *arguments], output=nowhere.fileno()
            )
        assert done.returncode == 0, f"{program} ended with {done.returncode}"


class Watch:
    """Reads every range of the feed again and again, and notes what it sees, in order."""

    def __init__(self, database: Database, source: FeedSource, mode: Mode) -> None:
        self._database = database
        self._source = source
        self._mode = mode
        self.positions = {one.id: 0 for one in source.ranges.open}
        self.seen: dict[int, list[int]] = defaultdict(list)

    async def look(self) -> bool:
        """Read on; False if there was nothing."""
        found = False
        for range_id, after in self.positions.items():
            batch = await reading.read(
                self._database, self._source, self._mode, range_id, WHOLE, after, max_items=50
            )
            self.seen[range_id] += [change.lsn for change in batch.changes]
            self.positions[range_id] = batch.position
            found = found or bool(batch.changes)
        return found


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(mkdtemp(prefix="relevo-replica-"))
    path.chmod(0o755)  # so that the account of the server may enter
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def test_nothing_arrives_late_on_a_replica(folder: Path) -> None:  # F1
    async with AsyncExitStack() as stack:
        primary = await asyncio.to_thread(EmbeddedServer.join, folder / "home")
        stack.push_async_callback(asyncio.to_thread, primary.leave)
        app = await stack.enter_async_context(_app(primary.url))
        orders = app.container("orders", "/key", ranges=4, versions=timedelta(days=1))
        await orders.describe()
        replica = await asyncio.to_thread(Replica, primary, folder)
        url = await asyncio.to_thread(replica.start)
        stack.push_async_callback(asyncio.to_thread, replica.stop)
        told = settings.load({"database_url": url}, environ={})
        standby = await stack.enter_async_context(await Database.open(told))
        assert await standby.fetchval("select pg_is_in_recovery()")
        source = await reading.look(standby, "orders")
        watch = Watch(standby, source, "all_versions")
        await _watch_while_writing(app, orders, watch)
        again = Watch(standby, source, "all_versions")
        while await again.look():
            pass
        assert again.seen == watch.seen
        assert sum(map(len, watch.seen.values())) >= WRITES


async def _watch_while_writing(app: App, orders: FeedContainer[Any], watch: Watch) -> None:
    """Read from the replica until it has replayed everything that the writers wrote."""
    writers = Writers([orders], seed=1)
    async with asyncio.TaskGroup() as group:
        group.create_task(writers.run(writers=24, pause=0.0))
        while len(writers.acknowledged) < WRITES:
            await watch.look()
        writers.stop()
    heads = await reading.heads(app.database, await reading.look(app.database, "orders"))
    while watch.positions != heads:
        await watch.look()


def _app(url: str) -> App:
    return App(settings=settings.load({"database_url": url}, environ={}))
