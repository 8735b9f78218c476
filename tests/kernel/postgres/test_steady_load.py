"""A host under steady load does not grow."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from relevo import App, settings
from relevo.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

SECOND: Final = {"jobs": 200, "writes": 100}
"""What one second of the load is: it is given without a pause, so a minute takes seconds."""


def resident_bytes() -> int:
    """How much memory this process has."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


@pytest.mark.soak
async def test_memory_stays_flat_over_45_minutes_of_jobs_and_writes(relevo_url: str) -> None:
    app = App(settings=settings.load({"database_url": relevo_url}, environ={}))
    orders = app.container("orders", partition_key="/city")
    done = asyncio.Semaphore(0)

    @app.job("receipt")
    async def receipt(ctx: Any, number: int) -> int:
        done.release()
        return number

    @orders.on_changes("kitchen", start="beginning")
    async def cook(changes: Sequence[Any]) -> None:
        for _ in changes:
            done.release()

    async def work(seconds: int) -> None:
        for second in range(seconds):
            jobs = (receipt.submit(number=n) for n in range(SECOND["jobs"]))
            items = (
                orders.upsert({"id": f"{n}", "city": f"c{n % 7}", "second": second})
                for n in range(SECOND["writes"])
            )
            await asyncio.gather(*jobs, *items)
            for _ in range(SECOND["jobs"] + SECOND["writes"]):
                await done.acquire()

    async with app.host():
        await work(180)  # caches and pools fill
        before = resident_bytes()
        await work(45 * 60)
        grown = resident_bytes() - before
    assert grown < 16 * MIB, f"{grown / MIB:.1f} MiB more"
