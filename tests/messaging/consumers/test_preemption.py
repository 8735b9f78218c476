"""Preemption: handlers of a low class make room for waiting messages of a high one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from relevo.messaging import Preempted, Preemption, PriorityClass, Strict
from relevo.messaging.core.preempting import RunningMessage, choose_victims
from tests.jobs.office import until
from tests.messaging.consumers import process_handlers
from tests.messaging.consumers.depot import CLASSES, Depot, Handler
from tests.messaging.storage.rows import Rows, Runner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.messaging import Received
    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio

AT_ONCE = Preemption(min_run=0.0, grace=30.0)


class Drawing:
    """Saves frame after frame of low messages until it is asked to stop, or told to."""

    def __init__(self) -> None:
        self.begun: list[tuple[Any, bytes | None]] = []
        self.done: list[Any] = []
        self.finish = asyncio.Event()

    async def __call__(self, msg: Received) -> None:
        self.begun.append((msg.body, msg.checkpoint))
        frame = int(msg.checkpoint or b"0")
        while msg.priority_class == "low" and not self.finish.is_set():
            frame += 1
            await msg.save(str(frame).encode())
            await asyncio.sleep(0.005)
        self.done.append(msg.body)

    async def until_begun(self, count: int) -> None:
        await until(lambda: len(self.begun) >= count, f"{count} calls; there are {self.begun}")


async def test_a_save_leaves_the_handler_and_the_next_delivery_resumes(depot: Depot) -> None:  # M14
    await depot.queue(classes=CLASSES)
    drawing = Drawing()
    (low,) = await depot.send("low", priority=1)
    await depot.serve(drawing, preempt=AT_ONCE)
    await depot.until_row(low, "checkpoint is not null")
    before = await depot.row(low)
    (high,) = await depot.send("high", priority=8)
    await depot.until_gone(high)
    row = await depot.until_row(low, "preempt_count = 1")
    assert before is not None
    kept = ("sequence", "rank", "enqueued_at", "delivery_count", "class", "priority")
    assert [row[name] for name in kept] == [before[name] for name in kept]
    await drawing.until_begun(3)
    drawing.finish.set()
    await depot.until_gone(low)
    assert [body for body, _ in drawing.begun] == ["low", "high", "low"]
    assert int(drawing.begun[2][1] or b"0") >= int(before["checkpoint"])
    assert drawing.done == ["high", "low"]


async def test_a_message_is_suspended_no_more_often_than_it_may(depot: Depot) -> None:  # M15
    await depot.queue(classes=CLASSES)
    drawing = Drawing()
    (low,) = await depot.send("low", priority=1)
    await depot.serve(drawing, preempt=replace(AT_ONCE, max_preemptions=2))
    for n in (1, 2):
        await depot.until_row(low, "state = 1 and checkpoint is not null")
        (high,) = await depot.send(f"high {n}", priority=8)
        await depot.until_gone(high)
        await depot.until_row(low, f"preempt_count = {n} and state = 1")
    (waiting,) = await depot.send("high 3", priority=8)
    saved = (await depot.until_row(low, "checkpoint is not null"))["checkpoint"]
    await depot.until_row(low, f"convert_from(checkpoint, 'utf8')::integer > {int(saved) + 50}")
    row = await depot.row(waiting)
    assert row is not None
    assert (row["state"], row["asks"]) == (0, False)
    drawing.finish.set()
    await depot.until_gone(low, waiting)
    assert drawing.done == ["high 1", "high 2", "low", "high 3"]


async def test_a_handler_suspends_itself_when_it_hears_of_it(depot: Depot) -> None:
    await depot.queue(classes=CLASSES)
    heard: list[Any] = []

    async def draw(msg: Received) -> None:
        if msg.priority_class == "low" and msg.checkpoint is None:
            await msg.preempted()
            assert msg.preempt_deadline is not None
            heard.append(msg.preempt_requested)
            await msg.suspend(b"half")
        else:
            heard.append((msg.body, msg.checkpoint))

    (low,) = await depot.send("low", priority=1)
    await depot.serve(draw, preempt=AT_ONCE)
    await depot.until_row(low, "state = 1")
    (high,) = await depot.send("high", priority=8)
    await depot.until_gone(low, high)
    assert heard == [True, ("high", None), ("low", b"half")]


async def test_a_handler_may_complete_instead(depot: Depot) -> None:
    await depot.queue(classes=CLASSES)
    handler = Handler()

    async def draw(msg: Received) -> None:
        handler.seen.append(msg)
        if msg.priority_class == "low":
            await msg.preempted()
            with pytest.raises(Preempted):
                await msg.save(b"not needed")

    (low,) = await depot.send("low", priority=1)
    await depot.serve(draw, preempt=AT_ONCE)
    await depot.until_row(low, "state = 1")
    (high,) = await depot.send("high", priority=8)
    await depot.until_gone(low, high)
    assert handler.bodies == ["low", "high"]


async def test_a_stubborn_handler_goes_on_and_is_counted(depot: Depot) -> None:
    await depot.queue(classes=CLASSES)
    handler = Handler(waits=True)
    (low,) = await depot.send("low", priority=1)
    app = await depot.serve(handler, preempt=replace(AT_ONCE, grace=0.05))
    await depot.until_row(low, "state = 1")
    (high,) = await depot.send("high", priority=8)
    ignored = app.database.metrics.messages_preempt_ignored.labels(consumers="drawers")
    await until(lambda: ignored._value.get() == 1, "it is not counted")
    assert handler.running == 1
    assert handler.bodies == ["low"]
    handler.go.set()
    await depot.until_gone(low, high)
    assert [msg.preempt_count for msg in handler.seen] == [0, 0]


async def test_a_process_that_does_not_make_room_is_killed(depot: Depot) -> None:
    await depot.queue(classes=CLASSES)
    (low,) = await depot.send("low", priority=1)
    rules = replace(AT_ONCE, grace=0.05, mode="kill")
    await depot.serve(process_handlers.dawdle, process=True, preempt=rules)
    await depot.until_row(low, "checkpoint = 'begun'")
    (high,) = await depot.send("high", priority=8)
    await depot.until_gone(high)
    row = await depot.row(low)
    if row is not None:
        assert (row["preempt_count"], row["delivery_count"]) == (1, 0)
        assert row["checkpoint"] == b"begun"
    await depot.until_gone(low)


async def test_a_polite_process_saves_and_leaves(depot: Depot) -> None:
    await depot.queue(classes=CLASSES)
    (low,) = await depot.send("low", priority=1)
    await depot.serve(process_handlers.polite, process=True, preempt=AT_ONCE)
    await depot.until_row(low, "checkpoint = 'so far'")
    (high,) = await depot.send("high", priority=8)
    await depot.until_gone(high, low)


async def test_the_victim_may_run_on_another_host(depot: Depot) -> None:
    await depot.queue(classes=CLASSES)
    drawing, busy = Drawing(), Handler(waits=True)
    (low,) = await depot.send("low", priority=1)
    await depot.serve(drawing, host="a", preempt=AT_ONCE)
    await depot.until_row(low, "state = 1")
    (normal,) = await depot.send("normal", priority=4)
    await depot.serve(busy, host="b", preempt=AT_ONCE)
    await depot.until_row(normal, "state = 1")
    (high,) = await depot.send("high", priority=8)
    await depot.until_gone(high)
    assert busy.bodies == ["normal"]
    assert drawing.done == ["high"]
    await depot.until_row(low, "preempt_count = 1")
    drawing.finish.set()
    busy.go.set()
    await depot.until_gone(low, normal)


async def test_nobody_is_asked_while_another_host_has_a_slot(depot: Depot) -> None:
    await depot.queue(classes=CLASSES)
    drawing, other = Drawing(), Handler()
    (low,) = await depot.send("low", priority=1)
    await depot.serve(drawing, host="a", preempt=AT_ONCE)
    await depot.until_row(low, "state = 1")
    await depot.serve(other, host="b", preempt=AT_ONCE)
    for _ in range(5):
        await depot.until_gone(*await depot.send("high", priority=8))
    row = await depot.row(low)
    assert row is not None
    assert (row["preempt_count"], row["preempt_asked"]) == (0, False)
    drawing.finish.set()


async def test_who_asked_goes_first_also_where_the_order_says_otherwise(depot: Depot) -> None:
    """The suspended message is older, and the policy serves by arrival."""
    await depot.queue(classes=[replace(one, express=False) for one in CLASSES])
    drawing = Drawing()
    (low,) = await depot.send("low", priority=1)
    await depot.database.write(
        "update relevo.message set rank = -9000000000000000 where sequence = $1", low
    )
    await depot.serve(drawing, preempt=AT_ONCE)
    await depot.until_row(low, "state = 1 and checkpoint is not null")
    (high,) = await depot.send("high", priority=8)
    await depot.until_gone(high)
    await depot.until_row(low, "preempt_count = 1")
    drawing.finish.set()
    await depot.until_gone(low)
    assert drawing.done == ["high", "low"]


@pytest.mark.parametrize("first", ["complete", "ask"])
async def test_a_completion_that_races_a_request_counts(depot: Depot, first: str) -> None:
    """Each of the two waits for the other's row, which has changed when it gets it."""
    await depot.queue(classes=CLASSES)
    handler = Handler(waits=True)
    (low,) = await depot.send("low", priority=1)
    await depot.serve(handler)
    await handler.until_seen(1)
    delivery = handler.seen[0].delivery
    complete = (
        "select relevo.complete_messages(array[$1::bigint], array[$2::bigint])",
        delivery.sequence, delivery.token,
    )  # fmt: skip
    ask = ("update relevo.message set preempt_asked = true where sequence = $1", low)
    before, after = (complete, ask) if first == "complete" else (ask, complete)
    async with depot.database.transaction() as tx:
        await tx.fetch(*before)
        other = asyncio.ensure_future(depot.database.write(*after))
        await until(lambda: _waits_for_a_lock(depot), "the other does not wait")
    await other
    assert await depot.row(low) is None
    handler.go.set()


