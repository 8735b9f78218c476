"""What a processor says about itself when something is wrong that no handler has done."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import ContainerRecreated, HandlerError, LeaseStoreError, MonitoredError
from relevo.feed.processing import host as processors
from tests.feed.shop import Shop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo import App
    from relevo.feed import Change, ChangeContext, Processor

pytestmark = pytest.mark.anyio
POSITIONS = "select id, position from relevo.lease order by id"


@pytest.fixture
async def shop(relevo_url: str, app: App) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        shop = Shop(relevo_url, app, stack)
        await shop.orders.describe()
        yield shop


class Told:
    """A host whose notifications of errors are kept."""

    def __init__(self) -> None:
        self.errors: list[Any] = []

    @property
    def listeners(self) -> dict[str, Any]:
        return {"on_error": lambda _, error: self.errors.append(error)}

    async def until(self, processor: Processor, kind: type[Exception], source: str) -> None:
        await until(lambda: any(isinstance(one, kind) for one in self.errors), f"{kind} is told")
        sources = {getattr(one, "source", None) for one in self.errors if isinstance(one, kind)}
        assert sources == {source}
        assert processor.health().state == "degraded"


async def test_a_processor_whose_container_was_dropped_says_so(shop: Shop) -> None:
    told = Told()
    async with shop.hosting("a", listeners=told.listeners) as processor:
        await shop.write(1)
        await shop.until_delivered(1)
        await until(lambda: processor.health().ok, "all is well")
        await shop.orders.drop()
        await told.until(processor, MonitoredError, "monitored")
        assert "there is no container named 'orders'" in " ".join(processor.health().reasons)


async def test_a_processor_whose_container_was_made_anew_says_so(shop: Shop) -> None:
    told = Told()
    async with shop.hosting("a", listeners=told.listeners) as processor:
        await shop.write(1)
        await shop.until_delivered(1)
        await shop.orders.unit("kitchen").pause()
        positions = await shop.client.database.fetch(POSITIONS)
        await shop.orders.unit("kitchen").resume()
        await shop.orders.drop()
        await shop.client.container("orders", "/city", ranges=4).describe()
        await told.until(processor, ContainerRecreated, "monitored")
        assert "created again" in " ".join(processor.health().reasons)
        assert await shop.client.database.fetch(POSITIONS) == positions


@pytest.mark.parametrize("idle", [True, False])
async def test_a_processor_that_cannot_read_says_so_until_it_can(shop: Shop, idle: bool) -> None:
    told, delivered = Told(), list[str]()
    gate = asyncio.Event()

    async def cook(changes: list[Change[Any]]) -> None:
        await gate.wait()
        delivered.extend(change.id for change in changes)

    database = shop.client.database
    async with shop.hosting("a", cook, max_items=1, listeners=told.listeners) as processor:
        if not idle:
            for n in range(5):
                await shop.orders.upsert({"id": str(n), "city": "x"})
        await until(lambda: len(processor.leases) == 4, "all leases are here")
        await database.write("alter table relevo.item rename to item_away")
        gate.set()
        await told.until(processor, MonitoredError, "monitored")
        assert 'relation "relevo.item" does not exist' in " ".join(processor.health().reasons)
        await database.write("alter table relevo.item_away rename to item")
        await until(lambda: processor.health().ok, "all is well again")
        await shop.orders.upsert({"id": "last", "city": "x"})
        await until(lambda: "last" in delivered, "it goes on")
        assert processor.health().ok


async def test_a_processor_that_cannot_store_says_so_until_it_can(shop: Shop) -> None:
    told, database = Told(), shop.client.database
    async with shop.hosting("a", listeners=told.listeners) as processor:
        await database.write("alter table relevo.feed_lease rename column checkpoint_at to gone")
        await shop.write(1)
        await told.until(processor, LeaseStoreError, "lease_store")
        await database.write("alter table relevo.feed_lease rename column gone to checkpoint_at")
        await until(lambda: processor.health().ok, "all is well again")


async def test_a_key_that_keeps_failing_shows_while_other_lanes_work(shop: Shop) -> None:
    told, done = Told(), list[str]()

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        if any(change.item["city"] == "bad" for change in changes):
            raise ValueError("burnt")
        done.extend(change.id for change in changes)

    orders = shop.client.container("orders")
    async with shop.hosting("a", cook, lanes=8, leases=4, listeners=told.listeners) as processor:
        await orders.upsert({"id": "bad", "city": "bad"})
        await told.until(processor, HandlerError, "handler")
        for n in range(60):
            await orders.upsert({"id": str(n), "city": f"c{n}"})
            assert processor.health().state == "degraded", processor.health()
        await until(lambda: len(done) > 30, "the other lanes work")
        (reason,) = processor.health().reasons
        assert "item 'bad' of key [\"bad\"]" in reason
        assert "burnt" in reason


async def test_a_processor_that_is_defined_while_the_host_runs_is_served(shop: Shop) -> None:
    app, taken = shop.app(), list[str]()
    orders = app.container("orders")
    await shop.write(1)

    def take(changes: list[Change[Any]]) -> None:
        taken.extend(change.id for change in changes)

    async with app.host(name="a"):
        late = orders.processor("late", take, start="beginning", poll_interval=0.05)
        events = app.events.on_events("late")(lambda events: None)
        await until(lambda: late.running and events.running, "both are served")
        await until(lambda: taken == ["1"], "its changes are delivered")
        assert late.health().ok
        await processors.stop(events)
        another = orders.processor("another", lambda changes: None)
        await until(lambda: another.running, "it is served, too")
        assert not events.running  # what was stopped stays so
    assert not late.running
    async with app.host(name="a"):
        await shop.write(2)
        await until(lambda: taken == ["1", "2"], "the next host serves it from its start on")


async def test_a_processor_that_is_defined_late_and_cannot_start_says_why(shop: Shop) -> None:
    app = shop.app()
    async with app.host(name="a"):
        late = app.container("nowhere").processor("late", lambda changes: None)
        await until(lambda: "nowhere" in str(late.health().reasons), "it is told")
        assert late.health().state == "failed"
        assert not (await app.health()).ok
        await shop.client.container("nowhere", "/city").describe()
        await until(lambda: late.running, "it is served as soon as it can be")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Base(BaseException):
    pass


ODD = [
    ValueError("a NUL \0 in it"), ValueError("half \ud800 of a pair"), Mute(),
    ValueError("x" * 10**6), Base("of a kind of its own"), SystemExit(3), StopIteration(1),
    GeneratorExit(), KeyError(), ExceptionGroup("several", [Mute(), ValueError("\0")]),
]  # fmt: skip


@pytest.mark.parametrize("error", ODD, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("in_thread", [True, False])
async def test_whatever_is_raised_is_written_down_and_the_lease_goes_on(
    shop: Shop, error: BaseException, in_thread: bool
) -> None:
    done: list[str] = []

    def plain(changes: list[Change[Any]]) -> None:
        if any(change.id == "bad" for change in changes):
            raise error
        done.extend(change.id for change in changes)

    async def cook(changes: list[Change[Any]]) -> None:
        plain(changes)

    async with shop.hosting(
        "a", plain if in_thread else cook, dead_letter=True, max_attempts=2, max_items=1
    ):
        for item_id in ("1", "bad", "2"):
            await shop.orders.upsert({"id": item_id, "city": "x"})
        await until(lambda: done[-1:] == ["2"], "it goes on behind the odd one")
        (letter,) = await shop.orders.dead_letters("kitchen").list()
    assert letter.item_id == "bad"
    assert letter.attempts == 2
    assert letter.traceback
    assert len(letter.message) <= 8_000
