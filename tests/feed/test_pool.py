"""Handlers that write through the app while they hold a transaction, with few connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import relevo
from relevo import settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.feed import Change, ChangeContext

pytestmark = pytest.mark.anyio

LEASES = 40
ORDERS = 200


async def test_more_leases_than_connections_and_everything_goes_on(relevo_url: str) -> None:
    told = settings.load({"database_url": relevo_url, "pool_size": 4}, environ={})
    app = relevo.App(settings=told)
    orders = app.container("orders", "/city", ranges=LEASES)
    bills = app.container("bills", "/city")
    billed: Counter[str] = Counter()
    done = asyncio.Event()

    @app.job("mail")
    async def mail(ctx: relevo.JobContext, order: str) -> Any:
        async with ctx.transaction(result=order) as tx:
            await tx.execute("insert into mailed values ($1)", order)
            await bills.upsert({"id": f"mail {order}", "city": order})

    @orders.on_changes("billing", start="beginning", leases=LEASES)
    async def bill(ctx: ChangeContext, changes: Sequence[Change[Any]]) -> None:
        async with ctx.transaction() as tx:
            for change in changes:
                await tx.execute("insert into billed values ($1)", change.id)
                await bills.upsert({"id": change.id, "city": change.id})
                assert (await bills.read(change.id, change.id)).id == change.id
                await app.database.fetchval("select count(*) from billed")
                await mail.submit(order=change.id)
        billed.update(change.id for change in changes)
        if len(billed) == ORDERS:
            done.set()

    async with app, asyncio.timeout(170):
        await app.database.write("create table billed (id text primary key)")
        await app.database.write("create table mailed (id text primary key)")
        await asyncio.gather(
            *(orders.upsert({"id": str(n), "city": f"city {n}"}) for n in range(ORDERS))
        )
        async with app.host():
            while not done.is_set():  # the program's own calls go on meanwhile
                await app.database.fetchval("select count(*) from mailed")
                async with app.database.transaction() as tx:
                    await tx.fetchval("select 1")
                await asyncio.sleep(0.01)
            assert set(billed.values()) == {1}
            while await app.database.fetchval("select count(*) from mailed") < ORDERS:
                await asyncio.sleep(0.01)
            assert (await app.health()).ok
        assert await app.database.fetchval("select count(*) from billed") == ORDERS
