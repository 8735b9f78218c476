"""A host that falls asleep within a statement, with the lock of a unit in its hands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo.kernel.postgres import locks
from relevo.kernel.postgres.pool.connections import Sleepers
from tests.kernel.postgres.test_sleepers import asleep

if TYPE_CHECKING:
    from relevo import App
    from tests.kernel.leases.conftest import Fleet

pytestmark = pytest.mark.anyio


async def lock_of(fleet: Fleet) -> str:
    unit = await fleet.database.fetchval("select id from relevo.unit where name = 'u'")
    return f"select pg_advisory_xact_lock({locks.UNIT}, {unit})"


async def impatient_host(fleet: Fleet, name: str) -> App:
    app = await fleet.host(name)
    app.database.sleepers = Sleepers(app.database.endpoint, after=0.3)
    return app


async def test_a_host_joins_although_one_sleeps_with_the_lock_of_the_unit(
    fleet: Fleet, relevo_url: str
) -> None:
    await fleet.join(await fleet.host("a"), 2)
    await fleet.until_counts({"a": 2})
    newcomer = await impatient_host(fleet, "b")
    async with asleep(relevo_url, await lock_of(fleet)):
        await fleet.join(newcomer, 2)
    await fleet.until_counts({"a": 1, "b": 1})


async def test_leases_move_although_a_host_sleeps_with_the_lock_of_the_unit(
    fleet: Fleet, relevo_url: str
) -> None:  # B5
    await fleet.join(await fleet.host("a"), 2)
    await fleet.join(await impatient_host(fleet, "b"), 2)
    await fleet.until_counts({"a": 1, "b": 1})
    async with asleep(relevo_url, await lock_of(fleet)):
        await fleet.leave("a")
        await fleet.until_counts({"b": 2})
