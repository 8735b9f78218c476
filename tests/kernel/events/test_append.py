"""What an append promises: with the caller's transaction or not at all, in order, never late."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.errors import InvalidValue, TooLarge
from relevo.kernel.events import Event
from relevo.kernel.events.model import DATA_BYTES_MAX, EVENTS_PER_APPEND_MAX
from tests.kernel.events.conftest import CLOSED, Closed, Noted, noted

if TYPE_CHECKING:
    from relevo.kernel.events import Recorded
    from relevo.kernel.events.model import By
    from tests.kernel.events.conftest import World

pytestmark = pytest.mark.anyio


async def test_what_was_appended_is_read_as_it_was(world: World) -> None:
    await world.append(noted(7, "thing/ñ", 'a "quoted" \x00 text'))
    await world.append(Event(CLOSED.name, "thing/ñ", 8, Closed()), by="pipeline", pipeline=3)
    first, second = await world.all()
    assert (first.type, first.schema, first.subject, first.version) == (
        "test.thing.noted", 1, "thing/ñ", 7,
    )  # fmt: skip
    assert world.log.catalogue.payload(first) == Noted(7, 'a "quoted" \x00 text')
    assert (second.type, second.schema, second.data) == ("test.thing.closed", 3, {})
    assert second.at >= first.at
    assert first.id != second.id


async def test_events_of_a_rolled_back_transaction_never_show(world: World) -> None:  # F3, F6
    with pytest.raises(ZeroDivisionError):
        async with world.database.transaction() as tx:
            await world.log.append(tx, [noted(1)])
            raise ZeroDivisionError
    await world.append(noted(2))
    assert [one.version for one in await world.all()] == [2]


async def test_events_show_with_the_commit_and_not_before(world: World) -> None:  # F6
    async with world.database.transaction() as tx:
        await world.log.append(tx, [noted(1)])
        assert await world.all() == []
    assert [one.version for one in await world.all()] == [1]


@pytest.mark.parametrize(
    ("event", "error", "named"),
    [
        (Event("test.thing.notde", "thing/1", 1, Noted(1)), InvalidValue, "test.thing.noted"),
        (Event("unheard.of", "thing/1", 1, Noted(1)), InvalidValue, "unheard.of"),
        (Event(CLOSED.name, "thing/1", 1, Noted(1)), InvalidValue, "Closed"),
        (noted(1, text="x" * DATA_BYTES_MAX), TooLarge, str(DATA_BYTES_MAX)),
        (noted(1, ""), InvalidValue, "subject"),
        (noted(1, "thing/\x00"), InvalidValue, "subject"),
        (noted(1, "thing/\ud800"), InvalidValue, "subject"),
        (noted(-1), InvalidValue, "version"),
        (noted(2**63), InvalidValue, "version"),
    ],
)
async def test_a_bad_event_is_refused_by_name_and_the_transaction_goes_on(
    world: World, event: Event, error: type[Exception], named: str
) -> None:
    async with world.database.transaction() as tx:
        with pytest.raises(error, match=named):
            await world.log.append(tx, [noted(1), event, noted(3)])
        await world.log.append(tx, [noted(4)])
    assert [one.version for one in await world.all()] == [4]


async def test_an_append_has_a_bound_and_nothing_is_fine(world: World) -> None:
    await world.append()
    with pytest.raises(TooLarge, match="10001 events"):
        await world.append(*[noted(1)] * (EVENTS_PER_APPEND_MAX + 1))
    assert await world.all() == []


@pytest.mark.parametrize(
    "options",
    [{"by": "pipeline"}, {"pipeline": 1}, {"by": "pipeline", "pipeline": -1}, {"by": "x"}],
)
async def test_a_striping_that_does_not_exist_is_refused(
    world: World, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidValue, match="striped by"):
        await world.append(noted(1), **options)


async def test_a_subject_keeps_to_its_stripe_and_its_order(world: World) -> None:
    counters = dict.fromkeys((f"thing/{n}" for n in range(5)), 0)
    locks = {subject: asyncio.Lock() for subject in counters}

    async def writer(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(15):
            subject = rng.choice(list(counters))
            async with locks[subject]:  # as whoever changes the subject holds its row
                counters[subject] += 1
                await world.append(noted(counters[subject], subject))

    await asyncio.gather(*(writer(seed) for seed in range(6)))
    events = await world.all(max_items=11)
    assert sum(counters.values()) == len(events)
    for subject, count in counters.items():
        mine = [one for one in events if one.subject == subject]
        assert len({one.stripe for one in mine}) <= 1
        assert [one.version for one in mine] == list(range(1, count + 1))
        assert [one.lsn for one in mine] == sorted(one.lsn for one in mine)


async def test_in_one_append_the_order_given_is_the_order_read(world: World) -> None:
    await world.append(*(noted(n, f"thing/{n % 3}") for n in range(300)))
    assert [one.version for one in await world.all(max_items=50)] == list(range(300))


async def test_versions_order_a_subject_across_pipelines(world: World) -> None:
    # Each change of the subject is made by another pipeline, in turn; any of them may read first.
    for version in range(1, 21):
        await world.append(noted(version), by="pipeline", pipeline=version % 5)
    events = await world.all()
    assert len({one.stripe for one in events}) == 5
    assert sorted(one.version for one in events) == list(range(1, 21))
    for stripe in {one.stripe for one in events}:
        mine = [one.version for one in events if one.stripe == stripe]
        assert mine == sorted(mine)


async def test_pipelines_do_not_wait_for_each_other_nor_for_subjects(world: World) -> None:
    async with world.database.transaction() as first, world.database.transaction() as second:
        await world.log.append(first, [noted(1)], by="pipeline", pipeline=0)
        await world.log.append(second, [noted(2)], by="pipeline", pipeline=1)
        await world.append(*(noted(3, f"thing/{n}") for n in range(100)))
        await world.append(noted(4), by="pipeline", pipeline=15)
    assert len(await world.all()) == 103


@pytest.mark.parametrize("options", [{}, {"by": "pipeline", "pipeline": 1}])
async def test_one_stripe_is_stamped_in_the_order_of_commits(
    world: World, options: dict[str, Any]
) -> None:  # F1
    await world.append(noted(0), **options)  # the first of a minute waits for more than the stamp
    async with world.database.transaction() as slow:
        await world.log.append(slow, [noted(1)], **options)
        later = asyncio.ensure_future(world.append(noted(2), **options))
        await world.until_waiting()
        assert [one.version for one in await world.all()] == [0]
    await later
    assert [one.version for one in await world.all()] == [0, 1, 2]


@pytest.mark.parametrize("by", ["subject", "pipeline"])
async def test_nothing_arrives_late_and_nothing_is_read_twice(world: World, by: By) -> None:  # F1
    # The first of a minute in a stripe waits for more than the stamp, which would hide a fault.
    for number in range(16):
        await world.append(noted(0, f"first/{number}"), by="pipeline", pipeline=number)
    await world.append(*(noted(0, f"first of subjects/{number}") for number in range(200)))
    committed: set[str] = set()
    done = asyncio.Event()
    after = await world.end()

    async def writer(number: int) -> None:
        rng = random.Random(number)
        for turn in range(12):
            subjects = [f"{number}/{turn}/{rng.randrange(50)}/{n}" for n in range(4)]
            try:
                async with world.database.transaction() as tx:
                    batch = [noted(turn, subject) for subject in subjects]
                    options: dict[str, Any] = {"pipeline": number % 3} if by == "pipeline" else {}
                    await world.log.append(tx, batch, by=by, **options)
                    await tx.execute("select pg_sleep($1)", rng.random() / 40)
                    if rng.random() < 0.3:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            committed.update(subjects)

    async def reader(after: str) -> list[Recorded]:
        seen: list[Recorded] = []
        while True:
            last_round = done.is_set()
            page = await world.log.read(after, max_items=1_000)  # it must keep up with the head
            seen += page.events
            after = page.continuation
            if page.caught_up and last_round:
                return seen

    reading = asyncio.ensure_future(reader(after))
    await asyncio.gather(*(writer(number) for number in range(6)))
    done.set()
    seen = await reading
    assert len(seen) == len(committed)
    assert {one.subject for one in seen} == committed


async def test_items_written_in_the_same_transaction_are_stamped_before_the_log(
    world: World,
) -> None:
    # The log's stamp locks come last on every path, else two such transactions wait in a circle.
    await world.database.write(
        "with c as (insert into relevo.container (name, partition_key)"
        " values ('orders', '{/city}') returning id)"
        " insert into relevo.feed_range (container_id, epk_min, epk_max)"
        " select id, '', 'FF' from c"
    )
    put = 'select relevo.put_item(\'orders\', \'{"id": "%s", "city": "Vigo"}\')'
    async with world.database.transaction() as tx:
        await tx.execute(put % 1)
        await world.log.append(tx, [noted(1)])
        assert await tx.fetchval("select bool_and(lsn > 0) from relevo.item")
        await tx.execute(put % 2)
    assert await world.database.fetchval("select bool_and(lsn > 0) from relevo.item")
    assert len(await world.all()) == 1


async def test_other_languages_append_through_sql(world: World) -> None:
    await world.database.write(
        "select relevo.append_events(array['test.thing.noted'], array[1::smallint],"
        " array['thing/1'], array[5::bigint], array['{\"n\": 5}'])"
    )
    assert [world.log.catalogue.payload(one) for one in await world.all()] == [Noted(5)]
    with pytest.raises(asyncpg.InvalidTextRepresentationError):
        await world.database.write(
            "select relevo.append_events(array['a.b'], array[1::smallint], array['c'],"
            " array[1::bigint], array['{'])"
        )
