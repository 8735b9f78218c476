"""Starts, pulls and estimates while many others write: none is refused because of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.errors import FeedRegressed
from relevo.feed import Processor
from relevo.feed.processing import host as processors
from tests.feed.shop import OPTIONS, Shop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio
WRITERS = 40


@pytest.fixture
async def shop(relevo_url: str, app: App) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        shop = Shop(relevo_url, app, stack)
        await shop.orders.describe()
        yield shop


@asynccontextmanager
async def writers(url: str) -> AsyncIterator[list[int]]:
    """Let many write one by one, as fast as they can, on connections of their own."""
    written = [0] * WRITERS
    app = App(settings=settings.load({"database_url": url, "pool_size": WRITERS}, environ={}))
    async with app, asyncio.TaskGroup() as group:
        orders = app.container("orders")

        async def write(number: int) -> None:
            while True:
                await orders.upsert({"id": f"w{number}", "city": f"c{number}"})
                written[number] += 1

        tasks = [group.create_task(write(number)) for number in range(WRITERS)]
        await until(lambda: all(written), "everybody has written")
        try:
            yield written
        finally:
            for task in tasks:
                task.cancel()


async def test_no_pull_and_no_estimate_is_refused_while_others_write(
    shop: Shop, relevo_url: str
) -> None:
    async with shop.hosting("a"):
        pass
    async with writers(relevo_url):
        for _ in range(40):
            at = datetime.now(UTC) - timedelta(milliseconds=1)
            for start in ("now", at):
                pages = [page async for page in _some(shop, start=start)]
                assert pages
                again = [page async for page in _some(shop, continuation=pages[-1].continuation)]
                assert again
            assert (await shop.orders.change_feed_estimator("kitchen").total()).lag_seconds >= 0


async def _some(shop: Shop, **options: Any) -> AsyncIterator[Any]:
    async for page in shop.orders.read_changes(**options):
        yield page
        return


async def test_no_start_is_refused_while_others_write(shop: Shop, relevo_url: str) -> None:
    app = shop.app()
    async with app.host(name="a"), writers(relevo_url):
        for number in range(12):
            name, options = f"unit-{number}", OPTIONS | {"start": "now"}
            if number % 2:
                options["until"] = "now"
            one = Processor("orders", name, lambda changes: None, **options)
            await processors.start(one, app.database, app.wakeups, app.leases, app.supervisor)
            await shop.orders.unit(name).rewind("now", force=True)
            await processors.stop(one, 10.0)


async def test_no_start_is_refused_while_others_append_events(shop: Shop) -> None:
    app = shop.app()
    app.job("nothing")(lambda ctx: None)
    async with app.host(name="a"), asyncio.TaskGroup() as group:

        async def append() -> None:
            while True:
                await app.jobs.submit_many("nothing", [{}] * 5)
                await asyncio.sleep(0)

        appending = [group.create_task(append()) for _ in range(8)]
        for number in range(12):
            options = OPTIONS | {"start": "now", "mode": "events"}
            one = Processor("relevo.events", f"audit-{number}", lambda changes: None, **options)
            await processors.start(one, app.database, app.wakeups, app.leases, app.supervisor)
            await processors.stop(one, 10.0)
        for task in appending:
            task.cancel()


async def test_a_position_of_another_backup_is_still_told(shop: Shop) -> None:
    await shop.write(1, 2, 3)
    ahead = await shop.client.database.fetchval("select last_value + 1000 from relevo.lsn")
    ranges = (await shop.orders.ranges()).open
    pages = shop.orders.read_changes(start={one.id: ahead for one in ranges})
    with pytest.raises(FeedRegressed, match="restored from a backup"):
        await anext(pages)
    async with shop.hosting("a"):
        await shop.until_delivered(1, 2, 3)
    last = await shop.client.database.fetchval("select last_value from relevo.lsn")
    await shop.client.database.write("select setval('relevo.lsn', 1)")
    errors: list[Any] = []
    async with shop.hosting("b", listeners={"on_error": lambda *told: errors.append(told)}) as one:
        await until(lambda: len(errors) > 0, "it is told")
        assert one.health().state == "degraded"
    await shop.client.database.write("select setval('relevo.lsn', $1::bigint)", last)
    assert {type(error) for _, error in errors} == {FeedRegressed}
