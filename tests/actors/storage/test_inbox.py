"""What is due in the slots of a host, and what becomes of failed attempts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from relevo.actors.core.deltas import ReminderChange, StoredActor
from relevo.actors.core.identity import slot_of
from relevo.actors.storing.commits import TOPIC, CommitConflict
from relevo.errors import LeaseLost
from relevo.kernel.leases import Fence
from tests.actors.storage.slots import GROUP, SLOTS, message, table

if TYPE_CHECKING:
    from collections.abc import Collection

    from relevo.actors.storing.inbox import Due
    from relevo.actors.storing.storage import ActorStorage
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.testing.clock import Clock
    from tests.actors.storage.slots import Slots

pytestmark = pytest.mark.anyio
PAST = datetime(2020, 1, 1, tzinfo=UTC)


async def due(storage: ActorStorage, busy: Collection[str] = (), limit: int = 100) -> Due:
    return await storage.inbox.due([GROUP] * SLOTS, range(SLOTS), limit, busy)


async def bodies(storage: ActorStorage, busy: Collection[str] = (), limit: int = 100) -> set[bytes]:
    return {one.body for one in (await due(storage, busy, limit)).messages}


def fence_of(slots: Slots, actor: str) -> Fence:
    slot = slot_of(actor, SLOTS)
    return Fence(slots.leases[slot], slots.epochs[slot], GROUP, str(slot))


async def test_messages_of_a_pair_come_one_after_the_other(  # I23, I29
    storage: ActorStorage, slots: Slots
) -> None:
    sent = [message("bob", b"a%d" % n, sender="alice", headers={"n": str(n)}) for n in range(3)]
    await storage.commit(slots.delta("alice", 0, messages=tuple(sent)))
    await storage.commit(slots.delta("carol", 0, messages=(message("bob", b"c", sender="carol"),)))
    await storage.sending.send([message("bob", b"o1"), message("bob", b"o2"), message("dan", b"d")])
    assert await bodies(storage) == {b"a0", b"c", b"o1", b"d"}
    assert await bodies(storage, busy=["account/s:bob"]) == {b"d"}
    assert len(await bodies(storage, limit=2)) == 2
    assert (await due(storage, limit=0)).messages == []
    assert (await storage.inbox.due([], [], 10)).messages == []
    first = next(one for one in (await due(storage)).messages if one.body == b"a0")
    assert (first.headers, first.attempt, first.sender) == ({"n": "0"}, 0, "account/s:alice")
    await storage.commit(slots.delta("bob", 0, handled_message=first.number))
    assert await bodies(storage) == {b"a1", b"c", b"o1", b"d"}
    with pytest.raises(CommitConflict):  # it was read again before it was removed
        await storage.commit(slots.delta("bob", 1, document=b"x", handled_message=first.number))
    assert await storage.load("account/s:bob") == StoredActor(1)


async def test_a_failed_message_holds_up_its_pair_until_it_is_dead(
    storage: ActorStorage, slots: Slots, clock: Clock
) -> None:
    sent = [message("bob", b"%d" % n, sender="alice") for n in range(2)]
    await storage.commit(slots.delta("alice", 0, messages=tuple(sent)))
    [first] = (await due(storage)).messages
    fence = fence_of(slots, "account/s:bob")
    assert await storage.inbox.next_due([GROUP] * SLOTS, range(SLOTS)) is None
    assert await storage.inbox.retry_message(first, fence, "boom", 10.0)
    assert not await storage.inbox.retry_message(first, fence, "boom", 10.0)  # a repeat
    assert await bodies(storage) == set()
    assert await storage.inbox.next_due([GROUP] * SLOTS, range(SLOTS)) == pytest.approx(10.0, abs=5)
    await clock.advance(11)
    assert await storage.inbox.next_due([GROUP] * SLOTS, range(SLOTS)) is None
    [again] = (await due(storage)).messages
    assert (again.number, again.attempt) == (first.number, 1)
    assert await storage.inbox.bury_message(again, fence, "boom again")
    assert await bodies(storage) == {b"1"}
    [dead] = (await storage.dead_letters.messages()).items
    assert (dead.number, dead.attempt, dead.error) == (first.number, 2, "boom again")
    assert await storage.dead_letters.redrive_message(dead.number)
    assert not await storage.dead_letters.redrive_message(dead.number)
    [again] = (await due(storage)).messages
    assert (again.number, again.attempt) == (first.number, 0)
    assert not await storage.dead_letters.discard_message(first.number)  # it is not dead any more


async def test_a_dead_message_stops_its_pair_if_it_says_so(
    storage: ActorStorage, slots: Slots
) -> None:
    sent = [message("bob", b"%d" % n, sender="alice", on_dead="block") for n in range(2)]
    await storage.commit(slots.delta("alice", 0, messages=tuple(sent)))
    await storage.sending.send([message("bob", b"other")])
    first = next(one for one in (await due(storage)).messages if one.sender)
    await storage.inbox.bury_message(first, fence_of(slots, "account/s:bob"), "boom")
    assert await bodies(storage) == {b"other"}
    page = await storage.dead_letters.messages(receiver="account/s:bob", limit=1)
    assert [one.number for one in page.items] == [first.number]
    assert (await storage.dead_letters.messages(receiver="account/s:dan")).items == []
    assert (await storage.dead_letters.messages(after=first.number)).items == []
    assert await storage.dead_letters.discard_message(first.number)
    assert await bodies(storage) == {b"other", b"1"}


async def test_a_reminder_is_due_until_its_turn_is_committed(  # I34, I35
    storage: ActorStorage, slots: Slots, clock: Clock
) -> None:
    now = datetime.now(UTC)
    reminders = (
        ReminderChange("late", PAST, "on_late", b"s", b"p"),
        ReminderChange("soon", now + timedelta(seconds=60), "on_soon"),
    )
    await storage.commit(slots.delta("alice", 0, reminders=reminders))
    [late] = (await due(storage)).reminders
    assert (late.actor, late.name, late.method, late.due) == (
        "account/s:alice", "late", "on_late", PAST
    )  # fmt: skip
    assert (late.schedule, late.payload, late.attempt) == (b"s", b"p", 0)
    assert (await due(storage, busy=["account/s:alice"])).reminders == []
    assert await storage.inbox.next_due([GROUP] * SLOTS, range(SLOTS)) == pytest.approx(60, abs=30)
    await clock.advance(100)
    assert [one.name for one in (await due(storage)).reminders] == ["late", "soon"]
    handled = slots.delta(
        "alice", 1, document=b"1", handled_reminder=("late", PAST),
        reminders=(ReminderChange("late", now + timedelta(days=1), "on_late"),),
    )  # fmt: skip
    await storage.commit(handled)
    assert [one.name for one in (await due(storage)).reminders] == ["soon"]
    again = slots.delta("alice", 2, document=b"2", handled_reminder=("late", PAST))
    with pytest.raises(CommitConflict):
        await storage.commit(again)
    assert (await storage.load("account/s:alice")).document == b"1"


async def test_a_failed_reminder_is_retried_and_buried(
    storage: ActorStorage, slots: Slots, clock: Clock
) -> None:
    await storage.commit(
        slots.delta("alice", 0, reminders=(ReminderChange("bill", PAST, "on_bill"),))
    )
    fence = fence_of(slots, "account/s:alice")
    [first] = (await due(storage)).reminders
    assert await storage.inbox.retry_reminder(first, fence, "boom", 10.0)
    assert not await storage.inbox.retry_reminder(first, fence, "boom", 10.0)
    assert (await due(storage)).reminders == []
    await clock.advance(11)
    [second] = (await due(storage)).reminders
    assert (second.due, second.attempt) == (PAST, 1)
    assert await storage.inbox.bury_reminder(second, fence, "boom")
    assert (await due(storage)).reminders == []
    with pytest.raises(CommitConflict):
        await storage.commit(slots.delta("alice", 1, handled_reminder=("bill", PAST)))
    [dead] = (await storage.dead_letters.reminders()).items
    assert (dead.actor, dead.name, dead.attempt, dead.error) == (
        "account/s:alice", "bill", 2, "boom"
    )  # fmt: skip
    assert (await storage.dead_letters.reminders(("account/s:alice", "bill"))).items == []
    assert await storage.dead_letters.redrive_reminder("account/s:alice", "bill")
    [again] = (await due(storage)).reminders
    assert again.attempt == 0
    await storage.inbox.bury_reminder(again, fence, "boom")
    assert await storage.dead_letters.discard_reminder("account/s:alice", "bill")
    assert not await storage.dead_letters.discard_reminder("account/s:alice", "bill")


async def test_work_is_dead_after_owners_were_lost_that_had_noted_its_begin(
    storage: ActorStorage, slots: Slots
) -> None:
    await storage.commit(
        slots.delta("alice", 0, reminders=(ReminderChange("bill", PAST, "on_bill"),))
    )
    await storage.sending.send([message("alice", b"m"), message("bob", b"other")])

    async def begin() -> tuple[list[str], list[str]]:
        found, fence = await due(storage), fence_of(slots, "account/s:alice")
        messages = [(one, fence) for one in found.messages if one.body == b"m"]
        begun, dead = await storage.inbox.begin([(found.reminders[0], fence), *messages])
        return [type(one).__name__ for one in begun], [type(one).__name__ for one in dead]

    both = ["DueReminder", "DueMessage"]
    assert await begin() == (both, [])
    assert await begin() == (both, [])  # a repeat: it counts nothing
    await slots.take(range(SLOTS), await slots.host("after a move"))
    assert await begin() == (both, [])
    assert {one.crashes for one in (await due(storage)).messages if one.body == b"m"} == {0}
    for name in ("second", "third"):
        lost = fence_of(slots, "account/s:alice")
        found = await due(storage)
        await slots.take(range(SLOTS), await slots.host(name), was_lost=True)
        assert await storage.inbox.begin([(found.reminders[0], lost)]) == ([], [])
        if name == "second":
            assert await begin() == (both, [])
    assert await begin() == ([], both)
    assert await bodies(storage) == {b"other"}
    [letter] = (await storage.dead_letters.messages()).items
    assert letter.error == "at least 2 hosts in a row were lost while it ran"
    await storage.dead_letters.redrive_message(letter.number)
    await storage.dead_letters.redrive_reminder("account/s:alice", "bill")
    assert await begin() == (both, [])


async def test_a_failed_attempt_ended_no_host(storage: ActorStorage, slots: Slots) -> None:
    await storage.sending.send([message("alice")])
    for attempt in range(3):
        fence = fence_of(slots, "account/s:alice")
        found = (await due(storage)).messages
        assert [one.attempt for one in found] == [attempt]
        assert await storage.inbox.begin([(found[0], fence)]) == (found, [])
        assert await storage.inbox.retry_message(found[0], fence, "boom", 0.0)
        await slots.take(range(SLOTS), await slots.host(f"host {attempt}"), was_lost=True)


async def test_only_the_owner_notes_failures(  # I4
    storage: ActorStorage, slots: Slots, database: Database
) -> None:
    await storage.commit(
        slots.delta("alice", 0, document=b"1", reminders=(ReminderChange("bill", PAST, "on_bill"),))
    )
    await storage.sending.send([message("alice")])
    found = await due(storage)
    fence = fence_of(slots, "account/s:alice")
    await slots.take(range(SLOTS), await slots.host("second"))
    attempts = (
        storage.inbox.retry_message(found.messages[0], fence, "boom", 1.0),
        storage.inbox.bury_message(found.messages[0], fence, "boom"),
        storage.inbox.retry_reminder(found.reminders[0], fence, "boom", 1.0),
        storage.inbox.bury_reminder(found.reminders[0], fence, "boom"),
        storage.actors.quarantine("account/s:alice", fence, "boom"),
    )
    for attempt in attempts:
        with pytest.raises(LeaseLost):
            await attempt
    still = await due(storage)
    assert (still.messages, [one.attempt for one in still.reminders]) == (found.messages, [0])
    assert (await storage.load("account/s:alice")).quarantine is None


async def test_messages_wake_the_hosts_of_the_receivers_group(
    storage: ActorStorage, slots: Slots, wakeups: Wakeups
) -> None:
    with wakeups.signal(TOPIC.format(GROUP)) as woken:
        await storage.sending.send([message("bob")])
        assert await woken.wait(10)
        await storage.commit(slots.delta("alice", 0, messages=(message("bob", sender="alice"),)))
        assert await woken.wait(10)


async def test_a_deleted_actor_leaves_a_tombstone_and_its_messages(  # I15
    storage: ActorStorage, slots: Slots, database: Database
) -> None:
    rich = slots.delta(
        "alice", 0, document=b"1", messages=(message("bob", b"sent", sender="alice"),),
        reminders=(ReminderChange("bill", PAST, "on_bill"),),
    )  # fmt: skip
    await storage.commit(rich)
    await storage.sending.send([message("alice", b"waits")])
    await storage.commit(slots.delta("alice", 1, deleted=True))
    assert await storage.load("account/s:alice") == StoredActor(2, 1)
    assert (await due(storage)).reminders == []
    assert await bodies(storage) == {b"sent", b"waits"}
    assert (await storage.actors.list("account")).items == []
    with pytest.raises(CommitConflict):
        await storage.commit(slots.delta("alice", 2, document=b"of the old one"))
    await storage.commit(slots.delta("alice", 2, incarnation=1, document=b"fresh"))
    assert await storage.load("account/s:alice") == StoredActor(3, 1, b"fresh")
    assert await table(database, "actor", "id, deleted_at") == [("account/s:alice", None)]
