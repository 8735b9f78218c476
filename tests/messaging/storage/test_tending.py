"""Duties of the leader, sessions, and what operators do with waiting messages."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.messaging.model import Aging, Strict, Weighted
from relevo.messaging.operating.describing import WAIT_BOUNDS
from relevo.messaging.states import GONE
from tests.messaging.storage.rows import EntityRow, Rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture
async def rows(url: str) -> AsyncIterator[Rows]:
    async with AsyncExitStack() as stack:
        rows = await Rows.open(url)
        stack.push_async_callback(rows.db.close)
        await rows.clear()
        yield rows
        for _ in range(2):  # before and after they are added up; M29
            kept, real = await rows.counts()
            assert kept == real
            await rows.db.execute("select relevo.fold_message_counts()")
        assert await rows.db.fetchval("select count(*) from relevo.message_delta") == 0


def numbers(found: Any) -> list[int]:
    return [row["sequence"] for row in found]


# Recovery, due times, expiry, forgetting.


async def test_messages_of_an_ended_host_are_delivered_again(rows: Rows) -> None:
    entity = await rows.entity()
    await rows.send(entity, 4)
    lives, ends = await rows.host(), await rows.host()
    kept, lost = await rows.claim(entity, 2, host=lives), await rows.claim(entity, 2, host=ends)
    await rows.advance(100_000)  # locks of hosts have no end
    assert await rows.db.fetchval("select relevo.recover_messages()") == []
    await rows.end_host(ends)
    assert await rows.db.fetchval("select relevo.recover_messages(1)") == [entity.id]  # in parts
    assert await rows.db.fetchval("select relevo.recover_messages(1)") == [entity.id]
    assert await rows.db.fetchval("select relevo.recover_messages(1)") == []
    assert await rows.settle("complete", *lost) == []
    assert len(await rows.settle("complete", *kept)) == 2
    again = await rows.claim(entity, 9)
    assert numbers(again) == numbers(lost)
    assert [row["delivery_count"] for row in again] == [1, 1]


async def test_a_host_whose_row_is_gone_has_ended(rows: Rows) -> None:
    entity = await rows.entity()
    await rows.send(entity)
    host = await rows.host()
    await rows.claim(entity, host=host)
    await rows.db.execute("delete from relevo.host")
    assert await rows.db.fetchval("select relevo.lost_hosts()") == [host]
    assert await rows.db.fetchval("select relevo.recover_messages()") == [entity.id]


async def test_scheduled_messages_arrive_when_they_are_due(rows: Rows) -> None:  # M19
    entity = await rows.entity("queue", Aging())
    now = await rows.now()
    (late,) = await rows.send(entity, due=now + timedelta(seconds=90), ttl=60.0)
    (soon,) = await rows.send(entity, due=now + timedelta(seconds=30))
    (before,) = await rows.send(entity)
    assert await rows.state(soon) == "scheduled"
    assert numbers(await rows.claim(entity, 9)) == [before]
    assert await rows.db.fetchval("select relevo.make_messages_due()") == []
    await rows.advance(100)
    (sent,) = await rows.send(entity)
    assert await rows.db.fetchval("select relevo.make_messages_due()") == [entity.id]
    assert await rows.state(soon) == await rows.state(late) == GONE  # they have new numbers
    claimed = await rows.claim(entity, 9)
    assert numbers(claimed)[0] == sent
    assert numbers(claimed) == sorted(numbers(claimed))
    first, second = claimed[1:]
    assert first["expires_at"] is None
    assert second["expires_at"] - second["enqueued_at"] == timedelta(seconds=60)


@pytest.mark.parametrize("policy", [Strict(), Weighted()])
async def test_scheduled_messages_of_fair_queues_get_their_tags_when_due(
    rows: Rows, policy: Any
) -> None:
    entity = await rows.entity("queue", policy, fair=True)
    due = await rows.now() + timedelta(seconds=30)
    for key in ("acme", "acme", "acme", "zeta"):
        await rows.send(entity, due=due, key=key)
    await rows.advance(31)
    await rows.db.fetchval("select relevo.make_messages_due()")
    keys = [row["fairness_key"] for row in await rows.claim(entity, 9)]
    assert keys.index("zeta") <= 1


@pytest.mark.parametrize("forwards", [False, True])
async def test_due_messages_of_topics_and_forwarding_queues_become_arrivals(
    rows: Rows, forwards: bool
) -> None:
    kind = "queue" if forwards else "topic"
    entity = await rows.entity("source", kind=kind, forward_to="other" if forwards else None)
    due = await rows.now() + timedelta(seconds=30)
    await rows.send(entity, 2, due=due, ttl=60.0)
    await rows.advance(31)
    assert await rows.db.fetchval("select relevo.make_messages_due()") == [entity.id]
    found = await rows.db.fetch("select * from relevo.message_arrival")
    assert [(row["entity_id"], row["ttl"]) for row in found] == [(entity.id, 60.0)] * 2
    assert await rows.db.fetchval("select count(*) from relevo.message") == 0


@pytest.mark.parametrize("keeps", [False, True])
async def test_waiting_messages_expire(rows: Rows, keeps: bool) -> None:  # M16
    entity = await rows.entity(dead_letter_expired=keeps)
    (old,) = await rows.send(entity, ttl=30.0)
    (hidden,) = await rows.send(entity, ttl=30.0)
    await rows.settle("abandon", (await rows.claim(entity, 2))[1], delay=600.0)
    (fresh,) = await rows.send(entity, ttl=600.0)
    await rows.db.execute("update relevo.message set state = 0, token = null where state = 1")
    await rows.db.execute("update relevo.message_delta set locked = 0, active = 0 where sent = 0")
    await rows.db.execute("update relevo.message set locked_until = null")
    await rows.advance(31)
    assert numbers(await rows.claim(entity, 9)) == [fresh]  # nothing is delivered too late
    assert await rows.db.fetchval("select relevo.expire_messages(1)") == 1
    assert await rows.db.fetchval("select relevo.expire_messages()") == 1
    assert await rows.db.fetchval("select relevo.expire_messages()") == 0
    assert await rows.state(old) == await rows.state(hidden) == ("dead_lettered" if keeps else GONE)
    events = await rows.db.fetchval("select count(*) from relevo.event")
    assert events == (2 if keeps else 0)


async def test_what_is_over_is_forgotten(rows: Rows) -> None:
    entity = await rows.entity("queue", Strict(), fair=True, duplicate_window=30.0)
    sessions = await rows.entity("sessions", has_sessions=True)
    await rows.send(entity, 3, key="acme")
    await rows.send(entity, 1, key="zeta")
    messages = await rows.claim(entity, 9)
    await rows.settle("complete", *messages, remember=True)
    await rows.send(sessions, session="a")
    (held,) = await rows.db.fetch("select * from relevo.accept_session($1)", sessions.id)
    for message in await session_messages(rows, held):
        await rows.settle("complete", message)
    await rows.db.fetchval("select relevo.close_session($1, $2)", held["session"], held["holder"])
    tables = ("message_seen", "message_settled", "message_session", "message_fairness")
    for table in tables:
        assert await rows.db.fetchval(f"select count(*) from relevo.{table}") > 0
    await rows.db.execute("select relevo.forget_messages()")
    assert await rows.db.fetchval("select count(*) from relevo.message_settled") == 1
    await rows.advance(400)
    await rows.db.execute("select relevo.forget_messages()")
    for table in tables:
        assert await rows.db.fetchval(f"select count(*) from relevo.{table}") == 0


async def test_each_first_delivery_counts_its_wait_once(rows: Rows) -> None:
    entity = await rows.entity()
    for count in (3, 1):
        await rows.send(entity, count)
        await rows.advance(timedelta(days=1).total_seconds())
        held = await rows.claim(entity, 2)
        await rows.settle("release", *held)
        await rows.claim(entity, 9)
        await rows.db.execute("select relevo.fold_message_counts()")
    [waits] = await rows.db.fetch("select class, bucket, amount from relevo.message_wait")
    assert tuple(waits) == (entity.number("normal"), len(WAIT_BOUNDS), 4)
    assert await rows.db.fetchval("select count(*) from relevo.message_wait_delta") == 0


# Sessions.


async def accept(rows: Rows, entity: EntityRow, key: str | None = None, host: Any = None) -> Any:
    return await rows.db.fetchrow(
        "select * from relevo.accept_session($1, $2, $3)", entity.id, key, host
    )


async def session_messages(rows: Rows, held: Any, wanted: int = 9, delete: bool = False) -> Any:
    return await rows.db.fetch(
        "select * from relevo.receive_from_session($1, $2, $3, 77, $4)",
        held["session"], held["holder"], wanted, delete,
    )  # fmt: skip


async def close(rows: Rows, held: Any, *, lost: bool = False) -> bool:
    found: bool = await rows.db.fetchval(
        "select relevo.close_session($1, $2, $3)", held["session"], held["holder"], lost
    )
    return found


async def test_a_session_is_received_in_the_order_of_its_numbers(rows: Rows) -> None:  # M20
    entity = await rows.entity("queue", Strict(), has_sessions=True)
    first = (await rows.send(entity, session="a", of="low", priority=0))[0]
    second = (await rows.send(entity, session="a", of="high", priority=9))[0]
    third = (await rows.send(entity, session="a"))[0]
    assert await rows.claim(entity, 9) == []  # only by sessions
    held = await accept(rows, entity)
    assert held["key"] == "a"
    assert numbers(await session_messages(rows, held, 1)) == [first]
    messages = await session_messages(rows, held)
    assert numbers(messages) == [second, third]
    assert {row["session_id"] for row in messages} == {"a"}
    assert {row["locked_until"] for row in messages} == {held["locked_until"]}
    await rows.settle("abandon", messages[0])
    (again,) = await session_messages(rows, held)
    assert (again["sequence"], again["delivery_count"]) == (second, 1)
    assert len(await rows.settle("complete", again, messages[1])) == 2
    assert await session_messages(rows, held) == []


async def test_the_next_session_is_that_with_the_best_head(rows: Rows) -> None:
    entity = await rows.entity("queue", Strict(), has_sessions=True)
    await rows.send(entity, session="low", of="low", priority=1)
    await rows.send(entity, session="low", of="high", priority=9)  # behind the other
    await rows.send(entity, session="high", of="high", priority=7)
    await rows.send(entity, session="normal")
    keys = [(await accept(rows, entity))["key"] for _ in range(3)]
    assert keys == ["high", "normal", "low"]
    assert await accept(rows, entity) is None


async def test_a_session_has_one_holder(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True)
    await rows.send(entity, session="a")
    first = await accept(rows, entity, "a")
    assert await accept(rows, entity, "a") is None
    assert await accept(rows, entity) is None
    await rows.send(entity, session="a")
    assert await accept(rows, entity) is None  # also not for what came later
    assert await close(rows, first)
    second = await accept(rows, entity)
    assert second["holder"] > first["holder"]
    assert [row["kind"] for row in await session_messages(rows, first)] == ["lost"]
    assert not await close(rows, first)
    assert len(await session_messages(rows, second)) == 2


async def test_an_empty_session_can_be_accepted_by_its_key(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True)
    held = await accept(rows, entity, "new")
    assert await session_messages(rows, held) == []
    (number,) = await rows.send(entity, session="new")
    assert numbers(await session_messages(rows, held, delete=True)) == [number]


@pytest.mark.parametrize(("lost", "count"), [(False, 0), (True, 1)])
async def test_unsettled_messages_of_a_closed_session(
    rows: Rows, lost: bool, count: int
) -> None:  # M5
    entity = await rows.entity(has_sessions=True)
    sent = await rows.send(entity, 3, session="a")
    held = await accept(rows, entity)
    message = (await session_messages(rows, held, 2))[0]
    assert await close(rows, held, lost=lost)
    assert await rows.settle("complete", message) == []
    states = await rows.db.fetch("select state from relevo.message order by sequence")
    assert [row["state"] for row in states] == [0, 6, 6]
    again = await session_messages(rows, await accept(rows, entity))
    assert numbers(again) == sent
    assert [row["delivery_count"] for row in again] == [count, count, 0]


async def test_a_session_lock_expires_unless_it_is_renewed(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True, lock_seconds=60.0)
    sent = await rows.send(entity, 2, session="a")
    held = await accept(rows, entity)
    (message,) = await session_messages(rows, held, 1)
    await rows.advance(50)
    renew = "select locked_until from relevo.renew_session($1, $2)"
    until = await rows.db.fetchval(renew, held["session"], held["holder"])
    assert until > held["locked_until"]
    await rows.advance(50)
    assert await rows.db.fetchval("select relevo.recover_messages()") == []
    assert await rows.settle("renew", message) == [sent[0]]
    await rows.advance(61)
    assert await rows.settle("complete", message) == []
    assert await rows.db.fetch(renew, held["session"], held["holder"]) == []
    assert await rows.db.fetchval("select relevo.recover_messages()") == [entity.id]
    again = await session_messages(rows, await accept(rows, entity))
    assert [(row["sequence"], row["delivery_count"]) for row in again] == [
        (sent[0], 1), (sent[1], 0),
    ]  # fmt: skip


async def test_an_expired_session_can_be_accepted_before_anybody_notices(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True)
    await rows.send(entity, session="a")
    await session_messages(rows, await accept(rows, entity))
    await rows.advance(61)
    (again,) = await session_messages(rows, await accept(rows, entity, "a"))
    assert again["delivery_count"] == 1


async def test_sessions_of_an_ended_host_are_free(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True)
    (number,) = await rows.send(entity, session="a")
    host = await rows.host()
    held = await accept(rows, entity, host=host)
    assert held["locked_until"] is None
    (message,) = await session_messages(rows, held)
    await rows.advance(100_000)
    assert await rows.db.fetchval("select relevo.recover_messages()") == []
    await rows.end_host(host)
    assert [row["kind"] for row in await session_messages(rows, held)] == ["lost"]
    assert await rows.db.fetchval("select relevo.recover_messages()") == [entity.id]
    assert await rows.settle("complete", message) == []
    (again,) = await session_messages(rows, await accept(rows, entity))
    assert (again["sequence"], again["delivery_count"]) == (number, 1)


async def test_a_session_waits_for_its_invisible_head(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True)
    sent = await rows.send(entity, 2, session="a")
    held = await accept(rows, entity)
    (message,) = await session_messages(rows, held, 1)
    await rows.settle("abandon", message, delay=30.0)
    assert await session_messages(rows, held) == []
    assert await close(rows, held)
    assert await accept(rows, entity) is None
    await rows.advance(31)
    assert await rows.db.fetchval("select relevo.make_messages_due()") == [entity.id]
    assert numbers(await session_messages(rows, await accept(rows, entity))) == sent


async def test_the_next_message_of_a_session_is_head_when_the_first_expires(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True, dead_letter_expired=True)
    await rows.send(entity, session="a", ttl=30.0)
    (second,) = await rows.send(entity, session="a")
    await rows.advance(31)
    assert await rows.db.fetchval("select relevo.expire_messages()") == 1
    assert numbers(await session_messages(rows, await accept(rows, entity))) == [second]


async def test_scheduled_messages_join_their_session_when_they_are_due(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True)
    due = await rows.now() + timedelta(seconds=30)
    await rows.send(entity, 2, session="a", due=due)
    assert await accept(rows, entity) is None
    await rows.advance(31)
    await rows.db.fetchval("select relevo.make_messages_due()")
    states = await rows.db.fetch("select state from relevo.message order by sequence")
    assert [row["state"] for row in states] == [0, 6]
    assert len(await session_messages(rows, await accept(rows, entity))) == 2


async def test_deferred_messages_of_a_session_are_for_its_holder(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True)
    (number,) = await rows.send(entity, session="a")
    held = await accept(rows, entity)
    await rows.settle("defer", *await session_messages(rows, held))
    assert await rows.deferred(entity, number) == []
    by_holder = "select * from relevo.receive_deferred($1, 0::smallint, $2, 5, false, $3, $4)"
    arguments = (entity.id, [number], held["session"], held["holder"])
    (message,) = await rows.db.fetch(by_holder, *arguments)
    assert message["session_id"] == "a"
    await close(rows, held)
    assert await rows.state(number) == "deferred"
    assert await rows.db.fetch(by_holder, *arguments) == []


async def test_no_message_is_forgotten_when_senders_and_holders_meet(rows: Rows, url: str) -> None:
    """Each message that is sent while its session is accepted, expired or closed is delivered."""
    entity = await rows.entity(has_sessions=True)
    received: list[int] = []
    async with AsyncExitStack() as stack:
        clients = [await Rows.open(url) for _ in range(4)]
        for one in clients:
            stack.push_async_callback(one.db.close)

        async def send(client: Rows) -> list[int]:
            sent = []
            for n in range(30):
                sent += await client.send(entity, session="ab"[n % 2])
            return sent

        async def receive(client: Rows) -> None:
            for _ in range(40):
                held = await accept(client, entity)
                if held is not None:
                    messages = await session_messages(client, held, 3)
                    received.extend(numbers(await client.settled(messages)))
                    await close(client, held)

        sent, _, _, more = await asyncio.gather(
            send(clients[0]), receive(clients[1]), receive(clients[2]), send(clients[3])
        )
    while (held := await accept(rows, entity)) is not None:
        messages = await session_messages(rows, held)
        received.extend(numbers(await rows.settled(messages)))
        await close(rows, held)
    assert sorted(received) == sorted(sent + more)  # M1, M20
    assert await rows.db.fetchval("select count(*) from relevo.message") == 0


async def test_a_session_keeps_its_state(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True)
    set_state = "select relevo.set_session_state($1, $2, $3)"
    held = await accept(rows, entity, "a")
    old = (held["session"], held["holder"])
    assert await rows.db.fetchval(set_state, *old, b"half done")
    await close(rows, held)
    await rows.advance(400)
    await rows.db.execute("select relevo.forget_messages()")  # not what has state
    new = await accept(rows, entity, "a")
    assert not await rows.db.fetchval(set_state, *old, b"")
    (found,) = await rows.db.fetch("select * from relevo.message_session")
    assert (found["id"], found["state"]) == (new["session"], b"half done")
    assert await rows.db.fetchval(set_state, new["session"], new["holder"], None)


# What operators do.


async def test_redriven_messages_arrive_anew(rows: Rows) -> None:  # M31
    entity = await rows.entity("queue", Aging(), max_delivery_count=1, ttl=500.0)
    other = await rows.entity("other", max_delivery_count=1)
    for one in (entity, entity, entity, other):
        await rows.send(one, ttl=60.0)
        await rows.settle("abandon", *await rows.claim(one))
    (locked,) = await rows.claim(entity, sub_queue=1)
    redrive = "select relevo.redrive_messages($1, 1::smallint, $2, $3)"
    assert await rows.db.fetchval(redrive, entity.id, [locked["sequence"]], 10) == []
    found = await rows.db.fetchval(redrive, entity.id, None, 1)
    found += await rows.db.fetchval(redrive, entity.id, None, 10)
    messages = await rows.claim(entity, 9)
    assert numbers(messages) == found
    assert len(found) == 2
    for message in messages:
        assert message["sequence"] > locked["sequence"]
        assert (message["delivery_count"], message["dead"]) == (0, None)
        assert json.loads(message["head"])["properties"] == {"RelevoRedriven": 1}
        assert message["expires_at"] - message["enqueued_at"] == timedelta(seconds=500)
    await rows.settle("dead_letter", messages[0])
    await rows.db.fetchval(redrive, entity.id, None, 10)
    (again,) = await rows.claim(entity, 9)
    assert json.loads(again["head"])["properties"] == {"RelevoRedriven": 2}
    assert len(await rows.claim(other, 9, sub_queue=1)) == 1


async def test_redriven_messages_join_their_session(rows: Rows) -> None:
    entity = await rows.entity(has_sessions=True)
    (number,) = await rows.send(entity, session="a")
    await rows.db.execute("""update relevo.message set head = '{"session_id": "a"}'""")
    held = await accept(rows, entity)
    await rows.settle("dead_letter", *await session_messages(rows, held))
    await close(rows, held)
    (waiting,) = await rows.send(entity, session="a")
    redrive = "select relevo.redrive_messages($1, 1::smallint, $2)"
    (new,) = await rows.db.fetchval(redrive, entity.id, [number])
    assert numbers(await session_messages(rows, await accept(rows, entity))) == [waiting, new]


async def test_purging_passes_over_what_is_locked(rows: Rows) -> None:
    entity = await rows.entity()
    await rows.send(entity, 2)
    (locked,) = await rows.claim(entity)
    await rows.send(entity, due=await rows.now() + timedelta(seconds=600))
    await rows.advance(10)
    before = await rows.now()
    await rows.advance(10)
    (late,) = await rows.send(entity)
    purge = "select relevo.purge_messages($1, 0::smallint, $2, $3)"
    assert await rows.db.fetchval(purge, entity.id, before, 1) == 1
    assert await rows.db.fetchval(purge, entity.id, before, 10) == 1
    assert await rows.db.fetchval(purge, entity.id, before, 10) == 0
    left = await rows.db.fetch("select sequence from relevo.message order by 1")
    assert numbers(left) == [locked["sequence"], late]


async def test_only_scheduled_messages_are_canceled(rows: Rows) -> None:  # M19
    entity = await rows.entity()
    due = await rows.now() + timedelta(seconds=600)
    scheduled = await rows.send(entity, 2, due=due)
    (active,) = await rows.send(entity)
    cancel = "select relevo.cancel_scheduled($1, $2)"
    assert await rows.db.fetchval(cancel, entity.id + 1, scheduled) == []
    assert await rows.db.fetchval(cancel, entity.id, [*scheduled, active, 999]) == scheduled
    assert await rows.db.fetchval(cancel, entity.id, scheduled) == []
    assert await rows.state(active) == "active"


@pytest.mark.parametrize("policy", [Strict(), Aging(), Weighted()])
async def test_reprioritized_messages_stand_where_they_would_have_been(
    rows: Rows, policy: Any
) -> None:
    entity = await rows.entity("queue", policy)
    sent = await rows.send(entity, 4, of="low", priority=1)
    (held,) = await rows.claim(entity)
    high = entity.number("high")
    change = "select relevo.reprioritize_messages($1, $2, $3::smallint, 9::smallint)"
    given = [held["sequence"], sent[3], 999]
    assert await rows.db.fetchval(change, entity.id, given, high) == [held["sequence"], sent[3]]
    assert numbers(await rows.claim(entity, 9)) == [sent[3], *sent[1:3]]
    await rows.settle("release", held)
    (again,) = await rows.claim(entity, 9)
    assert (again["class"], again["priority"]) == (high, 9)
    assert again["enqueued_at"] == held["enqueued_at"]


async def test_a_reprioritized_message_of_a_fair_queue_gets_a_tag_of_its_class(rows: Rows) -> None:
    entity = await rows.entity("queue", Strict(), fair=True)
    await rows.send(entity, 3, of="high", priority=8, key="acme")
    (number,) = await rows.send(entity, of="low", priority=1, key="zeta")
    change = "select relevo.reprioritize_messages($1, $2, $3::smallint, 8::smallint)"
    await rows.db.fetchval(change, entity.id, [number], entity.number("high"))
    assert number in numbers(await rows.claim(entity, 2))
