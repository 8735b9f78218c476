"""Acknowledged means durable: SIGKILL of writing processes, and of the server itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relevo import settings
from relevo.kernel.postgres.database import Database
from tests.kernel.postgres import writer

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres.embedded.server import EmbeddedServer

pytestmark = pytest.mark.anyio


class Said:
    """What writers said of their rows."""

    def __init__(self) -> None:
        self.words: dict[str, set[str]] = {"ok": set(), "not": set(), "unknown": set()}
        self._news = asyncio.Condition()

    async def hear(self, process: Process) -> None:
        """Listen to a writer until its end."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            word, row = line.decode().split()
            self.words[word].add(row)
            async with self._news:
                self._news.notify_all()

    async def acknowledged(self, more: int) -> None:
        """Wait until so many more rows are there."""
        enough = len(self.words["ok"]) + more
        async with self._news, asyncio.timeout(60):
            await self._news.wait_for(lambda: len(self.words["ok"]) >= enough)

    def check(self, present: Counter[str]) -> None:
        """Every promise about what is there, against what is there."""
        ended = set().union(*self.words.values())
        assert self.words["ok"] <= present.keys()  # acknowledged means there
        assert set(present.values()) <= {1}  # and once
        assert not self.words["not"] & present.keys()
        silent = present.keys() - ended
        last = Counter(row.rpartition(":")[0] for row in ended)
        for row in silent:  # a caller had one call under way when it was killed
            caller, _, number = row.rpartition(":")
            assert int(number) == last[caller], f"{row} was never asked for"


@asynccontextmanager
async def writing(run: int, said: Said, **told: str) -> AsyncIterator[Process]:
    """A writer that is heard to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        writer.__name__,
        str(run),
        env={**os.environ, **told},
        cwd=Path(__file__).parents[3],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    hearing = asyncio.ensure_future(said.hear(process))
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await hearing
        await process.wait()


async def killed(server: EmbeddedServer) -> None:
    """Kills the postmaster, and waits until somebody has started another."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while server.pid in (None, pid):
            await asyncio.sleep(0.01)


async def rows_of(database: Database) -> Counter[str]:
    return Counter(row["id"] for row in await database.fetch("select id from row_written"))


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.timeout(1500)
async def test_rows_that_a_killed_process_acknowledged_are_there_once(
    database: Database, relevo_url: str, kills: int
) -> None:
    await database.write(writer.TABLE)
    said, chance = Said(), random.Random(f"kills {kills}")
    for run in range(kills):
        async with writing(run, said, RELEVO_DATABASE_URL=relevo_url) as process:
            await said.acknowledged(1)
            await asyncio.sleep(chance.uniform(0, 0.1))
            process.kill()
    present = await rows_of(database)
    said.check(present)
    assert len(said.words["ok"]) > 50 * kills  # in the middle of writing, not before
    silent = len(present) - len(said.words["ok"])
    print(f"{kills} kills, {len(said.words['ok'])} acknowledged, {silent} there unacknowledged")


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.timeout(1500)
async def test_rows_that_were_acknowledged_outlive_the_server(kills: int) -> None:
    said, chance = Said(), random.Random(f"server kills {kills}")
    with tempfile.TemporaryDirectory(prefix="relevo-test-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "home"
        told = settings.load({"home": home}, environ={})  # its own settings: fsync is on
        async with await Database.open(told) as database:
            assert await database.fetchval("show fsync") == "on"
            await database.write(writer.TABLE)
            server = database.endpoint.embedded
            assert server is not None
            async with writing(0, said, RELEVO_HOME=str(home)) as process:
                for _ in range(kills):
                    await said.acknowledged(200)
                    await asyncio.sleep(chance.uniform(0, 0.1))
                    await killed(server)
                await said.acknowledged(200)
                assert process.stdin is not None
                process.stdin.close()
                assert await process.wait() == 0
            said.check(await rows_of(database))
    print({word: len(rows) for word, rows in said.words.items()})
