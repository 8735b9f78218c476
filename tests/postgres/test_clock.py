from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo.postgres import clock as store_clock

if TYPE_CHECKING:
    from relevo.postgres.database import Database
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio


async def test_time_travels_for_everybody(database: Database, clock: Clock) -> None:
    before = await clock.now()
    after = await clock.advance(3600)
    assert 3600 <= (after - before).total_seconds() < 3660


async def test_time_never_runs_back_after_failover_to_a_server_behind(
    database: Database, clock: Clock
) -> None:
    await clock.advance(100)
    await store_clock.raise_mark(database)
    handed_out = await clock.now()
    await clock.server_falls_behind(60)
    assert await clock.now() >= handed_out.replace(microsecond=0)


async def test_time_goes_on_after_the_mark_was_raised_on_the_new_server(
    database: Database, clock: Clock
) -> None:
    await store_clock.raise_mark(database)
    await clock.server_falls_behind(60)
    stands = await clock.now()
    assert await clock.now() == stands  # it stands still until housekeeping moves it on
    await store_clock.raise_mark(database)
    first, second = await clock.now(), await clock.now()
    assert stands <= first < second
