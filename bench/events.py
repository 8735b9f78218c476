"""What the event log costs: appends by subject and by pipeline, beside a bare insert."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench import Figure
from relevo import settings
from relevo.kernel.events import Catalogue, Event, EventLog, EventType
from relevo.kernel.part import Connection
from relevo.kernel.postgres import Database, Transaction, Wakeups
from relevo.kernel.postgres.migration import migrate

HOW: Final = """
A transaction appends 100 events with about 100 bytes of data and commits; 1 or 4 connections do so
one after the other. By subject: each of the 100 events has another subject, or all have the same
one. Bare: the same columns go into a plain table with the same index, by one `insert … select from
unnest` in the same kind of transaction. The read figure is one reader that pages through the log,
1,000 events at a time. Embedded PostgreSQL, fsync on, one Python process. All sides take turns;
rates are medians over the rounds.
"""

ROUNDS: Final = 5
BATCH: Final = 100
BATCHES: Final = 100
CONNECTIONS: Final = (1, 4)
TABLE: Final = """
create table bench_event (
  lsn bigint not null, version bigint not null, at timestamptz not null, stripe integer not null,
  schema smallint not null, type text collate "C" not null, subject text collate "C" not null,
  data json not null)
"""
INDEX: Final = "create index on bench_event (stripe, lsn)"
INSERT: Final = """
insert into bench_event (lsn, version, at, stripe, schema, type, subject, data)
select nextval('relevo.lsn'), g.version, now(), $6, g.schema, g.type, g.subject, g.body::json
from unnest($1::text[], $2::smallint[], $3::text[], $4::bigint[], $5::text[])
  as g (type, schema, subject, version, body)
"""


class Moved(Struct, frozen=True):
    """What a bench event carries: about 100 bytes of JSON."""

    before: str
    after: str
    reason: str


MOVED: Final = EventType(name="bench.thing.moved", payload=Moved, sentence="A thing was moved.")
Append = Callable[[Transaction, int, Sequence[Event]], Coroutine[Any, Any, object]]


async def run() -> list[Figure]:
    """Measure on a server of its own, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)
        told = settings.load({"home": Path(folder) / "home"}, environ={})
        async with await Database.open(told) as database:
            await migrate.up(database)
            await database.write(TABLE)
            await database.write(INDEX)
            wakeups = Wakeups(database)
            try:
                return await _measure(
                    database, EventLog(Connection(database, wakeups), Catalogue([MOVED]))
                )
            finally:
                await wakeups.close()


async def _measure(database: Database, log: EventLog) -> list[Figure]:
    sides = _sides(log)
    rates: dict[tuple[str, int], list[float]] = {}
    reads: list[float] = []
    for _ in range(ROUNDS):
        after = (await log.read(start="now")).continuation
        for name, (append, spread) in sides.items():
            for connections in CONNECTIONS:
                rate = await _rate(database, append, connections, spread=spread)
                rates.setdefault((name, connections), []).append(rate)
        reads.append(await _read_rate(log, after))
    middle = {side: statistics.median(values) for side, values in rates.items()}
    return [
        Figure(
            name=f"{name}, {connections} connection{'s' * (connections > 1)}",
            measured=middle[name, connections],
            unit="events/s",
            beside=middle["bare", connections],
            bound=0.7 if name == "by pipeline" else None,
        )
        for name in sides
        if name != "bare"
        for connections in CONNECTIONS
    ] + [Figure(name="read all", measured=statistics.median(reads), unit="events/s")]


def _sides(log: EventLog) -> dict[str, tuple[Append, bool]]:
    async def bare(tx: Transaction, number: int, events: Sequence[Event]) -> None:
        columns = map(list, zip(*map(log.catalogue.row, events), strict=True))
        await tx.execute(INSERT, *columns, number)

    async def by_pipeline(tx: Transaction, number: int, events: Sequence[Event]) -> None:
        await log.append(tx, events, by="pipeline", pipeline=number)

    async def by_subject(tx: Transaction, _: int, events: Sequence[Event]) -> None:
        await log.append(tx, events)

    return {
        "bare": (bare, True),
        "by pipeline": (by_pipeline, True),
        "by subject, 100 subjects": (by_subject, True),
        "by subject, 1 subject": (by_subject, False),
    }


async def _rate(database: Database, append: Append, connections: int, *, spread: bool) -> float:
    async def writer(number: int) -> None:
        for batch in range(BATCHES):
            events = _events(number, batch, spread=spread)
            async with database.transaction() as tx:
                await append(tx, number, events)

    started = time.perf_counter()
    await asyncio.gather(*(writer(number) for number in range(connections)))
    return connections * BATCHES * BATCH / (time.perf_counter() - started)


def _events(number: int, batch: int, *, spread: bool) -> list[Event]:
    data = Moved(
        before="waiting for a slot", after="running on a host", reason="a slot became free"
    )
    return [
        Event(MOVED.name, f"thing/{number}/{n if spread else 0}", batch * BATCH + n, data)
        for n in range(BATCH)
    ]


async def _read_rate(log: EventLog, after: str) -> float:
    count, started = 0, time.perf_counter()
    while True:
        page = await log.read(after, max_items=1_000)
        if page.caught_up:
            return count / (time.perf_counter() - started)
        count += len(page.events)
        after = page.continuation
