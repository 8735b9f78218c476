"""What becomes of held messages: every row of the table of states, and the locks."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.kernel.backoff import Backoff
from relevo.messaging.core import times
from relevo.messaging.states import GONE, LOCKED, RELOCKED, SETTLEMENTS, next_state, refusal
from tests.messaging.storage.rows import EntityRow, Rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import asyncpg

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio
RETURNING = ("abandon", "release", "suspend")


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
        kept, real = await rows.counts()
        assert kept == real  # M29


async def locked(rows: Rows, entity: EntityRow, state: str = LOCKED, **options: Any) -> Any:
    """A message in the state `locked` or `relocked`, as its claim answered it."""
    await rows.send(entity, **options)
    (message,) = await rows.claim(entity)
    if state == RELOCKED:
        await rows.settle("defer", message)
        (message,) = await rows.deferred(entity, message["sequence"])
    return message


async def dead(rows: Rows, sequence: int) -> Any:
    row = await rows.row(sequence)
    assert row is not None
    return json.loads(row["dead"])


@pytest.mark.parametrize("state", [LOCKED, RELOCKED])
@pytest.mark.parametrize("event", [one for one in SETTLEMENTS if one != "renew"])
async def test_the_holder_of_a_lock_settles_as_the_table_says(
    rows: Rows, event: str, state: str
) -> None:  # M5
    entity = await rows.entity()
    message = await locked(rows, entity, state)
    before = await rows.row(message["sequence"])
    assert await rows.settle(event, message, checkpoint=b"half") == [message["sequence"]]
    assert await rows.state(message["sequence"]) == next_state(state, event)
    after = await rows.row(message["sequence"])
    if event in RETURNING:  # it goes back to its own place
        assert before is not None
        assert after is not None
        for field in ("sequence", "rank", "enqueued_at", "class"):
            assert after[field] == before[field]
        assert after["delivery_count"] == (event == "abandon")
        assert after["preempt_count"] == (event == "suspend")
        assert after["token"] is after["locked_until"] is after["locked_at"] is None


@pytest.mark.parametrize("event", SETTLEMENTS)
async def test_without_the_lock_nothing_happens(rows: Rows, event: str) -> None:  # M2, M3
    entity = await rows.entity()
    active, deferred = (await rows.send(entity))[0], await locked(rows, entity)
    taken = await locked(rows, entity)
    await rows.settle("defer", deferred)
    gone = await locked(rows, entity)
    await rows.settle("complete", gone)
    wrong = {"sequence": taken["sequence"], "token": taken["token"] + 100}
    never = {"sequence": active, "token": taken["token"]}
    for message in (wrong, never, deferred, gone):
        state = await rows.state(message["sequence"])
        row = await rows.row(message["sequence"])
        assert refusal(event, state) is not None
        assert await rows.settle(event, message, remember=True) == []
        assert await rows.row(message["sequence"]) == row


@pytest.mark.parametrize("event", SETTLEMENTS)
async def test_an_expired_lock_is_lost_even_before_anybody_notices(rows: Rows, event: str) -> None:
    entity = await rows.entity(lock_seconds=30.0)
    message = await locked(rows, entity)
    await rows.advance(31)
    assert await rows.settle(event, message, remember=True) == []
    assert await rows.state(message["sequence"]) == LOCKED
    assert await rows.db.fetchval("select relevo.recover_messages()") == [entity.id]  # T9
    row = await rows.row(message["sequence"])
    assert row is not None
    assert (row["state"], row["delivery_count"]) == (0, 1)
    (again,) = await rows.claim(entity)
    assert await rows.settle(event, message, remember=True) == []  # replaced by another lock
    assert await rows.settle("complete", again) == [again["sequence"]]


async def test_the_same_settlement_again_succeeds_for_a_minute(rows: Rows) -> None:
    entity = await rows.entity()
    message = await locked(rows, entity)
    number = [message["sequence"]]
    assert await rows.settle("complete", message, remember=True) == number
    assert await rows.settle("complete", message, remember=True) == number
    assert await rows.settle("abandon", message, remember=True) == []  # not the same
    assert await rows.settle("complete", message) == []  # hosts look for themselves
    other = {"sequence": message["sequence"], "token": message["token"] + 1}
    assert await rows.settle("complete", other, remember=True) == []
    await rows.advance(61)
    assert await rows.settle("complete", message, remember=True) == []


async def test_of_two_settlements_in_one_statement_only_that_with_the_lock_counts(
    rows: Rows,
) -> None:
    entity = await rows.entity()
    old = await locked(rows, entity)
    await rows.settle("abandon", old)
    (new,) = await rows.claim(entity)
    both = ([old["sequence"]] * 2, [old["token"], new["token"]], ["dead_letter", "release"])
    await rows.db.fetchval("select relevo.settle_messages($1, $2, $3)", *both)
    assert await rows.state(old["sequence"]) == "active"


async def test_many_messages_are_settled_in_one_statement(rows: Rows) -> None:
    entity = await rows.entity()
    await rows.send(entity, 6)
    messages = await rows.claim(entity, 6)
    numbers = [one["sequence"] for one in messages]
    events = ["complete", "abandon", "defer", "dead_letter", "release", "renew"]
    good = await rows.db.fetchval(
        "select relevo.settle_messages($1, $2, $3)", numbers, [1] * 6, events
    )
    assert sorted(good) == numbers
    states = [await rows.state(number) for number in numbers]
    assert states == [GONE, "active", "deferred", "dead_lettered", "active", "locked"]


@pytest.mark.parametrize("delay", ["delay", "until", "backoff"])
async def test_an_abandoned_message_waits_for_its_time(rows: Rows, delay: str) -> None:
    backoff = Backoff(first=60.0, factor=2.0, longest=100.0, jitter=(1.0, 1.0))
    entity = await rows.entity(**backoff_columns(backoff if delay == "backoff" else None))
    message = await locked(rows, entity)
    given: dict[str, dict[str, Any]] = {
        "delay": {"delay": 60.0}, "until": {"until": await rows.now() + timedelta(seconds=60)},
        "backoff": {},
    }  # fmt: skip
    await rows.settle("abandon", message, **given[delay])
    later = (await rows.send(entity))[0]
    assert [row["sequence"] for row in await rows.claim(entity, 5)] == [later]
    await rows.advance(61)
    assert await rows.db.fetchval("select relevo.make_messages_due()") == [entity.id]
    (again,) = await rows.claim(entity, 5)
    assert (again["sequence"], again["delivery_count"]) == (message["sequence"], 1)


async def test_the_back_off_grows_up_to_its_longest(rows: Rows) -> None:
    backoff = Backoff(first=10.0, factor=3.0, longest=50.0, jitter=(1.0, 1.0))
    entity = await rows.entity(**backoff_columns(backoff))
    (number,) = await rows.send(entity)
    waits = []
    for _ in range(4):
        (message,) = await rows.claim(entity)
        now = await rows.now()
        await rows.settle("abandon", message)
        row = await rows.row(number)
        assert row is not None
        waits.append(round((row["visible_at"] - now).total_seconds()))
        await rows.advance(60)
        await rows.db.fetchval("select relevo.make_messages_due()")
    assert waits == [10, 30, 50, 50]
    (message,) = await rows.claim(entity)
    await rows.settle("abandon", message, delay=0.0)  # what the receiver says goes first
    assert len(await rows.claim(entity)) == 1


def backoff_columns(backoff: Backoff | None) -> dict[str, Any]:
    if backoff is None:
        return {}
    return {
        "backoff_first": backoff.first, "backoff_factor": backoff.factor,
        "backoff_longest": backoff.longest, "backoff_low": backoff.jitter[0],
        "backoff_high": backoff.jitter[1],
    }  # fmt: skip


@pytest.mark.parametrize("how", ["abandon", "lose_lock"])
async def test_a_message_is_delivered_as_often_as_it_may_be(rows: Rows, how: str) -> None:  # M4
    entity = await rows.entity(max_delivery_count=3)
    (number,) = await rows.send(entity)
    for delivery in range(3):
        (message,) = await rows.claim(entity)
        assert message["delivery_count"] == delivery
        if how == "abandon":
            await rows.settle("abandon", message, delay=60.0 if delivery == 2 else None)
        else:
            await rows.advance(61)
            await rows.db.fetchval("select relevo.recover_messages()")
    assert await rows.state(number) == "dead_lettered"
    assert await dead(rows, number) == {
        "reason": times.EXHAUSTED, "source": "queue",
        "description": "The message was delivered 3 times, which is as often as it may be.",
    }  # fmt: skip
    assert await rows.claim(entity, 9) == []
    assert len(await rows.claim(entity, 9, sub_queue=1)) == 1


@pytest.mark.parametrize("keeps", [False, True])
async def test_a_failed_delivery_expires_before_it_counts(rows: Rows, keeps: bool) -> None:
    entity = await rows.entity(max_delivery_count=1, dead_letter_expired=keeps)
    message = await locked(rows, entity, ttl=30.0)
    await rows.advance(31)
    await rows.settle("abandon", message)
    assert await rows.state(message["sequence"]) == ("dead_lettered" if keeps else GONE)
    if keeps:
        reason = {"reason": times.EXPIRED, "description": times.EXPIRED_TEXT, "source": "queue"}
        assert await dead(rows, message["sequence"]) == reason


async def test_an_expired_message_can_be_completed_while_it_is_locked(rows: Rows) -> None:
    entity = await rows.entity()
    message = await locked(rows, entity, ttl=30.0)
    await rows.advance(31)
    assert await rows.db.fetchval("select relevo.expire_messages()") == 0  # M16
    assert await rows.settle("complete", message) == [message["sequence"]]


async def test_a_deferred_message_does_not_expire(rows: Rows) -> None:
    entity = await rows.entity(dead_letter_expired=True)
    message = await locked(rows, entity, ttl=30.0)
    await rows.settle("defer", message)
    await rows.advance(31)
    assert await rows.db.fetchval("select relevo.expire_messages()") == 0
    (again,) = await rows.deferred(entity, message["sequence"])
    await rows.settle("abandon", again)
    assert await rows.state(message["sequence"]) == "deferred"


async def test_only_deferred_messages_are_received_by_number(rows: Rows) -> None:
    entity, other = await rows.entity(), await rows.entity("other")
    message = await locked(rows, entity)
    (active,) = await rows.send(entity)
    assert await rows.deferred(entity, message["sequence"]) == []
    assert await rows.deferred(entity, active) == []
    await rows.settle("defer", message)
    assert await rows.deferred(other, message["sequence"]) == []
    assert await rows.deferred(entity, message["sequence"], active) == []  # all or none
    assert await rows.claim(entity, 9, delete=True) != []
    (again,) = await rows.deferred(entity, message["sequence"])
    assert again["token"] != message["token"]
    assert await rows.deferred(entity, message["sequence"]) == []
    assert await rows.settle("complete", message) == []
    assert await rows.settle("complete", again) == [message["sequence"]]


async def test_received_and_deleted_messages_are_gone(rows: Rows) -> None:  # T6
    entity = await rows.entity()
    await rows.send(entity, 3)
    messages = await rows.claim(entity, 2, delete=True)
    assert [await rows.state(one["sequence"]) for one in messages] == [GONE, GONE]


async def test_a_lock_is_renewed_up_to_its_greatest_age(rows: Rows) -> None:
    entity = await rows.entity(lock_seconds=600.0, max_lock_age=1_000.0)
    message = await locked(rows, entity)
    await rows.advance(500)
    assert await rows.settle("renew", message) == [message["sequence"]]
    row = await rows.row(message["sequence"])
    assert row is not None
    assert row["locked_until"] - row["locked_at"] == timedelta(seconds=1_000)
    await rows.advance(400)
    assert await rows.settle("renew", message) == [message["sequence"]]
    await rows.advance(101)
    assert await rows.settle("renew", message) == []


async def test_dead_letters_are_settled_like_others(rows: Rows) -> None:
    entity = await rows.entity(max_delivery_count=1)
    message = await locked(rows, entity)
    await rows.settle("dead_letter", message, reason="bad", description="very bad")
    number = message["sequence"]
    source = {"reason": "bad", "description": "very bad", "source": "queue"}
    assert await dead(rows, number) == source
    for event in ("abandon", "release", "defer"):  # in a dead-letter queue nothing counts
        (message,) = await rows.claim(entity, sub_queue=1)
        assert message["dead"] is not None
        assert await rows.settle("dead_letter", message) == [-number]  # not again
        assert await rows.settle(event, message) == [number]
        row = await rows.row(number)
        assert row is not None
        assert (row["sub_queue"], row["delivery_count"]) == (1, 0)
    (message,) = await rows.deferred(entity, number, sub_queue=1)
    assert await rows.settle("complete", message) == [number]


async def test_dead_letters_have_a_time_to_live_of_their_own(rows: Rows) -> None:
    entity = await rows.entity(dead_letter_ttl=120.0, dead_letter_expired=True)
    message = await locked(rows, entity, ttl=30.0)
    await rows.settle("dead_letter", message)
    await rows.advance(60)
    assert await rows.db.fetchval("select relevo.expire_messages()") == 0
    await rows.advance(61)
    assert await rows.claim(entity, sub_queue=1) == []
    assert await rows.db.fetchval("select relevo.expire_messages()") == 1
    assert await rows.state(message["sequence"]) == GONE


async def test_dead_letters_are_forwarded_where_the_entity_says(rows: Rows) -> None:  # M24
    entity = await rows.entity(forward_dead_to="Graves")
    graves = await rows.entity("graves")
    message = await locked(rows, entity, ttl=30.0)
    await rows.settle("dead_letter", message, reason="bad")
    assert await rows.state(message["sequence"]) == GONE
    (arrival,) = await arrivals(rows)
    assert (arrival["entity_id"], arrival["hops"]) == (graves.id, 1)
    assert arrival["enqueued_sequence"] == message["sequence"]
    assert arrival["expires_at"] is arrival["ttl"] is None  # it takes that of the destination
    assert json.loads(arrival["dead"]) == {"reason": "bad", "source": "queue"}


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("TransferFailed", "update relevo.message_entity set status = 'disabled' where id = $1"),
        ("TransferFailed", "delete from relevo.message_entity where id = $1"),
        ("MaxTransferHopCountExceeded", "update relevo.message set hops = 4 where $1 > 0"),
    ],
)
async def test_what_cannot_be_forwarded_stays_in_the_transfer_dead_letters(
    rows: Rows, reason: str, change: str
) -> None:
    entity = await rows.entity(forward_dead_to="graves")
    graves = await rows.entity("graves")
    message = await locked(rows, entity)
    await rows.db.execute(change, graves.id)
    await rows.settle("dead_letter", message, reason="bad")
    assert await arrivals(rows) == []
    assert (await dead(rows, message["sequence"]))["reason"] == reason
    assert len(await rows.claim(entity, sub_queue=2)) == 1


async def test_dead_lettering_is_in_the_event_log(rows: Rows) -> None:
    entity, quiet = await rows.entity(), await rows.entity("quiet", events="none")
    for one in (entity, quiet):
        await rows.settle("dead_letter", await locked(rows, one), reason="bad")
    found = await rows.db.fetch("select * from relevo.event where type like 'relevo.message.%'")
    assert [row["type"] for row in found] == ["relevo.message.dead_lettered"]


async def test_locks_are_settled_in_every_status_of_the_entity(rows: Rows) -> None:  # M30
    entity = await rows.entity()
    await rows.send(entity, 2)
    (message,) = await rows.claim(entity)
    await rows.db.execute("update relevo.message_entity set status = 'disabled'")
    assert await rows.claim(entity) == []
    assert await rows.settle("complete", message) == [message["sequence"]]
    await rows.db.execute("update relevo.message_entity set status = 'send_disabled'")
    assert len(await rows.claim(entity)) == 1


async def arrivals(rows: Rows) -> list[asyncpg.Record]:
    found: list[asyncpg.Record] = await rows.db.fetch(
        "select * from relevo.message_arrival order by id"
    )
    return found
