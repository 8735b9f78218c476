"""A deployment unit: one set of leases over one container, shared by the hosts that serve it.

Bootstrap is one transaction under the unit's lock: resolve the start position of every range, store
it in the leases, all or nothing. Later hosts verify it instead.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.errors import (
    ContainerRecreated,
    InvalidValue,
    LeaseCoverage,
    ModeMismatch,
    SettingsMismatch,
    Unavailable,
)
from relevo.feed.model import Mode
from relevo.feed.reading import log as reading
from relevo.feed.reading import start as starts
from relevo.feed.reading.filters import Filter
from relevo.feed.reading.pull import check_mode
from relevo.feed.reading.start import Start
from relevo.feed.reading.tokens import TokenPlace
from relevo.kernel import faults
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger
from relevo.store.keys import SPACE_MAX, SPACE_MIN
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from relevo.feed.reading.log import FeedSource
    from relevo.kernel.postgres import Transaction
    from relevo.store.ranges import RangeMap

SQL = catalog.load("relevo.feed")
log = get_logger(__name__)


class UnitDeleted(Unavailable):
    """A unit went while a host joined it."""


class VersionHold(Struct, frozen=True):
    """How much longer versions are kept for a unit that has not read them; never without bound."""

    seconds: float | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, given: timedelta | int | None) -> VersionHold:
        """Return the bound that a caller gave: a time, or bytes for each range."""
        match given:
            case None:
                return cls()
            case timedelta() if given > timedelta(0):
                return cls(seconds=given.total_seconds())
            case int() if given > 0 and not isinstance(given, bool):
                return cls(bytes=given)
        raise InvalidValue(f"hold is a timedelta or a number of bytes, above 0, not {given!r}")


class UnitOptions(Struct, frozen=True, kw_only=True):
    """Options that the first host of a unit decides for all."""

    leases: int | None = None
    """Minimum number of leases, made by halving ranges; None is one per range."""
    follow_splits: bool = True
    """Whether a lease whose range was split is replaced by one lease per range."""
    filter: Filter | None = None
    """Which changes are delivered; None is all."""


class Definition(Struct, frozen=True, kw_only=True):
    """The unit that a host wants to join."""

    container: str
    mode: Mode
    start: Start
    options: UnitOptions
    on_start_mismatch: Literal["warn", "ignore", "error"] = "warn"
    hold: VersionHold = VersionHold()
    block_keys: bool = False
    """Whether later changes of a key wait behind its dead letter."""


async def bootstrap(tx: Transaction, unit_id: int, wanted: Definition) -> None:
    """Make the unit's leases, or verify that this host fits the unit that is there."""
    if not await tx.fetch(SQL.unit_exists, unit_id):
        raise UnitDeleted(f"the unit {unit_id} was deleted while this host joined it; join again")
    source = await reading.look(tx, wanted.container)
    stored = await tx.fetchrow(SQL.find_feed_unit, unit_id)
    if stored is not None:
        await _verify(tx, unit_id, wanted, source, stored)
        return
    check_mode(wanted.mode, source)
    options = wanted.options
    given = await starts.resolve(tx, source, wanted.mode, wanted.start, wanted=options.filter)
    places = await starts.current(tx, source, wanted.mode, given)
    cut = cut_leases(source, options.leases)
    positions = [positions_in(source.ranges, interval, places) for _, interval in cut]
    await tx.execute(
        SQL.insert_feed_unit, unit_id, source.container_id, UUID(source.incarnation), wanted.mode,
        _json(starts.record(wanted.start)), _json(options), *_policies(wanted),
    )  # fmt: skip
    await faults.point("mid_bootstrap")
    await tx.execute(
        SQL.insert_feed_leases,
        unit_id,
        [interval.low for _, interval in cut],
        [interval.high for _, interval in cut],
        [_json({str(range_id): lsn for range_id, lsn in found.items()}) for found in positions],
    )


def cut_leases(source: FeedSource, at_least: int | None) -> list[tuple[int, Interval]]:
    """Return range and interval of each lease: one per range, or finer by halving."""
    cut = [(one.id, one.interval) for one in source.ranges.open]
    while at_least is not None and len(cut) < at_least:
        cut = [(range_id, half) for range_id, interval in cut for half in interval.split(2)]
    return cut


