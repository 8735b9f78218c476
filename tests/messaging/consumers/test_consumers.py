"""Consumers on real hosts: what becomes of messages, and who runs them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from relevo import Fail, RetryLater, Suspend
from relevo.errors import Conflict, MessageLockLost
from relevo.kernel.backoff import Backoff
from relevo.messaging.host import MessagingPart
from tests.jobs.office import until
from tests.messaging.consumers import process_handlers
from tests.messaging.consumers.depot import Depot, Handler

if TYPE_CHECKING:
    from pathlib import Path

    from relevo import App
    from relevo.messaging.running.context import Received

pytestmark = pytest.mark.anyio


async def test_returning_completes(depot: Depot) -> None:
    await depot.queue()
    handler = Handler()
    numbers = await depot.send("one", "two", "three", properties={"tier": 1}, priority=8)
    await depot.serve(handler)
    await depot.until_gone(*numbers)
    assert sorted(handler.bodies) == ["one", "three", "two"]
    first = next(msg for msg in handler.seen if msg.body == "one")
    assert first.sequence_number == numbers[0]
    assert (first.delivery_count, first.preempt_count, first.priority) == (0, 0, 8)
    assert (first.priority_class, first.source, first.properties) == ("high", "render", {"tier": 1})


async def test_an_error_abandons_with_the_back_off_of_the_queue(depot: Depot) -> None:
    backoff = Backoff(first=600, factor=2, longest=3600, jitter=(1, 1))
    await depot.queue(abandon_backoff=backoff)

    async def fail(msg: Received) -> None:
        raise ValueError(msg.body)

    (number,) = await depot.send(b"x")
    await depot.serve(fail)
    row = await depot.until_row(number, "state = 5 and delivery_count = 1")
    assert await depot.database.fetchval(
        "select $1::timestamptz - relevo.now() between '9 min' and '10 min'", row["visible_at"]
    )


async def test_retry_later_abandons_with_its_delay(depot: Depot) -> None:
    await depot.queue()

    async def later(_: Received) -> None:
        raise RetryLater(delay=3_600)

    (number,) = await depot.send(b"x")
    await depot.serve(later)
    row = await depot.until_row(number, "state = 5 and delivery_count = 1")
    assert await depot.database.fetchval(
        "select $1::timestamptz - relevo.now() > '59 min'", row["visible_at"]
    )


@pytest.mark.parametrize(
    ("verdict", "reason", "description"),
    [
        (Fail(None, "no such customer"), "Fail", "no such customer"),
        (Suspend("empty the mailbox"), "Suspend", "empty the mailbox"),
    ],
)
async def test_a_verdict_dead_letters(
    depot: Depot, verdict: Exception, reason: str, description: str
) -> None:
    await depot.queue()

    async def judge(_: Received) -> None:
        raise verdict

    (number,) = await depot.send(b"x")
    await depot.serve(judge)
    row = await depot.until_row(number, "sub_queue = 1")
    assert f'"reason": "{reason}"' in row["dead"]
    assert f'"description": "{description}"' in row["dead"]
    assert row["delivery_count"] == 0


async def test_a_message_that_always_fails_is_delivered_so_often_and_then_dead(  # M4
    depot: Depot,
) -> None:
    await depot.queue(max_delivery_count=3)
    counts: list[int] = []

    async def fail(msg: Received) -> None:
        counts.append(msg.delivery_count)
        raise ValueError("no")

    (number,) = await depot.send(b"x")
    await depot.serve(fail)
    row = await depot.until_row(number, "sub_queue = 1")
    assert counts == [0, 1, 2]
    assert '"reason": "MaxDeliveryCountExceeded"' in row["dead"]


async def test_a_handler_that_takes_too_long_is_cut_off(depot: Depot) -> None:
    await depot.queue(abandon_backoff=Backoff(first=600, longest=3_600))
    handler = Handler(waits=True)
    (number,) = await depot.send(b"x")
    await depot.serve(handler, time_limit=0.1)
    await depot.until_row(number, "delivery_count = 1 and state = 5")
    assert handler.running == 0


async def test_a_host_that_stops_gives_back_without_counting(depot: Depot) -> None:  # M5
    await depot.queue()
    handler = Handler(waits=True)
    numbers = await depot.send(*[b"x"] * 5)
    app = depot.app(handler, concurrency=2, drain_seconds=0.1)
    async with app.host():
        await handler.until_seen(2)
    rows = await depot.rows()
    assert [row["sequence"] for row in rows] == numbers
    assert {(row["state"], row["delivery_count"], row["host"]) for row in rows} == {(0, 0, None)}
    assert await depot.database.fetchval("select count(*) from relevo.message_replica") == 0


async def test_messages_of_a_host_that_has_ended_come_back_counted(depot: Depot) -> None:
    await depot.queue()
    handler = Handler(waits=True)
    (number,) = await depot.send(b"x")
    app = await depot.serve(handler)
    await handler.until_seen(1)
    await depot.database.write(
        "update relevo.host set ended_at = relevo.now(), end_reason = 'lapsed'"
        " where incarnation = $1",
        app.leases.life.incarnation,
    )
    await handler.until_seen(2)  # in the next life of the host
    assert [msg.delivery_count for msg in handler.seen] == [0, 1]
    assert handler.seen[0].lost.is_set()
    with pytest.raises(MessageLockLost):
        await handler.seen[0].complete()
    assert await depot.row(number) is not None
    handler.go.set()
    await depot.until_gone(number)


async def test_a_transaction_commits_effects_and_completion_or_neither(depot: Depot) -> None:
    await depot.queue(max_delivery_count=2)
    await depot.database.write("create table if not exists meal (body text primary key)")
    await depot.database.write("delete from meal")

    async def cook(msg: Received) -> None:
        async with msg.transaction() as tx:
            await tx.execute("insert into meal values ($1)", msg.body)
            if msg.body == "burnt":
                raise ValueError("burnt")

    good, bad = await depot.send("soup", "burnt")
    await depot.serve(cook, concurrency=2)
    await depot.until_gone(good)
    await depot.until_row(bad, "sub_queue = 1")
    assert [row[0] for row in await depot.database.fetch("select body from meal")] == ["soup"]


async def test_a_transaction_of_a_lost_message_commits_nothing(depot: Depot) -> None:
    await depot.queue()
    await depot.database.write("create table if not exists meal (body text primary key)")
    await depot.database.write("delete from meal")
    errors: list[Exception] = []

    async def cook(msg: Received) -> None:
        if msg.delivery_count:
            return
        try:
            async with msg.transaction() as tx:
                await tx.execute("insert into meal values ('x')")
                await depot.database.write(
                    "select relevo.move_messages(array[$1::bigint], array['lose_lock'])",
                    msg.sequence_number,
                )
        except MessageLockLost as error:
            errors.append(error)
            raise

    (number,) = await depot.send(b"x")
    await depot.serve(cook)
    await depot.until_gone(number)
    assert len(errors) == 1
    assert await depot.database.fetchval("select count(*) from meal") == 0


async def test_a_transaction_that_is_left_open_is_rolled_back(depot: Depot) -> None:
    await depot.queue(max_delivery_count=1)
    left: list[Any] = []

    async def cook(msg: Received) -> None:
        block = msg.transaction()
        left.append(block)
        await block.__aenter__()

    (number,) = await depot.send(b"x")
    await depot.serve(cook)
    await depot.until_row(number, "sub_queue = 1")


@pytest.mark.parametrize(
    ("method", "arguments", "where"),
    [
        ("defer", {}, "state = 2 and delivery_count = 0"),
        ("release", {}, "state = 0 and delivery_count = 0"),
        ("abandon", {"delay": 3_600}, "state = 5 and delivery_count = 1"),
        ("dead_letter", {"reason": "r"}, "sub_queue = 1 and dead like '%\"r\"%'"),
        ("suspend", {"checkpoint": b"c"}, "preempt_count = 1 and checkpoint = 'c'"),
    ],
)  # fmt: skip
async def test_what_a_handler_settles_itself_stays_so(
    depot: Depot, method: str, arguments: dict[str, Any], where: str
) -> None:
    await depot.queue()
    held = asyncio.Event()

    async def settle(msg: Received) -> None:
        if msg.preempt_count == msg.delivery_count == 0 and not held.is_set():
            await getattr(msg, method)(**arguments)
            held.set()
        else:
            await asyncio.Event().wait()

    (number,) = await depot.send(b"x")
    app = depot.app(settle, drain_seconds=0.1)
    async with app.host():
        await held.wait()
    await depot.until_row(number, where)


async def test_complete_in_a_transaction_of_the_handlers_own(depot: Depot) -> None:
    await depot.queue()
    await depot.queue("drawn")
    apps: list[App] = []
    told = asyncio.Event()

    async def complete(msg: Received) -> None:
        (app,) = apps
        async with app.database.transaction() as tx:
            await msg.complete(tx=tx)
            await app.queue("drawn").send(msg.body, tx=tx)
        told.set()

    (number,) = await depot.send(b"x")
    apps.append(depot.app(complete))
    async with apps[0].host():
        await told.wait()
        await depot.until_gone(number)
        (sent,) = await depot.client.queue("drawn").receive(wait=10)
    assert sent.body == b"x"


async def test_plain_functions_run_in_threads(depot: Depot) -> None:
    await depot.queue()
    await depot.database.write("create table if not exists meal (body text primary key)")
    await depot.database.write("delete from meal")
    seen: list[Any] = []

    def cook(msg: Any) -> None:
        seen.append((threading.current_thread() is threading.main_thread(), msg.checkpoint))
        msg.save(b"half")
        if msg.delivery_count == 0:
            raise ValueError("again")
        with msg.transaction() as tx:
            tx.execute("insert into meal values ($1)", msg.body)

    (number,) = await depot.send("soup")
    await depot.serve(cook)
    await depot.until_gone(number)
    assert seen == [(False, None), (False, b"half")]
    assert await depot.database.fetchval("select body from meal") == "soup"


async def test_handlers_in_processes(depot: Depot, tmp_path: Path) -> None:
    await depot.queue(max_delivery_count=2)
    where = str(tmp_path)
    numbers = await depot.send(
        {"do": "note", "in": where, "name": "plain"}, {"do": "note", "in": where, "name": "two"}
    )
    (failing,) = await depot.send({"do": "fail"})
    (aside,) = await depot.send({"do": "defer"})
    await depot.serve(process_handlers.work, process=True, concurrency=2)
    await depot.until_gone(*numbers)
    await depot.until_row(failing, "sub_queue = 1 and delivery_count = 2")
    await depot.until_row(aside, "state = 2")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "plain": "normal", "two": "normal",
    }  # fmt: skip


async def test_coroutines_in_processes_save_and_resume(depot: Depot, tmp_path: Path) -> None:
    await depot.queue()
    (number,) = await depot.send(str(tmp_path))
    await depot.serve(process_handlers.count, process=True)
    await depot.until_gone(number)
    assert (tmp_path / "counted").read_text() == "3 after b'2'"


async def test_a_batch_is_settled_alike_except_what_the_handler_settles(depot: Depot) -> None:
    await depot.queue()
    sizes: list[int] = []

    async def fold(messages: list[Received]) -> None:
        sizes.append(len(messages))
        for msg in messages:
            if msg.body == "aside":
                await msg.defer()
        if any(msg.body == "bad" for msg in messages):
            raise RetryLater(delay=3_600)

    numbers = await depot.send("one", "two", "aside", "four", "five")
    await depot.serve(fold, batch=3)
    await depot.until_gone(*numbers[:2], *numbers[3:])
    await depot.until_row(numbers[2], "state = 2")
    assert max(sizes) == 3
    bad, other = await depot.send("bad", "good")
    await until(lambda: len(sizes) >= 3, "a third batch")
    await depot.until_row(bad, "state = 5 and delivery_count = 1")
    row = await depot.row(other)
    assert row is None or row["delivery_count"] == 1


async def test_several_sources_cost_one_statement(depot: Depot) -> None:
    sources = [f"queue{n}" for n in range(5)]
    for name in sources:
        await depot.queue(name)
        await depot.send(name, to=name)
    handler = Handler(waits=True)
    await depot.serve(handler, sources=sources, concurrency=5)
    await handler.until_seen(5)
    assert sorted(handler.bodies) == sources
    assert {row["claim"] for row in await depot.rows()} == {handler.seen[0].delivery.claim}
    assert {msg.source for msg in handler.seen} == set(sources)


async def test_messages_of_the_first_source_go_first(depot: Depot) -> None:
    await depot.queue("high")
    await depot.queue("low")
    await depot.send(*[f"low{n}" for n in range(5)], to="low")
    await depot.send(*[f"high{n}" for n in range(5)], to="high")
    handler = Handler()
    await depot.serve(handler, sources=["high", "low"])
    await handler.until_seen(10)
    assert handler.bodies == [f"{name}{n}" for name in ("high", "low") for n in range(5)]


async def test_two_consumers_of_one_app_have_slots_of_their_own(depot: Depot) -> None:
    await depot.queue("one")
    await depot.queue("two")
    first, second = Handler(waits=True), Handler(waits=True)
    app = depot.app(first, name="first", sources=["one"])
    app.queue("two").on_messages("second", concurrency=2)(second)
    await depot.send(b"x", b"y", b"z", to="one")
    await depot.send(b"x", b"y", b"z", to="two")
    await depot.stack.enter_async_context(app.host())
    await first.until_seen(1)
    await second.until_seen(2)
    assert (first.most, second.most) == (1, 2)
    first.go.set()
    await first.until_seen(3)
    assert len(second.seen) == 2
    second.go.set()
    await second.until_seen(3)


async def test_a_host_refuses_consumers_that_another_serves_otherwise(depot: Depot) -> None:
    await depot.queue()
    await depot.queue("other")
    await depot.serve(Handler(), host="a")
    changed = depot.app(Handler(), host="b", sources=["other"])
    with pytest.raises(Conflict, match="'drawers' with other sources"):
        async with changed.host():
            pass
    agreeing = depot.app(Handler(), host="c", concurrency=7)
    async with agreeing.host():
        slots = await depot.database.fetch(
            "select slots from relevo.message_replica order by slots"
        )
    assert [row[0] for row in slots] == [1, 7]
    await depot.stack.aclose()
    async with depot.app(Handler(), host="d", sources=["other"]).host():
        pass


async def test_a_source_that_is_made_anew_is_served(depot: Depot) -> None:
    await depot.queue()
    handler = Handler()
    app = await depot.serve(handler)
    await depot.until_gone(*await depot.send("old"))
    await depot.client.queue("render").drop()
    (number,) = await depot.send("new")
    await app.parts.of(MessagingPart).consumers.follow_sources()
    await depot.until_gone(number)
    assert handler.bodies == ["old", "new"]


async def test_a_host_starts_again_after_it_has_stopped(depot: Depot) -> None:
    await depot.queue()
    handler = Handler()
    app = depot.app(handler)
    for n in range(2):
        (number,) = await depot.send(n)
        async with app.host():
            await depot.until_gone(number)
    assert handler.bodies == [0, 1]
