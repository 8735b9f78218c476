from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import NotFound
from relevo.kernel.postgres import catalog
from relevo.messaging import CorrelationRule, Message
from relevo.messaging.core.acceptance import Outgoing, accepted
from relevo.messaging.core.content import check_message

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.messaging.definitions import Definition, Definitions
    from relevo.messaging.entities import Entities

pytestmark = pytest.mark.anyio
SQL = catalog.load("relevo.messaging")


def outgoing(message: Message, **fields: Any) -> Outgoing:
    return Outgoing(message, check_message(message), message.message_id or "m", **fields)


async def send(database: Database, definition: Definition, *messages: Message) -> list[Any]:
    columns = accepted([(definition, outgoing(message)) for message in messages]).columns()
    [row] = await database.write(SQL.accept, *columns)
    doubles = row["doubles"] or ()
    return [
        (nth, "duplicate", None) if nth in doubles else (nth, row["outcome"], sequence)
        for nth, sequence in enumerate(row["sequences"] or [None], 1)
    ]


async def test_messages_are_accepted_by_the_definition(
    database: Database, entities: Entities, definitions: Definitions
) -> None:
    await entities.create("Orders", "queue", {"classifier": [("tier = 'paying'", "high")]})
    definition = await definitions.of("orders")
    assert await definitions.by_id(definition.id) is definition
    assert await definitions.of("ORDERS") is definition
    answer = await send(
        database, definition, Message(b"1", properties={"tier": "paying"}), Message(b"2")
    )
    assert [outcome for _, outcome, _ in answer] == ["sent", "sent"]
    rows = await database.fetch(
        "select class, priority, body from relevo.message order by sequence"
    )
    high, normal = definition.numbers["high"], definition.numbers["normal"]
    assert [tuple(row) for row in rows] == [(high, 8, b"1"), (normal, 4, b"2")]


async def test_a_topic_is_read_whole_and_every_change_makes_it_stale(
    database: Database, entities: Entities, definitions: Definitions
) -> None:
    await entities.create("orders", "topic", {})
    await entities.create("orders/subscriptions/all", "subscription", {})
    await entities.create(
        "orders/subscriptions/eu",
        "subscription",
        {},
        rules={"eu": CorrelationRule(properties={"region": "eu", "weight": 1e20})},
    )
    before = await definitions.of("orders")
    eu = Message(b"", properties={"region": "eu", "weight": 1e20})
    assert [answer[1] for answer in await send(database, before, eu)] == ["sent"]
    assert await database.fetchval("select count(*) from relevo.message") == 2

    await entities.set_rule("orders/Subscriptions/EU", "none", "FALSE")
    assert await send(database, before, eu) == [(1, "stale", None)]
    definitions.forget("Orders")
    after = await definitions.of("orders")
    assert after.version > before.version
    assert [answer[1] for answer in await send(database, after, eu)] == ["sent"]

    await entities.drop("orders/subscriptions/eu")
    assert await send(database, after, eu) == [(1, "stale", None)]
    definitions.forget("orders")
    assert list((await definitions.of("orders")).subscriptions) == ["all"]


async def test_what_is_not_there_is_not_found(entities: Entities, definitions: Definitions) -> None:
    with pytest.raises(NotFound, match="there is no queue, topic or subscription 'orders'"):
        await definitions.of("orders")
    record = await entities.create("orders", "queue", {})
    assert (await definitions.of("orders")).id == record.id
    await entities.drop("orders")
    definitions.forget("orders")
    with pytest.raises(NotFound, match=f"number {record.id}"):
        await definitions.by_id(record.id)


async def test_a_definition_says_whether_messages_go_on(
    entities: Entities, definitions: Definitions
) -> None:
    await entities.create("last", "queue", {})
    await entities.create("first", "queue", {"forward_to": "last"})
    await entities.create("t", "topic", {})
    await entities.create("t/subscriptions/plain", "subscription", {})
    assert not (await definitions.of("t")).forwards
    given = {"forward_dead_lettered_to": "last"}
    await entities.create("t/subscriptions/s", "subscription", given)
    definitions.forget("t")
    paths = ("last", "first", "t", "t/subscriptions/plain")
    assert [(await definitions.of(path)).forwards for path in paths] == [False, True, True, False]


async def test_many_who_need_a_definition_read_it_once_and_never_keep_an_old_one(
    database: Database, entities: Entities, definitions: Definitions
) -> None:
    await entities.create("q", "queue", {})
    found = await asyncio.gather(*(definitions.of("q") for _ in range(20)))
    assert all(one is found[0] for one in found)
    definitions.forget("q")
    async with database.transaction() as tx:
        await tx.execute("lock table relevo.message_entity in access exclusive mode")
        reading = asyncio.ensure_future(definitions.of("q"))
        while not await database.fetchval(
            "select exists (select from pg_locks where not granted and locktype = 'relation')"
        ):
            await asyncio.sleep(0.01)
        definitions.forget("q")  # what is being read now may be older than the change
    before = await reading
    assert await definitions.of("q") is not before
