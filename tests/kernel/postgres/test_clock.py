"""One clock: statement time plus a shift, never back, and cheap enough for an index (DESIGN D3)."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from relevo.errors import InvalidValue
from relevo.kernel.postgres import clock as store_clock

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio


async def test_time_travels_for_everybody(database: Database, clock: Clock) -> None:
    before = await clock.now()
    after = await clock.advance(3600)
    assert 3600 <= (after - before).total_seconds() < 3660


async def test_time_only_travels_forward(clock: Clock) -> None:
    with pytest.raises(InvalidValue, match="can only move forward"):
        await clock.advance(-1)


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


async def test_whatever_was_handed_out_before_the_mark_is_never_handed_out_again(
    database: Database, clock: Clock
) -> None:
    seen = []
    for behind in (0.0, 5.0, 0.0, 3600.0, 0.5):
        seen.append(await clock.now())
        await store_clock.raise_mark(database)
        await clock.server_falls_behind(behind)
        seen.append(await clock.now())
    assert seen == sorted(seen)


async def test_raising_the_mark_tells_the_shift_and_changes_nothing_in_good_times(
    database: Database, clock: Clock
) -> None:
    await clock.advance(10)
    assert [await store_clock.raise_mark(database) for _ in range(3)] == [10.0] * 3
    await clock.server_falls_behind(60)  # the shift is -50 now
    assert -1.0 < await store_clock.raise_mark(database) - 10.0 < 1.0  # and made up for


async def test_processes_that_raise_the_mark_together_do_not_add_up(
    database: Database, clock: Clock
) -> None:
    await store_clock.raise_mark(database)
    await clock.server_falls_behind(60)
    shifts = await asyncio.gather(*(store_clock.raise_mark(database) for _ in range(8)))
    assert max(shifts) < 30  # not 8 times 60


async def test_it_is_statement_time(database: Database) -> None:
    async with database.transaction() as tx:
        times = [await tx.fetchval("select relevo.now()") for _ in range(2)]
        twice = await tx.fetchrow("select relevo.now() as a, pg_sleep(0.01), relevo.now() as b")
    assert times[0] < times[1]  # moves within a transaction
    assert twice is not None
    assert twice["a"] == twice["b"]  # stands within a statement


async def test_a_reading_tells_how_the_clocks_stand(database: Database, clock: Clock) -> None:
    await clock.advance(timedelta(days=2))
    reading = await store_clock.read(database)
    assert reading.shift == 2 * 86400
    assert timedelta(days=2, minutes=-1) < reading.now - reading.server_clock
    assert abs(reading.skew) < 60  # this machine is the server's
    assert msgspec.json.decode(msgspec.json.encode(reading), type=type(reading)) == reading


async def test_a_skewed_machine_changes_nothing_but_the_skew(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = await store_clock.read(database)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600)
    skewed = await store_clock.read(database)
    assert 3540 < skewed.skew - honest.skew < 3660
    assert skewed.now - honest.now < timedelta(minutes=1)


async def test_an_index_serves_what_is_due(database: Database) -> None:
    """Were the function VOLATILE, each row would be looked at: 200,000 instead of a few."""
    async with database.transaction() as tx:
        await tx.execute(
            "create table due_work (id bigint generated always as identity, due timestamptz)"
        )
        await tx.execute(
            "insert into due_work (due)"
            " select relevo.now() + make_interval(secs => n - 20)"
            " from generate_series(1, 200000) n"
        )
        await tx.execute("create index due_work_due on due_work (due)")
    await database.write("analyze due_work")
    plan = await database.fetchval(
        "explain (analyze, format json)"
        " select id from due_work where due <= relevo.now() order by due limit 100"
    )
    [top] = msgspec.json.decode(plan)
    scan = top["Plan"]["Plans"][0]
    assert scan["Node Type"] == "Index Scan"
    assert scan["Index Cond"] == "(due <= relevo.now())"
    assert scan["Actual Rows"] <= 100
    volatility = "select provolatile from pg_proc where oid = 'relevo.now'::regproc"
    assert await database.fetchval(volatility) == b"s"
