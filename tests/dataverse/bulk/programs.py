"""What the host processes of bulk tests run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relevo.jobs.host import JobsPart
from relevo.pipeline.model import PRE_OPERATION, SYNC
from tests.support.parts import serve

if TYPE_CHECKING:
    from relevo import App
    from relevo.dataverse.bulk.mail import Mail
    from relevo.testing.recorder import Recorder


async def counted(app: App, record: Recorder) -> None:
    """Note every member in a table, slowly enough to be killed meanwhile."""

    @app.bulk.sink("effects")
    async def effects(tx: Any, member: dict[str, Any], activity: dict[str, Any]) -> None:
        await tx.execute("insert into effect (id) values ($1)", member["id"])
        await asyncio.sleep(0.0005)

    await serve(app, JobsPart)


async def removing(app: App, record: Recorder) -> None:
    """Delete orders through the pipeline, slowly enough to be killed meanwhile."""
    app.table("order", app.container("orders", "/city"))

    @app.step("Delete", "order", stage=PRE_OPERATION, mode=SYNC)
    async def note(ctx: Any) -> None:
        await asyncio.sleep(0.0005)

    app.serve_bulk()
    await serve(app, JobsPart)


async def posting(app: App, record: Recorder) -> None:
    """Write down every mail that goes out."""

    @app.bulk.transport("post")
    async def post(mail: Mail) -> None:
        record("mail", to=mail.to)
        await asyncio.sleep(0.002)

    await serve(app, JobsPart)
