"""An app with two tables, and short ways to ask what became of its jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relevo import App, settings

if TYPE_CHECKING:
    import asyncpg

QUICK: dict[str, Any] = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 1.0}
"""Settings of hosts whose end is noticed soon."""


def make(url: str, **options: Any) -> App:
    """An app with the tables `order` and `mail`."""
    app = App(settings=settings.load({"database_url": url, **options}, environ={}))
    app.table("order")
    app.table("mail")
    return app


async def jobs(app: App, step: str | None = None) -> list[asyncpg.Record]:
    """All jobs, live and completed, in the order of their submits; of one step if it is named."""
    found = await app.database.fetch("select * from relevo.jobs order by sequence")
    return [one for one in found if step is None or one["handler"] == f"step:{step}"]


async def finished(app: App, step: str | None = None, count: int = 1) -> list[asyncpg.Record]:
    """The jobs of a step, once so many are there and all are over."""
    async with asyncio.timeout(60):
        while True:
            found = await jobs(app, step)
            if len(found) >= count and all(one["status"] >= 30 for one in found):
                return found
            for one in found:
                await app.jobs.end_of(one["id"], 60)
