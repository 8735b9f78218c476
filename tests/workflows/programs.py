"""What the host processes of workflow tests run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relevo.jobs.host import JobsPart
from relevo.workflows import Return, Stage, Wait
from tests.support.parts import serve

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from relevo import App
    from relevo.testing.recorder import Recorder


async def journey(app: App, record: Recorder) -> None:
    """Three stages; the second hangs in the first process that comes there."""

    async def first() -> str:
        record("stage", name="first")
        return "one"

    async def second(before: str) -> str:
        record("stage", name="second", before=before)
        if not await app.database.fetchval("select exists (select from went_on)"):
            await asyncio.sleep(600)
        return "two"

    @app.workflow("journey")
    async def journey(ctx: Any) -> AsyncGenerator[Any, Any]:
        one = yield Stage("first", first)
        two = yield Stage("second", second, one)
        three = yield Wait(event="go", key="k")
        yield Return([one, two, three])

    await serve(app, JobsPart)
