"""What the nodes of lease tests run."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from relevo.kernel.leases import UnitSettings, require
from relevo.kernel.leases.hosts import instant

if TYPE_CHECKING:
    from relevo import App
    from relevo.kernel.leases import Lease
    from relevo.kernel.postgres import Transaction
    from relevo.testing.recorder import Recorder


async def spread(app: App, record: Recorder) -> None:
    """Hold the leases of a strict and of a lenient unit, and act in their name all the time."""
    count = int(os.environ.get("PROGRAM_LEASES", "8"))
    pause = float(os.environ.get("PROGRAM_PAUSE", "0.02"))

    async def holder(lease: Lease) -> None:
        record("acquired", unit=lease.unit, lease=lease.name, epoch=lease.epoch)
        try:
            while not lease.stopping.is_set():
                at = instant()
                lease.check()
                record("act", at=at, unit=lease.unit, lease=lease.name, epoch=lease.epoch)
                await _until_stopping(lease, pause)
        finally:
            record("released", unit=lease.unit, lease=lease.name, epoch=lease.epoch)

    names = [f"{i:03}" for i in range(count)]
    if os.environ.get("PROGRAM_STRICT", "1") == "1":
        strict = UnitSettings(strict=True, handoff_timeout=5.0, max_moves=8, rest=1.0)
        await app.leases.join("actors", "strict", holder, leases=names, settings=strict)
    if os.environ.get("PROGRAM_LENIENT", "1") == "1":
        quick = UnitSettings(handoff_timeout=5.0, rest=1.0)
        await app.leases.join("feed", "lenient", holder, leases=names, settings=quick)


async def ledger(app: App, record: Recorder) -> None:
    """Write fenced rows in the name of leases, so that a stale owner's writes would show."""

    async def holder(lease: Lease) -> None:
        async def write(tx: Transaction) -> None:
            await tx.execute(
                "insert into ledger (lease, epoch) values ($1, $2)", lease.name, lease.epoch
            )
            await require(tx, lease.fence)

        while not lease.stopping.is_set():
            lease.check()
            await app.database.run(write)
            await _until_stopping(lease, 0.01)

    names = [f"{i:03}" for i in range(int(os.environ.get("PROGRAM_LEASES", "6")))]
    settings = UnitSettings(handoff_timeout=5.0, rest=1.0)
    await app.leases.join("feed", "ledger", holder, leases=names, settings=settings)


async def stubborn(app: App, record: Recorder) -> None:
    """Never let go when asked: the others must seize, or the host must cut itself off."""

    async def holder(lease: Lease) -> None:
        record("acquired", unit=lease.unit, lease=lease.name, epoch=lease.epoch)
        try:
            while True:
                at = instant()
                lease.check()
                record("act", at=at, unit=lease.unit, lease=lease.name, epoch=lease.epoch)
                await asyncio.sleep(0.02)
        finally:
            record("released", unit=lease.unit, lease=lease.name, epoch=lease.epoch)

    names = [f"{i:03}" for i in range(4)]
    strict = os.environ.get("PROGRAM_STRICT") == "1"
    settings = UnitSettings(strict=strict, handoff_timeout=1.0, rest=1.0)
    await app.leases.join("feed", "stubborn", holder, leases=names, settings=settings)


async def _until_stopping(lease: Lease, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await lease.stopping.wait()
    except TimeoutError:
        return
