"""Forwards: what an entity passes on is at the destination once, or at its source."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from relevo.kernel.postgres import Wakeups
from relevo.messaging import Message
from relevo.messaging.arrivals import Arrivals
from relevo.messaging.service import MessagingTools
from tests.messaging.sends import SQL, events, send

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres import Database
    from relevo.messaging.definitions import Definitions
    from relevo.messaging.entities import Entities

pytestmark = pytest.mark.anyio


@pytest.fixture
async def arrivals(database: Database) -> AsyncIterator[Arrivals]:
    wakeups = Wakeups(database)
    tools = MessagingTools(database, wakeups)
    yield Arrivals(database, wakeups, tools)
    await tools.close()
    await wakeups.close()


async def test_forwarding_neither_loses_nor_doubles(
    database: Database, entities: Entities, definitions: Definitions, arrivals: Arrivals
) -> None:
    # M24
    for n in range(6):
        forward = {"forward_to": f"q{n - 1}"} if n else {"classifier": [("n > 2", "low")]}
        await entities.create(f"q{n}", "queue", forward)

    async def places() -> list[tuple[str, int, int]]:
        rows = await database.fetch(
            """select e.path, m.sub_queue, count(*) from relevo.message m
               join relevo.message_entity e on e.id = m.entity_id group by 1, 2 order by 1, 2"""
        )
        return [tuple(row) for row in rows]

    messages = [Message(b"", message_id=f"{n}", properties={"n": n}, ttl=60) for n in range(5)]
    numbers = await send(database, definitions, "q4", *messages)
    for _ in range(4):
        assert await places() == []
        assert await database.fetchval("select count(*) from relevo.message_arrival") == 5
        await arrivals.accept()
    assert await places() == [("q0", 0, 5)]
    rows = await database.fetch("select * from relevo.message order by message_id")
    assert [row["enqueued_sequence"] for row in rows] == numbers
    assert {row["hops"] for row in rows} == {4}
    assert [row["priority"] for row in rows] == [4, 4, 4, 1, 1]  # the classifier of the last one
    left = {row["expires_at"] - row["enqueued_at"] for row in rows}
    assert max(left) < timedelta(seconds=60)  # the time to live goes on

    await database.write("delete from relevo.message")
    await send(database, definitions, "q5", messages[0])
    while await arrivals.accept():
        pass
    assert await places() == [("q1", 2, 1)]
    row = await database.fetchrow("select dead, hops from relevo.message")
    assert row is not None
    assert json.loads(row["dead"])["reason"] == "MaxTransferHopCountExceeded"
    assert [type_ for type_, *_ in await events(database)][-1] == "relevo.message.dead_lettered"


@pytest.mark.parametrize("fault", ["dropped", "disabled", "full"])
async def test_a_destination_that_takes_nothing_leaves_the_message_at_its_source(
    database: Database, entities: Entities, definitions: Definitions, fault: str
) -> None:
    # M24
    last = await entities.create("last", "queue", {"max_size_bytes": 2**20})
    await entities.create("q", "queue", {"forward_to": "last"})
    if fault == "dropped":
        await entities.drop("last")
    elif fault == "disabled":
        await entities.update("last", {"status": "disabled"})
    else:
        await database.write(
            "insert into relevo.message_count (entity_id, sub_queue, class, bytes)"
            " values ($1, 0, 2, $2)",
            last.id,
            2**20,
        )
    await send(database, definitions, "q", Message(b"x"))
    row = await database.fetchrow("select sub_queue, dead from relevo.message")
    assert row is not None
    assert (row["sub_queue"], json.loads(row["dead"])["reason"]) == (2, "TransferFailed")
    assert await database.fetchval("select count(*) from relevo.message_arrival") == 0


async def test_what_a_rule_fails_for_goes_where_dead_letters_are_forwarded(
    database: Database, entities: Entities, definitions: Definitions, arrivals: Arrivals
) -> None:
    await entities.create("dead", "queue", {})
    await entities.create("t", "topic", {})
    await entities.create(
        "t/subscriptions/s",
        "subscription",
        {"forward_dead_lettered_to": "dead"},
        rules={"r": "1 / n = 1"},
    )
    await send(database, definitions, "t", Message(b"x", properties={"n": 0}, ttl=60))
    await arrivals.accept()
    row = await database.fetchrow(
        """select e.path, m.sub_queue, m.dead, m.expires_at from relevo.message m
           join relevo.message_entity e on e.id = m.entity_id"""
    )
    assert row is not None
    assert (row["path"], row["sub_queue"], row["expires_at"]) == ("dead", 0, None)
    assert json.loads(row["dead"])["source"] == "t/subscriptions/s"


async def test_an_arrival_is_not_lost_while_its_queue_is_full_or_changes(
    database: Database, entities: Entities, definitions: Definitions
) -> None:
    record = await entities.create("q", "queue", {"max_size_bytes": 2**20})
    await database.write(
        "insert into relevo.message_count (entity_id, sub_queue, class, bytes)"
        " values ($1, 0, 2, $2)",
        record.id,
        2**20,
    )
    await database.fetchval("select relevo.arrive_messages('{q}', '{a}', '{0}', '{x}')")
    accept = "select relevo.accept_plain_arrivals(array[$1::integer])"
    async with database.transaction() as tx:
        await tx.execute(SQL.lock_entities, [record.id])
        assert await database.fetchval(accept, record.id) == 0
    rows = await database.write(accept, record.id)
    assert rows[0][0] == 1
    assert await database.fetchval("select count(*) from relevo.message") == 1
