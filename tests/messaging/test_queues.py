"""Queues as a program uses them: send, receive, settle, and everything around that."""

from __future__ import annotations

import asyncio
import math
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from relevo.errors import (
    Conflict,
    EntityDisabled,
    InvalidValue,
    MessageLockLost,
    MessageNotFound,
    NotFound,
    TooLarge,
)
from relevo.kernel.backoff import Backoff
from relevo.messaging import Aging, Deadline, Fifo, Message, MessageRates, Strict, Weighted
from relevo.messaging.operating import describing

if TYPE_CHECKING:
    from relevo import App
    from relevo.messaging.model import Ordering, Value
    from relevo.testing import Clock
    from tests.messaging.conftest import Post

pytestmark = pytest.mark.anyio


async def bodies(source: Any, most: int = 100) -> list[Any]:
    return [one.body for one in await source.receive(most)]


async def test_what_is_sent_is_received_once_and_gone_when_complete(app: App) -> None:  # M1, M2
    render = app.queue("render")
    receipt = await render.send({"frame": 1}, priority=7, properties={"tier": "paying"})
    (message,) = await render.receive()
    assert (message.body, message.priority, message.priority_class) == ({"frame": 1}, 7, "high")
    assert message.properties == {"tier": "paying"}
    assert message.sequence_number == receipt.sequence_number
    assert (message.message_id, message.delivery_count) == (receipt.message_id, 0)
    assert await render.receive() == []
    await message.complete()
    assert await render.peek() == []


@pytest.mark.parametrize(
    "body", [b"\x00\xff", b"", "tëxt", "", {"a": [1, 2.5, None]}, [1], None, 7, True]
)
async def test_a_body_comes_back_as_it_was_sent(app: App, body: Any) -> None:
    await app.queue("q").send(body)
    assert await bodies(app.queue("q")) == [body]


async def test_properties_keep_their_types(app: App) -> None:
    given: dict[str, Value] = {
        "text": "x", "whole": 2**62, "real": 2.0, "yes": True, "none": None, "bytes": b"\x01",
        "id": UUID(int=5), "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "span": timedelta(days=1, microseconds=1),
    }  # fmt: skip
    await app.queue("q").send(
        Message(b"", properties=given, subject="s", correlation_id="c", to="t", reply_to="r",
                content_type="text/plain", reply_to_session_id="rs", envelope=b"\x02")
    )  # fmt: skip
    (message,) = await app.queue("q").receive()
    assert {name: (type(value), value) for name, value in message.properties.items()} == {
        name: (type(value), value) for name, value in given.items()
    }
    assert (message.subject, message.correlation_id, message.to) == ("s", "c", "t")
    assert (message.reply_to, message.content_type) == ("r", "text/plain")


async def test_higher_priorities_overtake(app: App) -> None:  # M7
    queue = app.queue("strict", ordering=Strict())
    await queue.send_many([Message(body=n, priority=n) for n in (1, 5, 9, 0, 5)])
    assert await bodies(queue) == [9, 5, 5, 1, 0]


async def test_equal_work_is_served_in_the_order_of_its_arrival(app: App) -> None:  # M13
    queue = app.queue("fifo", ordering=Fifo())
    await queue.send_many([Message(body=n, priority=n % 10) for n in range(30)])
    assert await bodies(queue, 20) + await bodies(queue, 20) == list(range(30))


async def test_received_and_deleted_at_once(app: App) -> None:  # T6
    queue = app.queue("q")
    await queue.send(b"x")
    (message,) = await queue.receive(mode="receive_and_delete")
    assert await queue.peek() == []
    with pytest.raises(Conflict):
        await message.complete()
    assert (await queue.describe()).messages.completed == 1


async def test_a_message_that_always_fails_is_dead_lettered_once(app: App) -> None:  # M4
    queue = app.queue("q", max_delivery_count=3)
    await queue.send(b"x")
    for count in range(3):
        (message,) = await queue.receive()
        assert message.delivery_count == count
        await message.abandon()
    assert await queue.receive() == []
    (dead,) = await queue.dead_letters.receive()
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert (dead.delivery_count, dead.dead_letter_source) == (3, "q")
    with pytest.raises(Conflict, match="dead-lettered again"):
        await dead.dead_letter("again")
    await dead.abandon()
    (again,) = await queue.dead_letters.receive()
    assert again.delivery_count == 3
    await again.complete()
    assert await queue.dead_letters.peek() == []


