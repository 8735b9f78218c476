"""Caches load a key once for all callers; guards combine gates and count failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relevo import App
from relevo.errors import InvalidValue, PoolExhausted
from relevo.governance import BreakerOpen, BreakerRules, LoadFailed, Rate

pytestmark = pytest.mark.anyio


class BackEnd:
    """Counts loads; it can be held, and fail."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def load(self, key: str) -> str:
        self.loads.append(key)
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return f"{key} {len(self.loads)}"


async def test_misses_share_one_load(relevo_url: str) -> None:
    apps, back_end = [App(relevo_url, host_name=name) for name in ("a", "b")], BackEnd()
    caches = [app.governance.cache("rates", load=back_end.load, ttl=600, stale=600) for app in apps]
    back_end.open.clear()
    async with apps[0], apps[0].host(), apps[1], apps[1].host():
        calls = [asyncio.create_task(caches[one % 2].get("usd")) for one in range(50)]
        async with asyncio.timeout(30):
            while not back_end.loads:
                await asyncio.sleep(0.01)
        back_end.open.set()
        found = await asyncio.gather(*calls)
        assert {one.value for one in found} == {"usd 1"}
        assert back_end.loads == ["usd"]  # I47
        await caches[0].invalidate("usd")
        back_end.error = OSError("down")
        with pytest.raises(LoadFailed, match="down"):
            await caches[1].get("usd")
        with pytest.raises(LoadFailed):  # remembered for a second: the back end is left alone
            await caches[1].get("usd")
        assert len(back_end.loads) == 2
    with pytest.raises(InvalidValue):
        apps[0].governance.cache("x", load=back_end.load, ttl=1, refresh=2)


async def test_results_in_use_are_loaded_ahead_of_time(relevo_url: str) -> None:
    app, back_end = App(relevo_url), BackEnd()
    cache = app.governance.cache("rates", load=back_end.load, ttl=600, refresh=599.95)
    async with app, app.host():
        await cache.get("usd")
        await cache.get("usd")  # it is in use
        async with asyncio.timeout(30):
            while len(back_end.loads) < 2:
                await asyncio.sleep(0.01)


async def test_results_are_loaded_without_a_caller_and_stay_loaded(relevo_url: str) -> None:
    app, back_end = App(relevo_url), BackEnd()
    cache = app.governance.cache(
        "rates", load=back_end.load, ttl=600, refresh=599.9, preload=["usd", "eur"]
    )
    async with app, app.host():
        async with asyncio.timeout(30):
            while not {"usd", "eur"} <= set(back_end.loads) or len(back_end.loads) < 6:
                await asyncio.sleep(0.01)
        loads = len(back_end.loads)
        back_end.open.clear()
        assert (await cache.get("eur")).value.startswith("eur")  # nobody waits for a load
        assert len(back_end.loads) <= loads + 2
        back_end.open.set()


async def test_loads_pass_a_pool_and_a_limit(relevo_url: str) -> None:
    app, back_end = App(relevo_url), BackEnd()
    pool = app.governance.pool("erp", size=1)
    limit = app.governance.limit("erp", rates=[Rate(2, per=86_400)])
    cache = app.governance.cache("prices", load=back_end.load, ttl=600, pool=pool, limit=limit)
    async with app, app.host():
        async with pool.lease():
            waiting = asyncio.create_task(cache.get("a"))
            async with asyncio.timeout(30):
                while (await pool.view()).waiting != 1:
                    await asyncio.sleep(0.01)
            assert not back_end.loads
        await waiting
        await cache.get("b")
        blocked = asyncio.create_task(cache.get("c"))
        async with asyncio.timeout(30):
            while (await limit.view()).waiting != 1:
                await asyncio.sleep(0.01)
        assert back_end.loads == ["a", "b"]
        await limit.change([Rate(10, per=86_400)])
        assert (await blocked).value == "c 3"
        assert (await pool.view()).in_use == 0


async def test_each_process_keeps_results_and_hears_of_newer_ones(relevo_url: str) -> None:
    apps, back_end = [App(relevo_url, host_name=name) for name in ("a", "b")], BackEnd()
    first, second = (
        app.governance.cache("rates", load=back_end.load, ttl=600, replicate=True) for app in apps
    )
    asked: list[str] = []

    @apps[1].actors.outgoing
    async def note(call: Any, proceed: Any) -> Any:
        asked.append(call.name)
        return await proceed()

    async with apps[0], apps[0].host(), apps[1], apps[1].host():
        assert (await first.get("usd")).value == "usd 1"
        found = await asyncio.gather(*(second.get("usd") for _ in range(500)))
        assert {one.value for one in found} == {"usd 1"}
        assert back_end.loads == ["usd"]  # I47
        assert len(asked) == 1  # one question for all
        await first.invalidate("usd")
        async with asyncio.timeout(30):
            while (await second.get("usd")).value == "usd 1":
                await asyncio.sleep(0.05)
        assert (await first.get("usd")).value == (await second.get("usd")).value == "usd 2"
        assert (await second.get("usd")).age < 600


async def test_a_guard_passes_breaker_limit_and_pool(relevo_url: str) -> None:
    app = App(relevo_url)
    pool = app.governance.pool("erp", size=1)
    limit = app.governance.limit("erp", rates=[Rate(4, per=86_400)])
    guard = app.governance.guard(
        "erp", pool=pool, limit=limit, breaker=BreakerRules(failures=2, reset_after=600)
    )
    async with app, app.host():
        async with guard.enter() as permit:
            assert permit is not None
            with pytest.raises(PoolExhausted):
                async with guard.enter(timeout=0.05):
                    pass
        for _ in range(2):
            with pytest.raises(OSError, match="down"):
                async with guard.enter():
                    raise OSError("down")
        with pytest.raises(BreakerOpen) as caught:
            async with guard.enter():
                pass
        assert 0 < caught.value.retry_after <= 600
        assert (await pool.view()).in_use == 0
