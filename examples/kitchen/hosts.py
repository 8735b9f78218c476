"""The host processes of the tour: each is a `relevo up kitchen:app`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0


class Hosts:
    """Starts, kills and stops hosts; leaves none behind."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Hosts:
        self._log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await asyncio.gather(*map(_stop, self._processes.values()))
        except TimeoutError:
            for name in list(self._processes):
                await self.kill(name)
        os.close(self._log)

    async def start(self, name: str, port: int = 0) -> dict[str, Any]:
        """Start a host; return what it announces when it serves, such as its `url`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "relevo.cli", "up", "kitchen:app",
            "--name", name, "--port", str(port), "--output", "json",
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            cwd=Path(__file__).parent,
            start_new_session=True,  # Ctrl-C stops the tour, and the tour stops its hosts
        )  # fmt: skip
        self._processes[name] = process
        assert process.stdout is not None
        announced = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS_MAX):
                announced = await process.stdout.readline()
        if not announced:
            raise RuntimeError(f"host {name!r} did not start:\n{self.log_path.read_text()}")
        return dict(json.loads(announced))

    async def kill(self, name: str) -> None:
        """Send SIGKILL to a host and wait for its end."""
        process = self._processes.pop(name)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _stop(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()
