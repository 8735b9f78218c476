"""What the host processes of job tests run."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relevo.jobs.host import JobsPart
from relevo.jobs.model import Lane
from tests.support.parts import serve

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing.recorder import Recorder

GATE_VARIABLE = "PROGRAM_GATE"
"""A file; handlers that wait go on once it is there."""
EFFECTS = "create table effect (at bigserial primary key, job uuid, token text, number integer)"


async def office(app: App, record: Recorder) -> None:
    """Handlers that note what they do: with effects, deadly ones, ones that wait."""

    @app.job("effect")
    async def effect(ctx: Any, token: str, number: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(
                "insert into effect (job, token, number) values ($1, $2, $3)",
                ctx.id, token, number,
            )  # fmt: skip

    @app.job("brief")
    async def brief(ctx: Any) -> None: ...

    @app.job("deadly")
    async def deadly(ctx: Any) -> None:
        record("died", attempt=ctx.attempt)
        os.kill(os.getpid(), signal.SIGKILL)

    @app.job("report")
    async def report(ctx: Any, batch: dict[str, Any]) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(
                "insert into effect (job, token, number) values ($1, $2, $3)",
                ctx.id, batch["id"], batch["succeeded"],
            )  # fmt: skip

    @app.job("minefield")
    async def minefield(ctx: Any, deadly: bool, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if deadly:
            record("died", attempt=ctx.attempt)
            os.kill(os.getpid(), signal.SIGKILL)

    @app.job("forgiving", crashes_max=4)
    async def forgiving(ctx: Any) -> None:
        record("died", attempt=ctx.attempt)
        os.kill(os.getpid(), signal.SIGKILL)

    @app.job("steps")
    async def steps(ctx: Any) -> list[int]:
        done = []
        for n, _ in ctx.resume(enumerate(range(4))):
            done.append(n)
            await ctx.checkpoint(state=n)
            record("step", number=n, attempt=ctx.attempt)
            if n == 1 and ctx.attempt == 1:
                await opened()
        return done

    @app.job("wait")
    async def wait(ctx: Any) -> int:
        record("began", attempt=ctx.attempt)
        await opened()
        record("ended", attempt=ctx.attempt, wall=time.time())
        return int(ctx.attempt)

    app.jobs.registry.configure(Lane(name="default", slots=4))
    await serve(app, JobsPart)


async def desk(app: App, record: Recorder) -> None:
    """Handlers of each kind that write one record."""
    app.table("letter")

    @app.job("in loop")
    async def in_loop(ctx: Any) -> None:
        try:
            await ctx.service.create("letter", letter(ctx))
        finally:
            record("over", attempt=ctx.attempt)

    @app.job("in thread")
    def in_thread(ctx: Any) -> None:
        try:
            ctx.service.create("letter", letter(ctx))
        finally:
            record("over", attempt=ctx.attempt)

    app.job("in process", process=True)(in_process)
    await serve(app, JobsPart)


def in_process(ctx: Any) -> None:
    ctx.service.create("letter", letter(ctx))


def letter(ctx: Any) -> dict[str, Any]:
    return {"job": str(ctx.id), "attempt": ctx.attempt}


async def opened() -> None:
    """Wait for the gate."""
    gate = Path(os.environ[GATE_VARIABLE])
    while not gate.exists():
        await asyncio.sleep(0.01)


async def scheduled(app: App, record: Recorder) -> None:
    """A host with a handler that declares a schedule."""

    @app.job("report", cron="0 3 * * *", timezone="Europe/Madrid")
    async def report(ctx: Any) -> None: ...

    await serve(app, JobsPart)
    record("declared")
