"""Reads the log of one range: complete groups, in order, bounded in changes and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import ContainerRecreated, FeedExpired, FeedRegressed, InvalidValue, NotFound
from relevo.feed.model import Change, Mode
from relevo.feed.reading.scanning import Scan
from relevo.kernel.events import reading as event_reading
from relevo.kernel.events.model import LOG_ID, LOG_NAME, Recorded
from relevo.kernel.postgres import catalog, restores
from relevo.kernel.postgres.restores import Lost
from relevo.store import keys
from relevo.store.ranges import WHOLE, Interval, Range, RangeMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    import asyncpg

    from relevo.feed.reading.filters import Filter
    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.feed")


class FeedSource(Struct, frozen=True, kw_only=True):
    """A container as a reader sees it: its identity and its ranges, as one look showed them."""

    container_id: int
    incarnation: str
    name: str
    versions: bool
    oldest: int
    """In all-versions mode nothing before this LSN is there."""
    last_lsn: int
    """Given out before the ranges were read; by now others may have written more."""
    lost: Lost
    """Positions here belong to changes that a restore has lost."""
    ranges: RangeMap
    trimmed: dict[int, int]


async def look(connection: Database | Transaction, name: str) -> FeedSource:
    """Read the facts that a reader needs of a container, or of the event log."""
    if name == LOG_NAME:
        return await _look_at_events(connection)
    row = await connection.fetchrow(SQL.container_state, name)
    if row is None:
        raise NotFound(f"there is no container named {name!r}")
    rows = await connection.fetch(SQL.list_ranges, row["id"])
    ranges = RangeMap(
        Range(id=r["id"], interval=Interval(r["epk_min"], r["epk_max"]),
              parents=tuple(r["parents"]), sealed_lsn=r["sealed_lsn"])
        for r in rows
    )  # fmt: skip
    return FeedSource(
        container_id=row["id"],
        incarnation=str(row["incarnation"]),
        name=name,
        versions=row["versions"],
        oldest=row["versions_since"] or 0,
        last_lsn=row["last_lsn"],
        lost=restores.lost_in(row["lost"]),
        ranges=ranges,
        trimmed={r["id"]: r["trimmed_lsn"] for r in rows},
    )


async def _look_at_events(connection: Database | Transaction) -> FeedSource:
    """The event log as a container: its stripes are ranges that are never split."""
    state = await event_reading.look(connection)
    intervals = WHOLE.split(len(state.stripes))
    return FeedSource(
        container_id=LOG_ID,
        incarnation=state.incarnation,
        name=LOG_NAME,
        versions=False,
        oldest=0,
        last_lsn=state.last_lsn,
        lost=state.lost,
        ranges=RangeMap(
            Range(id=stripe.id, interval=interval)
            for stripe, interval in zip(state.stripes, intervals, strict=True)
        ),
        trimmed={stripe.id: stripe.trimmed_lsn for stripe in state.stripes},
    )


def check_same(source: FeedSource, incarnation: str) -> None:
    """Refuse a container that has only the name of the one that was read before."""
    if incarnation != source.incarnation:
        raise ContainerRecreated(
            f"container {source.name!r} was dropped and created again since this position was taken"
        )


async def check_positions(
    connection: Database | Transaction,
    source: FeedSource,
    incarnation: str,
    mode: Mode,
    positions: Iterable[tuple[int, int]],
) -> None:
    """Refuse positions, as (range, LSN), that this container cannot be read from.

    A position may be younger than the look at the container, since others write meanwhile. So only
    what is ahead of the LSNs given out by now is refused.
    """
    check_same(source, incarnation)
    found = list(positions)
    last_lsn = source.last_lsn
    if any(lsn > last_lsn for _, lsn in found):
        last_lsn = await connection.fetchval(SQL.last_lsn)
    for range_id, lsn in found:
        if lsn > last_lsn:
            raise FeedRegressed(
                f"position {lsn} is ahead of container {source.name!r}, which has given out"
                f" {last_lsn}: was the database restored from a backup?"
            )
        if restores.is_lost(lsn, source.lost):
            raise FeedRegressed(restores.regressed(lsn, f"container {source.name!r}"))
        _check_kept(source, mode, range_id, lsn)


def _check_kept(source: FeedSource, mode: Mode, range_id: int, lsn: int) -> None:
    """Refuse a position whose changes are gone; nothing is skipped silently."""
    if mode != "latest":
        lineage = source.ranges.lineage(range_id)
        oldest = max([source.oldest, *(source.trimmed.get(one, 0) for one in lineage)])
        if lsn < oldest:
            raise FeedExpired(
                f"position {lsn} is older than the changes that container {source.name!r} retains;"
                f" the oldest that can be read from is {oldest}",
                oldest=oldest,
            )


class Batch(Struct, frozen=True, kw_only=True):
    """Whole groups of one range and the position behind them."""

    changes: tuple[Change[Any], ...]
    position: int
    """Everything up to here was read; changes not in `changes` were filtered out."""
    more: bool
    """Whether there is probably more behind it."""


async def read(
    connection: Database | Transaction,
    source: FeedSource,
    mode: Mode,
    range_id: int,
    interval: Interval,
    after: int,
    *,
    max_items: int = limits.FEED_ITEMS_DEFAULT,
    max_bytes: int = limits.FEED_BYTES_MAX,
    model: Any = Any,
    wanted: Filter | None = None,
    frugal: bool = False,
) -> Batch:
    """Read the groups after a position: up to `max_items` changes, then to the end of the group.

    A group larger than `max_bytes` is delivered alone. Both modes cost one statement as a rule.
    With a filter a batch may be empty although there is more: then its position has moved.
    `frugal` never holds many more bytes than that, for the price of more round trips.
    """
    if not 1 <= max_items <= limits.FEED_ITEMS_MAX:
        raise InvalidValue(f"max_items is 1 to {limits.FEED_ITEMS_MAX}, not {max_items}")
    if mode == "events":
        return await _read_events(
            connection, source, range_id, interval, after, max_items, max_bytes, frugal=frugal
        )
    lineage = source.ranges.lineage(range_id)
    scan = Scan(connection, source.name, mode, lineage, interval, wanted, frugal=frugal)
    rows, position, more = await scan.read(after, max_items, max_bytes)
    changes = _changes(rows, source.incarnation, mode == "latest", model)
    return Batch(changes=changes, position=position, more=more)


async def _read_events(
    connection: Database | Transaction, source: FeedSource, stripe: int, interval: Interval,
    after: int, max_items: int, max_bytes: int, *, frugal: bool,
) -> Batch:  # fmt: skip
    """Read one stripe of the event log; every event is a group of its own."""
    if interval != source.ranges.by_id[stripe].interval:
        raise InvalidValue(f"a stripe of {LOG_NAME} can only be read completely, not {interval}")
    events = await event_reading.read(
        connection, source.incarnation, {stripe: after}, max_items=max_items,
        max_bytes=max_bytes, frugal=frugal,
    )  # fmt: skip
    changes: tuple[Change[Any], ...] = tuple(
        Change(
            incarnation=event.log, origin=event.stripe, lsn=event.lsn, ordinal=0,
            stamp=event.at.timestamp(),
            id=event.id, key=keys.text((event.subject,)),
            raw=msgspec.json.encode(event).decode(), model=Recorded,
        )
        for event in events
    )  # fmt: skip
    position = events[-1].lsn if events else after
    return Batch(changes=changes, position=position, more=len(events) == max_items)


def _changes(
    rows: Sequence[asyncpg.Record], incarnation: str, latest: bool, model: Any
) -> tuple[Change[Any], ...]:
    """Make changes of rows; both go by order, not by name, for there are very many."""
    if latest:
        return tuple([
            Change(incarnation, origin, lsn, ordinal, stamp, item_id, pk, body, model=model)
            for lsn, ordinal, stamp, pk, item_id, origin, body in rows
        ])  # fmt: skip
    return tuple([
        Change(incarnation, origin, lsn, ordinal, stamp, item_id, pk, body, previous, operation,
               previous_lsn, ttl_expired, model)
        for lsn, ordinal, stamp, pk, item_id, origin, body,
            previous, operation, previous_lsn, ttl_expired in rows
    ])  # fmt: skip


async def heads(connection: Database | Transaction, source: FeedSource) -> dict[int, int]:
    """Return the highest visible LSN of every open range: "now"."""
    if source.container_id == LOG_ID:
        return await event_reading.heads(connection)
    ids = [one.id for one in source.ranges.open]
    lineages = [",".join(map(str, source.ranges.lineage(id_))) for id_ in ids]
    rows = await connection.fetch(SQL.heads, ids, lineages)
    return {row["id"]: row["lsn"] for row in rows}


async def positions_at(
    connection: Database | Transaction, source: FeedSource, at: datetime
) -> dict[int, int]:
    """Return, for every open range, the position behind which everything is younger than `at`."""
    if source.container_id == LOG_ID:
        state = await event_reading.look(connection)
        return await event_reading.positions_at(connection, state, at)
    found = {}
    for one in source.ranges.open:
        rows = await connection.fetch(SQL.position_at, source.ranges.lineage(one.id), at)
        found[one.id] = rows[0]["lsn"]
    return found
