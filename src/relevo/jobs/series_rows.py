"""Rows of series: reads a series from its row, and makes due rows ready."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.errors import RelevoError
from relevo.jobs.core import series
from relevo.jobs.states import READY
from relevo.kernel.postgres import catalog
from relevo.kernel.recurrence import parse
from relevo.kernel.recurrence.zones import zone_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from relevo.jobs.core.series import Due, Occurrence, Series
    from relevo.kernel.postgres import Transaction

SQL = catalog.load("relevo.jobs")


def due(row: asyncpg.Record) -> Due:
    """Return the decision about a row of `due_series`."""
    postponed = row["postpone_until"] if row["postpone_until"] != row["nominal"] else None
    return series.due(
        _plan(row), _occurrence(row), now=row["now"], postponed_until=postponed,
        caught_up=row["caught_up"], unfinished=row["running"],
    )  # fmt: skip


def all_due(rows: Sequence[asyncpg.Record]) -> list[tuple[asyncpg.Record, Due | RelevoError]]:
    """Return the decision about each row; an error for one that cannot be computed here."""
    found: list[tuple[asyncpg.Record, Due | RelevoError]] = []
    for row in rows:
        try:
            found.append((row, due(row)))
        except RelevoError as error:
            found.append((row, error))
    return found


def resumed(row: asyncpg.Record, now: datetime) -> Due:
    """Return the decision about a row of `recurrence_of` that is resumed now: it is not late."""
    return series.due(_plan(row), _occurrence(row), now=now, postponed_until=now)


def late(row: asyncpg.Record) -> str | None:
    """Return the note about the lateness of a row of `ready_series`; None if it is in time."""
    return series.late(row["now"] - row["since"], _grace(_details(row)))


async def make_ready(
    tx: Transaction, found: Sequence[tuple[asyncpg.Record, Due]], *, status: int = READY
) -> None:
    """Prepare rows for their claims, and put them into their chains.

    `status` is their new status; the caller moves a row that stays waiting.
    """
    await tx.execute(
        SQL.start_series_rows, [row["id"] for row, _ in found],
        [one.occurrence.nominal for _, one in found],
        [one.next.nominal if one.next else None for _, one in found],
        [_queues(row) for row, _ in found], [one.friendly for _, one in found],
        [one.occurrence.ordinal for _, one in found],
        [one.next.ordinal if one.next else None for _, one in found], status,
    )  # fmt: skip


def _details(row: asyncpg.Record) -> dict[str, Any]:
    details: dict[str, Any] = msgspec.json.decode(row["details"] or "{}")
    return details


def _grace(details: dict[str, Any]) -> timedelta:
    return timedelta(seconds=details.get("misfire_grace", series.MISFIRE_GRACE.total_seconds()))


def _plan(row: asyncpg.Record) -> Series:
    details = _details(row)
    overlap = details.get("overlap", "queue")
    return series.Series(
        pattern=parse(row["pattern"]), anchor=row["anchor"],
        zone=None if row["zone"] is None else zone_of(row["zone"]),
        missed=details.get("missed", "coalesce"),
        # The chain of the series sees to it that runs follow each other.
        overlap="parallel" if overlap == "queue" else overlap,
        misfire_grace=_grace(details),
    )  # fmt: skip


def _occurrence(row: asyncpg.Record) -> Occurrence:
    return series.Occurrence(row["nominal"], _details(row).get("ordinal") or 0)


def _queues(row: asyncpg.Record) -> bool:
    """Whether runs of its series follow each other."""
    return bool(_details(row).get("overlap", "queue") == "queue")
