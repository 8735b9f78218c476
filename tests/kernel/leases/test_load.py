"""Balancing by load and keeping away from hosts, on a real store (change-feed 7.5, 7.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo.errors import Conflict, SettingsMismatch
from relevo.kernel.leases import UnitSettings
from relevo.kernel.leases.model import IDLE, Load
from relevo.kernel.leases.saving import report_loads

if TYPE_CHECKING:
    from relevo import App
    from relevo.kernel.leases import Lease
    from relevo.kernel.postgres import Database
    from tests.kernel.leases.conftest import Fleet

pytestmark = pytest.mark.anyio
BY_LOAD = UnitSettings(strategy="load", handoff_timeout=2.0, rest=0.2)
NAMES = ["000", "001", "002", "003"]


class Fixed:
    """A meter that says what it is told to."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def read(self, _: float) -> Load:
        return self.load


async def settled(fleet: Fleet) -> tuple[App, App]:
    """Two hosts with two leases each."""
    a, b = await fleet.host("a"), await fleet.host("b")
    for app in (a, b):
        await fleet.join(app, 4, settings=BY_LOAD)
    await fleet.until_counts({"a": 2, "b": 2})
    return a, b


async def set_busy(database: Database, name: str, busy: float) -> None:
    await database.write("update relevo.lease set busy = $2, moved_at = null where name = $1",
                         name, busy)  # fmt: skip


async def test_a_used_host_hands_leases_to_an_idle_one(fleet: Fleet, database: Database) -> None:
    await settled(fleet)
    mine = [one.name for one in (await fleet.leases()).values() if one.owner == "a"]
    for name, busy in zip(sorted(mine), (0.7, 0.2), strict=True):
        await set_busy(database, name, busy)
    small = max(mine)

    async def moved() -> bool:
        return (await fleet.leases())[small].owner == "b"

    await fleet.until(moved, "the small one moves; the large one would only swap their places")
    assert await fleet.counts() == {"a": 1, "b": 3}  # counts are not evened where there is load


async def test_two_hot_leases_of_one_host_are_spread(fleet: Fleet, database: Database) -> None:
    await settled(fleet)
    mine = sorted(one.name for one in (await fleet.leases()).values() if one.owner == "a")
    for name in mine:
        await set_busy(database, name, 0.9)

    async def spread() -> bool:
        leases = await fleet.leases()
        return {leases[name].owner for name in mine} == {"a", "b"}

    await fleet.until(spread, "one of the two hot ones moves")
    assert await fleet.counts() == {"a": 1, "b": 3}


async def test_a_strategy_other_than_the_units_is_refused(fleet: Fleet) -> None:  # U3
    await fleet.join(await fleet.host("a"), 1, settings=BY_LOAD)
    equal = UnitSettings(handoff_timeout=2.0, rest=0.2)
    with pytest.raises(SettingsMismatch, match="strategy='load'"):
        await fleet.join(await fleet.host("b"), 1, settings=equal)


async def test_loads_are_stored_when_they_change_and_follow_the_lease(
    fleet: Fleet, database: Database
) -> None:  # P12
    a = await fleet.host("a")
    await fleet.join(a, 2)
    await fleet.until_counts({"a": 2})
    first, second = sorted(
        (one for one in a.leases.held if one.unit == "u"), key=lambda one: one.name
    )

    async def written() -> list[str]:
        rows = await database.fetch("select xmin::text from relevo.lease order by id")
        return [row["xmin"] for row in rows]

    async def report(*leases: Lease) -> None:
        await report_loads(a.database, a.leases.life.incarnation, leases)

    before = await written()
    await report(first, second)
    assert await written() == before  # idle: nothing to say
    first.meter = Fixed(Load(0.5, 12.0, 900.0))  # type: ignore[assignment]
    await report(first, second)
    after = await written()
    assert [old != new for old, new in zip(before, after, strict=True)].count(True) == 1
    await report(first, second)
    assert await written() == after  # nothing new to say
    await fleet.leave("a")
    b = await fleet.host("b")
    await fleet.join(b, 2)
    await fleet.until_counts({"b": 2})
    loads = {one.name: one.stored_load for one in b.leases.held if one.unit == "u"}
    assert loads == {first.name: Load(0.5, 12.0, 900.0), second.name: IDLE}


async def test_who_lost_a_lease_stores_no_load_for_it(fleet: Fleet, database: Database) -> None:
    a = await fleet.host("a")  # L2
    await fleet.join(a, 1)
    lease = await fleet.a_lease_of(a)
    lease.meter = Fixed(Load(0.5))  # type: ignore[assignment]
    await database.write("update relevo.lease set epoch = epoch + 1 where id = $1",
                         lease.fence.lease_id)  # fmt: skip
    await report_loads(a.database, a.leases.life.incarnation, [lease])
    assert lease.stored_load == IDLE


async def test_a_lease_that_is_passed_on_keeps_away_and_another_comes_instead(
    fleet: Fleet, database: Database
) -> None:  # 7.6
    a, b = await settled(fleet)
    lease = await fleet.a_lease_of(a)
    assert await a.leases.pass_on(lease)
    assert lease.release_reason == "handler_error"

    async def swapped() -> bool:
        owner = (await fleet.leases())[lease.name].owner
        return owner == "b" and await fleet.counts() == {"a": 2, "b": 2}

    await fleet.until(swapped, "the lease is b's and a has another one")
    row = await database.fetchrow(
        "select avoid, avoid_until > relevo.now() as fresh from relevo.lease where id = $1",
        lease.fence.lease_id,
    )
    assert row
    assert (row["avoid"], row["fresh"]) == (a.leases.life.incarnation, True)
    (now_theirs,) = [one for one in b.leases.held if one.name == lease.name and one.unit == "u"]
    assert not await b.leases.pass_on(now_theirs)  # it would have to go back within the minute


async def test_without_another_host_a_lease_stays(fleet: Fleet) -> None:  # 7.6
    a = await fleet.host("a")
    await fleet.join(a, 1)
    lease = await fleet.a_lease_of(a)
    assert not await a.leases.pass_on(lease)
    assert not lease.stopping.is_set()


async def test_a_lease_changes_its_state_only_as_the_table_says(fleet: Fleet) -> None:
    await fleet.join(await fleet.host("a"), 1)
    for state in ("paused", "paused", "active", "blocked", "paused"):
        await fleet.directory.set_state("feed", "u", "000", state)
    with pytest.raises(Conflict, match="a lease that is 'paused' cannot 'block'"):
        await fleet.directory.set_state("feed", "u", "000", "blocked")


async def test_a_host_goes_through_the_states_of_its_table(fleet: Fleet) -> None:
    a = await fleet.host("a")
    leases = a.leases

    async def drains() -> bool:
        return leases.state == "draining"

    async def lives() -> bool:
        return leases.state == "live"

    assert await lives()
    await fleet.directory.drain("a")
    await fleet.until(drains, "it drains")
    await fleet.directory.drain("a", draining=False)
    await fleet.until(lives, "it takes part again")
    await fleet.leave("a")
    assert leases.state == "stopped"
