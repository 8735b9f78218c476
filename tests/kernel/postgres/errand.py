"""One piece of work through every part, for tests about the server underneath."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import relevo
from relevo import settings

if TYPE_CHECKING:
    from collections.abc import Sequence


async def run_errands(url: str, *, table: str = "receipt", **options: Any) -> None:
    """Handle one change, job, message and router job; fails if one does not come through."""
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
