"""The processor on one and on several hosts."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.errors import (
    ContainerRecreated,
    HandlerError,
    LeaseLost,
    ModeMismatch,
    SettingsMismatch,
)
from relevo.feed.operating.estimator import Estimator
from relevo.feed.processing import host as processors
from relevo.feed.processing.processor import Processor
from relevo.kernel.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from relevo.feed.model import Change
    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.store import Container, Store

pytestmark = pytest.mark.anyio
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "drain_seconds": 5.0}
AT_ONCE = Backoff(first=0.01, longest=0.02)


class Kitchen:
    """Hosts, a container and what was delivered."""

    def __init__(self, url: str, store: Store, database: Database, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack
        self.database = database
        self.orders: Container[dict[str, Any]] = store.container("orders", "/city", ranges=4)
        self.delivered: list[str] = []
        self.hosts: dict[str, AsyncExitStack] = {}

    async def cook(self, changes: list[Change[Any]]) -> None:
        self.delivered += [change.id for change in changes]

    async def serve(self, host: str = "a", handler: Any = None, **options: Any) -> Processor:
        own = await self._stack.enter_async_context(AsyncExitStack())
        app = App(settings=settings.load({**QUICK, "database_url": self._url}, environ={}))
        await own.enter_async_context(app.host(name=host))
        self.hosts[host] = own
        options.setdefault("poll_interval", 0.05)
        options.setdefault("backoff", AT_ONCE)
        name = options.pop("name", "kitchen")
        processor = Processor("orders", name, handler or self.cook, **options)
        await processors.start(processor, app.database, app.wakeups, app.leases, app.supervisor)
        return processor

    async def write(self, *numbers: int, **more: Any) -> None:
        items = [{"id": str(n), "city": f"c{n % 7}", **more} for n in numbers]
        result = await self.orders.bulk(items)
        assert not result.failures

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < give_up, f"{what}; delivered {self.delivered}"
            await asyncio.sleep(0.01)

    async def until_delivered(self, *numbers: int) -> None:
        wanted = {str(n) for n in numbers}
        await self.until(lambda: wanted <= set(self.delivered), f"{sorted(wanted)} are delivered")


@pytest.fixture
async def kitchen(
    relevo_url: str, database: Database, store: Store, wakeups: Wakeups
) -> AsyncIterator[Kitchen]:
    async with AsyncExitStack() as stack:
        kitchen = Kitchen(relevo_url, store, database, stack)
        await kitchen.orders.describe()
        yield kitchen


async def test_every_change_after_the_start_is_delivered_once(kitchen: Kitchen) -> None:  # P1
    await kitchen.write(1, 2, 3)
    await kitchen.serve()
    await kitchen.write(*range(10, 60))
    await kitchen.until_delivered(*range(10, 60))
    assert sorted(kitchen.delivered) == sorted(str(n) for n in range(10, 60))


async def test_start_from_the_beginning_and_later_options_have_no_effect(
    kitchen: Kitchen,
) -> None:  # U2
    await kitchen.write(1, 2, 3)
    await kitchen.serve(start="beginning")
    await kitchen.until_delivered(1, 2, 3)
    await kitchen.hosts["a"].aclose()
    await kitchen.write(4)
    await kitchen.serve("b", start="now")
    await kitchen.until_delivered(4)
    assert sorted(kitchen.delivered) == ["1", "2", "3", "4"]


async def test_a_handler_that_raises_gets_the_same_batch_again_also_the_very_first(
    kitchen: Kitchen,
) -> None:  # P3, U5
    calls: list[list[str]] = []
    errors: list[Any] = []

    async def fragile(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        calls.append([c.id for c in changes])
        if len(calls) < 4:
            assert ctx.attempt == len(calls)
            raise RuntimeError("no")
        await kitchen.cook(changes)

    processor = await kitchen.serve(handler=fragile)
    processor.on_error(lambda token, error: errors.append(error))
    await kitchen.write(1)
    await kitchen.until_delivered(1)
    assert calls == [["1"]] * 4
    assert [type(e) for e in errors] == [HandlerError] * 3
    assert isinstance(errors[0].__cause__, RuntimeError)
    assert errors[0].context.attempt == 1


async def test_a_retry_never_grows(kitchen: Kitchen) -> None:  # 8.6
    calls: list[list[str]] = []
    blocked = asyncio.Event()

    async def once_bitten(changes: list[Change[Any]]) -> None:
        calls.append([c.id for c in changes])
        if len(calls) == 1:
            await blocked.wait()
            raise RuntimeError("no")
        await kitchen.cook(changes)

    await kitchen.serve(handler=once_bitten, start="now")
    await kitchen.orders.create({"id": "1", "city": "x"})
    await kitchen.until(lambda: len(calls) == 1, "first call")
    await kitchen.orders.create({"id": "2", "city": "x"})
    blocked.set()
    await kitchen.until_delivered(1, 2)
    assert calls[:2] == [["1"], ["1"]]


async def test_the_handler_is_never_called_with_nothing(kitchen: Kitchen) -> None:  # P4
    sizes: list[int] = []
    await kitchen.serve(handler=lambda changes: sizes.append(len(changes)), max_items=3, leases=16)
    await kitchen.write(*range(40))
    await kitchen.until(lambda: sum(sizes) == 40, "all are delivered")
    assert min(sizes) >= 1
    assert max(sizes) <= 3


async def test_two_units_each_see_every_change(kitchen: Kitchen) -> None:  # U1
    other: list[str] = []
    await kitchen.serve("a")
    await kitchen.serve(
        "b", handler=lambda changes: other.extend(c.id for c in changes), name="bar"
    )
    await kitchen.write(*range(20))
    await kitchen.until_delivered(*range(20))
    await kitchen.until(lambda: len(other) == 20, "the other unit saw all")


async def test_other_mode_settings_or_a_recreated_container_are_refused(
    kitchen: Kitchen,
) -> None:  # U3
    await kitchen.serve(leases=8)
    with pytest.raises(SettingsMismatch):
        await kitchen.serve("b", leases=16)
    with pytest.raises(ModeMismatch):
        await kitchen.serve("c", mode="all_versions", leases=8)
    await kitchen.orders.drop()
    await kitchen.orders.create({"id": "1", "city": "x"})
    with pytest.raises(ContainerRecreated):
        await kitchen.serve("d", leases=8)


async def test_scaling_delivers_nothing_twice_and_loses_nothing(kitchen: Kitchen) -> None:  # B4, P1
    await kitchen.serve("a", leases=16)
    stop = asyncio.Event()

    async def write() -> int:
        n = 0
        while not stop.is_set():
            await kitchen.write(*range(n, n + 20))
            n += 20
        return n

    writing = asyncio.create_task(write())
    for host in ("b", "c"):
        await kitchen.serve(host, leases=16)
        target = len(kitchen.delivered) + 300
        await kitchen.until(lambda: len(kitchen.delivered) > target, "work goes on")  # noqa: B023
    await kitchen.hosts["a"].aclose()
    stop.set()
    written = await writing
    await kitchen.until_delivered(*range(written))
    assert len(kitchen.delivered) == written  # each once: hand-offs repeat nothing


async def test_effects_in_the_checkpoints_transaction_happen_exactly_once(
    kitchen: Kitchen,
) -> None:  # P5
    await kitchen.database.run(
        lambda tx: tx.execute("create table dishes (id text primary key, n integer not null)")
    )
    failures = iter([True, False] * 500)

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        async with ctx.transaction() as tx:
            for change in changes:
                await tx.execute(
                    "insert into dishes values ($1, 1)"
                    " on conflict (id) do update set n = dishes.n + 1",
                    change.id,
                )
            if next(failures):
                raise RuntimeError("after the effects, before the commit")
        kitchen.delivered += [c.id for c in changes]

    await kitchen.serve(handler=cook, max_items=5)
    await kitchen.write(*range(60))
    await kitchen.until_delivered(*range(60))
    rows = await kitchen.database.fetch("select id, n from dishes")
    assert {row["id"]: row["n"] for row in rows} == {str(n): 1 for n in range(60)}


async def test_a_lost_lease_undoes_the_transaction(kitchen: Kitchen) -> None:  # L2, P5
    await kitchen.database.run(lambda tx: tx.execute("create table dishes (id text)"))
    seen: list[BaseException] = []

    async def cook(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        if seen:
            return await kitchen.cook(changes)
        try:
            async with ctx.transaction() as tx:
                await tx.execute("insert into dishes values ('x')")
                await kitchen.database.write(
                    "update relevo.lease set epoch = epoch + 1 where id = $1", ctx.fence.lease_id
                )
        except LeaseLost as error:
            seen.append(error)
            raise
        return None

    await kitchen.serve(handler=cook)
    await kitchen.write(1)
    await kitchen.until_delivered(1)
    assert len(seen) == 1
    assert await kitchen.database.fetchval("select count(*) from dishes") == 0


async def test_a_manual_unit_that_never_confirms_keeps_its_position(kitchen: Kitchen) -> None:  # P6
    seen: list[str] = []

    async def look(changes: list[Change[Any]]) -> None:
        seen.extend(c.id for c in changes)

    processor = await kitchen.serve(handler=look, checkpoint="manual")
    await kitchen.write(1, 2)
    await kitchen.until(lambda: len(seen) >= 2, "seen once")
    await processors.stop(processor)
    await processors.start(processor, *(await _parts(kitchen)))
    await kitchen.until(lambda: len(seen) >= 4, "seen again")
    assert sorted(seen[:4]) == ["1", "1", "2", "2"]


async def _parts(kitchen: Kitchen) -> Any:
    own = await kitchen._stack.enter_async_context(AsyncExitStack())
    app = App(settings=settings.load({**QUICK, "database_url": kitchen._url}, environ={}))
    await own.enter_async_context(app.host(name="again"))
    return app.database, app.wakeups, app.leases, app.supervisor


async def test_the_estimator_tells_the_truth_and_changes_nothing(
    kitchen: Kitchen,
) -> None:  # E1, E2
    gate = asyncio.Event()

    async def slow(changes: list[Change[Any]]) -> None:
        await gate.wait()
        await kitchen.cook(changes)

    processor = await kitchen.serve(handler=slow)
    await kitchen.until(lambda: len(processor.leases) == 4, "all leases are held")
    await kitchen.write(*range(30))
    estimator = Estimator(kitchen.database, "orders", "kitchen", "leases")
    before = await kitchen.database.fetch("select * from relevo.lease order by id")
    total = await estimator.total()
    assert (total.estimated_lag, total.exact) == (30, True)
    assert await kitchen.database.fetch("select * from relevo.lease order by id") == before
    gate.set()
    await kitchen.until_delivered(*range(30))

    async def drained() -> bool:
        return (await estimator.total()).estimated_lag == 0

    for _ in range(300):
        if await drained():
            break
        await asyncio.sleep(0.01)
    assert await drained()
    assert (await estimator.total()).lag_seconds == 0


async def test_each_acquired_is_followed_by_one_released(kitchen: Kitchen) -> None:  # U4
    events: list[tuple[str, str]] = []
    errors: list[Any] = []
    processor = await kitchen.serve()
    processor.on_acquired(lambda token, epoch: events.append(("acquired", token)))
    processor.on_released(lambda token, reason: events.append(("released", token)))
    processor.on_error(lambda token, error: errors.append(error))
    await kitchen.serve("b")
    await kitchen.write(*range(20))
    await kitchen.until_delivered(*range(20))
    await kitchen.until(lambda: len(processor.leases) == 2, "shared")
    await processors.stop(processor)
    released = [token for event, token in events if event == "released"]
    assert len(released) == 4
    assert errors == []


async def test_leases_go_on_over_a_split(kitchen: Kitchen) -> None:  # F9
    await kitchen.serve()
    await kitchen.write(*range(20))
    await kitchen.until_delivered(*range(20))
    for one in list((await kitchen.orders.ranges()).open):
        await kitchen.orders.split(one.id)
    await kitchen.write(*range(100, 160))
    await kitchen.until_delivered(*range(100, 160))
    assert len(kitchen.delivered) == 80
