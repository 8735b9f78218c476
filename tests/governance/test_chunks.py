"""Pools whose permits hosts borrow: the bound is that of the pool, and nobody starves."""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.errors import InvalidValue, PoolExhausted
from relevo.testing.cluster import Cluster
from tests.governance import programs

if TYPE_CHECKING:
    from relevo.governance.pools import ResourcePool
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio


def pools(apps: list[App], size: int, **options: Any) -> list[ResourcePool]:
    return [app.governance.pool("erp", size=size, coordination="client", **options) for app in apps]


async def until_in_use(pool: ResourcePool, count: int) -> None:
    async with asyncio.timeout(30):
        while (await pool.view()).in_use != count:
            await asyncio.sleep(0.01)


async def test_hosts_share_the_bound_and_take_turns(relevo_url: str) -> None:
    apps = [App(relevo_url, host_name=name) for name in ("a", "b")]
    borrowed = pools(apps, 3)
    plain = apps[1].governance.pool("erp", size=3)
    running = most = 0
    served = [0, 0, 0]

    async def use(number: int) -> None:
        nonlocal running, most
        pool = (*borrowed, plain)[number]
        for _ in range(20):
            async with pool.lease(timeout=60):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.001)
                running -= 1
            served[number] += 1

    async with apps[0], apps[0].host(), apps[1], apps[1].host():
        await asyncio.gather(*(use(number % 3) for number in range(15)))
        assert most <= 3  # I44
        assert served == [100, 100, 100]
        await until_in_use(plain, 0)  # what was idle for a second has come back


async def test_a_host_serves_its_callers_without_asking(relevo_url: str) -> None:
    app = App(relevo_url, host_name="a")
    (pool,) = pools([app], 8)
    fences = []
    async with app, app.host():
        async with pool.lease(timeout=30) as first:
            fences.append(first.fence)
        asked: list[Any] = []

        @app.actors.outgoing
        async def note(call: Any, proceed: Any) -> Any:
            asked.append(call.name)
            return await proceed()

        for _ in range(200):
            async with pool.lease() as permit:
                fences.append(permit.fence)
        assert len(asked) <= 3  # one that waits for news, and what went back meanwhile
        assert fences == sorted(set(fences))
        with pytest.raises(InvalidValue):
            async with pool.lease(weight=9):
                pass
        with pytest.raises(InvalidValue, match="items"):
            pool.items(["x"])


async def test_what_is_idle_comes_back_when_others_wait(relevo_url: str) -> None:
    apps = [App(relevo_url, host_name=name) for name in ("a", "b")]
    first, second = pools(apps, 2)
    async with apps[0], apps[0].host(), apps[1], apps[1].host():
        async with first.lease(weight=2):
            with pytest.raises(PoolExhausted):
                async with second.lease(timeout=0):
                    pass
            with pytest.raises(PoolExhausted):
                async with second.lease(timeout=0.05):
                    pass
            waiting = asyncio.create_task(enter(second))
            async with asyncio.timeout(30):
                while (await first.view()).waiting != 1:
                    await asyncio.sleep(0.01)
        await waiting
        await first.resize(0)
        await until_in_use(first, 0)
        with pytest.raises(PoolExhausted):
            async with first.lease(timeout=0.05):
                pass
        await first.resize(1)
        await enter(second)


async def enter(pool: ResourcePool) -> None:
    async with pool.lease(timeout=60):
        pass


async def test_keys_keep_their_caps(relevo_url: str) -> None:
    apps = [App(relevo_url, host_name=name) for name in ("a", "b")]
    both = pools(apps, 6, per_key=2)
    running, most = {"x": 0, "y": 0}, {"x": 0, "y": 0}

    async def use(number: int, key: str) -> None:
        async with both[number % 2].lease(key, timeout=60):
            running[key] += 1
            most[key] = max(most[key], running[key])
            await asyncio.sleep(0.001)
            running[key] -= 1

    async with apps[0], apps[0].host(), apps[1], apps[1].host():
        await asyncio.gather(*(use(number, "xy"[number // 2 % 2]) for number in range(80)))
    assert max(most.values()) <= 2  # I44


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.soak)])
async def test_kills_free_no_permit_too_early_and_lose_none(
    database: Database, relevo_url: str, kills: int
) -> None:
    for statement in programs.TABLES:
        await database.write(statement)
    told = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 1.0, "pool_size": 8}

    async def count() -> int:
        found: int = await database.fetchval("select count(ended) from public.uses")
        return found

    async def ended(name: str) -> bool:
        found: bool = await database.fetchval(
            "select not exists (select 1 from relevo.host where name = $1 and ended_at is null)",
            name,
        )
        return found

    with tempfile.TemporaryDirectory(prefix="rel-") as folder:
        async with Cluster(
            relevo_url, "tests.governance.programs:borrowers", Path(folder), settings=told
        ) as cluster:
            for name in "abc":
                await cluster.start(name)
            for number in range(kills):
                wanted = await count() + 40

                async def used(wanted: int = wanted) -> bool:
                    return await count() >= wanted

                await cluster.until(used, "the pool is used")
                name = "abc"[number % 3]
                if number % 2:
                    cluster.nodes[name].freeze()
                    await cluster.until(partial(ended, name), "its end is noted")
                    cluster.nodes[name].thaw()
                else:
                    cluster.nodes[name].kill()
                    await cluster.start(name)
            await cluster.until(used, "the pool is used")
    rows = await database.fetch(
        "select extract(epoch from began) as began,"
        " extract(epoch from coalesce(least(ended, at), 'infinity')) as ended"
        " from public.uses left join public.ends using (host)"
    )
    running = most = 0
    for _, change in sorted(
        [(row["began"], 1) for row in rows] + [(row["ended"], -1) for row in rows],
        key=lambda one: (one[0], one[1]),
    ):
        running += change
        most = max(most, running)
    assert most <= programs.SIZE  # I44
