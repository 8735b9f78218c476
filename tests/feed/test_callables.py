"""Handlers and callbacks of every kind: what they return is awaited, or refused by name."""

from __future__ import annotations

import asyncio
import functools
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import HandlerError, InvalidValue
from tests.feed.shop import Shop, until

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


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain decorator, as users write it."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


class Cook:
    """An object that is called as a coroutine function."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work

    async def __call__(self, *given: Any) -> None:
        await self._work(*given)


class Wish:
    """Something of one's own that can be awaited."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def __await__(self) -> Any:
        return self._work.__await__()


async def twice(work: Any) -> Any:
    return work


KINDS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "lambda": lambda work: lambda given, more=None: work(given, more),
    "decorated": lambda work: lambda given, more=None: logged(work)(given, more),
    "object": Cook,
    "partial": lambda work: functools.partial(work),
    "partial of an object": lambda work: functools.partial(Cook(work)),
    "awaitable": lambda work: lambda given, more=None: Wish(work(given, more)),
    "coroutine of a coroutine": lambda work: lambda given, more=None: twice(work(given, more)),
}


@pytest.mark.parametrize("kind", [one for one in KINDS if "object" not in one])
async def test_whatever_a_handler_returns_that_can_be_awaited_is(shop: Shop, kind: str) -> None:
    done: list[str] = []
    loop = asyncio.get_running_loop()

    async def cook(changes: list[Change[Any]], _: Any = None) -> None:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loop
        done.extend(change.id for change in changes)

    await shop.host("a", KINDS[kind](cook))
    await shop.write(*range(20))
    await until(lambda: len(done) >= 20, "all changes are cooked")
    await until(lambda: lag(shop), "all are checkpointed")
    assert sorted(done) == sorted(map(str, range(20)))


@pytest.mark.parametrize("kind", ["object", "partial of an object"])
async def test_an_object_with_an_async_call_is_a_handler(shop: Shop, kind: str) -> None:
    done: list[str] = []

    async def cook(changes: list[Change[Any]]) -> None:
        await asyncio.sleep(0)
        done.extend(change.id for change in changes)

    class Single(Cook):
        async def __call__(self, changes: Any) -> None:
            await self._work(changes)

    made: Any = Single(cook)
    await shop.host("a", made if kind == "object" else functools.partial(made))
    await shop.write(*range(20))
    await until(lambda: len(done) >= 20, "all changes are cooked")


async def lag(shop: Shop) -> bool:
    return (await shop.orders.change_feed_estimator("kitchen").total()).estimated_lag == 0


async def test_what_a_coroutine_of_a_plain_function_raises_is_a_failure(shop: Shop) -> None:
    errors: list[Any] = []
    calls = 0

    async def cook(changes: list[Change[Any]]) -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        if calls < 3:
            raise ValueError("burnt")

    async with shop.hosting(
        "a",
        lambda changes: cook(changes),
        listeners={"on_error": lambda *told: errors.append(told)},
    ):
        await shop.write(1)
        await until(lambda: calls == 3, "the batch came again")
    assert [type(error.__cause__) for _, error in errors] == [ValueError] * 2


async def test_a_coroutine_of_a_plain_function_ends_with_its_time(shop: Shop) -> None:
    errors: list[Any] = []
    ended = asyncio.Event()

    async def hang(changes: list[Change[Any]]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with shop.hosting(
        "a", lambda changes: hang(changes), delegate_timeout=0.05,
        listeners={"on_error": lambda *told: errors.append(told)},
    ):  # fmt: skip
        await shop.write(1)
        await ended.wait()
        await until(lambda: bool(errors), "the time-out is told")
    assert errors[0][1].code == "handler_timeout"


async def test_a_plain_function_still_runs_in_a_thread(shop: Shop) -> None:
    threads: set[int] = set()
    await shop.host("a", lambda changes: threads.add(threading.get_ident()))
    await shop.write(1)
    await until(lambda: bool(threads), "it was called")
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    "handler",
    [lambda changes: (one for one in changes), lambda changes: map(print, changes)],
    ids=["generator", "map"],
)
async def test_a_result_that_has_done_nothing_is_a_failure(shop: Shop, handler: Any) -> None:
    errors: list[Any] = []
    async with shop.hosting(
        "a", handler, listeners={"on_error": lambda *told: errors.append(told)}
    ):
        await shop.write(1)
        await until(lambda: bool(errors), "it is told")
        assert not await lag(shop)
    assert isinstance(errors[0][1], HandlerError)
    assert "until somebody iterates" in str(errors[0][1])


def yields(changes: Any) -> Iterator[None]:
    yield


async def yields_async(changes: Any) -> AsyncIterator[None]:
    yield


class Generous:
    def __call__(self, changes: Any) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (yields, "generator function"), (yields_async, "generator function"),
        (Generous(), "generator function"), (functools.partial(yields), "generator function"),
        (Cook, "is the class Cook"), (object, "is the class object"), (5, "cannot be called"),
        (lambda: None, "takes"), (lambda a, b, c: None, "takes"), (lambda a, *, b: None, "takes"),
        (getattr, "does not say"),
    ],
)  # fmt: skip
async def test_what_can_be_no_handler_is_refused_when_it_is_registered(
    app: App, handler: Any, why: str
) -> None:
    orders = app.container("orders", "/city")
    with pytest.raises(InvalidValue, match=why):
        orders.processor("kitchen", handler)
    with pytest.raises(InvalidValue, match=why):
        app.events.on_events("kitchen")(handler)


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_a_callback_returns_that_can_be_awaited_is(shop: Shop, kind: str) -> None:
    told: list[str] = []

    async def note(token: str, epoch: int) -> None:
        await asyncio.sleep(0)
        told.append(token)

    await shop.host("a", listeners={"on_acquired": KINDS[kind](note)})
    await until(lambda: len(told) == 4, "all leases are told of")


async def test_what_can_be_no_callback_is_refused(app: App) -> None:
    processor = app.container("orders", "/city").processor("kitchen", lambda changes: None)
    with pytest.raises(InvalidValue, match=r"called with \(token, error\)"):
        processor.on_error(lambda error: None)
    with pytest.raises(InvalidValue, match="generator function"):
        processor.on_released(lambda token, reason: (yield))
    orders = app.container("orders")
    with pytest.raises(InvalidValue, match=r"called with \(lag\)"):
        await orders.estimator_loop("kitchen", lambda: None)  # type: ignore[arg-type,misc]


async def test_handlers_of_events_are_awaited_too(shop: Shop) -> None:
    app, seen = shop.app(), list[Any]()

    async def take(events: Any) -> None:
        await asyncio.sleep(0)
        seen.extend(events)

    app.events.on_events("audit", start="beginning", poll_interval=0.05)(
        lambda events: take(events)
    )
    app.job("nothing")(lambda ctx: None)
    async with app.host(name="a"):
        await (await app.jobs.submit("nothing")).wait(30)
        await until(lambda: bool(seen), "an event was taken")
