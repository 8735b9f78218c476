"""Trims the log of all versions: removes entries that are past their retention.

Trimming never holds a stamp lock, so no writer waits for it. First the new beginning of a log is
stored, then the rows are deleted: a slow reader gets an error by name, and misses nothing
silently. A unit may have trimming wait for its slowest lease, up to a bound. A lease that has
nothing unread among the removed rows is recorded as cleared, however old its position is.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.kernel.leases.units import host_topic
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.repeating import until_fewer
from relevo.kernel.telemetry.logs import get_logger
from relevo.store.ranges import Interval, Range, RangeMap

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from relevo.kernel.postgres import Database, Transaction, Wakeups

SQL = catalog.load("relevo.feed")
KEEPS_VERSIONS: Final = SQL.keeps_versions
log = get_logger(__name__)
TRIM_ROWS: Final = 1_000
TRIM_ROUNDS_MAX: Final = 100
"""Statements per turn, so that other housekeeping is not held up."""
THIN_ROWS: Final = 5_000


async def trim(database: Database, wakeups: Wakeups) -> int:
    """Remove versions that are past their container's retention; return how many went."""
    owners = await database.run(_mark, idempotent=True)
    wakeups.send(*(host_topic(owner) for owner in owners))

    async def remove() -> int:
        rows = await database.write(SQL.trim_versions, TRIM_ROWS, idempotent=True)
        return int(rows[0]["count"])

    return await until_fewer(TRIM_ROWS, remove, rounds=TRIM_ROUNDS_MAX)


async def thin_times(database: Database) -> int:
    """Thin the record of positions by time; return how many rows were removed.

    Of each second for a day, then of each minute for a month, then of each hour the first stays: a
    start at an old instant reads a little more to find its place, and begins at the same one.
    """

    async def remove(range_id: int) -> int:
        rows = await database.write(SQL.thin_times, range_id, THIN_ROWS, idempotent=True)
        return int(rows[0]["count"])

    total = 0
    for row in await database.fetch(SQL.timed_ranges):
        step = partial(remove, row["range_id"])
        total += await until_fewer(THIN_ROWS, step, rounds=TRIM_ROUNDS_MAX)
    return total


class _Log(Struct, frozen=True):
    """The log of one range whose beginning is past its retention."""

    range: Range
    before: int
    """Up to where it is trimmed already."""
    upto: int


class _Behind(Struct, frozen=True):
    """A lease whose position is before the end of the rows past their retention."""

    lease: int
    owner: UUID | None
    log: int
    key: int
    """The range that its position is of: that of the log, one that it was split into or made of."""
    position: int
    interval: Interval
    hold: tuple[float | None, int | None]
    passed: bool
    """Whether trimming has passed it before; trimming still waits for it with the rest."""


async def _mark(tx: Transaction) -> set[UUID]:
    """Store new beginnings; return the owners of leases that must start again."""
    await tx.execute(SQL.lock_trimming)
    containers: dict[int, list[asyncpg.Record]] = defaultdict(list)
    for row in await tx.fetch(SQL.expired_versions):
        containers[row["container_id"]].append(row)
    if not containers:
        return set()
    logs: dict[int, _Log] = {}
    maps: dict[int, RangeMap] = {}
    for container_id, rows in containers.items():
        maps[container_id] = ranges = await _ranges(tx, container_id)
        logs |= {r["id"]: _Log(ranges.by_id[r["id"]], r["before"], r["lsn"]) for r in rows}
    behind = await _behind(tx, maps, logs)
    await tx.execute(SQL.lock_leases, sorted({one.lease for one in behind}))
    behind = await _behind(tx, maps, logs)  # locked, so that no one can rewind them
    unread = await _first_unread(tx, behind, logs)
    upto = await _held_back(tx, behind, unread, logs)
    near = [one for one in behind if not one.passed and one.position < upto[one.log]]
    passed = [one for one in near if (unread[one] or upto[one.log] + 1) <= upto[one.log]]
    cleared = [one for one in near if one not in passed]
    if passed:
        log.warning("feed.trimmed_past_leases", leases=sorted({one.lease for one in passed}))
    fenced = sorted({one.lease for one in passed if one.owner is not None})
    owners = {row["owner"] for row in await tx.fetch(SQL.fence_leases, fenced)} - {None}
    await _clear(tx, cleared, maps, upto)
    # Rows of ranges last: a split waits for them with the stamp lock in its hands.
    await tx.execute(SQL.mark_trimmed, list(upto), list(upto.values()))
    return owners


