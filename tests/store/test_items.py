"""Single items: what each operation does and what it refuses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo import limits
from relevo.errors import (
    ConditionNotMet,
    Conflict,
    InvalidValue,
    ItemExists,
    NotFound,
    RelevoError,
    TooLarge,
)
from relevo.store import UNDEFINED

if TYPE_CHECKING:
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
PIZZA = {"id": "1", "city": "Vigo", "dish": "pizza"}


async def test_what_was_created_can_be_read(world: World) -> None:
    orders = world.orders()
    created = await orders.create(PIZZA)
    assert created.body == PIZZA
    assert (created.id, created.partition_key) == ("1", "Vigo")
    assert await orders.read("1", "Vigo") == created


async def test_create_refuses_what_exists_and_changes_nothing(world: World) -> None:
    orders = world.orders()
    before = await orders.create(PIZZA)
    with pytest.raises(ItemExists, match="item '1'"):
        await orders.create({**PIZZA, "dish": "burger"})
    assert await orders.read("1", "Vigo") == before


async def test_one_id_under_two_partition_keys_is_two_items(world: World) -> None:
    orders = world.orders()
    await orders.create(PIZZA)
    await orders.create({"id": "1", "city": "Lugo"})
    assert (await orders.read("1", "Vigo")).body == PIZZA
    assert (await orders.read("1", "Lugo")).body == {"id": "1", "city": "Lugo"}


async def test_upsert_creates_and_replaces(world: World) -> None:
    orders = world.orders()
    first = await orders.upsert(PIZZA)
    second = await orders.upsert({**PIZZA, "dish": "burger"})
    assert second.etag != first.etag
    assert second.lsn > first.lsn
    assert (await orders.read("1", "Vigo")).body["dish"] == "burger"


async def test_replace_needs_an_item(world: World) -> None:
    orders = world.orders()
    with pytest.raises(NotFound, match="item '1'"):
        await orders.replace(PIZZA)
    await orders.create(PIZZA)
    assert (await orders.replace({**PIZZA, "dish": "burger"})).body["dish"] == "burger"


async def test_delete_removes_an_item_once(world: World) -> None:
    orders = world.orders()
    await orders.create(PIZZA)
    await orders.delete("1", "Vigo")
    with pytest.raises(NotFound):
        await orders.read("1", "Vigo")
    with pytest.raises(NotFound):
        await orders.delete("1", "Vigo")


async def test_patch_changes_parts_and_keeps_the_rest(world: World) -> None:
    orders = world.orders()
    before = await orders.create({**PIZZA, "n": 1, "tags": ["a"]})
    after = await orders.patch(
        "1",
        "Vigo",
        [
            {"op": "incr", "path": "/n", "value": 2},
            {"op": "add", "path": "/tags/-", "value": "b"},
            {"op": "move", "from": "/dish", "path": "/meal"},
        ],
    )
    assert after.body == {
        "id": "1", "city": "Vigo", "n": 3, "tags": ["a", "b"], "meal": "pizza",
    }  # fmt: skip
    assert after.etag != before.etag
    assert await orders.read("1", "Vigo") == after


async def test_a_patch_that_cannot_be_applied_changes_nothing(world: World) -> None:
    orders = world.orders()
    before = await orders.create(PIZZA)
    refused: list[tuple[list[dict[str, Any]], str]] = [
        (
            [{"op": "set", "path": "/n", "value": 1}, {"op": "remove", "path": "/x"}],
            "/operations/1",
        ),
        ([{"op": "set", "path": "/id", "value": "2"}], "/operations"),
        ([{"op": "set", "path": "/city", "value": "Lugo"}], "/operations"),
        ([{"op": "remove", "path": "/id"}], "/id"),
        ([{"op": "set", "path": "/n", "value": math.nan}], "/n"),
    ]
    for operations, pointer in refused:
        with pytest.raises(InvalidValue) as caught:
            await orders.patch("1", "Vigo", operations)
        assert caught.value.pointer == pointer
    with pytest.raises(TooLarge):
        value = "x" * limits.ITEM_BYTES_MAX
        await orders.patch("1", "Vigo", [{"op": "set", "path": "/n", "value": value}])
    with pytest.raises(NotFound):
        await orders.patch("2", "Vigo", [{"op": "set", "path": "/n", "value": 1}])
    assert await orders.read("1", "Vigo") == before


async def test_a_condition_holds_for_one_version_only(world: World) -> None:
    orders = world.orders()
    old = await orders.create(PIZZA)
    new = await orders.replace(PIZZA, if_match=old.etag)  # 2.4: counts as a change
    assert new.etag != old.etag
    operations = [{"op": "set", "path": "/n", "value": 1}]
    for attempt in (
        orders.replace(PIZZA, if_match=old.etag),
        orders.upsert(PIZZA, if_match=old.etag),
        orders.patch("1", "Vigo", operations, if_match=old.etag),
        orders.delete("1", "Vigo", if_match=old.etag),
        orders.upsert({"id": "2", "city": "Vigo"}, if_match="*"),
    ):
        with pytest.raises(ConditionNotMet):
            await attempt
    assert await orders.read("1", "Vigo") == new
    patched = await orders.patch("1", "Vigo", operations, if_match=new.etag)
    await orders.upsert(PIZZA, if_match="*")
    with pytest.raises(ConditionNotMet):
        await orders.delete("1", "Vigo", if_match=patched.etag)
    await orders.delete("1", "Vigo", if_match="*")


async def test_an_etag_of_a_deleted_item_does_not_fit_its_successor(world: World) -> None:
    orders = world.orders()
    old = await orders.create(PIZZA)
    await orders.delete("1", "Vigo")
    await orders.create(PIZZA)
    with pytest.raises(ConditionNotMet):
        await orders.replace(PIZZA, if_match=old.etag)


async def test_what_belongs_to_the_store_is_dropped_from_items(world: World) -> None:
    orders = world.orders()
    given = {**PIZZA, "_etag": "x", "_ts": 1, "_lsn": 2, "_rid": "r", "_self": "s", "_own": 1}
    assert (await orders.create(given)).body == {**PIZZA, "_own": 1}
    assert (await orders.read("1", "Vigo")).body == {**PIZZA, "_own": 1}
    assert "_etag" in given


async def test_what_is_refused_leaves_no_trace(world: World) -> None:
    orders = world.orders()
    attempts: list[tuple[str, Any]] = [
        ("/id", orders.create({"city": "Vigo"})),
        ("/x/1", orders.upsert({**PIZZA, "x": [1, math.nan]})),
        ("/x", orders.upsert({**PIZZA, "x": "a\x00b"})),
        ("", orders.upsert([PIZZA])),
        ("if_match", orders.upsert(PIZZA, if_match="")),
        ("id", orders.read("", "Vigo")),
        ("partition_key", orders.delete("1", ["Vigo", "Lugo"])),
        ("partition_key", orders.patch("1", {"city": "Vigo"}, [{"op": "remove", "path": "/x"}])),
    ]
    for pointer, attempt in attempts:
        with pytest.raises(InvalidValue) as caught:
            await attempt
        assert caught.value.pointer == pointer
    assert await world.database.fetchval("select count(*) from relevo.item") == 0


async def test_an_item_may_be_so_large_and_no_larger(world: World) -> None:
    orders = world.orders()
    frame = len(msgspec.json.encode({**PIZZA, "x": ""}))
    largest = {**PIZZA, "x": "x" * (limits.ITEM_BYTES_MAX - frame)}
    assert (await orders.create(largest)).body == largest
    with pytest.raises(TooLarge, match=str(limits.ITEM_BYTES_MAX + 1)):
        await orders.upsert({**largest, "x": largest["x"] + "x"})
    assert (await orders.read("1", "Vigo")).body == largest


async def test_every_kind_of_partition_key_leads_back_to_its_item(world: World) -> None:  # F8
    values: list[Any] = ["", "é", "1", 1, 1.5, -0.25, 2**60, True, False, None]
    orders = world.orders()
    for n, value in enumerate(values):
        await orders.create({"id": str(n), "city": value})
    await orders.create({"id": "none"})
    for n, value in enumerate(values):
        item = await orders.read(str(n), value)
        assert (item.partition_key, type(item.partition_key)) == (
            item.body["city"],
            float if value == 2**60 else type(value),
        )
    assert (await orders.read("none", UNDEFINED)).partition_key is UNDEFINED
    assert (await orders.read("3", 1.0)).id == "3"


async def test_hierarchical_keys_have_all_their_parts(world: World) -> None:
    visits = world.store.container("visits", ["/tenant", "/user/name"])
    item = await visits.create({"id": "1", "tenant": "t", "user": {"name": "ana"}})
    assert item.partition_key == ("t", "ana")
    assert await visits.read("1", ("t", "ana")) == item
    with pytest.raises(InvalidValue, match="2 parts"):
        await visits.read("1", "t")


async def test_what_was_given_is_not_what_is_kept(world: World) -> None:
    orders = world.orders()
    given: dict[str, Any] = {"id": "1", "city": "Vigo", "tags": ["a"]}
    created = await orders.create(given)
    given["tags"].append("b")
    assert created.body["tags"] == (await orders.read("1", "Vigo")).body["tags"] == ["a"]


async def test_errors_tell_programs_what_happened(world: World) -> None:
    orders = world.orders()
    await orders.create(PIZZA)
    with pytest.raises(RelevoError) as caught:
        await orders.create(PIZZA)
    assert (caught.value.code, caught.value.status) == ("item_exists", 409)
    assert isinstance(caught.value, Conflict)
