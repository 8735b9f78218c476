"""Statements that meet on the same rows lock them in one order, so that none is ended for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.messaging import Message, Strict
from tests.jobs.office import told, until

if TYPE_CHECKING:
    from relevo.messaging import Received

pytestmark = pytest.mark.anyio
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"
ROUNDS = 40


@pytest.mark.parametrize(
    "options", [{"ordering": Strict(), "fair": True}, {}], ids=["fair", "aging"]
)
async def test_claims_over_several_queues_and_sends_to_them_wait_in_one_order(
    app: App, relevo_url: str, options: Any
) -> None:
    queues = [app.queue(f"q{n}", **options) for n in range(2)]
    for queue in queues:
        await queue.send("first")
        await queue.receive(mode="receive_and_delete")
    done: list[str] = []
    hosts = [App(settings=told(relevo_url, host_name=name)) for name in "ab"]

    async def note(msg: Received) -> None:
        done.append(msg.body)

    for host in hosts:
        sources = [host.queue("q0"), host.queue("q1")]
        host.consumers("workers", sources=sources, concurrency=4)(note)

    async def send(n: int) -> None:
        """Leave arrivals and messages of the same tenants."""
        for _ in range(ROUNDS):
            async with app.database.transaction() as tx:
                await queues[n].send("arrived", fairness_key="a", tx=tx)
            await queues[n].send_many(
                [Message("sent", fairness_key=key, priority=n) for key, n in (("a", 9), ("b", 0))]
            )

    async def receive() -> None:
        while len(done) < 4 * 3 * ROUNDS:
            for message in await app.receive(queues, 3):
                await message.complete()
                done.append(message.body)

    before = await app.database.fetchval(DEADLOCKS)
    async with hosts[0].host(), hosts[1].host():
        receiving = [asyncio.ensure_future(receive()) for _ in range(3)]
        await asyncio.gather(*(send(n % 2) for n in range(4)))
        await until(lambda: len(done) == 4 * 3 * ROUNDS, "all is done")
        await asyncio.gather(*receiving)
    assert await app.database.fetchval(DEADLOCKS) == before
