"""Leases in memory, properties of leases, and units that go while hosts join them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo.errors import InvalidValue, NotFound
from relevo.feed.operating.estimator import Estimator
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.processing import host as processors
from relevo.feed.processing import memory_leases
from relevo.feed.processing.memory_leases import MemoryLeases
from relevo.kernel.postgres import locks
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from relevo.kernel.postgres import Wakeups

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio
WAITING = """
select from pg_locks where locktype = 'advisory' and not granted and objid::bigint = $1
  and database = (select oid from pg_database where datname = current_database())
"""
UNITS = "select name from relevo.unit where kind = 'feed'"


async def test_leases_in_memory_are_kept_by_the_program_and_leave_nothing_behind(
    kitchen: Kitchen,
) -> None:  # P1, 5.1
    leases = MemoryLeases()
    processor = await kitchen.serve(leases_in=leases, start="beginning")
    await kitchen.write(*range(20))
    await kitchen.until_delivered(*range(20))
    await processors.stop(processor)
    assert not await kitchen.database.fetch(UNITS)
    await kitchen.write(*range(20, 40))
    state = leases.state
    assert state is not None
    again = await kitchen.serve("b", leases_in=MemoryLeases(state), start="beginning")
    await kitchen.until_delivered(*range(20, 40))
    assert len(kitchen.delivered) == 40  # it went on where it was
    await processors.stop(again)
    await processors.stop(processor)  # stopping twice does nothing
    assert leases.state == state


async def test_a_processor_with_leases_in_memory_starts_again_where_it_stopped(
    kitchen: Kitchen,
) -> None:  # 6.6
    leases = MemoryLeases()
    await kitchen.serve(leases_in=leases)
    other = await kitchen.serve("b", leases_in=MemoryLeases(), name="kitchen")
    await kitchen.write(1)
    await kitchen.until(lambda: kitchen.delivered == ["1", "1"], "each has leases of its own")
    await processors.stop(other)


async def test_what_a_killed_process_leaves_of_leases_in_memory_goes(
    kitchen: Kitchen,
) -> None:
    await kitchen.serve(leases_in=MemoryLeases())
    await kitchen.serve("b")
    await memory_leases.forget_abandoned(kitchen.database)
    assert len(await kitchen.database.fetch(UNITS)) == 2  # one is served
    await kitchen.database.write("delete from relevo.member")
    await memory_leases.forget_abandoned(kitchen.database)
    assert len(await kitchen.database.fetch(UNITS)) == 2  # not at once
    await kitchen.database.write(
        "update relevo.lease set owner = null, epoch = epoch + 1,"
        " free_since = relevo.now() - interval '2 hours'"
    )
    await memory_leases.forget_abandoned(kitchen.database)
    (left,) = await kitchen.database.fetch(UNITS)
    assert left["name"] == "leases/orders/kitchen"


async def test_a_name_that_is_meant_for_leases_in_memory_is_refused(kitchen: Kitchen) -> None:
    with pytest.raises(InvalidValue, match="in memory"):
        await kitchen.serve(leases_in=f"{memory_leases.PREFIX}mine")


async def test_properties_stay_with_a_lease_and_its_children(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # 5.2, L4
    await kitchen.serve(leases=4)
    unit = UnitHandle(kitchen.database, wakeups, "orders", "kitchen", "leases")
    token = (await unit.state()).leases[0].token
    await unit.set_properties(token, {"team": "north", "note": "ü"})
    assert (await unit.state()).leases[0].properties == {"team": "north", "note": "ü"}
    await unit.pause()
    await unit.split_leases(8)
    first, second, third, *_ = (await unit.state()).leases
    assert first.properties == second.properties == {"team": "north", "note": "ü"}
    assert third.properties == {}
    states = await Estimator(kitchen.database, "orders", "kitchen", "leases").current_state()
    assert states[0].properties == first.properties
    with pytest.raises(InvalidValue, match="properties"):
        await unit.set_properties(first.token, {"n": 1})  # type: ignore[dict-item]
    with pytest.raises(NotFound):
        await unit.set_properties(token, {})


async def test_a_host_that_joins_a_unit_while_it_is_deleted_makes_a_new_one(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # L8
    processor = await kitchen.serve()
    await processors.stop(processor)
    unit = UnitHandle(kitchen.database, wakeups, "orders", "kitchen", "leases")
    (old,) = await kitchen.database.fetch("select id from relevo.unit where kind = 'feed'")
    async with kitchen.database.transaction() as tx:
        await tx.execute("select pg_advisory_xact_lock($1, $2)", locks.UNIT, old["id"])
        joining = asyncio.create_task(kitchen.serve("b"))
        while not await kitchen.database.fetch(WAITING, old["id"]):
            await asyncio.sleep(0.01)
        await tx.execute("delete from relevo.unit where id = $1", old["id"])
    await joining
    assert (await unit.state()).leases
    (new,) = await kitchen.database.fetch("select id from relevo.unit where kind = 'feed'")
    assert new["id"] != old["id"]
    await kitchen.write(1)
    await kitchen.until_delivered(1)
