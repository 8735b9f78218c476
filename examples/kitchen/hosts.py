"""The hosts of the kitchen: processes of `relevo up kitchen:app`, which end with their parent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0


class Hosts:
    """Starts, kills and stops hosts; leaves none behind."""

    def __init__(self, log_path: Path, held: int) -> None:
        self.log_path = log_path
        self._held = held
        self._ports: dict[str, int] = {}
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

    @property
    def names(self) -> list[str]:
        """The hosts that run."""
        return list(self._processes)

    async def start(self, name: str, port: int = 0) -> dict[str, Any]:
        """Start a host; return what it announces when it serves, such as its `url`.

        A host that is started again gets the port it had.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "up", "kitchen:app",
            "--name", name, "--port", str(self._ports.get(name, port)), "--output", "json",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            pass_fds=(self._held,),
            cwd=Path(__file__).parent,
            start_new_session=True,  # Ctrl-C stops the kitchen, and the kitchen stops its hosts
        )  # fmt: skip
        self._processes[name] = process
        assert process.stdout is not None
        announced = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS_MAX):
                announced = await process.stdout.readline()
        if not announced:
            raise RuntimeError(f"host {name!r} did not start:\n{self.log_path.read_text()}")
        facts = dict(json.loads(announced))
        self._ports[name] = int(facts["url"].rpartition(":")[2])
        return facts

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


def end_with_parent() -> None:
    """Stop this host when its parent has ended: then the standard input has ended, too."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_SECONDS_MAX)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


if __name__ == "__main__":
    from relevo.cli import main

    end_with_parent()
    sys.path.insert(0, str(Path(__file__).parent))
    main()
