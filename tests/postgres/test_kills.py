"""Acknowledged means durable: SIGKILL of writing processes, and of the server itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct, field

from relevo import settings
from relevo.postgres.database import Database
from tests.postgres import writer

if TYPE_CHECKING:
    from asyncio.subprocess import Process

pytestmark = pytest.mark.anyio


class Said(Struct):
    """What writers said of their rows."""

    words: dict[str, set[str]] = field(
        default_factory=lambda: {"ok": set(), "not": set(), "unknown": set()}
    )

    async def hear(self, process: Process, rows: int | None = None) -> None:
        """Listen until so many more rows were acknowledged, or to the end."""
        assert process.stdout is not None
        enough = None if rows is None else len(self.words["ok"]) + rows
        while enough is None or len(self.words["ok"]) < enough:
            line = await process.stdout.readline()
            if not line:
                assert enough is None, "the writer ended before its time"
                return
            word, row = line.decode().split()
            self.words[word].add(row)

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


async def start(run: int, **told: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        writer.__name__,
        str(run),
        env={**os.environ, **told},
        cwd=Path(__file__).parents[2],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def stop(process: Process, said: Said) -> None:
    assert process.stdin is not None
    process.stdin.close()
    await said.hear(process)
    assert await process.wait() == 0


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
        process = await start(run, RELEVO_DATABASE_URL=relevo_url)
        await said.hear(process, rows=1)
        moment = asyncio.ensure_future(asyncio.sleep(chance.uniform(0, 0.1)))
        hearing = asyncio.ensure_future(said.hear(process))
        await moment
        process.send_signal(signal.SIGKILL)
        await hearing
        assert await process.wait() == -signal.SIGKILL
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
            process = await start(0, RELEVO_HOME=str(home))
            for _ in range(kills):
                await said.hear(process, rows=200)
                await asyncio.sleep(chance.uniform(0, 0.1))
                assert database.endpoint.embedded is not None
                server = database.endpoint.embedded.pid
                assert server is not None
                os.kill(server, signal.SIGKILL)
            await said.hear(process, rows=200)
            await stop(process, said)
            said.check(await rows_of(database))
    print({word: len(rows) for word, rows in said.words.items()})
