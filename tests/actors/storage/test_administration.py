"""Lists, quarantine, what is forgotten, placement groups and declared types."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo import limits
from relevo.actors.core.deltas import RecordedCall, StoredActor
from relevo.actors.core.identity import slot_of
from relevo.actors.storing.commits import CommitConflict
from relevo.actors.storing.placement_groups import DeclaredType
from relevo.actors.storing.stored_actors import TOMBSTONE_SECONDS, TRIM_ROWS
from relevo.errors import SettingsMismatch
from relevo.kernel.leases import Fence
from tests.actors.storage.slots import GROUP, SLOTS, table

if TYPE_CHECKING:
    from relevo.actors.storing.storage import ActorStorage
    from relevo.kernel.postgres import Database
    from relevo.testing.clock import Clock
    from tests.actors.storage.slots import Slots

pytestmark = pytest.mark.anyio
ALICE = "account/s:alice"


async def test_actors_of_a_type_are_listed_in_order_with_their_hosts(
    storage: ActorStorage, slots: Slots, clock: Clock
) -> None:
    others = [slots.delta("x", 0, actor=f"{name}/s:x") for name in ("accounts", "account.b", "b")]
    mine = [slots.delta(key, 0, document=b"1") for key in ("c", "a", "ä", "b")]
    await asyncio.gather(*map(storage.commit, (*others, *mine)))
    page = await storage.actors.list("account", limit=2)
    assert ([one.id for one in page.items], page.more) == (["account/s:a", "account/s:b"], True)
    rest = await storage.actors.list("account", after=page.items[-1].id)
    assert [one.id for one in rest.items] == ["account/s:c", "account/s:ä"]
    assert {one.host for one in rest.items} == {"first"}
    assert {(one.revision, one.incarnation) for one in rest.items} == {(1, 0)}
    await clock.advance(3_600, hosts_lapse=True)
    assert {one.host for one in (await storage.actors.list("account")).items} == {None}


async def test_a_quarantined_state_stays_until_somebody_decides(  # I26
    storage: ActorStorage, slots: Slots
) -> None:
    await storage.commit(slots.delta("alice", 0, document=b"bad", schema=3))
    slot = slot_of(ALICE, SLOTS)
    fence = Fence(slots.leases[slot], slots.epochs[slot], GROUP, str(slot))

    async def quarantine() -> None:
        await storage.actors.quarantine(ALICE, fence, "cannot be decoded")

    await quarantine()
    assert await storage.load(ALICE) == StoredActor(1, 0, b"bad", 3, "cannot be decoded")
    [listed] = (await storage.actors.quarantined()).items
    assert (listed.id, listed.quarantine_error, listed.bytes) == (ALICE, "cannot be decoded", 3)
    assert (await storage.actors.quarantined(after=ALICE)).items == []
    assert await storage.actors.retry(ALICE)
    assert await storage.load(ALICE) == StoredActor(1, 0, b"bad", 3)  # its activation goes on
    assert not await storage.actors.reset(ALICE)  # only in quarantine
    await quarantine()
    assert await storage.actors.replace(ALICE, b"good", 4)
    assert await storage.load(ALICE) == StoredActor(2, 0, b"good", 4)
    await quarantine()
    assert await storage.actors.reset(ALICE)
    assert await storage.load(ALICE) == StoredActor(3)
    with pytest.raises(CommitConflict):  # of an activation that knows the old state
        await storage.commit(slots.delta("alice", 2, document=b"old"))


async def test_recorded_calls_and_tombstones_are_forgotten_in_time(
    storage: ActorStorage, slots: Slots, database: Database, clock: Clock
) -> None:
    calls = tuple(RecordedCall(f"c{n}", "pay", b"", b"") for n in range(TRIM_ROWS + 1))
    await storage.commit(slots.delta("alice", 0, recorded=calls))
    await storage.commit(slots.delta("bob", 0, document=b"1"))
    await storage.commit(slots.delta("bob", 1, deleted=True))
    assert await storage.actors.trim() == 0
    await clock.advance(limits.ACTOR_CALL_ID_HOURS * 3_600 + 1)
    young = RecordedCall("c0", "pay", b"d", b"again")
    await storage.commit(slots.delta("alice", 1, recorded=(young,)))
    [duty] = storage.actors.duties()
    assert await duty.work() == TRIM_ROWS
    assert await storage.recorded(ALICE, "c0") == young
    assert await storage.recorded(ALICE, "c1") is None
    assert (await storage.load("account/s:bob")).incarnation == 1
    await clock.advance(TOMBSTONE_SECONDS)
    await storage.actors.trim()
    assert await storage.load("account/s:bob") == StoredActor()
    assert await table(database, "actor", "id, revision") == [(ALICE, 2)]


async def test_the_slots_of_a_group_are_fixed_by_the_first_host(
    storage: ActorStorage, database: Database
) -> None:
    async def join(name: str, slots: int) -> None:
        work = storage.groups.bootstrap(name, slots)
        await database.run(lambda tx: work(tx, 1))

    assert await storage.groups.slots("disk") is None
    await asyncio.gather(*(join("disk", 256) for _ in range(3)))
    assert await storage.groups.slots("disk") == 256
    with pytest.raises(SettingsMismatch, match="has 256 slots"):
        await join("disk", 128)
    rest = limits.ACTOR_SLOTS_MAX - 256
    done = await asyncio.gather(join("a", rest), join("b", rest), return_exceptions=True)
    assert [type(one) for one in done].count(SettingsMismatch) == 1
    with pytest.raises(SettingsMismatch, match=f"{limits.ACTOR_SLOTS_MAX} already"):
        await join("c", 1)
    assert await storage.groups.slots("c") is None


async def test_types_are_declared_and_read(storage: ActorStorage, database: Database) -> None:
    types = [
        DeclaredType("account", GROUP, "durable", {"deposit": {"digest": "ab"}}),
        DeclaredType("cache", GROUP, "stateless", {}),
    ]
    await storage.groups.declare([])
    await storage.groups.declare(types[::-1])
    assert await storage.groups.declared() == types
    before = await table(database, "actor_type", "name, xmin::text")
    await storage.groups.declare(types)
    assert await table(database, "actor_type", "name, xmin::text") == before
    changed = DeclaredType("cache", "disk", "volatile", {})
    await storage.groups.declare([changed])
    assert await storage.groups.declared() == [types[0], changed]
