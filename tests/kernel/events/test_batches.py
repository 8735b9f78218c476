"""Events are stored in batches and read one by one, by programs and by SQL alike."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.kernel.events import batches
from tests.kernel.events.conftest import NOTED, noted

if TYPE_CHECKING:
    from relevo.testing.clock import Clock
    from tests.kernel.events.conftest import World

pytestmark = pytest.mark.anyio

values = st.none() | st.integers(-9, 9) | st.text(max_size=5) | st.booleans()
EVENT = (
    "select lsn, type, schema, subject, version, data::text as data from relevo.event order by lsn"
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    """A number of events, and the columns of their bodies."""
    count = draw(st.integers(1, 6))
    own = st.lists(values, min_size=count, max_size=count)
    return count, draw(st.dictionaries(st.text(max_size=3), own | values, min_size=1, max_size=4))


@given(columns())
def test_columns_are_the_bodies_without_what_is_null(given: tuple[int, dict[str, Any]]) -> None:
    count, by_name = given
    bodies = batches.bodies(json.dumps(by_name), count)
    expected = [
        {
            name: column[n] if isinstance(column, list) else column
            for name, column in by_name.items()
        }
        for n in range(count)
    ]
    assert [msgspec.json.decode(body) for body in bodies] == [
        {name: value for name, value in body.items() if value is not None} for body in expected
    ]


@given(st.lists(st.dictionaries(st.text(max_size=3), values | st.lists(values)), min_size=1))
def test_bodies_are_taken_as_they_are(given: list[dict[str, Any]]) -> None:
    bodies = batches.bodies(json.dumps(given), len(given))
    assert [msgspec.json.decode(body) for body in bodies] == given


async def stored(world: World) -> list[int]:
    """The number of events in each batch."""
    rows = await world.database.fetch(
        "select cardinality(lsns) as n from relevo.event_batch order by last"
    )
    return [row["n"] for row in rows]


async def test_a_batch_has_a_bounded_number_of_events(world: World) -> None:
    await world.append(*(noted(n) for n in range(600)), by="pipeline", pipeline=1)
    assert await stored(world) == [250, 250, 100]
    assert [one.version for one in await world.all(max_items=99)] == list(range(600))


async def test_a_batch_has_a_bounded_size(world: World) -> None:
    await world.append(*(noted(n, text="x" * 100_000) for n in range(7)), by="pipeline", pipeline=1)
    assert await stored(world) == [3, 3, 1]
    assert [one.version for one in await world.all()] == list(range(7))


async def test_sql_sees_the_events_that_readers_see(world: World) -> None:
    await world.append(noted(1, "thing/1"), noted(2, "thing/2", "ñ"))
    for pipeline, data in enumerate(('{"n":[3,4],"text":"x"}', '{"n":5,"text":["a",null]}')):
        await world.database.write(
            "select relevo.append_events($1::text[], '{1}', '{thing/3,thing/4}', '{3,4}', null,"
            " $2::integer, $3)",
            [NOTED.name], pipeline, data,
        )  # fmt: skip
    rows = await world.database.fetch(EVENT)
    read = await world.all()
    assert [tuple(row)[:-1] for row in rows] == [
        (one.lsn, one.type, one.schema, one.subject, one.version) for one in read
    ]
    assert [json.loads(row["data"]) for row in rows] == [one.data for one in read]
    assert [one.data for one in read][2:] == [
        {"n": 3, "text": "x"}, {"n": 4, "text": "x"}, {"n": 5, "text": "a"}, {"n": 5},
    ]  # fmt: skip


async def test_a_page_may_end_within_a_batch(world: World) -> None:
    await world.append(*(noted(n) for n in range(10)))
    first = await world.log.read(max_items=4)
    await world.append(noted(10))
    assert [one.version for one in first.events] == [0, 1, 2, 3]
    assert [one.version for one in await world.all(first.continuation)] == list(range(4, 11))


async def test_marks_of_time_hide_nothing_that_is_younger(world: World, clock: Clock) -> None:
    starts = []
    for n in range(20):
        starts.append(await clock.now())
        await clock.advance(1)
        await world.append(noted(n), noted(n, "thing/2"))
        await clock.advance(1)
        if n % 3:
            await world.log.trim()
    for n, start in enumerate(starts):
        found = await world.all(start=start)
        assert sorted(one.version for one in found) == sorted([*range(n, 20)] * 2)


async def test_marks_of_time_hide_nothing_when_the_clock_falls_back(
    world: World, clock: Clock
) -> None:
    await clock.server_falls_behind(timedelta(days=2).total_seconds())
    before = await clock.now()
    await world.append(noted(1))
    await world.log.trim()
    await world.append(noted(2))
    assert [one.version for one in await world.all(start=before)] == [1, 2]
