"""Batches: all or nothing, one LSN, each step on what the steps before it left."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.errors import ConditionNotMet, InvalidValue, ItemExists, NotFound, RelevoError
from relevo.store import Create, Delete, Patch, Read, Replace, Upsert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.store.model import Step
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)


def item(name: str, **members: Any) -> dict[str, Any]:
    return {"id": name, "city": "Vigo", **members}


def more(by: int) -> list[dict[str, Any]]:
    return [{"op": "incr", "path": "/n", "value": by}]


async def test_steps_on_different_items_share_an_lsn_in_their_order(world: World) -> None:  # 2.6
    orders = world.orders(versions=DAY)
    await orders.create(item("old"))
    names = ["c", "a", "b"]
    done = await orders.batch(
        "Vigo",
        [*(Create(item(one)) for one in names), Replace(item("old", n=1)), Upsert(item("d"))],
    )
    assert len({one.lsn for one in done if one}) == 1
    group = [one for one in await world.versions() if one.lsn == done[0].lsn]  # type: ignore[union-attr]
    assert [one.id for one in group] == ["c", "a", "b", "old", "d"]
    assert [one.operation for one in group] == ["create"] * 3 + ["replace", "create"]
    for one in done:
        assert one is not None
        assert await orders.read(one.id, "Vigo") == one


async def test_one_item_may_occur_many_times(world: World) -> None:  # 2.6
    orders = world.orders(versions=DAY, previous_images=True)
    await orders.create(item("a"))
    done = await orders.batch(
        "Vigo",
        [
            Read("a"),
            Patch("a", more(2)),
            Read("a"),
            Delete("a"),
            Create(item("b")),
            Create(item("a", n=7)),
            Patch("a", more(1)),
            Upsert(item("b", n=0)),
            Read("b"),
        ],
    )
    assert [one and one.body for one in done] == [
        item("a"), item("a", n=2), item("a", n=2), None, item("b"), item("a", n=7),
        item("a", n=8), item("b", n=0), item("b", n=0),
    ]  # fmt: skip
    log = (await world.versions())[1:]
    assert [(one.id, one.operation) for one in log] == [
        ("a", "replace"), ("a", "delete"), ("b", "create"), ("a", "create"), ("a", "replace"),
        ("b", "replace"),
    ]  # fmt: skip
    assert len({one.lsn for one in log}) == 1
    assert [one.ordinal for one in log] == sorted({one.ordinal for one in log})
    written = [done[index] for index in (1, 4, 5, 6, 7)]
    assert len({one.etag for one in written if one}) == 5
    assert (done[2], done[8]) == (done[1], done[7])
    assert [one.id async for one in orders.query()] == ["a", "b"]
    assert await orders.read("a", "Vigo") == done[6]


REFUSED: list[tuple[Sequence[Step], type[RelevoError], str]] = [
    ([Create(item("x")), Create(item("there"))], ItemExists, "/1"),
    ([Create(item("x")), Replace(item("gone"))], NotFound, "/1"),
    ([Create(item("x")), Delete("gone")], NotFound, "/1"),
    ([Create(item("x")), Upsert(item("there"), '"stale"')], ConditionNotMet, "/1/if_match"),
    ([Create(item("x")), Create(item("x"))], ItemExists, "/1"),
    ([Upsert(item("x")), Delete("x"), Delete("x")], NotFound, "/2"),
    ([Create(item("x")), Read("gone")], NotFound, "/1"),
    ([Delete("there"), Create(item("x")), Read("there")], NotFound, "/2"),
    ([Create(item("x")), Patch("gone", more(1))], NotFound, "/1"),
    ([Create(item("x")), Patch("there", more(1), '"stale"')], ConditionNotMet, "/1/if_match"),
    ([Create(item("x")), Patch("x", [{"op": "remove", "path": "/y"}])], InvalidValue,
     "/1/operations/0"),
    ([Create(item("x")), Patch("x", [{"op": "set", "path": "/city", "value": 1}])], InvalidValue,
     "/1/operations"),
    ([Create(item("x")), Create({"id": "y", "city": "Lugo"})], InvalidValue, "/1/city"),
    ([Create(item("x")), Create({"city": "Vigo"})], InvalidValue, "/1/id"),
    ([Create(item("x")), Delete("")], InvalidValue, "/1/id"),
    ([Create(item("x")), Patch("there", [])], InvalidValue, "/1/operations"),
]  # fmt: skip


async def test_a_step_that_is_refused_undoes_all_others(world: World) -> None:
    orders = world.orders(versions=DAY)
    there = await orders.create(item("there"))
    for steps, error, pointer in REFUSED:
        with pytest.raises(error) as caught:
            await orders.batch("Vigo", steps)
        assert caught.value.pointer == pointer, steps
        assert [one async for one in orders.query()] == [there]
    assert len(await world.versions()) == 1


async def test_a_condition_in_a_batch_is_about_the_version_at_that_point(world: World) -> None:
    orders = world.orders()
    etag = (await orders.create(item("a"))).etag
    with pytest.raises(ConditionNotMet):
        await orders.batch("Vigo", [Upsert(item("a"), etag), Upsert(item("a"), etag)])
    with pytest.raises(ConditionNotMet):
        await orders.batch("Vigo", [Upsert(item("a"), etag), Patch("a", more(1), etag)])
    done = await orders.batch("Vigo", [Patch("a", more(1), etag), Patch("a", more(1), "*")])
    assert done[1] is not None
    assert done[1].body["n"] == 2


async def test_a_batch_has_a_bounded_number_of_steps(world: World) -> None:
    orders = world.orders()
    steps = [Upsert(item(str(n))) for n in range(limits.BATCH_ITEMS_MAX + 1)]
    for refused in (steps[:0], steps):
        with pytest.raises(InvalidValue, match="1 to 100 steps"):
            await orders.batch("Vigo", refused)
    done = await orders.batch("Vigo", steps[:-1])
    assert [one.id for one in done if one] == [step.item["id"] for step in steps[:-1]]
    assert await orders.batch("Vigo", [Read("7"), Read("7")]) == [done[7], done[7]]


async def test_concurrent_batches_do_not_see_each_other_half_done(world: World) -> None:
    orders = world.orders()
    other = (await world.another()).container("orders")
    await orders.batch("Vigo", [Create(item("a", n=0)), Create(item("b", n=0))])

    async def both(number: int) -> None:
        steps: list[Step] = [Patch("a", more(1)), Patch("b", more(1)), Read("a"), Read("b")]
        done = await (orders if number % 2 else other).batch(
            "Vigo", steps if number % 3 else steps[::-1]
        )
        assert len({one.body["n"] for one in done if one and one.id == "a"}) <= 2

    await asyncio.gather(*(both(number) for number in range(20)))
    totals = [one.body["n"] async for one in orders.query()]
    assert totals == [20, 20]