async def test_dead_letters_go_back_with_a_count_of_redrives(app: App) -> None:  # T17, M31
    queue, other = app.queue("q"), app.queue("other")
    for source in (queue, other):
        await source.send_many([Message(body=n, properties={"n": n}) for n in range(4)])
        for message in await source.receive(4):
            await message.dead_letter("broken", "no paper")
    assert await queue.redrive("n >= 2") == 2
    assert await queue.redrive(limit=1) == 1
    assert (await queue.describe()).messages.dead_letter == 1
    assert (await other.describe()).messages.dead_letter == 4
    found = {one.body: one for one in await queue.receive(10)}
    assert sorted(found) == [0, 2, 3]
    assert found[2].properties == {"n": 2, "RelevoRedriven": 1}
    assert found[2].delivery_count == 0


async def test_a_deferred_message_is_received_by_its_number(app: App) -> None:  # T10, T14, M5
    queue = app.queue("q")
    await queue.send(b"x")
    (message,) = await queue.receive()
    await message.defer()
    assert await queue.receive() == []
    with pytest.raises(MessageNotFound):
        await queue.receive_deferred(message.sequence_number, 999_999)
    (again,) = await queue.receive_deferred(message.sequence_number)
    assert again.delivery_count == 0
    await again.abandon()
    (last,) = await queue.receive_deferred(message.sequence_number)
    assert last.delivery_count == 1
    await last.complete()
    assert await queue.peek() == []


async def test_a_scheduled_message_comes_at_its_time(
    app: App, post: Post, clock: Clock
) -> None:  # T2, T3, T4, M19
    queue = app.queue("q")
    at = await app.now() + timedelta(minutes=10)
    number = await queue.schedule(Message(b"later"), at)
    gone = await queue.schedule(Message(b"never"), at)
    assert await queue.receive() == []
    await queue.cancel_scheduled(gone)
    with pytest.raises(MessageNotFound):
        await queue.cancel_scheduled(gone)
    await clock.advance(timedelta(minutes=9))
    await post.tend()
    assert await queue.receive() == []
    await clock.advance(timedelta(minutes=2))
    await post.tend()
    (message,) = await queue.receive()
    assert message.body == b"later"
    assert message.sequence_number > number
    with pytest.raises(MessageNotFound):
        await queue.cancel_scheduled(number)


async def test_what_has_expired_is_never_delivered(
    app: App, post: Post, clock: Clock
) -> None:  # T15, M16
    queue = app.queue("q", dead_letter_on_expiration=True)
    drops = app.queue("drops", ttl=30)
    await queue.send(b"short", ttl=60)
    await queue.send(b"long", ttl=3_600)
    await drops.send(b"x", ttl=3_600)
    await clock.advance(timedelta(seconds=61))
    assert await bodies(queue) == [b"long"]
    assert await bodies(drops) == []
    await post.tend()
    (dead,) = await queue.dead_letters.receive()
    assert (dead.body, dead.dead_letter_reason) == (b"short", "TTLExpiredException")
    assert await drops.peek() == []
    assert (await drops.describe()).messages.expired == 1


async def test_the_holder_of_an_expired_lock_settles_nothing(
    app: App, post: Post, clock: Clock
) -> None:  # M3, T9
    queue = app.queue("q", lock_duration=30)
    await queue.send(b"x")
    (message,) = await queue.receive()
    await clock.advance(timedelta(seconds=31))
    with pytest.raises(MessageLockLost):
        await message.complete()
    await post.tend()
    (again,) = await queue.receive()
    assert again.delivery_count == 1
    with pytest.raises(MessageLockLost):
        await message.complete()
    await again.renew()
    await clock.advance(timedelta(seconds=20))
    await again.complete()


async def test_the_same_settlement_again_succeeds(app: App, clock: Clock) -> None:  # 6.2
    queue = app.queue("q")
    await queue.send(b"x")
    (message,) = await queue.receive()
    receiving = app.messaging.tools.receiving
    await receiving.settle(message.lock_token, "complete")
    await receiving.settle(message.lock_token, "complete")
    with pytest.raises(MessageLockLost):
        await receiving.settle(message.lock_token, "abandon")
    await clock.advance(timedelta(seconds=61))
    with pytest.raises(MessageLockLost):
        await receiving.settle(message.lock_token, "complete")


