"""A desk with something of every kind, with names that try to be more than text."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from relevo import Fail
from relevo.actors import Actor, Interface
from relevo.router import WorkerSelector

if TYPE_CHECKING:
    from relevo import App
    from tests.dashboard.conftest import Desk

HOSTILE = "<script>alert(1)</script>\u202e\x07&amp;"


class Account(Interface):
    async def deposit(self, amount: int) -> int: ...


class AccountState(msgspec.Struct):
    balance: int = 0


def declare(app: App) -> None:
    """Register the handlers of the desk's host."""

    @app.job("mail")
    async def mail(ctx: Any, to: str = "ana") -> dict[str, str]:
        return {"sent": to}

    @app.job("bad", retries=0)
    async def bad(ctx: Any) -> None:
        raise Fail(None, HOSTILE)

    @app.job("report", every=timedelta(days=1))
    async def report(ctx: Any) -> None:
        return None

    @app.actor("account", implements=Account)
    class AccountActor(Actor[AccountState]):
        async def deposit(self, amount: int) -> int:
            self.state.balance += amount
            return self.state.balance

    @app.queue("read").on_messages("readers")
    async def read(message: Any) -> None:
        return None

    dishes = app.container("dishes", partition_key="/kind")

    @dishes.on_changes("kitchen", start="beginning", dead_letter=True, max_attempts=1)
    async def cook(changes: Any) -> None:
        if any(change.item["id"] == "burnt" for change in changes):
            raise Fail(None, HOSTILE)


async def fill(desk: Desk) -> None:
    """Make things of all parts; handlers have seen them when it returns."""
    app = desk.app
    await _fill_router(app)
    render = app.queue("render/large")
    await render.send(b"{}", priority=7, message_id=HOSTILE[:20])
    await app.topic("orders").subscription("urgent").describe()
    dishes = app.container("dishes", partition_key="/kind")
    await dishes.upsert({"id": "soup", "kind": "soup"})
    await dishes.upsert({"id": "burnt", "kind": "toast"})
    await app.governance.pool("payments", size=3).resize(3)
    servers = app.governance.resolver("servers", assign="hash")
    for name in ("one", "two"):
        await servers.add_resource(name, {"dsn": HOSTILE})
        await servers.add_partition(f"part-{name}", on=name)
    await app.actor(Account, "ana").deposit(5)
    await app.webhooks.create("shop", "https://example.com/events", filter="data.lane = 'none'")
    await (await app.jobs.schedules.run("report")).wait(20)
    async with asyncio.timeout(20):
        while not await dishes.dead_letters("kitchen").list():
            await asyncio.sleep(0.02)


async def _fill_router(app: App) -> None:
    router = app.router
    await router.set_distribution_policy("fair", mode="longestIdle", offer_ttl=60)
    await router.set_queue("calls", distribution_policy="fair")
    await router.register_worker("ana", queues=["calls"], capacity=1, channels={"voice": 1})
    await router.create_job("voice", queue="calls", job_id="order/1", labels={"who": HOSTILE})
    await router.set_queue("back", distribution_policy="fair", name=HOSTILE)
    await router.register_worker("ben", queues=["back"], capacity=4, channels={"voice": 1})
    await router.create_job(
        "voice", queue="back", job_id="order/2",
        selectors=[WorkerSelector(key="Spanish", label_operator="greaterThan", value=5)],
    )  # fmt: skip
