"""Containers whose items have a model."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.errors import InvalidValue
from relevo.store import Create, Item, Patch, Upsert

if TYPE_CHECKING:
    from relevo.store.model import Step
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
PIZZA = {"id": "1", "city": "Vigo", "dish": "pizza"}


class Order(msgspec.Struct):
    id: str
    city: str
    at: datetime
    dish: str = "pizza"


async def test_a_model_types_the_items(world: World) -> None:
    orders = world.store.container("orders", "/city", model=Order)
    order = Order("1", "Vigo", datetime(2030, 1, 1, tzinfo=UTC))
    created: Item[Order] = await orders.create(order)
    assert created.body == order
    assert (await orders.read("1", "Vigo")).body == order
    assert [item.body async for item in orders.query()] == [order]
    with pytest.raises(InvalidValue, match="does not fit"):
        await orders.upsert({"id": "1", "city": "Vigo", "at": "soon"})
    assert (await orders.read("1", "Vigo")).body == order


async def test_what_a_patch_or_batch_leaves_must_fit_the_model_or_nothing_is_done(
    world: World,
) -> None:
    orders = world.store.container("orders", "/city", model=Order)
    order = Order("1", "Vigo", datetime(2030, 1, 1, tzinfo=UTC))
    before = await orders.create(order)
    spoil: list[dict[str, Any]] = [{"op": "set", "path": "/at", "value": "soon"}]
    misfit = {"id": "2", "city": "Vigo"}
    fine = Upsert({**msgspec.to_builtins(order), "dish": "burger"})
    with pytest.raises(InvalidValue, match="does not fit"):
        await orders.patch("1", "Vigo", spoil)
    refused: list[list[Step]] = [
        [fine, Create(misfit)],
        [fine, fine, Create(misfit)],
        [fine, Patch("1", spoil)],
    ]
    for steps in refused:
        with pytest.raises(InvalidValue, match="does not fit") as caught:
            await orders.batch("Vigo", steps)
        assert caught.value.pointer == f"/{len(steps) - 1}"
    assert [item async for item in orders.query()] == [before]
    result = await orders.bulk([misfit])
    assert "does not fit" in str(result.failures[0])


async def test_what_others_stored_must_fit_the_model_too(world: World) -> None:
    await world.orders().create({"id": "1", "city": "Vigo"})
    with pytest.raises(InvalidValue, match="does not fit"):
        await world.store.container("orders", model=Order).read("1", "Vigo")


@dataclass
class Address:
    zip: int


@dataclass
class Visit:
    id: str
    address: Address


async def test_the_key_is_that_of_the_stored_item_whatever_was_given(world: World) -> None:
    visits = world.store.container("visits", "/address/zip", model=Visit)
    await visits.create(Visit("1", Address(36)))
    assert (await visits.create({"id": "2", "address": Address(36)})).partition_key == 36
    assert [item.body.id async for item in visits.query(partition_key=36)] == ["1", "2"]


class Pydantic:
    """What a pydantic model looks like from outside."""

    def __init__(self, **members: Any) -> None:
        self.members = members

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, Any]:
        assert (mode, by_alias) == ("json", True)
        return self.members

    @classmethod
    def model_validate_json(cls, text: str) -> Pydantic:
        members = msgspec.json.decode(text)
        if "dish" not in members:
            raise ValueError("dish is missing")
        return cls(**members)


async def test_models_of_pydantic_are_taken_and_given(world: World) -> None:
    orders = world.store.container("orders", "/city", model=Pydantic)
    assert (await orders.create(Pydantic(**PIZZA))).body.members == PIZZA
    assert (await orders.read("1", "Vigo")).body.members == PIZZA
    with pytest.raises(InvalidValue, match="dish is missing"):
        await orders.create(Pydantic(id="2", city="Vigo"))