async def test_an_abandoned_message_waits_as_long_as_said(
    app: App, post: Post, clock: Clock
) -> None:  # 6.4, M6
    queue = app.queue("q", abandon_backoff=Backoff(first=10, factor=2, longest=100, jitter=(1, 1)))
    await queue.send_many([Message(body=n) for n in range(2)])
    first, second = await queue.receive(2)
    await first.abandon(delay=100)
    await second.abandon()
    assert await queue.receive() == []
    await clock.advance(timedelta(seconds=11))
    await post.tend()
    (found,) = await queue.receive()
    assert (found.body, found.delivery_count) == (1, 1)
    await found.abandon(until=await app.now() - timedelta(seconds=1))
    await clock.advance(timedelta(seconds=90))
    await post.tend()
    assert await bodies(queue) == [0, 1]


async def test_an_id_is_accepted_once_in_its_window(app: App, clock: Clock) -> None:  # M17
    queue = app.queue("q", duplicate_window=60)
    sent = [
        await queue.send_many([Message(body=n, message_id="a"), Message(body=n, message_id="a")])
        for n in range(2)
    ]
    assert [[one.duplicate for one in each] for each in sent] == [[False, True], [True, True]]
    await asyncio.gather(*(queue.send(9, message_id="b") for _ in range(20)))
    assert sorted(await bodies(queue)) == [0, 9]
    await clock.advance(timedelta(seconds=61))
    assert not (await queue.send(3, message_id="a")).duplicate


async def test_a_batch_is_stored_whole_or_not_at_all(app: App) -> None:  # M18
    queue = app.queue("q")
    bad = [
        (Message(b"", priority=10), InvalidValue),
        (Message(b"", priority_class="platinum"), InvalidValue),
        (Message(b"x" * 300_000), TooLarge),
        (Message(b"", properties={"a": [1]}), InvalidValue),  # type: ignore[dict-item]
    ]
    for message, error in bad:
        with pytest.raises(error):
            await queue.send_many([Message(b"good"), message, Message(b"good")])
    assert await queue.peek() == []


async def test_a_bad_send_does_not_fail_its_neighbours(app: App) -> None:
    queue = app.queue("q")
    results = await asyncio.gather(
        *(queue.send(n, priority_class=None if n % 2 else "none") for n in range(10)),
        return_exceptions=True,
    )
    assert [isinstance(one, InvalidValue) for one in results] == [n % 2 == 0 for n in range(10)]
    assert sorted(await bodies(queue)) == [1, 3, 5, 7, 9]


async def test_a_send_in_a_transaction_is_there_when_that_commits(app: App) -> None:  # 4.1
    queue = app.queue("q", max_delivery_count=5)
    await queue.send(b"first")
    async with app.database.transaction() as tx:
        receipt = await queue.send(b"second", priority=9, tx=tx)
        assert receipt.sequence_number is None
        assert await bodies(queue) == [b"first"]
    (arriving,) = await queue.peek(after=10**9)
    assert (arriving.state, arriving.body, arriving.message_id) == (
        "arriving", b"second", receipt.message_id,
    )  # fmt: skip
    (message,) = await queue.receive()
    assert (message.body, message.priority_class) == (b"second", "high")
    with pytest.raises(ZeroDivisionError):
        async with app.database.transaction() as tx:
            await queue.send(b"never", tx=tx)
            raise ZeroDivisionError
    assert await queue.receive() == []


async def test_any_language_sends_by_the_sql_function(app: App) -> None:  # 4.1
    queue = app.queue("q")
    await queue.ensure()
    async with app.database.transaction() as tx:
        id_ = await tx.fetchval(
            "select relevo.send_message('Q', 'x'::bytea, properties => '{\"Priority\": \"low\"}',"
            " subject => 'hello')"
        )
    (message,) = await queue.receive()
    assert (message.message_id, message.priority_class) == (id_, "low")
    assert (message.subject, message.properties) == ("hello", {"Priority": "low"})


