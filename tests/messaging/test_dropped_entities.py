"""Dropped entities leave nothing behind; idle ones are dropped."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from relevo.errors import NotFound
from relevo.messaging import Message
from tests.messaging.sends import events, send

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.messaging.definitions import Definitions
    from relevo.messaging.entities import Entities
    from relevo.testing import Clock

pytestmark = pytest.mark.anyio


async def test_a_dropped_entity_leaves_nothing_and_its_name_is_free(
    database: Database, entities: Entities, definitions: Definitions
) -> None:
    await entities.create("keep", "queue", {"requires_duplicate_detection": True})
    await send(database, definitions, "keep", Message(b""))
    given = {"requires_session": True, "requires_duplicate_detection": True}
    first = await entities.create("q", "queue", given)
    await send(database, definitions, "q", *(Message(b"", session_id="s") for _ in range(3)))
    await database.fetchval("select relevo.arrive_messages('{q}', '{a}', '{0}', '{x}')")
    await entities.create("t", "topic", {})
    await entities.create("t/subscriptions/s", "subscription", {})
    await send(database, definitions, "t", Message(b""))
    await entities.drop("Q")
    await entities.drop("t")
    with pytest.raises(NotFound):
        await entities.drop("q")
    for table in ("message", "message_arrival", "message_session", "message_seen"):
        rows = await database.fetch(f"select entity_id from relevo.{table}")
        kept = (await entities.get("keep")).id
        assert {row["entity_id"] for row in rows} <= {kept}
    for table in ("message_class", "message_rule"):
        rows = await database.fetch(f"select distinct entity_id from relevo.{table}")
        assert {row["entity_id"] for row in rows} <= {kept}
    assert await database.fetchval("select count(*) from relevo.message_entity") == 1
    again = await entities.create("q", "queue", {})
    assert again.id != first.id
    assert [subject for type_, subject, *_ in await events(database) if "deleted" in type_] == [
        "queue/q", "topic/t",
    ]  # fmt: skip


async def test_what_arrives_for_a_dropped_entity_is_purged(
    database: Database, entities: Entities
) -> None:
    await entities.create("q", "queue", {})
    async with database.transaction() as tx:
        await tx.fetch("select relevo.arrive_messages('{q}', '{a}', '{0}', '{x}')")
        await entities.drop("q")
    assert await database.fetchval("select count(*) from relevo.message_arrival") == 1
    assert await entities.purge_dropped() == 1
    assert await entities.purge_dropped() == 0


async def test_an_idle_entity_is_dropped_unless_it_is_used(
    database: Database, entities: Entities, definitions: Definitions, clock: Clock
) -> None:
    for name in ("idle", "sent", "received", "forever"):
        given = {} if name == "forever" else {"auto_delete_on_idle": timedelta(minutes=5)}
        await entities.create(name, "queue", given)
    await clock.advance(timedelta(minutes=4))
    assert await entities.drop_idle() == 0
    await send(database, definitions, "sent", Message(b""))
    await database.write("select * from relevo.receive_messages('{received}', '{0}', 1, 1, null)")
    await clock.advance(timedelta(minutes=2))
    assert await entities.drop_idle() == 1
    assert await entities.drop_idle() == 0
    assert [one.path for one in await entities.list("queue")] == ["forever", "received", "sent"]
    assert (await events(database))[-1][:2] == ("relevo.queue.deleted", "queue/idle")
