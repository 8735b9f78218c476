"""Reads the log: some stripes from their positions on, in the order of LSNs, never past a gap.

One statement reads one stripe for a lease of a processor, or all of them for a pull reader. It
gives whole batches, and a page may end within one: a position is always that of an event.
"""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

from relevo import limits
from relevo.errors import FeedExpired, FeedRegressed, InvalidValue
from relevo.kernel.events.batches import unfold
from relevo.kernel.events.model import LOG_NAME, LogState, Recorded, Start, Stripe
from relevo.kernel.postgres import catalog, clock, pages, restores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import asyncpg

    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load(__package__)
POLL = SQL.poll_events
"""The poll of a feed processor for its idle leases, with rows as in the feed's own."""
FUTURE_SECONDS_MAX = 5.0


async def look(connection: Database | Transaction) -> LogState:
    """Read the state of the log."""
    rows = await connection.fetch(SQL.log_state)
    first = rows[0]
    return LogState(
        incarnation=str(first["incarnation"]),
        kept=first["kept"],
        trimmed_before=first["trimmed_before"],
        last_lsn=first["last_lsn"],
        lost=restores.lost_in(first["lost"]),
        stripes=tuple(
            Stripe(id=row["id"], kind=row["kind"], trimmed_lsn=row["trimmed_lsn"]) for row in rows
        ),
    )


async def read(
    connection: Database | Transaction,
    incarnation: str,
    positions: Mapping[int, int],
    *,
    max_items: int = limits.FEED_ITEMS_DEFAULT,
    max_bytes: int = limits.FEED_BYTES_MAX,
    frugal: bool = False,
) -> tuple[Recorded, ...]:
    """Return the next events of some stripes: up to `max_items`, within `max_bytes` but for one.

    `frugal` never holds many more bytes than that, for the price of more round trips.
    Raises `FeedExpired` if events behind a position were trimmed before they were read.
    """
    if not 1 <= max_items <= limits.FEED_ITEMS_MAX:
        raise InvalidValue(f"max_items is 1 to {limits.FEED_ITEMS_MAX}, not {max_items}")
    statement = (SQL.read_events, list(positions), list(positions.values()), max_items)
    batches: Sequence[asyncpg.Record]
    if frugal:
        batches = (
            await pages.fetch_page(connection, *statement, rows=max_items, bytes_max=max_bytes)
        ).items
    else:
        batches = await connection.fetch(*statement)
    if batches and batches[0]["last"] is None:
        raise _expired(batches[0]["stripe"], batches[0]["after"], batches[0]["trimmed_lsn"])
    events = [one for batch in batches for one in unfold(batch, incarnation, batch["after"])]
    events.sort(key=attrgetter("lsn"))
    return _within(events[:max_items], max_bytes)


def check_positions(state: LogState, positions: Mapping[int, int]) -> None:
    """Refuse positions that the log cannot be read from; nothing is skipped silently."""
    for stripe in state.stripes:
        lsn = positions.get(stripe.id, stripe.trimmed_lsn)
        if lsn > state.last_lsn:
            raise FeedRegressed(
                f"position {lsn} of {LOG_NAME} is ahead of the database, which has given out"
                f" {state.last_lsn}: was it restored from a backup?"
            )
        if restores.is_lost(lsn, state.lost):
            raise FeedRegressed(restores.regressed(lsn, LOG_NAME))
        if lsn < stripe.trimmed_lsn:
            raise _expired(stripe.id, lsn, stripe.trimmed_lsn)


async def resolve(
    connection: Database | Transaction, state: LogState, start: Start
) -> dict[int, int]:
    """Return the position of every stripe that a start option means now."""
    if start == "now":
        return await heads(connection)
    if start == "beginning":
        return {stripe.id: stripe.trimmed_lsn for stripe in state.stripes}
    now = await clock.now(connection)
    if start > now + timedelta(seconds=FUTURE_SECONDS_MAX):
        raise InvalidValue(f"start={start.isoformat()} lies in the future; it is {now.isoformat()}")
    return await positions_at(connection, state, start)


async def heads(connection: Database | Transaction) -> dict[int, int]:
    """Return the highest visible LSN of every stripe: "now"."""
    return {row["id"]: row["lsn"] for row in await connection.fetch(SQL.heads)}


async def positions_at(
    connection: Database | Transaction, state: LogState, at: datetime
) -> dict[int, int]:
    """Return, for every stripe, the position behind which all that is younger than `at` lies."""
    if state.trimmed_before is not None and at < state.trimmed_before:
        raise FeedExpired(
            f"events up to {state.trimmed_before.isoformat()} were trimmed; {at.isoformat()} is"
            " before that. Start at 'beginning' for everything that is kept",
            oldest=max(stripe.trimmed_lsn for stripe in state.stripes),
        )
    return {row["id"]: row["lsn"] for row in await connection.fetch(SQL.positions_at, at)}


def _expired(stripe: int, lsn: int, oldest: int) -> FeedExpired:
    return FeedExpired(
        f"position {lsn} in stripe {stripe} of {LOG_NAME} is older than what is kept; the oldest"
        f" that can be read from is {oldest}. Start anew from 'beginning', or keep events longer",
        oldest=oldest,
    )


def _within(events: Sequence[Recorded], max_bytes: int) -> tuple[Recorded, ...]:
    size = 0
    for index, event in enumerate(events):
        size += len(event.body)
        if size > max_bytes and index:
            return tuple(events[:index])
    return tuple(events)
