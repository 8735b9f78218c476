"""Every point of the change feed processor that Relevo grew from, each as a user would meet it."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import DatabaseUnavailable, HandlerError, MonitoredError
from relevo.feed.processing import host as processors
from relevo.feed.reading import log as reading
from tests.feed.shop import OPTIONS, Shop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from relevo import App
    from relevo.feed import Change

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shop(relevo_url: str, app: App) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        shop = Shop(relevo_url, app, stack)
        await shop.orders.describe()
        yield shop


async def test_four_components(shop: Shop) -> None:
    """A monitored container, a lease container, a host and a delegate."""
    await shop.write(1, 2, 3)
    await shop.host("host-1", leases_in="my-leases")
    await shop.until_delivered(1, 2, 3)
    assert set(await shop.owners(leases_in="my-leases")) == {"host-1"}


async def test_at_least_once(shop: Shop) -> None:  # P1
    """What was taken but not finished when a host is cut off is delivered again."""
    started = asyncio.Event()

    async def never_ends(changes: list[Change[Any]]) -> None:
        started.set()
        await asyncio.Event().wait()

    await shop.write(1)
    app = shop.app()
    processor = app.container("orders").processor("kitchen", never_ends, **OPTIONS)
    async with app.host(name="a"):
        await started.wait()
        assert [lease.name for lease in await processors.stop(processor, timeout=0.01)]
    await shop.host("b")
    await shop.until_delivered(1)


async def test_life_cycle_of_a_host(shop: Shop) -> None:  # P4
    """Read; nothing: wait; changes: call the delegate; it returned: move the position; again."""
    calls: list[int] = []

    async def count(changes: list[Change[Any]]) -> None:
        calls.append(len(changes))

    await shop.host("a", count)
    estimator = shop.orders.change_feed_estimator("kitchen")
    for turn in (1, 2):
        await shop.write(turn)
        await until(lambda: len(calls) == turn, "the delegate is called")  # noqa: B023

        async def caught_up() -> bool:
            return (await estimator.total()).estimated_lag == 0

        await until(caught_up, "the position has moved")
    assert calls == [1, 1]


async def test_a_delegate_that_raises_gets_the_same_batch_again_also_the_very_first(
    shop: Shop,
) -> None:  # P3
    calls: list[list[str]] = []

    async def fragile(changes: list[Change[Any]]) -> None:
        calls.append([change.id for change in changes])
        if len(calls) < 4:
            raise RuntimeError("not today")

    await shop.host("a", fragile, start="now")
    await shop.write(1)
    await until(lambda: len(calls) == 4, "the batch was tried four times")
    assert calls == [["1"]] * 4


async def test_dead_letters(shop: Shop) -> None:  # P8
    """A change that cannot be processed is kept aside, told, and later delivered after all."""
    mended = asyncio.Event()
    done: set[str] = set()

    async def picky(changes: list[Change[Any]]) -> None:
        if not mended.is_set() and "7" in {change.id for change in changes}:
            raise ValueError("cannot take 7")
        done.update(change.id for change in changes)

    told: list[Any] = []
    options: dict[str, Any] = {"max_attempts": 2, "dead_letter": True}
    app = shop.app()
    orders = app.container("orders")
    processor = orders.processor("kitchen", picky, **OPTIONS, **options)
    processor.on_dead_lettered(lambda token, letter: told.append(letter))
    async with app.host(name="a"):
        await shop.write(*range(10))
        await until(lambda: len(done) == 9 and len(told) == 1, "all others are processed")
        (letter,) = await orders.dead_letters("kitchen").list()
        assert letter.item_id == "7"
        assert letter.error_type == "ValueError"
        mended.set()
        await orders.dead_letters("kitchen").redrive(letter.id)
        assert "7" in done
        assert await orders.dead_letters("kitchen").list() == []


@contextmanager
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The monitored container does not answer."""

    async def fail(*_: Any, **__: Any) -> Any:
        raise DatabaseUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(reading, "read", fail)
        yield


