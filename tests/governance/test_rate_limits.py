"""Rate limits hold over all hosts and across restarts, and who waits is served in order."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from relevo import App
from relevo.errors import InvalidValue, PoolExhausted, SettingsMismatch
from relevo.governance.core.windows import Rate

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("coordination", ["server", "client"])
async def test_a_limit_holds_across_hosts(
    relevo_url: str, coordination: Literal["server", "client"]
) -> None:
    for name, expected in (("first", 4), ("second", 0)):  # I46
        app = App(relevo_url, host_name=name)
        mail = app.governance.limit(
            "mail", rates=[Rate(4, per=86_400)], burst=0, coordination=coordination
        )
        async with app, app.host():
            answers = await asyncio.gather(*(mail.try_acquire() for _ in range(10)))
            assert sum(map(bool, answers)) == expected
            refused = next(one for one in answers if not one)
            assert 0 < refused.retry_after <= 86_400 * 1.1
            with pytest.raises(PoolExhausted) as caught:
                await mail.acquire(timeout=0.01)
            assert caught.value.retry_after > 1
            assert await mail.try_acquire(key=name)  # keys have their own
            with pytest.raises(InvalidValue):
                await mail.try_acquire(5)


async def test_who_waits_is_admitted_in_order(relevo_url: str) -> None:
    app, order = App(relevo_url), []
    limit = app.governance.limit("api", rates=[Rate(10, per=0.2), Rate(1_000, per=60)])

    async def use(number: int) -> None:
        await limit.acquire(timeout=60)
        order.append(number)

    async with app, app.host():
        await limit.acquire(10)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*map(use, range(30)))
        assert asyncio.get_running_loop().time() - began > 0.4  # two more windows at least
        assert order == sorted(order)
        assert (await limit.view()).waiting == 0


async def test_rates_change_while_callers_wait(relevo_url: str) -> None:
    app = App(relevo_url)
    limit = app.governance.limit("api", rates=[Rate(1, per=86_400)])
    async with app, app.host():
        await limit.acquire()
        gone, stays = (asyncio.create_task(limit.acquire()) for _ in range(2))
        async with asyncio.timeout(30):
            while (await limit.view()).waiting != 2:
                await asyncio.sleep(0.01)
            gone.cancel()
            while (await limit.view()).waiting != 1:
                await asyncio.sleep(0.01)
            await limit.change([Rate(2, per=86_400)])
            assert await stays
        with pytest.raises(SettingsMismatch, match="2 per 86400 s"):
            await app.governance.limit("api", rates=[Rate(3)]).try_acquire()
    with pytest.raises(InvalidValue):
        app.governance.limit("api", rates=[])


async def test_a_cost_with_an_id_is_charged_once(relevo_url: str) -> None:
    for host in ("first", "second"):  # the ids are known to the next host as well
        app = App(relevo_url, host_name=host)
        mail = app.governance.limit("mail", rates=[Rate(3, per=86_400)], coordination="client")
        async with app, app.host():
            answers = await asyncio.gather(*(mail.acquire(2, id="order 1") for _ in range(5)))
            assert [one.admitted for one in answers] == [2] * 5
            assert (await mail.try_acquire(2, id="order 1")).admitted == 2
            assert not await mail.try_acquire(2, id="order 2")
            with pytest.raises(InvalidValue, match="'order 1' was charged a cost of 2"):
                await mail.acquire(1, id="order 1")
            with pytest.raises(InvalidValue, match="1 to 256 characters"):
                await mail.acquire(1, id="")
    async with app, app.host():
        both = [asyncio.create_task(mail.acquire(2, id="order 2")) for _ in range(2)]
        async with asyncio.timeout(20):
            while (await mail.view()).waiting < 2:
                await asyncio.sleep(0.01)
        await mail.change([Rate(4, per=86_400)])
        assert [(await one).admitted for one in both] == [2, 2]
        assert not await mail.try_acquire()
