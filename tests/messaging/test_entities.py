"""Queues, topics and subscriptions: created, changed and dropped, each change whole."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.errors import (
    ConditionNotMet,
    Conflict,
    EntityExists,
    InvalidExpression,
    InvalidValue,
    NotFound,
    QuotaExceeded,
)
from relevo.kernel.backoff import Backoff
from relevo.messaging import (
    Aging,
    CorrelationRule,
    Deadline,
    Fifo,
    Message,
    PriorityClass,
    SqlRule,
)

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.messaging.definitions import Definitions
    from relevo.messaging.entities import Entities
    from relevo.messaging.model import EntityKind
    from relevo.testing import Clock

from tests.messaging.sends import events, send

pytestmark = pytest.mark.anyio
HALF = PriorityClass(name="a", priorities=(0, 5), base=3)


async def columns(database: Database, path: str) -> dict[str, Any]:
    row = await database.fetchrow("select * from relevo.message_entity where key = lower($1)", path)
    assert row is not None
    return dict(row)


async def classes(database: Database, path: str) -> dict[str, Any]:
    rows = await database.fetch(
        "select c.* from relevo.message_class c join relevo.message_entity e on e.id = c.entity_id"
        " where e.key = lower($1) order by c.number",
        path,
    )
    return {row["name"]: dict(row) for row in rows}


async def test_an_entity_is_created_once_and_found_by_any_spelling(
    database: Database, entities: Entities
) -> None:
    made = await entities.create("Shop/Orders", "queue", {"lock_duration": timedelta(seconds=5)})
    assert (made.kind, made.name, made.path, made.version) == (
        "queue", "Shop/Orders", "Shop/Orders", 1,
    )  # fmt: skip
    assert await entities.get("shop/orders") == made
    assert made.properties.lock_duration == 5
    with pytest.raises(EntityExists, match="'Shop/Orders' already"):
        await entities.create("SHOP/orders", "topic", {})
    with pytest.raises(NotFound, match="create it first"):
        await entities.get("shop")
    data = {"entity": "Shop/Orders", "kind": "queue"}
    assert await events(database) == [("relevo.queue.created", "queue/Shop/Orders", 1, data)]


async def test_columns_follow_from_the_properties(database: Database, entities: Entities) -> None:
    await entities.create("last", "queue", {})
    given = {
        "ordering": Aging(seconds_per_level=2, floor_share=0.25),
        "default_message_ttl": 60,
        "requires_duplicate_detection": True,
        "abandon_backoff": Backoff(first=1, factor=3, longest=9, jitter=(0.8, 1.2)),
        "forward_dead_lettered_to": "last",
        "max_size_bytes": 2**21,
        "events": "all",
    }
    await entities.create("q", "queue", given)
    row = await columns(database, "q")
    wanted = {
        "is_plain": True, "policy": "aging", "rank_by_time": True, "rank_step": 2_000_000,
        "floor_patience": 3, "fair": False, "has_sessions": False, "lock_seconds": 60,
        "max_delivery_count": 10, "ttl": 60, "duplicate_window": 600, "forward_dead_to": "last",
        "forward_to": None, "backoff_first": 1, "backoff_factor": 3, "backoff_longest": 9,
        "backoff_low": 0.8, "backoff_high": 1.2, "max_bytes": 2**21, "events": "all",
        "status": "active", "idle_seconds": None,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert (await entities.get("q")).properties.abandon_backoff == given["abandon_backoff"]

    await entities.create("t", "topic", {})
    await entities.create("t/subscriptions/s", "subscription", {"forward_to": "last"})
    assert not (await columns(database, "t"))["is_plain"]
    row = await columns(database, "t/subscriptions/s")
    assert (row["is_plain"], row["max_bytes"], row["forward_to"]) == (False, None, "last")
    assert row["duplicate_window"] is None


async def test_numbers_of_classes_stay_with_their_names(
    database: Database, entities: Entities, definitions: Definitions
) -> None:
    await entities.create("q", "queue", {})
    await send(database, definitions, "q", Message(b"", priority=9))
    before = await classes(database, "q")
    assert [(one["number"], one["tier"]) for one in before.values()] == [(1, 0), (2, 1), (3, 1)]
    new = [
        PriorityClass(name="urgent", priorities=(7, 9), base=9, express=True),
        PriorityClass(name="NORMAL", priorities=(0, 6), base=3),
    ]
    await entities.update("q", {"classes": new})
    after = await classes(database, "q")
    assert {name: (one["number"], one["retired"]) for name, one in after.items()} == {
        "high": (1, True), "NORMAL": (2, False), "low": (3, True), "urgent": (4, False),
    }  # fmt: skip
    assert await database.fetchval("select class from relevo.message") == 1  # M32
    # The retired class is express under a policy that has tiers, and again after another one.
    await entities.update("q", {"ordering": Fifo()})
    assert (await classes(database, "q"))["high"]["tier"] == 0
    await entities.update("q", {"ordering": Deadline(otherwise=7)})
    offsets = {name: one["rank_offset"] for name, one in (await classes(database, "q")).items()}
    assert offsets == {
        "high": 10_000_000, "NORMAL": 7_000_000, "low": 7_000_000, "urgent": 7_000_000,
    }  # fmt: skip
    await entities.update("q", {"ordering": Aging(), "classes": new})
    assert (await classes(database, "q"))["high"]["tier"] == 0
    definitions.forget("q")
    assert (await definitions.of("q")).numbers == {"urgent": 4, "normal": 2}


async def test_ensure_returns_what_agrees_and_names_what_does_not(entities: Entities) -> None:
    made = await entities.ensure("q", "queue", {"max_delivery_count": 3})
    assert await entities.ensure("Q", "queue", {"max_delivery_count": 3}) == made
    assert await entities.ensure("q", "queue", {}) == made
    with pytest.raises(Conflict, match=r"max_delivery_count of 'q' is 3, not 4; .*update"):
        await entities.ensure("q", "queue", {"max_delivery_count": 4})
    with pytest.raises(Conflict, match="'q' is a queue, not a topic"):
        await entities.ensure("q", "topic", {})
    await entities.create("t", "topic", {})
    rules: Any = {"r": "n = 1", "c": CorrelationRule(subject="order", properties={"a": 1.0})}
    made = await entities.ensure("t/subscriptions/s", "subscription", {}, rules=rules)
    assert await entities.ensure("t/subscriptions/s", "subscription", {}, rules=rules) == made
    assert await entities.ensure("t/subscriptions/s", "subscription", {}) == made
    with pytest.raises(Conflict, match="the rules of 't/subscriptions/s' are"):
        await entities.ensure("t/subscriptions/s", "subscription", {}, rules={"r": "n = 2"})
    found = await asyncio.gather(*(entities.ensure("race", "queue", {}) for _ in range(8)))
    assert len({one.id for one in found}) == 1


async def test_a_change_needs_the_version_it_names(entities: Entities, database: Database) -> None:
    await entities.create("q", "queue", {})
    changed = await entities.update("q", {"lock_duration": 5}, version=1)
    assert (changed.version, changed.properties.lock_duration) == (2, 5)
    assert changed.updated_at > changed.created_at
    assert await entities.get("q") == changed
    with pytest.raises(ConditionNotMet, match="version 2, not 1"):
        await entities.update("q", {"lock_duration": 6}, version=1)
    assert (await entities.get("q")).properties.lock_duration == 5
    assert [(type_, version) for type_, _, version, _ in await events(database)] == [
        ("relevo.queue.created", 1), ("relevo.queue.changed", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "kind", "given", "error"),
    [
        ("bad name", "queue", {}, InvalidValue),
        ("a/subscriptions/b", "queue", {}, InvalidValue),
        ("a", "subscription", {}, InvalidValue),
        ("q/$DeadLetterQueue", "queue", {}, InvalidValue),
        ("x" * 261, "queue", {}, InvalidValue),
        ("missing/subscriptions/s", "subscription", {}, NotFound),
        ("other/subscriptions/s", "subscription", {}, Conflict),
        ("q", "queue", {"lock_duration": 0}, InvalidValue),
        ("q", "queue", {"colour": "red"}, InvalidValue),
        ("q", "queue", {"forward_to": "nowhere"}, InvalidValue),
        ("q", "queue", {"forward_to": "Q"}, InvalidValue),
        ("q", "queue", {"forward_dead_lettered_to": "q"}, InvalidValue),
        ("q", "queue", {"forward_dead_lettered_to": "nowhere"}, InvalidValue),
        ("q", "queue", {"forward_to": "other", "requires_session": True}, InvalidValue),
        ("q", "queue", {"fair": True}, InvalidValue),
        ("q", "queue", {"classifier": [("tier =", "high")]}, InvalidExpression),
        ("q", "queue", {"classifier": [("TRUE", "none")]}, InvalidValue),
        (
            "q",
            "queue",
            {"classes": [PriorityClass(name="a", priorities=(0, 5), base=3)]},
            InvalidValue,
        ),
    ],
)
async def test_bad_definitions_are_refused_and_store_nothing(
    database: Database,
    entities: Entities,
    path: str,
    kind: EntityKind,
    given: dict[str, Any],
    error: type[Exception],
) -> None:
    await entities.create("other", "queue", {})
    with pytest.raises(error):
        await entities.create(path, kind, given)
    assert await database.fetchval("select count(*) from relevo.message_entity") == 1
    assert len(await events(database)) == 1


async def test_a_circle_of_forwards_is_refused(entities: Entities) -> None:
    for name in ("c", "b", "a"):
        await entities.create(name, "queue", {})
    await entities.update("a", {"forward_to": "b"})
    await entities.update("b", {"forward_to": "C"})
    with pytest.raises(InvalidValue, match="circle: c -> a -> b -> c"):
        await entities.update("c", {"forward_to": "a"})
    await entities.drop("c")
    changed = await entities.update("b", {"lock_duration": 7})  # its destination is no concern now
    assert changed.properties.forward_to == "C"


async def test_rules_come_and_go_with_versions(entities: Entities, database: Database) -> None:
    await entities.create("T", "topic", {})
    made = await entities.create("t/Subscriptions/S", "subscription", {})
    path = "T/subscriptions/S"
    assert (made.path, made.name) == (path, "S")
    assert await entities.rules(path) == {"$Default": SqlRule("TRUE")}
    await entities.set_rule(path, "Big", SqlRule("n > 100", "SET size = 'big'"))
    await entities.set_rule(path, "big", SqlRule("n > 1000"))
    await entities.remove_rule(path, "$default")
    assert await entities.rules(path) == {"big": SqlRule("n > 1000")}
    assert ((await entities.get("t")).version, (await entities.get(path)).version) == (5, 4)
    with pytest.raises(NotFound, match="has no rule 'other'"):
        await entities.remove_rule(path, "other")
    bad: list[tuple[Any, type[Exception]]] = [
        ("n >", InvalidExpression), (SqlRule("TRUE", "SET n"), InvalidExpression),
        (CorrelationRule(), InvalidValue), (5, InvalidValue), ("x" * 2_000, InvalidExpression),
    ]  # fmt: skip
    for rule, error in bad:
        with pytest.raises(error):
            await entities.set_rule(path, "bad", rule)
        with pytest.raises(error):
            await entities.create("t/subscriptions/x", "subscription", {}, rules={"bad": rule})
    with pytest.raises(InvalidValue, match="no name of a rule"):
        await entities.set_rule(path, "$other", "TRUE")
    with pytest.raises(InvalidValue, match="two rules have the same name"):
        await entities.create(
            "t/subscriptions/x", "subscription", {}, rules={"a": "TRUE", "A": "TRUE"}
        )
    with pytest.raises(InvalidValue, match="a topic has no rules"):
        await entities.create("t2", "topic", {}, rules={"a": "TRUE"})
    with pytest.raises(InvalidValue, match="no path of a subscription"):
        await entities.rules("t")
    assert (await entities.get("t")).version == 5
    assert [one.path for one in await entities.list("subscription", topic="t")] == [path]


async def test_a_subscription_and_its_topic_are_made_in_one_transaction(
    database: Database, entities: Entities
) -> None:
    class Stop(Exception):
        pass

    async def make() -> None:
        async with database.transaction() as tx:
            await entities.create("t", "topic", {}, tx=tx)
            await entities.create("t/subscriptions/s", "subscription", {}, tx=tx)
            raise Stop

    with pytest.raises(Stop):
        await make()
    assert await database.fetchval("select count(*) from relevo.message_entity") == 0
    assert await events(database) == []


async def test_lists_are_by_path_and_in_pages(entities: Entities) -> None:
    for name in ("b", "A", "c", "d"):
        await entities.create(name, "queue", {})
    await entities.create("t", "topic", {})
    for topic, name in (("t", "x"), ("t", "y")):
        await entities.create(f"{topic}/subscriptions/{name}", "subscription", {})
    first = await entities.list("queue", limit=2)
    assert [one.path for one in first] == ["A", "b"]
    assert [one.path for one in await entities.list("queue", after="B")] == ["c", "d"]
    assert [one.name for one in await entities.list("subscription", topic="T")] == ["x", "y"]
    assert await entities.list("subscription", topic="none") == []
    with pytest.raises(InvalidValue):
        await entities.list("queue", limit=0)


async def test_there_are_bounds_for_entities_subscriptions_and_rules(
    database: Database, entities: Entities
) -> None:
    await entities.create("q", "queue", {})
    await entities.create("t", "topic", {})
    made = await entities.create("t/subscriptions/s", "subscription", {})

    async def add(prefix: str, topic_id: int | None, count: int) -> None:
        await database.write(
            """insert into relevo.message_entity (topic_id, kind, name, path, key, properties,
                 status, is_plain, policy, rank_by_time, rank_step, fair, has_sessions,
                 lock_seconds, max_delivery_count, dead_letter_expired, events)
               select $2, 'queue', $1 || n, $1 || n, $1 || n, '{}', 'active', false, 'fifo',
                 false, 0, false, false, 60, 10, false, 'none' from generate_series(1, $3) as n""",
            prefix, topic_id, count,
        )  # fmt: skip

    await database.write(
        """insert into relevo.message_rule (entity_id, name, key, rule)
           select $1, 'r' || n, 'r' || n, '{"type":"sql","filter":"TRUE"}'
           from generate_series(2, $2) as n""",
        made.id, limits.MESSAGE_SQL_RULES_MAX,
    )  # fmt: skip
    with pytest.raises(QuotaExceeded, match="2001 sql rules"):
        await entities.set_rule("t/subscriptions/s", "more", "TRUE")
    await entities.set_rule("t/subscriptions/s", "r2", "FALSE")
    await entities.set_rule("t/subscriptions/s", "more", CorrelationRule(subject="a"))
    with pytest.raises(QuotaExceeded, match="2001 sql rules"):
        await entities.create("t/subscriptions/x", "subscription", {})
    topic = await entities.get("t")
    await add("s", topic.id, limits.MESSAGE_SUBSCRIPTIONS_MAX - 1)
    with pytest.raises(QuotaExceeded, match="'t' has 2000 subscriptions"):
        await entities.create("t/subscriptions/x", "subscription", {})
    left = limits.MESSAGE_ENTITIES_MAX - limits.MESSAGE_SUBSCRIPTIONS_MAX - 2
    await add("e", None, left)
    with pytest.raises(QuotaExceeded, match="10000 queues, topics and subscriptions"):
        await entities.create("more", "queue", {})


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
    for name in ("idle", "sent", "received", "served", "forever"):
        given = {} if name == "forever" else {"auto_delete_on_idle": timedelta(minutes=5)}
        await entities.create(name, "queue", given)
    await clock.advance(timedelta(minutes=4))
    assert await entities.drop_idle() == 0
    await send(database, definitions, "sent", Message(b""))
    await database.write("select * from relevo.receive_messages('{received}', '{0}', 1, 1, null)")
    await database.write(
        """insert into relevo.message_consumers (name, definition, sources)
           select 'c', '{}', array[e.id] from relevo.message_entity e where e.key = 'served'"""
    )
    await clock.advance(timedelta(minutes=2))
    assert await entities.drop_idle() == 1
    assert await entities.drop_idle() == 0
    left = [one.path for one in await entities.list("queue")]
    assert left == ["forever", "received", "sent", "served"]
    assert (await events(database))[-1][:2] == ("relevo.queue.deleted", "queue/idle")