async def test_three_notifications_with_the_source_of_the_error_told_apart(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:  # U4, U5
    told: dict[str, list[Any]] = {"acquired": [], "released": [], "error": []}

    def keep(event: str) -> Callable[..., None]:
        return lambda token, details: told[event].append((token, details))

    failing = asyncio.Event()

    async def once(changes: list[Change[Any]]) -> None:
        if not failing.is_set():
            failing.set()
            raise RuntimeError("of the user")

    listeners = {f"on_{event}": keep(event) for event in told}
    async with shop.hosting("a", once, listeners=listeners):
        await until(lambda: len(told["acquired"]) == 4, "every lease is told")
        await shop.write(1)
        await until(lambda: len(told["error"]) == 1, "the failure is told")
        _, of_the_user = told["error"][0]
        assert isinstance(of_the_user, HandlerError)
        assert isinstance(of_the_user.__cause__, RuntimeError)
        numbers = itertools.count(2)

        async def told_again() -> bool:
            await shop.write(next(numbers))  # one more: a read under way may still bring the last
            return len(told["error"]) > 1

        with unreadable(monkeypatch):
            await until(told_again, "the container's failure is told")
        _, of_the_container = told["error"][1]
        assert isinstance(of_the_container, MonitoredError)
    assert sorted(token for token, _ in told["released"]) == sorted(t for t, _ in told["acquired"])


async def test_deployment_units_are_both_notified(shop: Shop) -> None:  # U1
    await shop.host("a", unit="kitchen")
    await shop.host("b", unit="billing")
    await shop.write(1, 2, 3)
    await until(
        lambda: set(shop.seen["a"]) == set(shop.seen["b"]) == {"1", "2", "3"},
        "both units have all changes",
    )


async def test_dynamic_scaling_up_and_down(shop: Shop) -> None:  # B1, B4
    await shop.host("a")
    await shop.until_owners({"a": 4})
    async with shop.hosting("b"):
        await shop.until_owners({"a": 2, "b": 2})
        await shop.write(*range(40))
        await shop.until_delivered(*range(40))
    await shop.until_owners({"a": 4})
    await shop.write(*range(40, 60))
    await shop.until_delivered(*range(60))
    assert shop.seen["a"]
    assert shop.seen["b"]
    assert set(shop.delivered.values()) == {1}


async def test_one_owner_per_lease(shop: Shop) -> None:  # L1, P2
    """Also while hosts come, no two of them work on one lease at a time."""
    busy: Counter[str] = Counter()
    together: set[int] = set()
    done: set[str] = set()

    async def work(ctx: Any, changes: list[Change[Any]]) -> None:
        busy[ctx.lease_token] += 1
        together.add(busy[ctx.lease_token])
        await asyncio.sleep(0)
        busy[ctx.lease_token] -= 1
        done.update(change.id for change in changes)

    for n, name in enumerate(("a", "b", "c")):
        await shop.host(name, work, max_items=1)
        await shop.write(*range(n * 30, n * 30 + 30))
    await until(lambda: len(done) == 90, "all are delivered")
    owners = await shop.owners()
    assert sum(owners.values()) == 4
    assert together == {1}


async def test_leases_grow_when_the_container_splits(shop: Shop) -> None:  # F9
    await shop.write(*range(20))
    await shop.host("a")
    await shop.until_owners({"a": 4})
    first = (await shop.orders.ranges()).open[0]
    await shop.orders.split(first.id)
    await shop.until_owners({"a": 5})
    await shop.write(*range(20, 40))
    await shop.until_delivered(*range(40))
    assert set(shop.delivered.values()) == {1}


async def test_hosts_beyond_the_number_of_leases_idle(shop: Shop) -> None:  # B3
    shop.orders = shop.client.container("single", "/city", ranges=1)
    await shop.orders.describe()
    told: dict[str, list[str]] = {"a": [], "b": []}
    async with AsyncExitStack() as stack:
        for name, tokens in told.items():
            app = shop.app()
            processor = app.container("single").processor("kitchen", _nothing, **OPTIONS)
            processor.on_acquired(lambda token, _, tokens=tokens: tokens.append(token))
            await stack.enter_async_context(app.host(name=name))
            await until(lambda: len(told["a"]) == 1, "the first has the only lease")
            assert processor.running
        assert told["b"] == []
        assert processor.health().ok


async def test_poll_interval(shop: Shop) -> None:
    """Changes that nobody announces are found by asking, and asking is what the interval sets."""
    await shop.host("a", poll_interval=0.1)
    await shop.until_owners({"a": 4})
    await shop.write_unseen("1")
    await shop.until_delivered(1)


async def test_short_lived_hosting_resumes_where_it_stopped(shop: Shop) -> None:  # B4
    for turn in range(3):
        await shop.write(turn)
        async with shop.hosting(f"turn-{turn}"):
            await shop.until_delivered(turn)
    assert shop.delivered == Counter({"0": 1, "1": 1, "2": 1})


async def test_start_now(shop: Shop) -> None:
    await shop.write(1)
    await shop.host("a", start="now")
    await shop.write(2)
    await shop.until_delivered(2)
    assert set(shop.delivered) == {"2"}


async def test_start_at_a_date(shop: Shop) -> None:
    await shop.write(1)
    (page,) = [page async for page in shop.orders.read_changes() if page.changes]
    await shop.write(2)
    await shop.host("a", start=page.changes[-1].ts)
    await shop.until_delivered(2)
    assert set(shop.delivered) == {"2"}


async def test_start_from_the_beginning(shop: Shop) -> None:
    """By its name, or as the smallest date."""
    await shop.write(1)
    await shop.host("a", start="beginning")
    await shop.host("b", unit="billing", start=datetime.min.replace(tzinfo=UTC))
    await until(lambda: set(shop.seen["a"]) == set(shop.seen["b"]) == {"1"}, "both begin there")


async def test_later_changes_of_the_start_option_have_no_effect(shop: Shop) -> None:  # U2
    async with shop.hosting("a", start="now"):
        await shop.write(1)
        await shop.until_delivered(1)
    await shop.write(2)
    await shop.host("b", start="beginning")
    await shop.until_delivered(2)
    assert shop.seen["b"] == Counter({"2": 1})


async def test_estimator(shop: Shop) -> None:  # E1, E2
    async with shop.hosting("a", start="now"):
        pass
    await shop.write(1, 2, 3)
    estimator = shop.orders.change_feed_estimator("kitchen")
    total = await estimator.total()
    assert (total.estimated_lag, total.exact, total.leases) == (3, True, 4)
    assert {state.instance_name for state in await estimator.current_state()} == {None}
    await shop.host("b", start="now")
    await shop.until_delivered(1, 2, 3)

    async def drained() -> bool:
        return (await estimator.total()).estimated_lag == 0

    await until(drained, "nothing is left")


async def test_separate_lease_container(shop: Shop) -> None:  # U1
    """Units of one name in two lease containers know nothing of each other."""
    await shop.host("a", leases_in="here")
    await shop.host("b", leases_in="there")
    await shop.write(1)
    await until(lambda: shop.seen["a"] == shop.seen["b"] == Counter({"1": 1}), "both have it")
    assert set(await shop.owners(leases_in="here")) == {"a"}
    assert set(await shop.owners(leases_in="there")) == {"b"}


async def test_cost_on_the_lease_store_is_shown_by_unit(shop: Shop) -> None:  # L7
    """Statements are counted by unit, so that a rate is statements per second and unit."""
    app = shop.app()
    app.container("orders").processor("kitchen", _nothing, **OPTIONS)
    async with app.host(name="a"):
        await shop.until_owners({"a": 4})
        await until(lambda: 'statement="heartbeat"' in app.measure().decode(), "it is renewed")
        shown = app.measure().decode().splitlines()
    counted = [line for line in shown if line.startswith("relevo_lease_statements_")]
    assert any('unit="leases/orders/kitchen"' in line for line in counted), counted
    assert any('unit="all"' in line for line in counted), counted


async def _nothing(changes: list[Change[Any]]) -> None: ...
