"""Two versions of a program, as they run beside each other while it is deployed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relevo.jobs.host import JobsPart
from tests.support.parts import serve

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing.recorder import Recorder


async def before(app: App, record: Recorder) -> None:
    """The old code."""

    @app.job("charge")
    async def charge(ctx: Any, customer: str) -> str:
        await asyncio.sleep(0.02)
        return f"{customer} in EUR"

    @app.job("bill")
    async def bill(ctx: Any, number: int, copy: bool) -> int:
        return number

    @app.job("long")
    async def count(ctx: Any) -> list[int]:
        done: list[int] = ctx.state or []
        while len(done) < 3:
            done.append(len(done))
            await ctx.checkpoint(state=done)
            record("counting")
            if len(done) == 2:
                await asyncio.Event().wait()  # until the host has no time left
        return done

    await serve(app, JobsPart)


async def after(app: App, record: Recorder) -> None:
    """The new code: a new argument, one that nobody gives any more, and another name."""

    @app.job("charge")
    async def charge(ctx: Any, customer: str, currency: str = "EUR") -> str:
        await asyncio.sleep(0.02)
        return f"{customer} in {currency}"

    @app.job("invoice")
    @app.job("bill")
    async def invoice(ctx: Any, number: int, copy: bool = False) -> int:
        return number

    @app.job("long")
    async def count(ctx: Any) -> list[int]:
        done: list[int] = ctx.state or []
        return [*done, *range(len(done), 3)]

    await serve(app, JobsPart)
