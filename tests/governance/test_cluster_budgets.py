"""One budget for jobs, messages and actors, on the kit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relevo import App
from relevo.governance.core.windows import Rate
from relevo.jobs.model import Lane

pytestmark = pytest.mark.anyio


class Gauge:
    """Counts runs at once."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.ended: dict[str, int] = {}
        self._changed = asyncio.Event()

    async def run(self, what: str) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.002)
        self.running -= 1
        self.ended[what] = self.ended.get(what, 0) + 1
        self._changed.set()

    async def until(self, what: str, count: int) -> None:
        while self.ended.get(what, 0) < count:
            self._changed.clear()
            await self._changed.wait()


def define(app: App, gauge: Gauge) -> Any:
    app.governance.pool("erp", size=3)
    app.jobs.configure(Lane(name="erp", slots=8, pool="erp"))

    @app.job("charge", lane="erp")
    async def charge() -> None:
        await gauge.run("charge")

    @app.job("refund", pool="erp")
    async def refund() -> None:
        await gauge.run("refund")

    orders = app.queue("orders")

    @app.consumers("orders", sources=[orders], concurrency=8, pool="erp")
    async def order(_: Any) -> None:
        await gauge.run("order")

    return orders


async def test_jobs_messages_and_leases_share_a_pool(relevo_url: str) -> None:
    gauge, first = Gauge(), App(relevo_url)
    orders = define(first, gauge)
    async with first, first.host():
        pool = first.governance.pool("erp")
        jobs = [await first.jobs.submit(name, {}) for name in ["charge", "refund"] * 30]
        await asyncio.gather(*(orders.send(b"x") for _ in range(30)))
        for _ in range(5):
            async with pool.lease("by hand", timeout=60):
                await gauge.run("lease")
        async with asyncio.timeout(60):
            for job in jobs:
                await job.wait(timeout=60)
            await gauge.until("order", 30)
    assert gauge.most <= 3  # I44
    assert gauge.ended == {"charge": 30, "refund": 30, "order": 30, "lease": 5}


async def test_a_message_that_waits_for_a_permit_says_so(relevo_url: str) -> None:
    app, gauge = App(relevo_url), Gauge()
    pool = app.governance.pool("erp", size=1)
    rates = app.governance.limit("mails", rates=[Rate(1, 3_600)])
    ovens, mails = app.queue("ovens"), app.queue("mails")
    options: dict[str, Any] = {"concurrency": 2}

    @app.consumers("bakers", sources=[ovens], pool="erp", **options)
    async def bake(_: Any) -> None:
        await gauge.run("bread")

    @app.consumers("writers", sources=[mails], limit="mails", **options)
    async def write(_: Any) -> None:
        await gauge.run("mail")

    async def reason_of(source: Any, expected: str) -> str:
        number = (await source.send(b"x")).sequence_number
        async with asyncio.timeout(30):
            while (found := await source.explain(number)).reason != expected:
                await asyncio.sleep(0.01)
        assert found.consumers in ("bakers", "writers")
        return str(found.text)

    async with app, app.host():
        assert await rates.acquire()
        async with pool.lease("by hand", timeout=60):
            said = await reason_of(ovens, "no_permit")
            assert said.endswith("pool 'erp' has 1 of 1 permits in use")
        async with asyncio.timeout(60):
            await gauge.until("bread", 1)
        said = await reason_of(mails, "no_permit")
        assert said.endswith("limit 'mails' are used up (1 waiting)")
    assert gauge.ended == {"bread": 1}


async def test_a_permit_serves_one_run_after_the_other_and_goes_back(relevo_url: str) -> None:
    app, count = App(relevo_url), 200
    pool = app.governance.pool("wide", size=50)
    app.jobs.configure(Lane(name="wide", slots=4, pool="wide"))

    @app.job("nothing", lane="wide")
    async def nothing() -> None:
        pass

    async with app, app.host():
        jobs = await app.jobs.submit_many("nothing", [{}] * count)
        for job in jobs:
            await job.wait(timeout=60)
        async with pool.lease() as permit:
            assert permit.fence.number < count  # the pool was asked less often than jobs ran
        async with asyncio.timeout(30):
            while (await pool.view()).in_use:
                await asyncio.sleep(0.01)


async def test_a_lane_that_claims_ahead_lets_others_have_their_turn(relevo_url: str) -> None:
    app, gauge = App(relevo_url), Gauge()
    pool = app.governance.pool("narrow", size=4)
    app.jobs.configure(Lane(name="narrow", slots=8, pool="narrow"))

    @app.job("charge", lane="narrow")
    async def charge() -> None:
        await gauge.run("charge")

    async with app, app.host():
        jobs = await app.jobs.submit_many("charge", [{}] * 2_000)
        ended = []
        for _ in range(2):
            async with pool.lease(timeout=60):
                ended.append(gauge.ended.get("charge", 0))
                await gauge.run("lease")
        for job in jobs:
            await job.wait(timeout=60)
    assert gauge.most <= 4  # I44
    assert 0 <= ended[0] <= ended[1] < 2_000


async def test_a_limited_lane_keeps_the_limit(relevo_url: str) -> None:
    app, ran, began = App(relevo_url), [], asyncio.Event()
    limit = app.governance.limit("mail", rates=[Rate(20, per=86_400)])
    app.governance.pool("smtp", size=2)
    app.jobs.configure(Lane(name="mail", slots=4, pool="smtp", limit="mail"))

    @app.job("mail", lane="mail")
    async def mail(number: int) -> None:
        ran.append(number)
        began.set()

    async with app, app.host():
        jobs = [await app.jobs.submit("mail", {"number": number}) for number in range(30)]
        async with asyncio.timeout(60):
            await began.wait()
            while await limit.try_acquire():  # until nothing is left
                pass
        assert len(ran) <= 20  # I46
        await limit.change([Rate(100_000, per=86_400)])
        for job in jobs:
            await job.wait(timeout=60)
    assert sorted(ran) == list(range(30))
