"""Sessions: one holder at a time, strictly in the order of arrival."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import Conflict, InvalidValue, MessageNotFound, SessionLockLost, SessionTaken
from relevo.messaging import Message, Strict

if TYPE_CHECKING:
    from relevo import App
    from relevo.messaging import Queue, Received
    from relevo.testing import Clock
    from tests.messaging.conftest import Post

pytestmark = pytest.mark.anyio


def orders(app: App) -> Queue:
    return app.queue("orders", requires_session=True, ordering=Strict(), lock_duration=60)


async def fill(app: App, *sessions: str, each: int = 3, priority: int = 4) -> None:
    await orders(app).send_many(
        [Message(body=f"{key}{n}", session_id=key, priority=priority)
         for n in range(each) for key in sessions]
    )  # fmt: skip


async def test_a_session_comes_to_one_holder_in_order(app: App) -> None:  # M20
    await fill(app, "a", "b")
    session = await orders(app).accept_session("a")
    with pytest.raises(SessionTaken):
        await orders(app).accept_session("a")
    found = []
    while messages := await session.receive():
        found += [one.body for one in messages]
        await messages[0].complete()
    assert found == ["a0", "a1", "a2"]
    other = await orders(app).accept_next()
    assert other is not None
    assert other.session_id == "b"
    assert await orders(app).accept_next() is None
    await session.close()
    assert await orders(app).accept_next() is None  # it is empty


async def test_the_next_session_is_the_one_with_the_most_urgent_head(app: App) -> None:  # 14
    await fill(app, "low", priority=1)
    await fill(app, "high", priority=9)
    session = await orders(app).accept_next()
    assert session is not None
    assert session.session_id == "high"


async def test_an_abandoned_message_is_the_next_of_its_session(app: App) -> None:  # 14
    await fill(app, "a")
    async with await orders(app).accept_session("a") as session:
        (first,) = await session.receive()
        await first.abandon()
        (again,) = await session.receive()
        assert (again.body, again.delivery_count) == ("a0", 1)


async def test_closing_counts_nothing_and_losing_counts(
    app: App, post: Post, clock: Clock
) -> None:  # M5, 14
    await fill(app, "a", each=1)
    async with await orders(app).accept_session("a") as session:
        await session.receive()
    second = await orders(app).accept_session("a")
    (message,) = await second.receive()
    assert message.delivery_count == 0
    await second.close(lost=True)
    third = await orders(app).accept_session("a")
    (message,) = await third.receive()
    assert message.delivery_count == 1
    await clock.advance(timedelta(seconds=61))
    with pytest.raises(SessionLockLost):
        await third.renew()
    await post.tend()
    fourth = await orders(app).accept_session("a")
    assert fourth.holder > third.holder
    (message,) = await fourth.receive()
    assert message.delivery_count == 2
    with pytest.raises(SessionLockLost):
        await third.set_state(b"old")


async def test_the_state_outlives_the_messages(app: App, post: Post) -> None:  # 14
    await fill(app, "a", each=1)
    async with await orders(app).accept_session("a") as session:
        assert await session.get_state() is None
        await session.set_state(b"step 2")
        (message,) = await session.receive()
        await message.complete()
    await post.tend()
    async with await orders(app).accept_session("a") as session:
        assert await session.get_state() == b"step 2"
        await session.set_state(None)


async def test_a_deferred_message_of_a_session_comes_to_its_holder(app: App) -> None:  # T14
    await fill(app, "a", each=2)
    async with await orders(app).accept_session("a") as session:
        (first,) = await session.receive()
        await first.defer()
        (second,) = await session.receive()
        assert second.body == "a1"
        with pytest.raises(MessageNotFound):
            await session.receive_deferred(second.sequence_number)
        (again,) = await session.receive_deferred(first.sequence_number)
        assert again.body == "a0"


async def test_waiting_for_a_session_and_in_it(app: App) -> None:
    waiting = asyncio.ensure_future(orders(app).accept_next(wait=30))
    await fill(app, "a", each=1)
    session = await waiting
    assert session is not None
    (message,) = await session.receive()
    await message.complete()
    more = asyncio.ensure_future(session.receive(wait=30))
    await fill(app, "a", each=1)
    assert [one.body for one in await more] == ["a0"]


async def test_sessions_are_listed_by_page_and_by_what_changed(app: App, clock: Clock) -> None:
    await fill(app, "a", "b", "c", each=1)

    async def listed(**options: Any) -> list[str]:
        return [one.session_id for one in await orders(app).list_sessions(**options)]

    assert await listed(limit=2) == ["a", "b"]
    assert await listed(after="b", limit=2) == ["c"]
    await clock.advance(timedelta(minutes=1))
    since = await clock.now()
    assert await listed(updated_since=since) == []
    await fill(app, "c", each=1)  # a message changes neither holder nor state
    async with await orders(app).accept_session("b") as session:
        assert [one.held for one in await orders(app).list_sessions(after="a", limit=1)] == [True]
        await session.set_state(b"half")
    assert await listed(updated_since=since) == ["b"]
    await clock.advance(timedelta(minutes=1))
    assert await listed(updated_since=await clock.now()) == []
    assert await listed() == ["a", "b", "c"]
    with pytest.raises(InvalidValue, match="updated_since"):
        await listed(updated_since=since.replace(tzinfo=None))


async def test_sessions_and_plain_queues_are_told_apart(app: App) -> None:
    with pytest.raises(InvalidValue):
        await orders(app).send(b"no session")
    with pytest.raises(Conflict):
        await orders(app).receive()
    with pytest.raises(Conflict):
        await app.queue("plain").accept_next()


async def test_consumers_handle_each_session_in_order_and_alone(app: App) -> None:  # M20, 14
    handled: dict[str, list[str]] = {}
    busy: set[str] = set()
    most = 0
    done = asyncio.Event()

    @orders(app).on_messages("clerks", concurrency=3)
    async def handle(msg: Received) -> None:
        nonlocal most
        key = msg.session_id or ""
        assert key not in busy
        busy.add(key)
        most = max(most, len(busy))
        await asyncio.sleep(0)
        handled.setdefault(key, []).append(msg.body)
        busy.discard(key)
        if sum(map(len, handled.values())) == 20:
            done.set()

    await fill(app, "a", "b", "c", "d", each=5)
    async with app.host(name="one"), asyncio.timeout(60):
        await done.wait()
    assert handled == {key: [f"{key}{n}" for n in range(5)] for key in "abcd"}
    assert most <= 3
    assert await orders(app).peek() == []
    async with app.host(name="two"):  # the sessions of a host that has stopped are free
        assert (await orders(app).accept_session("a")).session_id == "a"
