"""Where a bounded run ends: an option becomes LSNs once, when a host joins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from relevo.errors import InvalidValue
from relevo.feed.operating import unit
from relevo.feed.processing.isolation import inherited
from relevo.feed.reading import log as reading
from relevo.feed.reading import start as starts
from relevo.kernel.postgres import catalog
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from relevo.feed.model import Mode
    from relevo.feed.reading.filters import Filter
    from relevo.feed.reading.log import FeedSource
    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.feed")
Until = Literal["now"] | datetime | Mapping[int, int]
"""Everything that is committed now, or of that everything not younger than an instant, or up to
LSNs by range."""


def check(until: object) -> Until:
    """Return the end of a run; refuse anything else by name."""
    match until:
        case "now":
            return "now"
        case datetime() if until.tzinfo is not None:
            return until
        case Mapping() if until and all(
            isinstance(one, int) and isinstance(lsn, int) and lsn >= 0 for one, lsn in until.items()
        ):
            return dict(until)
    raise InvalidValue(
        f"until is 'now', a datetime with a time zone, or LSNs by range, not {until!r}"
    )


async def begin(
    tx: Transaction,
    unit_id: int,
    container: str,
    mode: Mode,
    until: Until | None,
    wanted: Filter | None,
) -> dict[int, int] | None:
    """Begin a run of the unit on this host, or join one: return where it ends.

    With "now" a run has one end, that of the host that began it, for as long as it lasts. The end
    is stored with the unit; a host without one runs without end, and so does the unit then.
    """
    stored = await tx.fetchval(SQL.find_until, unit_id)
    if until is None:
        if stored is not None:
            await tx.execute(SQL.set_until, unit_id, None)
        return None
    source = await reading.look(tx, container)
    if until == "now" and stored is not None and await tx.fetch(SQL.live_members, unit_id):
        found = msgspec.json.decode(stored, type=dict[int, int])
        if not await _all_reached(tx, unit_id, source, found):
            return found
    found = await _resolve(tx, source, mode, until, wanted)
    text = msgspec.json.encode({str(one): lsn for one, lsn in found.items()}).decode()
    await tx.execute(SQL.set_until, unit_id, text)
    return found


async def reached(
    connection: Database | Transaction, unit_id: int, container: str, bound: Mapping[int, int]
) -> bool:
    """Whether every lease of the unit stands at the end of the run or behind it."""
    source = await reading.look(connection, container)
    return await _all_reached(connection, unit_id, source, bound)


async def completed(connection: Database | Transaction, unit_id: int, container: str) -> bool:
    """Whether the unit has a bounded run, and it is at its end."""
    stored = await connection.fetchval(SQL.find_until, unit_id)
    if stored is None:
        return False
    bound = msgspec.json.decode(stored, type=dict[int, int])
    return await reached(connection, unit_id, container, bound)


async def _all_reached(
    connection: Database | Transaction, unit_id: int, source: FeedSource, bound: Mapping[int, int]
) -> bool:
    for row in await connection.fetch(SQL.feed_leases, unit_id):
        positions = msgspec.json.decode(row["position"], type=dict[int, int])
        interval = Interval(row["epk_min"], row["epk_max"])
        # A range that was split since may be named by its own id here, and by its parent's there.
        places = unit.places_of(source.ranges, interval, positions)
        ends = inherited(
            bound, {place.range_id: source.ranges.lineage(place.range_id) for place in places}
        )
        if any(place.lsn < ends.get(place.range_id, 0) for place in places):
            return False
    return True


async def _resolve(
    tx: Transaction, source: FeedSource, mode: Mode, until: Until, wanted: Filter | None
) -> dict[int, int]:
    places = await starts.resolve(tx, source, mode, until, wanted=wanted)
    open_ = {one.id: source.ranges.lineage(one.id) for one in source.ranges.open}
    found = inherited({place.range_id: place.lsn for place in places}, open_)
    if missing := open_.keys() - found.keys():
        raise InvalidValue(f"until has no LSN for range {min(missing)}; give an LSN for each")
    # Uncommitted changes with an LSN may come later, and must not lie behind the position.
    heads = await reading.heads(tx, source)
    return {one: min(lsn, heads[one]) for one, lsn in found.items()}
