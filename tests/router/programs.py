"""What the host processes of router tests run: nothing more than the router that is in each."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from relevo.errors import RelevoError

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing.recorder import Recorder

WORKERS = 6
QUEUES = ["q", "other"]
BACKLOG = 60
CHANNELS = {"chat": (20, 3), "voice": 60}


async def matcher(app: App, record: Recorder) -> None:
    """Be a candidate for matching, as every host is."""
    record("candidate")


async def desk(app: App, record: Recorder) -> None:
    """Besides, make jobs, and note what was answered, for as long as the host lives."""
    app.supervisor.run("test.desk", lambda: _make(app, record))


async def _make(app: App, record: Recorder) -> None:
    name, number = f"{app.leases.name}-{os.getpid()}", 0
    while True:
        number += 1
        if number % 10 == 0:
            await _room(app)
        job_id, channel = f"{name}-{number}", "voice" if number % 5 == 0 else "chat"
        with contextlib.suppress(RelevoError):
            await app.router.create_job(channel, queue=QUEUES[number % 2], job_id=job_id)
            record("made", job=job_id)
            if number % 7 == 0:
                await app.router.cancel_job(job_id)
                record("cancelled", job=job_id)
        await asyncio.sleep(0.01)


async def _room(app: App) -> None:
    """Wait while more jobs wait than workers will come to soon."""
    with contextlib.suppress(RelevoError):
        while (await app.router.statistics(QUEUES[0])).length > BACKLOG:
            await asyncio.sleep(0.05)
