"""Where a reader begins: an option becomes positions once, and is stored (change-feed 12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from relevo.errors import InvalidValue
from relevo.feed import reading

if TYPE_CHECKING:
    from relevo.feed.model import Mode
    from relevo.feed.reading import Source
    from relevo.postgres import Database, Transaction

Start = Literal["now", "beginning"] | datetime
"""Everything committed from now on, everything retained, or everything younger than an instant."""

FUTURE_SECONDS_MAX = 5.0
_SMALLEST = datetime.min.replace(tzinfo=UTC)


def check(start: object) -> Start:
    """Return a start option; refuse anything else by name."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise InvalidValue(f"start={start!r} has no time zone; say which instant is meant")
        return "beginning" if start == _SMALLEST else start
    if start == "now" or start == "beginning":
        return start
    raise InvalidValue(f"start is 'now', 'beginning' or a datetime with a time zone, not {start!r}")


async def resolve(
    connection: Database | Transaction, source: Source, mode: Mode, start: Start
) -> dict[int, int]:
    """Return the position of every open range that a start option means now."""
    if start == "now":
        return await reading.heads(connection, source)
    oldest = {one.id: _oldest(source, mode, one.id) for one in source.ranges.open}
    if start == "beginning":
        return oldest
    now: datetime = await connection.fetchval("select relevo.now()")
    if start > now + timedelta(seconds=FUTURE_SECONDS_MAX):
        raise InvalidValue(f"start={start.isoformat()} lies in the future; it is {now.isoformat()}")
    found = await reading.positions_at(connection, source, start)
    for range_id, lsn in found.items():
        reading.check_position(source, source.incarnation, mode, range_id, lsn)
    return found


def _oldest(source: Source, mode: Mode, range_id: int) -> int:
    if mode == "latest":
        return 0
    lineage = source.ranges.lineage(range_id)
    return max([source.oldest, *(source.trimmed.get(one, 0) for one in lineage)])
