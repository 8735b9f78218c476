"""What the processes of the budget tests run: a lane, consumers and an actor under one budget."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from relevo.actors import Actor, Interface
from relevo.governance.core.windows import Rate
from relevo.jobs.host import JobsPart
from relevo.jobs.model import Lane
from relevo.messaging.host import MessagingPart
from tests.support.parts import serve

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing.recorder import Recorder

PERMITS: Final = 5
PER_SECOND: Final = 10
KINDS: Final = ("job", "message", "actor")
BODY_SECONDS: Final = 0.05
SLOTS: Final = 8


class Spender(Interface):
    async def spend(self, number: int) -> None: ...


def define(app: App, record: Any) -> None:
    """Declare the budget, and let three kinds of work name it."""
    pool = app.governance.pool("erp", size=PERMITS)
    limit = app.governance.limit("mail", rates=[Rate(PER_SECOND, per=1)])

    async def body(kind: str) -> None:
        name = token_hex(8)
        record("enter", kind=kind, name=name)
        await asyncio.sleep(BODY_SECONDS)
        record("leave", name=name)

    app.jobs.configure(Lane(name="erp", slots=SLOTS, pool="erp", limit="mail"))

    @app.job("charge", lane="erp", crashes_max=1_000)
    async def charge() -> None:
        await body("job")

    orders = app.queue("orders", max_delivery_count=1_000)

    @app.consumers("orders", sources=[orders], concurrency=SLOTS, pool="erp", limit="mail")
    async def order(_: Any) -> None:
        await body("message")

    @app.actor("spender", implements=Spender)
    class SpenderActor(Actor[None]):
        async def spend(self, number: int) -> None:
            await limit.acquire()
            async with pool.lease(str(self.ctx.key)):
                await body("actor")


async def host(app: App, record: Recorder) -> None:
    """A host of all three."""
    define(app, record)
    await serve(app, JobsPart)
    part = app.parts.of(MessagingPart)
    await part.stop(5.0)
    await serve(app, MessagingPart)
