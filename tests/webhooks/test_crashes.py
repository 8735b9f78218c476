"""Senders that are killed: every event arrives, and those of a subject in their order."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING

import pytest

from relevo.testing.cluster import Cluster
from tests.kernel.outbound.outside import Outside, Status, outside
from tests.webhooks.receiver import Kitchen, connected

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio
QUICK = {
    "lease_renew": 0.2, "lease_expiration": 1.0, "lease_acquire": 0.3, "pool_size": 4,
    "outbound_allow": "127.0.0.1",
}  # fmt: skip
DISHES = 20
SENDER = """
select h.name from relevo.lease l join relevo.unit u on u.id = l.unit_id
join relevo.host h on h.incarnation = l.owner where u.kind = 'webhooks' and h.ended_at is null
"""


@pytest.mark.parametrize(
    ("events", "kills"), [(600, 2), pytest.param(10_000, 50, marks=pytest.mark.soak)]
)
async def test_killed_senders_lose_nothing_and_keep_the_order(
    relevo_url: str, tmp_path: Path, events: int, kills: int
) -> None:
    program = "tests.webhooks.programs:serve"
    async with (
        outside() as host,
        connected(relevo_url) as app,
        Cluster(relevo_url, program, tmp_path, settings=QUICK) as cluster,
    ):
        shop = Kitchen(app, host)
        host.answers("/hook", Status(204))
        await app.webhooks.create("hook", shop.url("/hook"), types=["kitchen.*"])
        names = itertools.cycle("ab")
        await asyncio.gather(*(cluster.start(next(names)) for _ in range(2)))
        cooking = asyncio.create_task(cook(shop, events))
        for kill in range(1, kills + 1):
            goal = kill * events // (kills + 1)
            await cluster.until(partial(has_arrived, host, goal), "some arrive", timeout=300)
            sender = await app.database.fetchval(SENDER)
            victim = cluster.nodes[sender or "a"]
            victim.kill()
            await cluster.start(victim.name)
        await cooking
        await cluster.until(partial(has_arrived, host, events), "all arrive", timeout=300)
        check(shop, events)


async def cook(shop: Kitchen, events: int) -> None:
    """Append events of several subjects, over several pipelines, in small transactions."""
    for number in range(0, events, DISHES):
        for dish in range(DISHES):
            pipeline = number // DISHES % 3 if dish % 2 else None
            await shop.cook(number + dish, dish=str(dish), pipeline=pipeline)


def has_arrived(host: Outside, events: int) -> bool:
    return len({one.headers["webhook-id"] for one in host.asked}) >= events


def check(shop: Kitchen, events: int) -> None:
    """At least once, and the first arrivals of each subject in order."""
    first: dict[str, list[int]] = {}
    seen = set()
    for one in shop.sent("/hook"):
        number = one["data"]["number"]
        if number not in seen:
            seen.add(number)
            first.setdefault(one["subject"], []).append(number)
    assert seen == set(range(events))
    for numbers in first.values():
        assert numbers == sorted(numbers)
