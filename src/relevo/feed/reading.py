"""Reads the log of one range: whole groups, in order, bounded in changes and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo import limits
from relevo.errors import ContainerRecreated, FeedExpired, FeedRegressed, InvalidValue, NotFound
from relevo.feed.model import Change, Mode
from relevo.postgres import catalog
from relevo.store.ranges import Interval, Range, RangeMap

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from relevo.postgres import Database, Transaction

SQL = catalog.load(__package__)


class Source(Struct, frozen=True, kw_only=True):
    """A container as a reader sees it: its identity and its ranges, as one look showed them."""

    container_id: int
    incarnation: str
    name: str
    versions: bool
    oldest: int
    """In all-versions mode nothing before this LSN is there."""
    last_lsn: int
    ranges: RangeMap
    trimmed: dict[int, int]


async def look(connection: Database | Transaction, name: str) -> Source:
    """Read what a reader needs to know of a container."""
    row = await connection.fetchrow(SQL.container_state, name)
    if row is None:
        raise NotFound(f"there is no container named {name!r}")
    rows = await connection.fetch(SQL.list_ranges, row["id"])
    ranges = RangeMap(
        Range(id=r["id"], interval=Interval(r["epk_min"], r["epk_max"]),
              parents=tuple(r["parents"]), sealed_lsn=r["sealed_lsn"])
        for r in rows
    )  # fmt: skip
    return Source(
        container_id=row["id"],
        incarnation=str(row["incarnation"]),
        name=name,
        versions=row["versions"],
        oldest=row["versions_since"] or 0,
        last_lsn=row["last_lsn"],
        ranges=ranges,
        trimmed={r["id"]: r["trimmed_lsn"] for r in rows},
    )


def check_position(source: Source, incarnation: str, mode: Mode, range_id: int, lsn: int) -> None:
    """Refuse a position that this container cannot be read from; nothing is skipped silently."""
    if incarnation != source.incarnation:
        raise ContainerRecreated(
            f"container {source.name!r} was dropped and made anew since this position was taken"
        )
    if lsn > source.last_lsn:
        raise FeedRegressed(
            f"position {lsn} is ahead of container {source.name!r}, which has given out"
            f" {source.last_lsn}: was the database restored from a backup?"
        )
    if mode == "all_versions":
        lineage = source.ranges.lineage(range_id)
        oldest = max([source.oldest, *(source.trimmed.get(one, 0) for one in lineage)])
        if lsn < oldest:
            raise FeedExpired(
                f"position {lsn} is older than what container {source.name!r} retains;"
                f" the oldest that can be read from is {oldest}",
                oldest=oldest,
            )


class Batch(Struct, frozen=True, kw_only=True):
    """Whole groups of one range and the position behind them."""

    changes: tuple[Change[Any], ...]
    position: int
    more: bool
    """Whether there is probably more behind it."""


async def read(
    connection: Database | Transaction,
    source: Source,
    mode: Mode,
    range_id: int,
    interval: Interval,
    after: int,
    *,
    max_items: int = limits.FEED_ITEMS_DEFAULT,
    max_bytes: int = limits.FEED_BYTES_MAX,
    model: Any = Any,
) -> Batch:
    """Read the groups after a position: up to `max_items` changes, then to the end of the group.

    A group larger than `max_bytes` is delivered alone. Both modes cost one statement as a rule.
    """
    if not 1 <= max_items <= limits.FEED_ITEMS_MAX:
        raise InvalidValue(f"max_items is 1 to {limits.FEED_ITEMS_MAX}, not {max_items}")
    latest = mode == "latest"
    lineage = source.ranges.lineage(range_id)
    rows = await connection.fetch(
        SQL.read_latest if latest else SQL.read_versions,
        lineage, after, interval.low, interval.high, max_items + 1,
    )  # fmt: skip
    full = len(rows) > max_items
    if full and rows[-1]["lsn"] == rows[-2]["lsn"]:
        last = rows[-1]
        rows += await connection.fetch(
            SQL.read_latest_rest if latest else SQL.read_versions_rest,
            lineage, last["lsn"], interval.low, interval.high, last["ordinal"],
        )  # fmt: skip
    elif full:
        rows.pop()
    kept = _within(rows, max_bytes)
    changes = tuple(_change(row, source.incarnation, latest, model) for row in kept)
    return Batch(
        changes=changes,
        position=kept[-1]["lsn"] if kept else after,
        more=full or len(kept) < len(rows),
    )


def _within(rows: Sequence[asyncpg.Record], max_bytes: int) -> Sequence[asyncpg.Record]:
    """Cut at the end of the last group that fits; the first group always does."""
    size, end = 0, 0
    for index, row in enumerate(rows):
        size += len(row["body"] or "")
        last_of_group = index + 1 == len(rows) or rows[index + 1]["lsn"] != row["lsn"]
        if size > max_bytes and end:
            break
        if last_of_group:
            end = index + 1
    return rows[:end]


def _change(row: asyncpg.Record, incarnation: str, latest: bool, model: Any) -> Change[Any]:
    if latest:
        return Change(
            incarnation=incarnation, origin=row["range_id"], lsn=row["lsn"], ordinal=row["ordinal"],
            ts=row["ts"], id=row["id"], key=row["pk"], raw=row["body"], model=model,
        )  # fmt: skip
    return Change(
        incarnation=incarnation, origin=row["range_id"], lsn=row["lsn"], ordinal=row["ordinal"],
        ts=row["ts"], id=row["id"], key=row["pk"], raw=row["body"], model=model,
        raw_previous=row["previous"], operation=row["operation"],
        previous_lsn=row["previous_lsn"], ttl_expired=row["ttl_expired"],
    )  # fmt: skip


async def heads(connection: Database | Transaction, source: Source) -> dict[int, int]:
    """Return the highest visible LSN of every open range: "now"."""
    ids = [one.id for one in source.ranges.open]
    lineages = [",".join(map(str, source.ranges.lineage(one))) for one in ids]
    rows = await connection.fetch(SQL.heads, ids, lineages)
    return {row["id"]: row["lsn"] for row in rows}


async def positions_at(
    connection: Database | Transaction, source: Source, at: datetime
) -> dict[int, int]:
    """Return, for every open range, the position behind which everything is younger than `at`."""
    found = {}
    for one in source.ranges.open:
        rows = await connection.fetch(SQL.position_at, source.ranges.lineage(one.id), at)
        found[one.id] = rows[0]["lsn"]
    return found
