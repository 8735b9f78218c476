"""One piece of work through every part, for tests about the server underneath."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

import relevo
from relevo import settings
from relevo.actors import Actor, Interface, Tick, reminder_handler
from relevo.workflows import Return, Wait

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence


class Account(Interface):
    """An actor that bills later."""

    async def charge(self, cents: int) -> int: ...
    async def billed(self) -> int: ...


class AccountState(msgspec.Struct):
    cents: int = 0
    billed: int = 0


def define_account(app: relevo.App) -> None:
    """Define the actor type of `Account` in an app."""

    @app.actor("account", implements=Account)
    class AccountActor(Actor[AccountState]):
        async def charge(self, cents: int) -> int:
            self.state.cents += cents
            await self.reminders.set("bill", self.on_bill, after=0)
            return self.state.cents

        async def billed(self) -> int:
            return self.state.billed

        @reminder_handler
        async def on_bill(self, tick: Tick[None]) -> None:
            self.state.billed = self.state.cents


async def run_errands(url: str, *, table: str = "receipt", **options: Any) -> None:
    """Give every part something to do; fails if one piece of work does not come through."""
    app = relevo.App(settings=settings.load({"database_url": url, **options}, environ={}))
    orders = app.container("orders", partition_key="/city")
    cooked: asyncio.Queue[str] = asyncio.Queue()
    mail = app.queue("mail")
    read: asyncio.Queue[Any] = asyncio.Queue()

    @app.consumers("post", sources=[mail])
    async def post(message: Any) -> None:
        read.put_nowait(message.body)

    @orders.on_changes("kitchen", start="beginning")
    async def cook(changes: Sequence[Any]) -> None:
        for change in changes:
            cooked.put_nowait(change.item["id"])

    @app.job("receipt", token=lambda customer: customer)
    async def receipt(ctx: relevo.JobContext, customer: str) -> Any:
        async with ctx.transaction(result=customer) as tx:
            await tx.execute(f"create table if not exists {table} (customer text)")
            await tx.execute(f"insert into {table} values ($1)", customer)

    @app.workflow("approval")
    async def approval(ctx: relevo.JobContext, order: str) -> AsyncGenerator[Any, Any]:
        answer = yield Wait(event="approved", key=order)
        yield Return(answer)

    define_account(app)
    pool = app.governance.pool("till", size=1)
    async with app.host(), asyncio.timeout(120):
        order = uuid4().hex
        await orders.upsert({"id": order, "city": "Vigo"})
        while await cooked.get() != order:
            pass
        jobs = [await receipt.submit(customer="ana") for _ in range(3)]
        assert [await job.wait(timeout=100) for job in jobs] == ["ana"] * 3
        await mail.send(order)
        assert await read.get() == order
        await _offer(app, order)
        waiting = await approval.submit(order=order)
        await app.jobs.signal("approved", order, "yes")
        assert await waiting.wait(timeout=100) == "yes"
        account = app.actor(Account, order)
        async with pool.lease(order):
            assert await account.charge(3) == 3
        while await account.billed() != 3:
            await asyncio.sleep(0.05)


async def _offer(app: relevo.App, order: str) -> None:
    """A router job that is offered to the one worker there is."""
    router = app.router
    await router.set_distribution_policy("fair", mode="longestIdle", offer_ttl=60)
    await router.set_queue("kitchen", distribution_policy="fair")
    await router.register_worker("ana", capacity=1, queues=["kitchen"], channels={"pizza": 1})
    await router.create_job("pizza", queue="kitchen", job_id=order)
    async for offer in router.worker("ana").offers():
        async with offer.accepted() as job:
            assert job.id == order
        break
