"""Thousands of callers wait for one file, and the host dies between their buffer and the flush."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, CsvSink, RelevoError, settings
from relevo.testing.cluster import Cluster

if TYPE_CHECKING:
    from relevo.testing.recorder import Recorder

pytestmark = pytest.mark.anyio
FOLDER = "SAMPLE_FOLDER"
CALLERS = 10_000 if "RELEVO_EXAMPLES" in os.environ else 3_000
LINE = len("00000,text\n")
HEADER = len("caller,text\n")
SETTINGS = {"lease_expiration": 3, "lease_renew": 0.5, "lease_acquire": 0.5}


def define(app: App, folder: Path) -> Any:
    sink = CsvSink(folder / "{key}.csv", ["caller", "text"])
    return app.governance.writer("events", sink=sink, max_delay=0.02)


async def program(app: App, record: Recorder) -> None:
    define(app, Path(os.environ[FOLDER]))


async def test_each_caller_is_answered_once_and_after_its_event_is_in_the_file(
    relevo_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "type-7.csv"
    told = {"database_url": relevo_url, "home": tmp_path / "home"}
    client = App(settings=settings.load(told, environ={}))
    writer = define(client, tmp_path)["type-7"]
    unknown = 0
    numbers: dict[int, int] = {}
    early: list[int] = []

    async def write(caller: int) -> None:
        nonlocal unknown
        event = {"caller": f"{caller:05d}", "text": "text"}
        while True:
            try:
                receipt = await writer.write(event, id=str(caller), timeout=60)
            except RelevoError:
                unknown += 1  # it may be in the file: the same id makes it one event
                continue
            break
        if path.stat().st_size < HEADER + receipt.number * LINE:
            early.append(caller)
        assert caller not in numbers
        numbers[caller] = receipt.number

    async with (
        client,
        Cluster(
            relevo_url, f"{__name__}:program", tmp_path,
            settings={**SETTINGS, "home": str(tmp_path / "home")},
            environment={FOLDER: str(tmp_path)},
        ) as cluster,
    ):  # fmt: skip
        first = await cluster.start("first")
        cluster.faults.arm("before_flush", "kill", skip=3, process="first")
        writing = asyncio.gather(*map(write, range(CALLERS)))
        await cluster.until(lambda: first.process.poll() is not None, "the host is killed")
        await cluster.start("second")
        await writing
    lines = path.read_text().splitlines()[1:]
    assert sorted(lines) == [f"{caller:05d},text" for caller in range(CALLERS)]  # I41
    assert early == []  # I42
    assert unknown > 0, "nobody was waiting when the host was killed"
    # The file has the order in which events were accepted, also across the crash.
    assert all(lines[at - 1] == f"{caller:05d},text" for caller, at in numbers.items())  # I43
