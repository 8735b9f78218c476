"""Pools over hosts: never above the size, fair, and nothing is lost with its holder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo import App
from relevo.errors import InvalidValue, PoolExhausted, SettingsMismatch

if TYPE_CHECKING:
    from relevo.governance.pools import ResourcePool

pytestmark = pytest.mark.anyio


async def until_waiting(pool: ResourcePool, count: int) -> None:
    """Return when so many wait."""
    async with asyncio.timeout(30):
        while (await pool.view()).waiting != count:
            await asyncio.sleep(0.01)


async def test_no_more_than_the_size_are_in_use(relevo_url: str) -> None:
    app = App(relevo_url)
    erp = app.governance.pool("erp", size=5)
    running = most = ended = 0
    numbers: list[int] = []

    async def use(key: str) -> None:
        nonlocal running, most, ended
        async with erp.lease(key, timeout=60) as permit:
            running += 1
            most = max(most, running)
            numbers.append(permit.fence.number)
            await asyncio.sleep(0.001)
            running -= 1
            ended += 1

    async with app, app.host():
        await asyncio.gather(*(use(f"k{number % 7}") for number in range(100)))
        assert most <= 5  # I44
        assert ended == 100
        assert len(set(numbers)) == 100
        view = await erp.view()
        assert (view.in_use, view.waiting) == (0, 0)


async def test_waiters_that_go_leave_the_queue(relevo_url: str) -> None:
    app = App(relevo_url)
    pool = app.governance.pool("licences").items(["a", "b"])
    async with app, app.host():
        with pytest.raises(InvalidValue):
            async with pool.lease(weight=2):
                pass
        async with pool.lease() as one, pool.lease() as two:
            assert {one.item, two.item} == {"a", "b"}
            with pytest.raises(PoolExhausted):
                async with pool.lease(timeout=0):
                    pass
            with pytest.raises(PoolExhausted):
                async with pool.lease(timeout=0.05):
                    pass

            async def wait() -> None:
                async with pool.lease():
                    pass

            waiter = asyncio.create_task(wait())
            await until_waiting(pool, 1)
            waiter.cancel()
            await until_waiting(pool, 0)
        async with pool.lease(timeout=10) as again:
            assert again.fence > two.fence


async def test_settings_and_sizes(relevo_url: str) -> None:
    app = App(relevo_url)
    pool = app.governance.pool("erp", size=1, max_waiters=1)
    async with app, app.host():
        assert (await pool.view()).size == 1
        with pytest.raises(SettingsMismatch, match="size=1"):
            await app.governance.pool("erp", size=2).view()
        async with pool.lease():
            second = asyncio.create_task(enter(pool))
            await until_waiting(pool, 1)
            with pytest.raises(PoolExhausted, match="max_waiters"):
                await enter(pool)
            await pool.resize(2)
            await second  # it grows, and who waited is served
            await pool.resize(0)  # revokes nothing
            assert (await pool.view()).in_use == 1
            with pytest.raises(PoolExhausted):
                async with pool.lease(timeout=0):
                    pass


async def enter(pool: ResourcePool) -> None:
    async with pool.lease():
        pass


async def test_a_pool_outlives_its_host_and_permits_end_with_theirs(relevo_url: str) -> None:
    first = App(relevo_url, host_name="first", lease_expiration=3, lease_renew=0.5)
    async with first, first.host():
        pool = first.governance.pool("erp", size=1)
        held = pool.lease()
        await held.__aenter__()
        assert (await pool.view()).in_use == 1
    second = App(relevo_url, host_name="second")
    async with second, second.host():
        pool = second.governance.pool("erp", size=1)
        async with pool.lease(timeout=30) as permit:  # the permit of the first has ended with it
            assert permit.fence.number == 2
