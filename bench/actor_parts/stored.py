"""Actors that are stored and idle, and reminders that are due all at once."""

from __future__ import annotations

import asyncio
import resource
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec

from bench import Figure
from bench.actor_parts.common import ACTORS, CALLERS, FIRED, Counter, Rate, measured, scaled, turns
from relevo.actors.core.identity import slot_of
from relevo.actors.core.schedules import ReminderSchedule

if TYPE_CHECKING:
    from relevo import App

KNOWN: Final = 1_000_000
REMINDERS: Final = 100_000
REMINDED: Final = 10_000
"""Actors that have them."""
SPREAD_SECONDS: Final = 60.0
AHEAD_SECONDS: Final = 5.0


async def idle(app: App, url: str) -> list[Figure]:
    """Measure calls before and after a million further actors are stored."""
    known = scaled(KNOWN)
    actors: list[Any] = [app.actor(Counter, n, type="durable") for n in range(ACTORS)]
    await asyncio.gather(*(actor.add(1) for actor in actors))

    async def calls() -> Rate:
        return await measured(lambda n: actors[n % ACTORS].add(1), scaled(10_000), CALLERS)

    few = (await turns({"calls": calls}))["calls"]
    before = _resident()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "insert into relevo.actor (id, placement_group, slot, revision, commit_number,"
            " updated_at, document) select 'durable/s:idle-' || n, 'default', n % 256, 1, 1, now(),"
            " '\\x81a66e756d62657201' from generate_series(1, $1::integer) n", known
        )  # fmt: skip
        await connection.execute("vacuum analyze relevo.actor")
    finally:
        await connection.close()
    grown = _resident() - before
    many = (await turns({"calls": calls}))["calls"]
    return [
        Figure(name=f"calls beside {known:,} idle actors, and beside none",
               measured=many.per_second, unit="calls/s", beside=few.per_second, bound=0.9),
        Figure(name="  CPU of both", measured=many.cpu, unit="µs", beside=few.cpu),
        Figure(name="  memory that they take in the host", measured=grown, unit="MB"),
    ]  # fmt: skip


def _resident() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def reminders(app: App, url: str) -> list[Figure]:
    """Measure how late reminders fire that are due within a minute."""
    count = scaled(REMINDERS)
    spread = SPREAD_SECONDS * count / REMINDERS
    FIRED.clear()
    start = datetime.now(UTC) + timedelta(seconds=AHEAD_SECONDS + count / 20_000)
    rows = []
    for n in range(count):
        actor = f"reminded/i:{n % REMINDED}"
        due = start + timedelta(seconds=n * spread / count)
        schedule = msgspec.msgpack.encode(ReminderSchedule(start=due))
        rows.append((actor, f"r{n}", "default", slot_of(actor, app.settings.actors_slots), due,
                     "on_due", schedule, b""))  # fmt: skip
    connection = await asyncpg.connect(url)
    try:
        await connection.copy_records_to_table(
            "actor_reminder", schema_name="relevo", records=rows,
            columns=["actor", "name", "placement_group", "slot", "due", "method", "schedule",
                     "payload"],
        )  # fmt: skip
    finally:
        await connection.close()
    began, cpu = time.perf_counter(), time.process_time()
    async with asyncio.timeout(4 * SPREAD_SECONDS):
        while len(FIRED) < count:
            await asyncio.sleep(0.1)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return [
        Figure(name=f"latest of {count:,} reminders due in {spread:.0f} s", measured=max(FIRED),
               unit="s", beside=2.0, bound=1.0, sense="at_most"),
        Figure(name="  until all had fired", measured=took, unit="s"),
        Figure(name="  CPU of one", measured=cpu / count * 1e6, unit="µs"),
    ]  # fmt: skip
