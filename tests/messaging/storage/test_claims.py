"""Claims in SQL take what the pure core decides (M7 to M13), and never a message twice (M26)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from relevo.messaging.core import fairness, ordering
from relevo.messaging.core.claiming import (
    ClaimDecision,
    SourceState,
    SourceTurns,
    Tally,
    claim,
)
from relevo.messaging.core.classes import CLASSES, band_of
from relevo.messaging.core.ordering import Claimable
from relevo.messaging.core.reserving import Reservation, Slots
from relevo.messaging.model import (
    Across,
    Aging,
    Deadline,
    Fifo,
    Ordering,
    PriorityClass,
    Strict,
    Weighted,
)
from tests.conftest import EXAMPLES
from tests.messaging.storage.rows import EntityRow, Rows, Runner
from tests.messaging.unit.queues import left

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relevo.testing.databases import TestDatabases

ODD = (
    PriorityClass(name="gold", priorities=(8, 9), base=9, slo=5.0, express=True, weight=7),
    PriorityClass(name="high", priorities=(6, 7), base=7, express=True, weight=10),
    PriorityClass(name="normal", priorities=(2, 5), base=4, weight=3),
    PriorityClass(name="low", priorities=(0, 1), base=1, weight=3),
)
POLICIES: list[tuple[Ordering, bool]] = [
    (Fifo(), False), (Strict(), False), (Aging(), False), (Deadline(), False), (Weighted(), False),
    (Aging(seconds_per_level=5, floor_share=0), False), (Aging(floor_share=0.5), False),
    (Aging(floor_share=0.3), False), (Strict(), True), (Weighted(), True),
]  # fmt: skip
ACROSS: list[Across] = ["strict", "weighted"]
TENANTS = ("", "acme", "zeta", "umbra")
TAG = """
select relevo.tag_messages(array_fill(1, array[$2::integer]), array_fill($1::integer, array[$2]),
  array_fill(0::smallint, array[$2]), $3::smallint[], $4::text[], $5::bigint[])
