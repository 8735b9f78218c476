"""Where a reader begins: an option becomes places once, and they are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from relevo import limits
from relevo.errors import BadContinuation, Conflict, InvalidValue, NotFound
from relevo.feed.reading import log as reading
from relevo.feed.reading import tokens
from relevo.feed.reading.filters import Filter
from relevo.feed.reading.tokens import TokenPlace
from relevo.kernel.postgres import catalog, clock

if TYPE_CHECKING:
    from relevo.feed.model import Mode
    from relevo.feed.reading.log import FeedSource
    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.feed")
Start = datetime | str | Sequence[str] | Mapping[int, int]
"""Where to begin.

`"now"` is everything committed from now on, `"beginning"` everything retained, a datetime
everything younger than that instant. Other text is the name of a snapshot of a unit over the same
container (`"billing/friday"` where several have a `"friday"`), or a continuation token; a list is
of several tokens. A mapping gives LSNs by range.
"""

FUTURE_SECONDS_MAX = 5.0
_SMALLEST = datetime.min.replace(tzinfo=UTC)


def check(start: object) -> Start:
    """Return a start option; refuse anything else by name."""
    match start:
        case datetime():
            if start.tzinfo is None:
                raise InvalidValue(f"start={start!r} has no time zone; add one")
            return "beginning" if start == _SMALLEST else start
        case str() if start:
            return start
        case Mapping() if start and all(_is_position(*one) for one in start.items()):
            return dict(start)
        case list() | tuple() if start and all(isinstance(one, str) for one in start):
            return tuple(start)
    raise InvalidValue(
        "start is 'now', 'beginning', a datetime with a time zone, a snapshot's name, a token,"
        f" several tokens, or LSNs by range, not {start!r}"
    )


def record(start: Start) -> dict[str, Any]:
    """Return the text that a unit stores of its start option."""
    match start:
        case datetime():
            return {"kind": "time", "value": start.astimezone(UTC).isoformat()}
        case "now" | "beginning":
            return {"kind": start, "value": None}
        case str() if len(start) <= limits.NAME_LENGTH_MAX:
            return {"kind": "named", "value": start}
        case Mapping():
            return {"kind": "positions", "value": {str(k): start[k] for k in sorted(start)}}
        case _:
            body = msgspec.json.encode([start] if isinstance(start, str) else start)
            return {"kind": "token", "value": hashlib.blake2b(body, digest_size=16).hexdigest()}


async def resolve(
    connection: Database | Transaction,
    source: FeedSource,
    mode: Mode,
    start: Start,
    *,
    wanted: Filter | None = None,
    unit_id: int | None = None,
) -> tuple[TokenPlace, ...]:
    """Return the positions that a start option means now, also in ranges that were split.

    `unit_id` is the unit whose own snapshots come first; `wanted` the filter that is read with.
    """
    match start:
        case "now":
            return _places(source, await reading.heads(connection, source))
        case "beginning":
            oldest = {one.id: _oldest(source, mode, one.id) for one in source.ranges.open}
            return _places(source, oldest)
        case datetime():
            return _places(source, await _at(connection, source, mode, start))
        case Mapping():
            return _places(source, start)
        case str():
            found = await _snapshot(connection, source, mode, start, wanted, unit_id)
            return _of_tokens([start], source, mode, wanted) if found is None else found
        case _:
            return _of_tokens(start, source, mode, wanted)


async def current(
    connection: Database | Transaction, source: FeedSource, mode: Mode, places: Sequence[TokenPlace]
) -> tuple[TokenPlace, ...]:
    """Return positions in the ranges that are open now; refuse unreadable ones."""
    token = tokens.Token(incarnation=source.incarnation, mode=mode, places=tuple(places))
    found = tokens.follow_splits(token, source.ranges).places
    await reading.check_positions(
        connection, source, source.incarnation, mode,
        ((place.range_id, place.lsn) for place in found),
    )  # fmt: skip
    return found


async def _at(
    connection: Database | Transaction, source: FeedSource, mode: Mode, instant: datetime
) -> dict[int, int]:
    now = await clock.now(connection)
    if instant > now + timedelta(seconds=FUTURE_SECONDS_MAX):
        raise InvalidValue(
            f"start={instant.isoformat()} lies in the future; it is {now.isoformat()}"
        )
    found = await reading.positions_at(connection, source, instant)
    await reading.check_positions(connection, source, source.incarnation, mode, found.items())
    return found


async def _snapshot(
    connection: Database | Transaction,
    source: FeedSource,
    mode: Mode,
    name: str,
    wanted: Filter | None,
    unit_id: int | None,
) -> tuple[TokenPlace, ...] | None:
    rows = await connection.fetch(SQL.find_snapshots, UUID(source.incarnation), mode, name)
    rows = [row for row in rows if row["unit_id"] == unit_id] or rows
    if not rows:
        return None
    if len(rows) > 1:
        units = ", ".join(row["unit"] for row in rows)
        raise Conflict(
            f"{units} have a snapshot named {name!r}; choose one with 'processor/{name}'"
        )
    made_with = rows[0]["filter"]
    if made_with is not None and msgspec.json.decode(made_with, type=Filter) != wanted:
        raise Conflict(
            f"snapshot {name!r} is of a unit that reads with another filter, so it lies behind"
            " changes that were never delivered; start from 'beginning' or from an instant"
        )
    return msgspec.json.decode(rows[0]["places"], type=tuple[TokenPlace, ...])


def _of_tokens(
    texts: Sequence[str], source: FeedSource, mode: Mode, wanted: Filter | None
) -> tuple[TokenPlace, ...]:
    digest = None if wanted is None else wanted.digest
    places: list[TokenPlace] = []
    for text in texts:
        try:
            token = tokens.decode(text, incarnation=source.incarnation, mode=mode)
        except BadContinuation as error:
            raise NotFound(f"{text[:40]!r} is neither a snapshot nor a token: {error}") from error
        if token.filter not in (None, digest):
            raise BadContinuation("the token is of a reader with another filter, and lies behind"
                                  " changes that it never saw")  # fmt: skip
        places += token.places
    return tuple(places)


def _places(source: FeedSource, positions: Mapping[int, int]) -> tuple[TokenPlace, ...]:
    for range_id in positions:
        if range_id not in source.ranges.by_id:
            raise NotFound(f"container {source.name!r} has no range {range_id}")
    found = ((source.ranges.by_id[one].interval, one, lsn) for one, lsn in positions.items())
    return tuple(TokenPlace(one, interval.low, interval.high, lsn) for interval, one, lsn in found)


def _oldest(source: FeedSource, mode: Mode, range_id: int) -> int:
    if mode == "latest":
        return 0
    lineage = source.ranges.lineage(range_id)
    return max([source.oldest, *(source.trimmed.get(one, 0) for one in lineage)])


def _is_position(range_id: object, lsn: object) -> bool:
    return isinstance(range_id, int) and isinstance(lsn, int) and lsn >= 0