async def _ranges(tx: Transaction, container_id: int) -> RangeMap:
    return RangeMap(
        Range(id=r["id"], interval=Interval(r["epk_min"], r["epk_max"]),
              parents=tuple(r["parents"]), sealed_lsn=r["sealed_lsn"])
        for r in await tx.fetch(SQL.list_ranges, container_id)
    )  # fmt: skip


async def _behind(
    tx: Transaction, maps: dict[int, RangeMap], logs: dict[int, _Log]
) -> list[_Behind]:
    """Return leases with a position before the end of the removable rows."""
    found = []
    highest = max(one.upto for one in logs.values())
    for row in await tx.fetch(SQL.versions_leases, list(maps)):
        positions = msgspec.json.decode(row["position"], type=dict[int, int])
        if min(positions.values(), default=highest) >= highest:
            continue  # as a rule
        interval = Interval(row["epk_min"], row["epk_max"])
        ranges = maps[row["container_id"]]
        for log_id, one in logs.items():
            if log_id not in ranges.by_id or not one.range.interval.overlaps(interval):
                continue
            for key, lsn in positions.items():
                related = log_id in ranges.lineage(key) or key in ranges.lineage(log_id)
                if related and lsn < one.upto:
                    hold = row["hold_seconds"], row["hold_bytes"]
                    found.append(
                        _Behind(row["id"], row["owner"], log_id, key, lsn,
                                one.range.interval.intersect(interval), hold, lsn < one.before)
                    )  # fmt: skip
    return found


async def _first_unread(
    tx: Transaction, behind: Sequence[_Behind], logs: dict[int, _Log]
) -> dict[_Behind, int | None]:
    """Return the first removable LSN that a lease has not read; None if it has read all."""
    rows = await tx.fetch(
        SQL.first_unread,
        [one.log for one in behind],
        [one.position for one in behind],
        [logs[one.log].upto for one in behind],
        [one.interval.low for one in behind],
        [one.interval.high for one in behind],
    )
    return {one: row["lsn"] for one, row in zip(behind, rows, strict=True)}


async def _held_back(
    tx: Transaction,
    behind: Sequence[_Behind],
    unread: dict[_Behind, int | None],
    logs: dict[int, _Log],
) -> dict[int, int]:
    """Return up to where each log goes: to the slowest lease that asks for it, within its bound."""
    upto = {log_id: one.upto for log_id, one in logs.items()}
    for one in behind:
        first = unread[one]
        if one.hold == (None, None) or first is None or first > upto[one.log]:
            continue
        floor = await tx.fetchval(SQL.hold_floor, one.log, first - 1, logs[one.log].upto, *one.hold)
        upto[one.log] = min(upto[one.log], max(first - 1, floor or 0))
    return upto


async def _clear(
    tx: Transaction, leases: Sequence[_Behind], maps: dict[int, RangeMap], upto: dict[int, int]
) -> None:
    """Note up to where leases miss nothing; not by a position that other ranges share."""
    lineages = {one: ranges.lineage(one) for ranges in maps.values() for one in ranges.by_id}
    sure = [lease for lease in leases if lease.log in lineages[lease.key]]
    await tx.execute(
        SQL.clear_leases,
        [one.lease for one in sure],
        [str(one.key) for one in sure],
        [upto[one.log] for one in sure],
    )
