"""Commits of turns: together or not at all, in order, once, and only by the owner of the slot."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from relevo import settings
from relevo.actors.core.deltas import (
    EntryChange,
    RecordedCall,
    ReminderChange,
    StoredActor,
)
from relevo.actors.core.folding import fold
from relevo.actors.storing.commits import CommitConflict, columns
from relevo.actors.storing.storage import SQL, ActorStorage
from relevo.errors import LeaseLost, OutcomeUnknown
from relevo.kernel.events import EventRow
from relevo.kernel.postgres import Wakeups
from relevo.kernel.postgres.database import Database
from relevo.testing.proxy import Proxy
from tests.actors.storage.slots import SLOTS, message, table

if TYPE_CHECKING:
    from relevo.actors.core.deltas import Delta
    from tests.actors.storage.slots import Slots

pytestmark = pytest.mark.anyio
DUE = datetime(2030, 1, 1, tzinfo=UTC)
ALICE = "account/s:alice"


def rich(slots: Slots, base: int = 0) -> Delta:
    """A turn that changes something of every kind."""
    return slots.delta(
        "alice", base, document=b"state", schema=2,
        entries=(EntryChange("orders", "1", b"one"), EntryChange("orders", "2", b"two")),
        reminders=(ReminderChange("bill", DUE, "on_bill", b"schedule", b"payload"),),
        messages=(message("bob", b"1", sender="alice"), message("bob", b"2", sender="alice")),
        recorded=(RecordedCall("pay-1", "pay", b"digest", b"answer"),),
        logged=(EventRow("relevo.actor.moved", 1, "actor/alice", 4, '{"actor":"alice"}'),),
    )  # fmt: skip


async def everything(database: Database) -> dict[str, list[tuple[object, ...]]]:
    wanted = {
        "actor": "id, revision, incarnation, document, schema, deleted_at is null",
        "actor_entry": "actor, map, key, value",
        "actor_reminder": "actor, name, slot, due, method, schedule, payload, attempt",
        "actor_call": "actor, call_id, method, digest, answer",
        "actor_message": "number, receiver, sender, slot, method, body, attempts, on_dead",
        "event": "lsn, type, subject",
    }
    return {name: await table(database, name, columns) for name, columns in wanted.items()}


async def test_an_actor_that_never_was_has_revision_0(storage: ActorStorage) -> None:
    assert await storage.load("account/s:nobody") == StoredActor()


async def test_a_turn_stores_all_its_changes_together(  # I23
    storage: ActorStorage, slots: Slots, database: Database
) -> None:
    await storage.commit(rich(slots))
    assert await storage.load(ALICE) == StoredActor(1, 0, b"state", 2)
    assert await storage.entry(ALICE, "orders", "2") == b"two"
    assert (await storage.entries(ALICE, "orders", limit=1)).items == [("1", b"one")]
    assert (await storage.entries(ALICE, "orders", after="1")).items == [("2", b"two")]
    assert await storage.recorded(ALICE, "pay-1") == RecordedCall(
        "pay-1", "pay", b"digest", b"answer"
    )
    logged = await table(database, "event", "type, subject")
    assert logged == [("relevo.actor.moved", "actor/alice")]
    sent = await table(database, "actor_message", "number, body, sender")
    assert [row[1:] for row in sent] == [(b"1", ALICE), (b"2", ALICE)]
    await storage.commit(
        slots.delta(
            "alice",
            1,
            entries=(EntryChange("orders", "1", None), EntryChange("orders", "2", b"2")),
            reminders=(ReminderChange("bill", None),),
        )
    )
    assert await storage.load(ALICE) == StoredActor(2, 0, b"state", 2)  # the document is as it was
    assert (await storage.entries(ALICE, "orders")).items == [("2", b"2")]
    assert await table(database, "actor_reminder") == []


async def test_a_stale_slot_writes_nothing_and_the_others_of_the_batch_do(  # I2, I4
    storage: ActorStorage, slots: Slots, database: Database
) -> None:
    old = [slots.delta(slots.key_in(slot), 0, document=b"old") for slot in range(SLOTS)]
    await slots.take([0, 4], await slots.host("second"))  # one lane has 0 and 4
    done = await asyncio.gather(*map(storage.commit, old), return_exceptions=True)
    assert [type(one) for one in done] == [
        LeaseLost if slot in (0, 4) else type(None) for slot in range(SLOTS)
    ]
    written = {row[0] for row in await table(database, "actor", "id, slot")}
    assert written == {old[slot].actor for slot in range(SLOTS) if slot not in (0, 4)}
    await storage.commit(slots.delta(slots.key_in(0), 0, document=b"new"))


async def test_an_ended_owner_writes_nothing(  # I6
    storage: ActorStorage, slots: Slots, database: Database
) -> None:
    await database.write("update relevo.host set lease_until = relevo.now() - interval '1 s'")
    with pytest.raises(LeaseLost):
        await storage.commit(rich(slots))
    assert not any((await everything(database)).values())


async def test_turns_are_stored_in_order_or_refused(
    storage: ActorStorage, slots: Slots
) -> None:  # I22
    turns = [slots.delta("alice", n, document=b"%d" % n) for n in range(20)]
    done = await asyncio.gather(
        *(storage.commit(turn) for turn in (*turns[:5], *turns[6:])), return_exceptions=True
    )
    assert [type(one) for one in done] == [type(None)] * 5 + [CommitConflict] * 14
    assert await storage.load(ALICE) == StoredActor(5, 0, b"4")
    for base in (0, 4, 6):
        with pytest.raises(CommitConflict):
            await storage.commit(slots.delta("alice", base, document=b"?"))
    with pytest.raises(CommitConflict):
        await storage.commit(slots.delta("alice", 5, document=b"?", incarnation=1))
    await asyncio.gather(*map(storage.commit, turns[5:]))
    assert await storage.load(ALICE) == StoredActor(20, 0, b"19")


async def test_data_that_the_database_refuses_fails_its_actor_alone(
    storage: ActorStorage, slots: Slots
) -> None:
    bad = message("bob", method="no\0text")
    turns = [
        slots.delta("alice", 0, document=b"1"),
        slots.delta("alice", 1, document=b"2", messages=(bad,)),
        slots.delta("alice", 2, document=b"3"),
        *(slots.delta(f"k{n}", 0, document=b"x") for n in range(20)),
    ]
    done = await asyncio.gather(*map(storage.commit, turns), return_exceptions=True)
    assert all(done[:3])
    assert not any(done[3:])
    assert await storage.load(ALICE) == StoredActor()


async def test_the_same_batch_again_changes_nothing(slots: Slots, database: Database) -> None:
    turns = [
        rich(slots), slots.delta("alice", 1, document=b"more", messages=(message("carol"),)),
        slots.delta("bob", 0, deleted=True),
        slots.delta("carol", 0, document=b"c"), slots.delta("carol", 1, deleted=True),
        slots.delta("carol", 2, incarnation=1, document=b"fresh"),
    ]  # fmt: skip
    changes, refused = fold(turns)
    assert not refused
    arguments = columns(changes)
    assert await database.write(SQL.commit_turns, 7, *arguments) == []
    once = await everything(database)
    for _ in range(2):
        assert await database.write(SQL.commit_turns, 7, *arguments) == []
        assert await everything(database) == once
    rows = await database.write(SQL.commit_turns, 8, *arguments)  # another batch of the same bases
    assert [row["outcome"] for row in rows] == ["conflict"] * 3
    await slots.take(range(SLOTS), await slots.host("second"))
    assert await database.write(SQL.commit_turns, 7, *arguments) == []  # it is stored, by then
    assert {row["outcome"] for row in await database.write(SQL.commit_turns, 9, *arguments)} == {
        "stale"
    }
    assert await everything(database) == once


@pytest.mark.parametrize("acts", [True, False])
async def test_a_commit_that_was_not_answered_is_repeated_once_it_may(
    slots: Slots, database: Database, relevo_url: str, acts: bool
) -> None:
    with Proxy.to(relevo_url) as proxy:
        told = settings.load({"database_url": proxy.url(relevo_url)}, environ={})
        async with await Database.open(told) as far:
            storage = ActorStorage(far, Wakeups(far), may_act=lambda: acts)
            await storage.load(ALICE)
            proxy.on_bytes("upstream", b"on_bill", proxy.cut_downstream)  # sent, never answered
            commit = asyncio.ensure_future(storage.commit(rich(slots)))
            while not await database.fetchval("select exists (select from relevo.actor)"):
                await asyncio.sleep(0)
            proxy.heal(drop=True)
            if acts:
                await commit
            else:
                with pytest.raises(OutcomeUnknown):
                    await commit
            await storage.close()
    assert len(await table(database, "actor_message")) == 2
    assert await table(database, "actor", "id, revision") == [(ALICE, 1)]


async def test_events_are_logged_with_their_turn_or_not_at_all(  # I23
    storage: ActorStorage, slots: Slots, database: Database
) -> None:
    def turn(key: str, base: int, events: int) -> Delta:
        logged = [
            EventRow("relevo.actor.moved", 1, f"actor/{key}", 4, f'{{"n":{n}}}')
            for n in range(events)
        ]
        return slots.delta(key, base, document=b"x", logged=tuple(logged))

    turns = [turn("alice", 0, 300), turn("alice", 1, 1), turn("bob", 3, 1), turn("eva", 0, 0)]
    done = await asyncio.gather(*map(storage.commit, turns), return_exceptions=True)
    assert [type(one) for one in done] == [type(None), type(None), CommitConflict, type(None)]
    logged = await table(database, "event", "lsn, subject, data ->> 'n'")
    assert [row[1:] for row in logged] == [("actor/alice", str(n)) for n in [*range(300), 0]]