async def _verify(
    tx: Transaction, unit_id: int, wanted: Definition, source: FeedSource, stored: asyncpg.Record
) -> None:
    if str(stored["container_incarnation"]) != source.incarnation:
        raise ContainerRecreated(
            f"container {wanted.container!r} was dropped and created again since this unit was"
            " created; use another processor name, or delete the unit"
        )
    if stored["mode"] != wanted.mode:
        raise ModeMismatch(
            f"the unit is bound to mode {stored['mode']!r}; this host asks for {wanted.mode!r}."
            " Use another processor name for the other mode"
        )
    options = msgspec.json.decode(stored["settings"], type=UnitOptions)
    if options != wanted.options:
        raise SettingsMismatch(
            f"the unit was made with {options}; this host asks for {wanted.options}."
            " All hosts of a unit need the same"
        )
    _check_start(wanted, msgspec.json.decode(stored["start"]))
    policies = _policies(wanted)
    if (stored["hold_seconds"], stored["hold_bytes"], stored["block_keys"]) != policies:
        await tx.execute(SQL.set_policies, unit_id, *policies)
    check_coverage(
        [Interval(r["epk_min"], r["epk_max"]) for r in await tx.fetch(SQL.feed_leases, unit_id)]
    )


def _policies(wanted: Definition) -> tuple[float | None, int | None, bool]:
    return wanted.hold.seconds, wanted.hold.bytes, wanted.block_keys


def _check_start(wanted: Definition, stored: Mapping[str, Any]) -> None:
    """Report a host whose `start` differs from that of the existing unit, which is kept."""
    asked = starts.record(wanted.start)
    if "kind" not in stored or all(stored[key] == asked[key] for key in asked):
        return
    made_with = stored["kind"] if stored["value"] is None else stored["value"]
    text = (
        f"the unit was made with start={made_with!r}; start={wanted.start!r} has no effect on it."
        " To go on from somewhere else, rewind it"
    )
    if wanted.on_start_mismatch == "error":
        raise SettingsMismatch(text)
    if wanted.on_start_mismatch == "warn":
        log.warning("feed.start_ignored", container=wanted.container, reason=text)


def check_coverage(intervals: Sequence[Interval]) -> None:
    """Raise unless the intervals tile the hash space: no gap, no overlap."""
    for gap in gaps(intervals):
        raise LeaseCoverage(
            f"no lease of the unit covers {gap}; fill it with repair(start), from the position"
            " that you know to be safe"
        )


def gaps(intervals: Sequence[Interval]) -> list[Interval]:
    """Return the parts that the intervals do not cover; raise if they overlap."""
    ordered = sorted(intervals)
    edges = [SPACE_MIN, *(edge for one in ordered for edge in (one.low, one.high)), SPACE_MAX]
    found = []
    for high, low in list(pairwise(edges))[::2]:
        if high > low:
            raise LeaseCoverage(
                f"the unit's leases overlap between {low!r} and {high!r}, and Relevo cannot know"
                " which is right; delete the unit and start it again from its former position"
            )
        if high < low:
            found.append(Interval(high, low))
    return found


def places_of(
    ranges: RangeMap, interval: Interval, positions: Mapping[int, int]
) -> tuple[TokenPlace, ...]:
    """Return where a lease stands in the open ranges; a range that was split passes its position
    to its children.
    """
    found = []
    for one in ranges.over(interval):
        known = [positions[i] for i in ranges.lineage(one.id) if i in positions]
        part = one.interval.intersect(interval)
        found.append(TokenPlace(one.id, part.low, part.high, known[0] if known else 0))
    return tuple(found)


def positions_in(
    ranges: RangeMap, interval: Interval, places: Sequence[TokenPlace]
) -> dict[int, int]:
    """Return the positions of a lease that goes on from `places` and misses nothing after them.

    Places that are finer than the lease count by the one that is furthest back.
    """
    found: dict[int, int] = {}
    for one in ranges.over(interval):
        part = one.interval.intersect(interval)
        near = sorted(
            (place.interval.intersect(part), place.lsn)
            for place in places
            if place.range_id == one.id and place.interval.overlaps(part)
        )
        reached = part.low
        for piece, _ in near:
            if piece.low > reached:
                break
            reached = max(reached, piece.high)
        if reached < part.high:
            raise InvalidValue(
                f"the given position does not cover the hashes {reached!r} to {part.high!r} of"
                f" range {one.id}; give one that covers {interval}"
            )
        found[one.id] = min(lsn for _, lsn in near)
    return found


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
