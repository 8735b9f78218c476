"""Bounds on what one entity remembers, and on what one transaction does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from relevo import limits
from relevo.errors import EntityDisabled, NotFound, QuotaExceeded, RelevoError, TooLarge
from relevo.messaging import Message, Receipt, Strict
from tests.messaging.faults.accounts import RECOUNT

if TYPE_CHECKING:
    from relevo import App
    from relevo.messaging import Queue
    from relevo.testing import Clock
    from tests.messaging.conftest import Post

pytestmark = pytest.mark.anyio
MANY = limits.MESSAGE_TRANSACTION_OPERATIONS_MAX
REMEMBERED = """
insert into relevo.message_delta (entity_id, sub_queue, class, fairness_keys)
select id, 0, 1, $1 from relevo.message_entity where key = 'q'
"""
"""Counts keys that are not there, because a hundred thousand take long to send."""


async def test_an_entity_takes_a_bounded_number_of_fairness_keys(
    app: App, clock: Clock, post: Post
) -> None:  # 8.5
    queue = app.queue("q", ordering=Strict(), fair=True)
    await queue.send_many([Message("a", fairness_key="a"), Message("b", fairness_key="b")])
    await app.database.write(REMEMBERED, limits.MESSAGE_FAIRNESS_KEYS_MAX - 2)
    await post.tend()
    sends = [queue.send("c", fairness_key="c"), queue.send("a", fairness_key="a")]
    refused, receipt = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(refused, QuotaExceeded)
    assert "'q' has 100000 fairness keys in use" in refused.message
    assert isinstance(receipt, Receipt)  # a key that is known is taken
    async with app.database.transaction() as tx:
        await queue.send("c", fairness_key="c", tx=tx)  # what a transaction stored is not lost
    await post.accept()
    taken = await queue.receive(10, mode="receive_and_delete")
    assert sorted(one.body for one in taken) == ["a", "a", "b", "c"]
    await clock.advance(timedelta(minutes=6))
    await post.tend()
    await post.tend()
    await queue.send("d", fairness_key="d")  # the others are forgotten


async def test_a_topic_refuses_what_a_fair_subscription_has_no_room_for(
    app: App, post: Post
) -> None:  # 8.5
    topic = app.topic("t")
    fair = topic.subscription("s", ordering=Strict(), fair=True)
    await fair.ensure()
    await topic.send("a", fairness_key="a")
    await app.database.write(
        REMEMBERED.replace("'q'", "'t/subscriptions/s'"), limits.MESSAGE_FAIRNESS_KEYS_MAX - 1
    )
    await post.tend()
    with pytest.raises(QuotaExceeded, match="'t/subscriptions/s' has 100000 fairness keys"):
        await topic.send("b", fairness_key="b")


async def test_fairness_keys_are_counted_through_all_that_changes_them(
    app: App, clock: Clock, post: Post
) -> None:  # M29
    queue = app.queue("q", ordering=Strict(), fair=True)
    keys = [Message(n, fairness_key=f"k{n % 7}", priority=n % 10) for n in range(40)]
    await asyncio.gather(queue.send_many(keys), queue.send_many(keys), queue.send_many(keys))
    assert await app.database.fetch(RECOUNT) == []
    await queue.reprioritize(filter="Priority > 4", priority=1)
    assert await app.database.fetch(RECOUNT) == []
    await queue.update(fair=False)
    assert await app.database.fetch(RECOUNT) == []
    await queue.update(fair=True)
    assert await app.database.fetch(RECOUNT) == []
    await queue.receive(1_000, mode="receive_and_delete")
    await clock.advance(timedelta(minutes=6))
    await post.tend()
    assert await app.database.fetch(RECOUNT) == []
    assert await app.database.fetchval("select count(*) from relevo.message_fairness") == 0


async def test_a_transaction_takes_a_bounded_number_of_operations(app: App) -> None:
    queue, done = app.queue("q"), app.queue("done")
    await done.ensure()
    await queue.send_many([Message(n) for n in range(3)])
    messages = await queue.receive(3)
    async with app.database.transaction() as tx:
        for message in messages:
            await message.complete(tx=tx)
        for n in range(MANY - 4):
            await done.send(n, tx=tx)
        await done.send_many([Message(n) for n in range(200)], tx=tx)  # one operation
    assert len(await done.receive(1_000, mode="receive_and_delete")) == MANY - 4 + 200


async def overrun(app: App, queue: Queue, *, settle: bool) -> None:
    await queue.send(b"x")
    (message,) = await queue.receive()
    async with app.database.transaction() as tx:
        for n in range(MANY):
            await queue.send(n, tx=tx)
        await (message.complete(tx=tx) if settle else queue.send("more", tx=tx))


@pytest.mark.parametrize("settle", [True, False])
async def test_one_more_operation_fails_the_transaction(app: App, settle: bool) -> None:  # M18
    queue = app.queue("q")
    with pytest.raises(TooLarge, match=r"has 100 sends and settlements .* several transactions"):
        await overrun(app, queue, settle=settle)
    assert len(await queue.peek()) == 1  # the message that is held, and nothing else
    async with app.database.transaction() as tx:
        await queue.send("next", tx=tx)  # another transaction counts anew


async def test_sends_by_the_sql_function_are_counted(app: App, relevo_url: str) -> None:
    await app.queue("q").ensure()
    sql = "select relevo.send_message('q', 'x') from generate_series(1, %s)"
    async with await psycopg.AsyncConnection.connect(relevo_url) as connection:
        await connection.execute(sql, (MANY,))
        await connection.commit()
        with pytest.raises(psycopg.Error, match="100 sends and settlements"):
            await connection.execute(sql, (MANY + 1,))
    assert len(await app.queue("q").receive(1_000)) == MANY


@pytest.mark.parametrize(
    ("name", "expected", "text"),
    [
        ("closed", EntityDisabled, '"closed" is send_disabled'),
        ("none", NotFound, 'no queue or topic "none"'),
    ],
)
async def test_refusals_in_transactions_have_names_with_each_driver(
    app: App, relevo_url: str, name: str, expected: type[RelevoError], text: str
) -> None:
    await app.queue("closed", status="send_disabled").ensure()
    queue = app.queue(name)
    with pytest.raises(expected, match=text):
        async with app.database.transaction() as tx:
            await queue.send(b"x", tx=tx)
    async with await psycopg.AsyncConnection.connect(relevo_url) as connection:
        with pytest.raises(expected, match=text):
            await queue.send(b"x", tx=connection)
    url = sqlalchemy.make_url(relevo_url)
    for driver in ("asyncpg", "psycopg"):
        engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"))
        async with engine.connect() as connection:
            with pytest.raises(expected, match=text):
                await queue.send(b"x", tx=connection)
        await engine.dispose()