async def _waits_for_a_lock(depot: Depot) -> bool:
    return bool(
        await depot.database.fetchval(
            "select exists (select from pg_stat_activity where wait_event_type = 'Lock'"
            " and datname = current_database() and query ~ 'relevo.*message')"
        )
    )


@pytest.fixture(scope="module")
def runner(relevo_databases: TestDatabases) -> Iterator[Runner]:
    url = relevo_databases.create()
    runner = Runner(url)
    yield runner
    runner.close()
    relevo_databases.drop(url)


LEVELS = tuple(
    PriorityClass(
        name=f"c{base}", priorities=(base, base), base=base, preempts=base >= 5,
        preemptible=base <= 6,
    )
    for base in range(9, -1, -1)
)  # fmt: skip
HELD = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 3), st.booleans()),
    max_size=8,
)
"""Class, seconds since its claim, how often it was suspended, whether it was asked."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    held=HELD, waiting=st.lists(st.integers(0, 9), max_size=4), gap=st.integers(0, 5),
    min_run=st.integers(0, 3), most=st.integers(0, 3),
)  # fmt: skip
def test_the_statement_asks_whom_the_core_chooses(
    runner: Runner, held: list[tuple[int, int, int, bool]], waiting: list[int], gap: int,
    min_run: int, most: int,
) -> None:  # fmt: skip
    rules = Preemption(gap=gap, min_run=min_run, max_preemptions=most)
    with runner.undone() as rows:
        asked = runner.do(_asked(rows, held, waiting, rules))
    by_base = {one.base: one for one in LEVELS}
    running = [
        RunningMessage(n, by_base[base], float(seconds), count, asked_already)
        for n, (base, seconds, count, asked_already) in enumerate(held, 1)
    ]
    order = sorted((by_base[base] for base in waiting), key=lambda one: -one.base)
    chosen = choose_victims(order, running, rules)
    assert asked == {victim.sequence for victim in chosen if victim is not None}


async def _asked(
    rows: Rows, held: list[tuple[int, int, int, bool]], waiting: list[int], rules: Preemption
) -> set[int]:
    """Put the messages into the database, ask, and return who is to make room."""
    entity = await rows.entity(policy=Strict(), classes=LEVELS)
    await rows.db.execute(
        "update relevo.message_class set preempts = base >= 5, preemptible = base <= 6"
        " where entity_id = $1",
        entity.id,
    )
    host: UUID = await rows.host()
    consumers = await rows.db.fetchval(
        "insert into relevo.message_consumers (name, definition, sources)"
        " values ($1, '{}', array[$2::integer]) returning id",
        str(uuid4()),
        entity.id,
    )
    await rows.db.execute(
        "insert into relevo.message_replica (consumers, host, slots) values ($1, $2, $3)",
        consumers, host, len(held),
    )  # fmt: skip
    bases = [base for base, *_ in held] + waiting
    if not bases:
        return set()
    await rows.put(
        entity, [(n, -base, entity.number(f"c{base}"), base, "") for n, base in enumerate(bases, 1)]
    )
    for n, (_, seconds, count, asked) in enumerate(held, 1):
        await rows.db.execute(
            "update relevo.message set state = 1, token = 1, host = $2, consumers = $3,"
            " locked_at = relevo.now() - make_interval(secs => $4), preempt_count = $5,"
            " preempt_asked = $6 where sequence = $1",
            n, host, consumers, float(seconds), count, asked,
        )  # fmt: skip
    before = {n for n, (*_, asked) in enumerate(held, 1) if asked}
    await rows.db.fetch(
        "select relevo.ask_preemption($1, $2, $3, $4)",
        consumers, rules.gap, float(rules.min_run), rules.max_preemptions,
    )  # fmt: skip
    found = await rows.db.fetch("select sequence from relevo.message where preempt_asked")
    return {row["sequence"] for row in found} - before
