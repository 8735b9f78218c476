"""The PostgreSQL server of a test, killed as by a power cut."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from relevo.errors import RelevoError

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database


async def kill_server(database: Database) -> None:
    """Kill the postmaster, and wait until another runs: the next statement starts it."""
    server = database.endpoint.embedded
    assert server is not None
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while server.pid in (None, pid):
            with suppress(RelevoError):
                await database.fetch("select")
            await asyncio.sleep(0.01)
