"""One set of bounds for items, whichever way they are written."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import InvalidValue, TooLarge
from tests.conftest import examples

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.store import Container
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
PUT: Final = "select relevo.put_item('orders', $1::text::jsonb)"
REFUSALS: Final = ("22023", "54000", "22003")
"""Invalid value, too large, a number out of range."""
KEY: Final = limits.PARTITION_KEY_BYTES_MAX


def noise(seed: int, length: int) -> str:
    """Text that no index can compress."""
    return "".join(random.Random(seed).choices([chr(n) for n in range(0x61, 0x7B)], k=length))


def deep(levels: int) -> Any:
    return [] if levels == 1 else [deep(levels - 1)]


def sized(size: int, **members: Any) -> dict[str, Any]:
    """An item of so many bytes as compact JSON."""
    item = {"id": "1", "city": "Vigo", **members, "x": ""}
    return item | {"x": "x" * (size - len(json.dumps(item, separators=(",", ":"))))}


GOOD: Final[list[dict[str, Any]]] = [
    {"id": "x" * 255, "city": "Vigo"},
    {"id": "a b%&+é\x85😀", "city": "Vigo"},
    {"id": "1", "city": "x" * KEY},
    {"id": noise(1, 255), "city": noise(2, KEY)},
    {"id": "1", "city": "é" * (KEY // 2)},
    {"id": "1", "city": '"' * (KEY // 2)},
    {"id": "😀" * 255, "city": noise(3, 1_300)},
    {"id": "1", "city": None},
    {"id": "1"},
    {"id": "1", "city": 1e300},
    {"id": "1", "city": "Vigo", "x": deep(127)},
    {"id": "1", "city": "Vigo", "x": [{"y": []}] * 200},
    sized(limits.ITEM_BYTES_MAX),
    sized(limits.ITEM_BYTES_MAX, list=[1, "a, b: c\\", {"k": None}] * 9_000),
    {"id": "1", "city": "Vigo", "ttl": -1},
    {"id": "1", "city": "Vigo", "ttl": 1},
    {"id": "1", "city": "Vigo", "ttl": 2**31 - 1},
    {"id": "1", "city": "Vigo", "ttl": None},
    {"id": "1", "city": "Vigo", "_etag": "dropped", "_ts": deep(127)},
]
TTLS: Final[tuple[Any, ...]] = (0, -2, 1.5, "60", True, 2**31, {})
BAD: Final[list[dict[str, Any]]] = [
    *({"id": name, "city": "Vigo"} for name in ("", "a/b", "a\\b", "a?", "#", "\t", "\x7f")),
    {"id": "x" * 256, "city": "Vigo"},
    {"id": 1, "city": "Vigo"},
    {"id": None, "city": "Vigo"},
    {"city": "Vigo"},
    {"id": "1", "city": "x" * (KEY + 1)},
    {"id": "1", "city": "x" * 5 * limits.KIB},
    {"id": "1", "city": "é" * (KEY // 2 + 1)},
    {"id": "1", "city": '"' * KEY},
    {"id": "😀" * 255, "city": noise(3, KEY)},
    {"id": "1", "city": ["Vigo"]},
    {"id": "1", "city": {"name": "Vigo"}},
    {"id": "1", "city": 10**400},
    {"id": "1", "city": "Vigo", "x": deep(128)},
    {"id": "1", "city": "Vigo", "x": deep(300)},
    sized(limits.ITEM_BYTES_MAX + 1),
    sized(limits.ITEM_BYTES_MAX + 1, list=[1, "a, b: c\\", {"k": None}] * 9_000),
    *({"id": "1", "city": "Vigo", "ttl": ttl} for ttl in TTLS),
]


async def by_call(orders: Container[Any], item: dict[str, Any]) -> bool:
    try:
        await orders.upsert(item)
    except (InvalidValue, TooLarge):
        return False
    return True


async def by_sql(database: Database, item: dict[str, Any], put: str = PUT) -> bool:
    text = json.dumps(item)
    try:
        await database.run(lambda tx: tx.execute(put, text))
    except asyncpg.PostgresError as error:
        if error.sqlstate not in REFUSALS:
            raise
        return False
    return True


@pytest.mark.parametrize("item", GOOD, ids=range(len(GOOD)))
async def test_what_is_allowed_is_so_in_python_and_in_sql(
    world: World, item: dict[str, Any]
) -> None:
    orders = world.orders(ttl=-1)
    assert await by_call(orders, item)
    assert await by_sql(world.database, item)
    [stored] = [one async for one in orders.query()]  # both have written the same item
    assert (await orders.read(stored.id, stored.partition_key)).body == stored.body


@pytest.mark.parametrize("item", BAD, ids=range(len(BAD)))
async def test_what_is_refused_is_so_in_python_and_in_sql(
    world: World, item: dict[str, Any]
) -> None:
    orders = world.orders(ttl=-1)
    await orders.describe()
    assert not await by_call(orders, item)
    assert not await by_sql(world.database, item)
    assert [one async for one in orders.query()] == []


async def test_the_parts_of_a_hierarchical_key_count_together(world: World) -> None:
    orders = world.store.container("tenants", ["/a", "/b", "/c"])
    await orders.describe()
    put = PUT.replace("orders", "tenants")
    for size, allowed in ((KEY - 2, True), (KEY - 1, False)):
        item = {"id": "1", "a": "x", "b": noise(4, size), "c": "y"}
        assert (await by_call(orders, item), await by_sql(world.database, item, put)) == (
            allowed,
            allowed,
        )


async def test_sql_refuses_numbers_that_readers_cannot_take(world: World) -> None:
    await world.orders().describe()
    item = '{"id": "1", "city": "Vigo", "x": [1e400, %s]}'
    await world.database.fetch(PUT, item % "5")
    with pytest.raises(asyncpg.PostgresError, match="too large"):
        await world.database.fetch(PUT, item % f"{10**400}.5")


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(max_size=260),
    city=st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=1_100),
    ttl=st.none() | st.integers(-5, 2**31 + 5) | st.floats(allow_nan=False, width=16),
)
async def test_python_and_sql_agree_on_any_item(
    world: World, name: str, city: Any, ttl: Any
) -> None:
    item = {"id": name, "city": city, "ttl": ttl}
    text = json.dumps(item)
    if "Infinity" in text or "\\u0000" in text:
        return  # JSON and jsonb have neither
    assert await by_call(world.orders(ttl=-1), item) == await by_sql(world.database, item)
