from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.dataverse.bulk import RowQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo import App
    from relevo.jobs.model import Job
    from relevo.jobs.service import JobHandle


class Warehouse:
    """A container with items 000 to n, and ways to wait."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.orders = app.container("orders", "/city")

    async def fill(self, amount: int) -> None:
        made = [
            {"id": f"{n:05}", "city": f"c{n % 3}", "n": n, "even": n % 2 == 0}
            for n in range(amount)
        ]
        assert not (await self.orders.bulk(made)).failures

    async def left(self) -> set[int]:
        return {item.body["n"] async for item in self.orders.query()}

    def query(self, *where: tuple[str, str, Any]) -> RowQuery:
        return RowQuery(container="orders", where=where)

    async def until(self, job: JobHandle[Any], holds: Callable[[Job], bool]) -> Job:
        found: Job
        async with asyncio.timeout(60):
            while not holds(found := await job.get()):
                await asyncio.sleep(0.01)
        return found


@pytest.fixture
def warehouse(app: App) -> Warehouse:
    assert app.bulk is not None  # named before it serves
    return Warehouse(app)
