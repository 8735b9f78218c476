"""Caches load a key once for all callers; guards combine gates and count failures."""

from __future__ import annotations

import asyncio

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