async def test_settlements_join_a_transaction(app: App) -> None:  # M18
    queue, done = app.queue("q"), app.queue("done")
    await done.ensure()
    await queue.send(b"x")
    (message,) = await queue.receive()
    with pytest.raises(ZeroDivisionError):
        async with app.database.transaction() as tx:
            await message.complete(tx=tx)
            await done.send(b"y", tx=tx)
            raise ZeroDivisionError
    async with app.database.transaction() as tx:
        await message.complete(tx=tx)
        await done.send(b"y", tx=tx)
    assert await queue.peek() == []
    assert await bodies(done) == [b"y"]


async def test_a_waiting_receiver_gets_what_comes(app: App) -> None:  # 6.1
    queue = app.queue("q")
    waiting = asyncio.ensure_future(queue.receive(wait=30))
    await queue.send(b"x")
    (message,) = await waiting
    assert message.body == b"x"
    assert await queue.receive(wait=0.01) == []


async def test_a_canceled_receive_leaves_nothing_locked(app: App) -> None:  # M28
    queue = app.queue("q")
    await queue.send_many([Message(body=n) for n in range(50)])
    for turn in range(20):
        receiving = asyncio.ensure_future(queue.receive(5))
        for _ in range(turn % 5):
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
    assert len(await queue.receive(100)) == 50
    assert (await queue.describe()).messages.delivered >= 50


async def test_receivers_that_go_away_empty_hold_nothing(app: App) -> None:  # M28, 6.1
    """Their waits end while messages come, from one source and from several."""
    near, far = app.queue("near"), app.queue("far")
    await near.ensure()
    await far.ensure()
    ended = asyncio.Event()
    tokens: set[UUID] = set()

    async def receive(turn: int) -> None:
        while not ended.is_set():
            wait = turn % 5 / 200
            found = await (
                app.receive([near, far], 2, wait=wait) if turn % 2 else near.receive(2, wait=wait)
            )
            tokens.update(one.lock_token for one in found)

    receivers = [asyncio.ensure_future(receive(turn)) for turn in range(10)]
    for n in range(30):
        await (near if n % 2 else far).send(n)
    ended.set()
    await asyncio.gather(*receivers)
    locked = [one for queue in (near, far) for one in await queue.peek() if one.state == "locked"]
    assert len(locked) == len(tokens)
    rest = [one.lock_token for queue in (near, far) for one in await queue.receive(100)]
    assert len(tokens | set(rest)) == len(tokens) + len(rest) == 30


async def test_one_look_at_several_sources_takes_the_first(app: App) -> None:  # 2
    high, low = app.queue("high"), app.queue("low")
    await low.send_many([Message(body=f"low {n}") for n in range(3)])
    await high.send_many([Message(body=f"high {n}") for n in range(3)])
    found = await app.receive([high, low], 5)
    assert [one.body for one in found] == ["high 0", "high 1", "high 2", "low 0", "low 1"]


async def test_a_disabled_queue_keeps_what_it_has(app: App) -> None:  # M30
    queue = app.queue("q")
    await queue.send(b"x")
    (message,) = await queue.receive()
    await queue.update(status="disabled")
    with pytest.raises(EntityDisabled):
        await queue.send(b"y")
    with pytest.raises(EntityDisabled):
        await queue.receive()
    await message.abandon()
    await queue.update(status="active")
    assert await bodies(queue) == [b"x"]


async def test_forwarded_messages_are_at_their_destination(app: App) -> None:  # T16, M24
    last = app.queue("last")
    await last.ensure()
    first = app.queue("first", forward_to="last")
    await first.send(b"x", properties={"a": 1})
    (message,) = await last.receive()
    assert (message.body, message.properties) == (b"x", {"a": 1})
    await last.update(status="disabled")
    await first.send(b"y")
    (stuck,) = await first.transfer_dead_letters.receive()
    assert (stuck.body, stuck.dead_letter_reason) == (b"y", "TransferFailed")


