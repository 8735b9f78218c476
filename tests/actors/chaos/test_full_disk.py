"""Actors whose database has a full disk for a while: turns wait, and each counts once."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import until
from tests.e2e.test_full_disk import MOUNT, can_mount, fill
from tests.kernel.postgres.embedded_bench import open_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM = """
import asyncio, sys
from msgspec import Struct, field
from relevo import App
from relevo.actors import Actor, Interface

class Log(Interface):
    async def add(self, number: int) -> int: ...
    async def numbers(self) -> list[int]: ...

class State(Struct):
    numbers: list[int] = field(default_factory=list)
    ballast: bytes = b""

app = App(home=sys.argv[1], lease_expiration=120, lease_renew=1)

@app.actor("log", implements=Log)
class LogActor(Actor[State]):
    async def add(self, number: int) -> int:
        self.state.numbers.append(number)
        self.state.ballast = bytes((number * 31 + n * n) % 251 for n in range(20_000))
        return number

    async def numbers(self) -> list[int]:
        return self.state.numbers

async def main():
    async with app, app.host():
        log, number = app.actor(Log, "a"), 0
        while True:
            number += 1
            try:
                print("ok", await log.with_(timeout=100).add(number), flush=True)
            except Exception as error:
                print("failed", number, repr(error), flush=True)
            if number % 10 == 0:
                print("all", *await log.numbers(), flush=True)

asyncio.run(main())
"""


class Output:
    """The lines of a process, read as they come."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._thread.start()

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.lines.append(line.rstrip())

    def of(self, kind: str) -> list[list[str]]:
        return [words[1:] for line in self.lines if (words := line.split())[:1] == [kind]]


@pytest.mark.parametrize("seconds", [1, pytest.param(20, marks=pytest.mark.soak)])
def test_turns_wait_while_the_disk_is_full_and_count_once(
    tmp_path: Path, seconds: int
) -> None:  # I22, I24, I27
    with open_folder() as folder:
        if not can_mount(folder):
            pytest.skip("only root can mount a small disk here")
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", MOUNT, str(folder), sys.executable, str(program),
             str(folder / "home")],
            stdout=subprocess.PIPE, stderr=(tmp_path / "log").open("wb"), text=True,
        )  # fmt: skip
        assert process.stdout is not None
        output = Output(process.stdout)
        try:
            until(lambda: len(output.of("all")) >= 2, "turns are stored")
            ballast = fill(Path(f"/proc/{process.pid}/root{folder}"))
            full_at = time.monotonic()
            seen = [0, full_at]

            def stuck() -> bool:
                """Whether no turn was stored for as long as the disk is to be full."""
                if len(output.of("ok")) > seen[0]:
                    seen[:] = [len(output.of("ok")), time.monotonic()]
                return time.monotonic() - seen[1] > seconds

            until(stuck, "turns wait for room", timeout=120)
            ballast.unlink()
            wanted = len(output.of("all")) + 2
            until(lambda: len(output.of("all")) >= wanted, "turns go on", timeout=120)
        finally:
            process.kill()
            process.wait()
        assert not output.of("failed")
        succeeded = [int(words[0]) for words in output.of("ok")]
        stored = [int(word) for word in output.of("all")[-1]]
        assert stored == list(range(1, len(stored) + 1))
        assert succeeded[: len(stored)] == stored
