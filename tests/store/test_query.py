"""Queries against a filter in Python, and pages that stay in place."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import BadContinuation, ContainerRecreated, InvalidValue
from relevo.store import keys
from relevo.store.query import CHOICES_MAX, CONDITIONS_MAX, Order, compile_filter
from tests.conftest import examples

if TYPE_CHECKING:
    from relevo.store import Container, Item
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
numbers = count()

words = st.text(st.sampled_from("aAzé~ \U0001f355'\"\\"), max_size=2)
scalar = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, -1.0, 1.0, 1e10]) | words
)
value = scalar | st.lists(scalar, max_size=2) | st.dictionaries(st.sampled_from("xy"), scalar)
PATHS = {"a": ("a",), "/b": ("b",), "/b/x": ("b", "x"), "/b/0": ("b", "0"), "/c~1d": ("c/d",)}
bodies = st.dictionaries(st.sampled_from(["a", "b", "c/d"]), value, max_size=3)
ordered = st.integers(-2, 2) | st.just(0.5) | words
condition = st.one_of(
    st.tuples(st.sampled_from(list(PATHS)), st.sampled_from(["=", "!="]), value),
    st.tuples(st.sampled_from(list(PATHS)), st.sampled_from(["<", "<=", ">", ">="]), ordered),
    st.tuples(st.sampled_from(list(PATHS)), st.just("in"), st.lists(value, max_size=3)),
    st.tuples(st.sampled_from(list(PATHS)), st.just("exists"), st.booleans()),
)
MISSING = object()


def at(body: Any, path: str) -> Any:
    for name in PATHS[path]:
        if isinstance(body, dict) and name in body:
            body = body[name]
        elif isinstance(body, list) and name.isdigit() and int(name) < len(body):
            body = body[int(name)]
        else:
            return MISSING
    return body


def kind(one: Any) -> str:
    return "number" if type(one) in (int, float) else type(one).__name__


def same(one: Any, other: Any) -> bool:
    if kind(one) != kind(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def matches(body: dict[str, Any], path: str, operator: str, wanted: Any) -> bool:
    found = at(body, path)
    if operator == "exists":
        return bool((found is not MISSING) == wanted)
    if found is MISSING:
        return False
    match operator:
        case "=":
            return same(found, wanted)
        case "!=":
            return not same(found, wanted)
        case "in":
            return any(same(found, one) for one in wanted)
    if kind(found) != kind(wanted):
        return False
    compared = {"<": found < wanted, "<=": found <= wanted, ">": found > wanted}
    return bool(compared.get(operator, found >= wanted))


def place(item: Item[Any]) -> tuple[bytes, bytes]:
    """Where an item comes in the order of keys: that of the bytes of their text."""
    return keys.text((item.partition_key,)).encode(), item.id.encode()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_bodies=st.lists(bodies, max_size=12), where=st.lists(condition, max_size=3))
async def test_a_query_finds_what_a_filter_would(
    world: World, given_bodies: list[dict[str, Any]], where: list[Any]
) -> None:
    container = world.store.container(f"q{next(numbers)}", "/p", ranges=1)
    given_items = [{"id": f"é{n}", "p": n % 3, **one} for n, one in enumerate(given_bodies)]
    assert not (await container.bulk(given_items)).failures
    wanted = [one for one in given_items if all(matches(one, *each) for each in where)]
    found = [item async for item in container.query(where=where)]
    assert sorted(item.id for item in found) == sorted(one["id"] for one in wanted)
    assert found == sorted(found, key=place)
    inside = [item async for item in container.query(partition_key=1, where=where)]
    assert inside == [item for item in found if item.partition_key == 1]
    by_time = [item async for item in container.query(where=where, order_by="ts")]
    assert by_time == sorted(found, key=lambda item: (item.ts, *place(item)))


async def filled(world: World, items: int) -> Container[dict[str, Any]]:
    orders = world.orders()
    await orders.bulk([{"id": f"{n:03}", "city": "Vigo", "n": n} for n in range(items)])
    return orders


async def test_pages_go_on_where_they_ended(world: World) -> None:
    orders = await filled(world, 25)
    for order in get_args(Order):
        pages = [await orders.query(order_by=order).page(10)]
        while pages[-1].token is not None:
            pages.append(await orders.query(order_by=order, after=pages[-1].token).page(10))
        found = [item for page in pages for item in page.items]
        assert found == [item async for item in orders.query(order_by=order)]
        assert [len(page.items) for page in pages] == [10, 10, 5]


async def test_a_query_gives_a_token_behind_each_item(world: World) -> None:
    orders = await filled(world, 5)
    query = orders.query()
    async for item in query:
        rest = [one.id async for one in orders.query(after=query.token)]
        assert rest == [f"{n:03}" for n in range(int(item.id) + 1, 5)]


async def test_a_page_is_bounded_in_bytes_and_holds_one_item_at_least(world: World) -> None:
    world.database.page_bytes = 2_500
    orders = world.orders()
    for n in range(10):
        await orders.create({"id": str(n), "city": "x", "text": "a" * 1_000})
    await orders.create({"id": "huge", "city": "x", "text": "a" * 10_000})
    found = orders.query()
    sizes = []
    while True:
        page = await found.page(100)
        sizes.append(len(page.items))
        if page.token is None:
            break
    assert sizes == [2, 2, 2, 2, 2, 1]  # the one that is too large comes alone
    assert len([one async for one in orders.query(order_by="ts")]) == 11


async def test_a_limit_holds_over_pages(world: World) -> None:
    orders = await filled(world, 230)
    for limit in (1, 99, 100, 101, 250):
        found = [item.id async for item in orders.query(limit=limit)]
        assert found == [f"{n:03}" for n in range(min(limit, 230))]
        page = await orders.query(limit=limit).page(100)
        assert [item.id for item in page.items] == found[:100]
        assert (page.token is None) == (limit <= 100)


async def test_pages_stay_in_place_while_others_write(world: World) -> None:
    orders = await filled(world, 300)
    other = (await world.another()).container("orders")
    churn = asyncio.Event()

    async def disturb() -> None:
        for n in range(300):
            await other.upsert({"id": f"{n:03}-new", "city": "Vigo"})
            if n % 3 == 0:
                await other.delete(f"{n:03}", "Vigo")
            churn.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(disturb())
        await churn.wait()
        found = [item.id async for item in orders.query(partition_key="Vigo")]
    assert found == sorted(set(found))  # none twice, and in order
    assert {f"{n:03}" for n in range(300) if n % 3} <= set(found)  # none hidden


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ([("a", "like", "x")], "operator"),
        ([("a", ">", True)], "numbers or text"),
        ([("a", ">", None)], "numbers or text"),
        ([("a", ">", [1])], "numbers or text"),
        ([("a", "exists", 1)], "True or False"),
        ([("a", "in", "abc")], "list"),
        ([("a", "in", [0] * (CHOICES_MAX + 1))], "list"),
        ([("a", "=", float("nan"))], "NaN"),
        ([("a", "=", "\x00")], "NUL"),
        ([("a", "=", object())], "JSON"),
        ([("", "=", 1)], "a path is"),
        ([(7, "=", 1)], "a path is"),
        ([("a\x00", "=", 1)], "a path is"),
        ([("a", "=")], "condition is"),
        (["abc"], "condition is"),
        ([("a", "=", 1)] * (CONDITIONS_MAX + 1), "conditions"),
    ],
)
def test_what_is_no_condition_is_refused(where: Any, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        compile_filter(where, "id", None)


async def test_tokens_and_bounds_that_cannot_be_are_refused(world: World) -> None:
    orders = await filled(world, 3)
    token = (await orders.query().page(1)).token
    for refused in ("nonsense", "€", "", token and token[:-4]):
        with pytest.raises(BadContinuation):
            await orders.query(after=refused).page()
    with pytest.raises(BadContinuation, match="order_by='id'"):
        await orders.query(after=token, order_by="ts").page()
    with pytest.raises(InvalidValue, match="limit"):
        orders.query(limit=0)
    with pytest.raises(InvalidValue, match="rows"):
        await orders.query().page(limits.PAGE_ROWS_MAX + 1)
    with pytest.raises(InvalidValue, match="order_by"):
        await orders.query(order_by="n").page()  # type: ignore[arg-type]
    await orders.drop()
    await orders.create({"id": "1", "city": "Vigo"})
    with pytest.raises(ContainerRecreated):
        await orders.query(after=token).page()


async def test_what_a_caller_gives_never_becomes_sql(world: World) -> None:
    orders = await filled(world, 2)
    nasty = "'); drop table relevo.item; --"
    where = [(nasty, "=", nasty), (f"/{nasty}/0", "in", [nasty]), ("n", "<", nasty)]
    assert [one async for one in orders.query(where=where, partition_key=nasty)] == []
    assert len([one async for one in orders.query()]) == 2