async def test_dead_letters_of_transfers_are_forwarded_anew(  # T17, M24, M31
    app: App, post: Post
) -> None:
    last = app.queue("last", status="disabled")
    await last.ensure()
    first = app.queue("first", forward_to="last")
    await first.send_many([Message(body=n, properties={"n": n}) for n in range(3)])
    assert await first.redrive() == 0  # of its ordinary dead letters
    assert await first.transfer_dead_letters.redrive() == 0  # they cannot go on yet, and stay
    letters = await first.transfer_dead_letters.peek()
    assert [(one.body, one.dead_letter_reason) for one in letters] == [
        (n, "TransferFailed") for n in range(3)
    ]
    await last.update(status="active")
    assert await first.transfer_dead_letters.redrive("n > 0", 1) == 1
    assert await first.transfer_dead_letters.redrive() == 2
    assert await first.transfer_dead_letters.peek() == await first.peek() == []
    await post.accept()
    received = {one.body: one.properties["RelevoRedriven"] for one in await last.receive(10)}
    assert received == {0: 2, 1: 2, 2: 2}


async def test_messages_can_be_given_another_priority(app: App) -> None:  # 8.6
    queue = app.queue("q", ordering=Strict())
    sent = await queue.send_many([Message(body=n, properties={"n": n}) for n in range(4)])
    assert await queue.reprioritize(sent[2].sequence_number or 0, priority=9) == 1
    assert await queue.reprioritize(filter="n = 3", priority_class="low") == 1
    found = await queue.receive(10)
    assert [(one.body, one.priority_class) for one in found] == [
        (2, "high"), (0, "normal"), (1, "normal"), (3, "low"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "ordering", [Fifo(), Strict(), Aging(floor_share=0.25), Deadline(), Weighted()], ids=repr
)
async def test_what_is_shown_as_next_is_what_claims_take(
    app: App, ordering: Ordering
) -> None:  # 6.5
    queue = app.queue("q", ordering=ordering)
    dice = random.Random(7)
    for _ in range(3):
        await queue.send_many([Message(body=n, priority=dice.randrange(10)) for n in range(15)])
        shown = [one.sequence_number for one in await queue.peek(order="service", limit=20)]
        taken = [one.sequence_number for one in await queue.receive(20)]
        assert taken == shown[: len(taken)]
        assert len(taken) == min(20, len(shown))


async def test_why_a_message_waits_is_told(app: App, clock: Clock) -> None:  # 21.1
    queue = app.queue("q")
    receipt = await queue.send(b"x")
    number = receipt.sequence_number or 0
    assert (await queue.explain(number)).reason == "no_consumers"
    (message,) = await queue.receive()
    assert (await queue.explain(number)).reason == "locked"
    await message.abandon(delay=60)
    assert (await queue.explain(number)).reason == "invisible"
    later = await queue.schedule(b"y", await app.now() + timedelta(hours=1))
    assert (await queue.explain(later)).reason == "scheduled"
    with pytest.raises(MessageNotFound):
        await queue.explain(10**12)

    @queue.on_messages("readers", hours=f"{_an_hour_from(await app.now())} UTC")
    async def read(msg: object) -> None: ...

    ready = await queue.send(b"z")
    async with app.host(name="one"):
        assert (await queue.explain(ready.sequence_number or 0)).reason == "out_of_hours"
        await app.messaging.pause_consumers("readers")
        assert (await queue.explain(ready.sequence_number or 0)).reason == "paused"


def _an_hour_from(now: datetime) -> str:
    """A window that is closed now."""
    begin = (now.hour + 2) % 24
    return f"{begin:02}:00-{(begin + 1) % 24 or 24:02}:00"


async def test_purging_leaves_what_is_held(app: App) -> None:  # 6.6
    queue = app.queue("q")
    await queue.send_many([Message(body=n) for n in range(10)])
    held = await queue.receive(3)
    assert await queue.purge() == 7
    for message in held:
        await message.complete()
    assert (await queue.describe()).messages.active == 0


async def test_a_batch_of_deletes_takes_the_oldest_that_nobody_holds(app: App) -> None:  # 6.6
    queue = app.queue("q")
    await queue.send_many([Message(body=n) for n in range(6)])
    await queue.receive(1)
    assert await queue.delete_batch(3) == 3
    assert [one.body for one in await queue.peek()] == [0, 4, 5]
    assert [await queue.delete_batch(4_000) for _ in range(2)] == [2, 0]
    for bad in (0, 4_001):
        with pytest.raises(InvalidValue, match="max_messages"):
            await queue.delete_batch(bad)


async def test_a_batch_takes_what_can_be_sent_at_once(app: App) -> None:  # 6.6
    queue = app.queue("q", max_message_bytes=1024 * 1024)
    batch = await queue.create_batch()
    large = Message(b"x" * 500_000, properties={"n": 1})
    batch.add(large)
    batch.add(large)
    before = batch.size
    named = Message(b"", message_id="x" * 129)
    for bad, error in ((large, TooLarge), (named, InvalidValue)):
        with pytest.raises(error):
            batch.add(bad)
    assert (len(batch), batch.size) == (2, before)
    assert len(await queue.send_many(batch)) == 2
    with pytest.raises(TooLarge):
        await queue.send_many([*batch, large])  # nor would it have been stored


async def test_figures_say_what_is_there_and_what_was(app: App, post: Post) -> None:  # M29, M35
    queue = app.queue("q")
    await queue.send_many([Message(body=n, priority=8 if n < 2 else 4) for n in range(6)])
    first, *_ = await queue.receive(3)
    await first.complete()
    before = await queue.describe()
    await post.tend()
    found = before.classes
    assert (found["high"].sent, found["high"].delivered, found["high"].completed) == (2, 2, 1)
    assert (found["normal"].active, found["normal"].locked) == (3, 1)
    assert (before.messages.active, before.messages.locked) == (3, 2)
    assert before.messages.in_target == 2


async def test_rates_fade_with_the_time_since_the_messages(  # 19
    app: App, post: Post, clock: Clock
) -> None:
    queue = app.queue("q")
    await queue.send_many([Message(body=n, priority=8 if n < 2 else 4) for n in range(8)])
    for message in await queue.receive(3):
        await message.complete()

    async def rates() -> tuple[MessageRates, MessageRates]:
        figures = await queue.describe()
        return figures.classes["high"].rates, figures.messages.rates

    assert await rates() == (MessageRates(), MessageRates())
    await post.tend()
    close = partial(pytest.approx, rel=0.05)
    high, both = await rates()
    assert high.sent == high.delivered == high.completed == close((2 / 60, 2 / 300, 2 / 900))
    assert both.sent == close((8 / 60, 8 / 300, 8 / 900))
    assert both.completed[0] == close(3 / 60)
    await clock.advance(timedelta(seconds=300))
    high, _ = await rates()
    assert high.sent == close(
        (2 / 60 * math.exp(-5), 2 / 300 * math.exp(-1), 2 / 900 * math.exp(-1 / 3))
    )
    await queue.send(b"x", priority=8)
    await post.tend()
    (figures,) = await describing.figures(app.database, after="", limit=10)
    high = figures.classes["high"].rates
    assert high.sent[0] == close((1 + 2 * math.exp(-5)) / 60)
    assert high.completed[0] == close(2 * math.exp(-5) / 60)
    await clock.advance(timedelta(days=365))  # far too small a number to be told from 0
    await queue.send(b"x", priority=8)
    await post.tend()
    assert (await rates())[0].sent[0] == close(1 / 60)


async def test_what_is_not_there_is_said(app: App) -> None:
    with pytest.raises(NotFound):
        await app.messaging.tools.definitions.of("nowhere")
    with pytest.raises(InvalidValue):
        app.queue("bad name")
    with pytest.raises(InvalidValue):
        await app.queue("q").receive(0)


async def test_a_lock_is_renewed_while_a_block_runs(app: App) -> None:
    render = app.queue("render", lock_duration=1.0)
    await render.send(b"x")
    (message,) = await render.receive()
    async with message.renewing():
        locked = "select locked_until from relevo.message"
        begun = await app.database.fetchval(locked)
        async with asyncio.timeout(20):
            while await app.database.fetchval(locked) == begun:
                await asyncio.sleep(0.05)
    assert not message.lost.is_set()
    await message.complete()


async def test_a_lost_lock_is_told_and_raises_nothing(app: App, clock: Clock) -> None:
    render = app.queue("render", lock_duration=1.0)
    await render.send(b"x")
    (message,) = await render.receive()
    async with message.renewing():
        await clock.advance(timedelta(seconds=10))
        async with asyncio.timeout(20):
            await message.lost.wait()