"""
TURNS = "select passed, vtimes from relevo.message_consumers where id = $1"


class Sending(Struct, frozen=True):
    """A message that is sent to a source before a claim."""

    source: int
    priority: int
    second: int
    key: str


class Step(Struct, frozen=True):
    sent: list[Sending]
    wanted: int
    slots: Slots | None


class Sources(Struct, frozen=True):
    entities: list[tuple[Ordering, bool, tuple[PriorityClass, ...]]]
    across: Across
    steps: list[Step]


@st.composite
def slots_of(draw: st.DrawFn, classes: Sequence[PriorityClass]) -> Slots:
    few = st.integers(0, 3)
    names = sorted({one.name for one in classes})
    by_name = {one.name: one for one in classes}
    reserved = draw(st.dictionaries(st.sampled_from(names), st.integers(1, 3), max_size=2))
    return Slots(
        free=draw(st.integers(0, 12)),
        in_use=draw(st.dictionaries(st.sampled_from(names), few)),
        keys_in_use=draw(st.dictionaries(st.sampled_from(TENANTS), few)),
        reserved=tuple(Reservation(by_name[name], count) for name, count in reserved.items()),
        max_per_class=draw(st.dictionaries(st.sampled_from(names), st.integers(0, 6), max_size=1)),
        max_per_fairness_key=draw(st.sampled_from([None, None, 1, 3])),
    )


@st.composite
def sources(draw: st.DrawFn, *, most: int, limited: bool) -> Sources:
    count = draw(st.integers(min(2, most), most))
    entities = [
        (*draw(st.sampled_from(POLICIES)), draw(st.sampled_from([CLASSES, ODD])))
        for _ in range(count)
    ]
    sent = st.builds(
        Sending, st.integers(0, count - 1), st.integers(0, 9), st.integers(0, 600),
        st.sampled_from(TENANTS),
    )  # fmt: skip
    every = [one for _, _, classes in entities for one in classes]
    slots = slots_of(every) if limited else st.none()
    step = st.builds(Step, st.lists(sent, max_size=30), st.integers(0, 25), slots)
    across: Across = draw(st.sampled_from(ACROSS)) if most > 1 else "strict"
    return Sources(entities, across, draw(st.lists(step, min_size=1, max_size=4)))


class Replay:
    """The same claims in the database and in the pure core, one after the other."""

    def __init__(self, rows: Rows, across: Across) -> None:
        self.rows, self.across = rows, across
        self.entities: list[EntityRow] = []
        self.states: list[SourceState] = []
        self.turns = SourceTurns()
        self.last: list[dict[str, dict[str, int]]] = []
        """The last tags, by entity, class and tenant."""
        self.sequence = 0

    async def open(self, case: Sources) -> None:
        for number, (policy, fair, classes) in enumerate(case.entities):
            name = f"q{number}"
            entity = await self.rows.entity(name, policy, fair=fair, classes=classes)
            self.entities.append(entity)
            self.states.append(
                SourceState(name=name, waiting={}, classes=classes, ordering=policy, fair=fair)
            )
            self.last.append(defaultdict(dict))
        self.consumers = await self.rows.db.fetchval(
            "insert into relevo.message_consumers (name, definition, sources)"
            " values ('c', '{}', $1) returning id",
            [one.id for one in self.entities],
        )

    async def send(self, sent: Sequence[Sending]) -> None:
        for number in range(len(self.entities)):
            mine = [one for one in sent if one.source == number]
            if mine:
                await self._send(number, mine)

    async def _send(self, number: int, sent: Sequence[Sending]) -> None:
        entity, state = self.entities[number], self.states[number]
        numbers = range(self.sequence + 1, self.sequence + 1 + len(sent))
        self.sequence += len(sent)
        classes = [band_of(entity.classes, one.priority) for one in sent]
        tags: Sequence[int | None] = [None] * len(sent)
        if entity.fair:
            tags = await self._tags(number, sent, classes, numbers)
        waiting = {name: list(messages) for name, messages in state.waiting.items()}
        messages = []
        for n, one, of, tag in zip(numbers, sent, classes, tags, strict=True):
            arrived = one.second * ordering.MICROS
            rank = ordering.rank(
                entity.ordering, of, priority=one.priority, arrived=arrived, tag=tag
            )
            waiting.setdefault(of.name, []).append(Claimable(rank, n, one.key))
            messages.append((n, rank, entity.number(of.name), one.priority, one.key))
        await self.rows.put(entity, messages)
        ordered = {name: sorted(found) for name, found in waiting.items()}
        self.states[number] = replace(state, waiting=ordered)

    async def _tags(
        self,
        number: int,
        sent: Sequence[Sending],
        classes: Sequence[PriorityClass],
        numbers: Sequence[int],
    ) -> Sequence[int]:
        entity, state = self.entities[number], self.states[number]
        tags: list[int] = await self.rows.db.fetchval(
            TAG, entity.id, len(sent), [entity.number(of.name) for of in classes],
            [one.key or None for one in sent], list(numbers),
        )  # fmt: skip
        for of in set(classes):
            mine = [at for at, found in enumerate(classes) if found == of]
            expected, latest = fairness.tag_all(
                [(numbers[at], sent[at].key) for at in mine],
                reached=state.tally.tags.get(of.name, 0),
                last=self.last[number][of.name], weights={},
            )  # fmt: skip
            assert [tags[at] for at in mine] == expected
            self.last[number][of.name] = latest
        return tags

    async def claim(self, step: Step) -> None:
        decision = claim(
            self.states,
            step.wanted,
            slots=step.slots,
            across=self.across,
            turns=self.turns,
        )
        rows = await self.rows.claim(
            self.entities, step.wanted, consumers=self.consumers, across=self.across,
            limits=limits_of(step.slots),
        )  # fmt: skip
        names = {entity.id: entity for entity in self.entities}
        found = [
            (names[row["entity_id"]].name, names[row["entity_id"]].classes[row["class"]].name,
             row["sequence"])
            for row in rows
        ]  # fmt: skip
        assert found == [(one.source, one.of, one.message.sequence) for one in decision.taken]
        await self._keep(decision)

    async def _keep(self, decision: ClaimDecision) -> None:
        """Compare what the claim left for the next one, and go on from there."""
        self.turns = decision.turns
        for number, entity in enumerate(self.entities):
            tally = decision.tallies[entity.name]
            stored = await self.rows.db.fetchrow(
                "select * from relevo.message_tally where entity_id = $1", entity.id
            )
            assert _tally(entity, stored) == _tally(entity, tally)
            self.states[number] = replace(left(self.states[number], decision.taken), tally=tally)
            floors = await self.rows.db.fetchval(
                "select coalesce(sum(floor_claims), 0) from relevo.message_delta"
                " where entity_id = $1",
                entity.id,
            )
            mine = [one for one in decision.taken if one.source == entity.name and one.floor]
            self.floors = {**getattr(self, "floors", {})}
            self.floors[number] = self.floors.get(number, 0) + len(mine)
            assert floors == self.floors[number]
        (turns,) = await self.rows.db.fetch(TURNS, self.consumers)
        if self.across == "strict":
            passed = [self.turns.passed.get(one.name, 0) for one in self.entities]
            assert list(turns["passed"]) in (passed, [] if not any(passed) else None)
        else:
            vtimes = [self.turns.vtimes.get(one.name, 0) for one in self.entities]
            assert list(turns["vtimes"]) in (vtimes, [] if not any(vtimes) else None)


def _tally(entity: EntityRow, found: Any) -> tuple[Any, ...]:
    """Floor counter, virtual times and tags, however they are stored; zero if they are not."""
    if isinstance(found, Tally):
        names = [one.name for one in entity.classes]
        vtimes = [found.vtimes.get(name, 0) for name in names]
        return found.express_run, vtimes, [found.tags.get(name, 0) for name in names]
    if found is None:
        return 0, [0] * len(entity.classes), [0] * len(entity.classes)
    at = {number: place for place, number in enumerate(found["numbers"])}
    order = [at.get(number) for number in range(len(entity.classes))]
    vtimes = [0 if place is None else found["vtimes"][place] or 0 for place in order]
    tags = [0 if place is None else found["tags"][place] or 0 for place in order]
    return found["express_run"], vtimes, tags


def limits_of(slots: Slots | None) -> str | None:
    """The slots as `relevo.claim_messages` takes them."""
    if slots is None:
        return None
    classes: dict[str, dict[str, int]] = defaultdict(dict)
    for one in slots.reserved:
        classes[one.of.name] |= {"base": one.of.base, "reserved": one.slots}
    for name, most in slots.max_per_class.items():
        classes[name]["most"] = most
    for name, used in slots.in_use.items():
        classes[name]["used"] = used
    limits: dict[str, Any] = {"free": slots.free, "classes": classes}
    if slots.max_per_fairness_key is not None:
        limits |= {"key_most": slots.max_per_fairness_key, "keys": slots.keys_in_use}
    return json.dumps(limits)


@pytest.fixture(scope="module")
def url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture(scope="module")
def runner(url: str) -> Iterator[Runner]:
    runner = Runner(url)
    yield runner
    runner.close()


def replay(runner: Runner, case: Sources) -> None:
    async def steps(rows: Rows) -> None:
        one = Replay(rows, case.across)
        await one.open(case)
        for step in case.steps:
            await one.send(step.sent)
            await one.claim(step)

    with runner.undone() as rows:
        runner.do(steps(rows))


@given(case=sources(most=1, limited=False))
def test_one_source_is_served_in_its_order(runner: Runner, case: Sources) -> None:
    replay(runner, case)  # M7, M8, M9, M10, M11, M13


@given(case=sources(most=1, limited=True))
def test_slots_of_consumers_limit_what_is_claimed(runner: Runner, case: Sources) -> None:
    replay(runner, case)  # M12


@given(case=sources(most=3, limited=False))
def test_several_sources_compete_as_they_should(runner: Runner, case: Sources) -> None:
    replay(runner, case)


@given(case=sources(most=3, limited=True))
def test_limits_and_several_sources_go_together(runner: Runner, case: Sources) -> None:
    replay(runner, case)


def large(random: Random) -> Sources:
    """Backlogs that are longer than what hypothesis makes, so that floor shares come into play."""
    count = random.choice([1, 1, 2, 3])
    entities = [(*random.choice(POLICIES), random.choice([CLASSES, ODD])) for _ in range(count)]
    steps = []
    for _ in range(4):
        bands = random.choice([[9, 9, 9, 4, 1], list(range(10)), [4], [8, 1]])
        sent = [
            Sending(
                random.randrange(count), random.choice(bands), random.randrange(600),
                random.choice(TENANTS),
            )
            for _ in range(random.choice([0, 20, 90]))
        ]  # fmt: skip
        slots = None
        if random.random() < 0.3:
            of = random.choice(entities[0][2])
            slots = Slots(
                free=random.randint(5, 60), reserved=(Reservation(of, 3),),
                max_per_class={of.name: random.randint(1, 20)},
                max_per_fairness_key=random.choice([None, 7]),
            )  # fmt: skip
        steps.append(Step(sent, random.randint(1, 70), slots))
    return Sources(entities, random.choice(ACROSS), steps)


def test_long_backlogs_are_served_in_their_order(runner: Runner) -> None:  # M9, M10
    for seed in range(EXAMPLES):
        case = large(Random(seed))
        try:
            replay(runner, case)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


async def opened(stack: AsyncExitStack, url: str, count: int) -> list[Rows]:
    found = []
    for _ in range(count):
        rows = await Rows.open(url)
        stack.push_async_callback(rows.db.close)
        found.append(rows)
    await found[0].clear()
    return found


async def waiting(
    rows: Rows, policy: Ordering, counts: dict[str, int], path: str = "race"
) -> EntityRow:
    entity = await rows.entity(path, policy)
    for name, count in counts.items():
        of = next(one for one in CLASSES if one.name == name)
        await rows.send(entity, count, of=name, priority=of.base)
    return entity


@pytest.mark.anyio
@pytest.mark.parametrize(
    "policy", [Fifo(), Strict(), Deadline()], ids=lambda one: type(one).__name__
)
async def test_a_claim_neither_waits_for_another_nor_takes_its_messages(
    url: str, policy: Ordering
) -> None:  # M26
    async with AsyncExitStack() as stack:
        first, second = await opened(stack, url, 2)
        entity = await waiting(first, policy, {"high": 5, "low": 20})
        async with first.db.transaction():
            mine = await first.claim(entity, 8)
            theirs = await asyncio.wait_for(second.claim(entity, 10), 20)  # while the first is open
        assert len(mine) == 8
        assert len(theirs) == 10
        numbers = [row["sequence"] for row in (*mine, *theirs)]
        assert len(numbers) == len(set(numbers))
        assert len(await second.claim(entity, 100)) == 7


@pytest.mark.anyio
@pytest.mark.parametrize(
    "policy", [Fifo(), Aging(), Weighted()], ids=lambda one: type(one).__name__
)
async def test_many_claims_at_once_give_every_message_once(url: str, policy: Ordering) -> None:
    async with AsyncExitStack() as stack:
        hosts = await opened(stack, url, 4)
        entity = await waiting(hosts[0], policy, {"high": 150, "normal": 100, "low": 50})
        taken: list[list[str]] = []

        async def work(rows: Rows) -> list[int]:
            numbers: list[int] = []
            while found := await rows.claim(entity, 7):
                taken.append([entity.classes[row["class"]].name for row in found])
                numbers += [row["sequence"] for row in found]
            return numbers

        claimed = [n for found in await asyncio.gather(*map(work, hosts)) for n in found]
    assert len(claimed) == len(set(claimed)) == 300
    assert Counter(name for found in taken for name in found)["low"] == 50


@pytest.mark.anyio
async def test_the_floor_share_is_exact_when_several_claim_at_once(url: str) -> None:  # M9
    async with AsyncExitStack() as stack:
        hosts = await opened(stack, url, 3)
        entity = await waiting(hosts[0], Aging(floor_share=0.2), {"high": 240, "low": 100})

        async def work(rows: Rows) -> list[str]:
            found = [row for _ in range(8) for row in await rows.claim(entity, 10)]
            return [entity.classes[row["class"]].name for row in found]

        served = Counter(
            name for found in await asyncio.gather(*map(work, hosts)) for name in found
        )
    assert served == {"high": 192, "low": 48}


@pytest.mark.anyio
async def test_claims_over_sources_in_other_orders_do_not_wait_for_each_other_in_a_circle(
    url: str,
) -> None:
    async with AsyncExitStack() as stack:
        hosts = await opened(stack, url, 4)
        counts = {"high": 120, "normal": 60, "low": 60}
        both = [await waiting(hosts[0], Aging(floor_share=0.2), counts, name) for name in "ab"]

        async def work(rows: Rows, order: Sequence[EntityRow]) -> list[int]:
            numbers: list[int] = []
            while found := await rows.claim(order, 9, across="weighted"):
                numbers += [row["sequence"] for row in found]
            return numbers

        orders = [both, both[::-1]] * 2
        found = await asyncio.gather(*(work(*one) for one in zip(hosts, orders, strict=True)))
    assert len({number for numbers in found for number in numbers}) == 480
