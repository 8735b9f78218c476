"""Series as their rows hold them: what a row says of its series, and how rows are made ready."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.errors import RelevoError
from relevo.jobs.core import series
from relevo.jobs.states import READY
from relevo.kernel.postgres import catalog
from relevo.kernel.recurrence import parse
from relevo.kernel.zones import zone_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from relevo.jobs.core.series import Due, Occurrence, Series
    from relevo.kernel.postgres import Transaction

SQL = catalog.load("relevo.jobs")


def due(row: asyncpg.Record) -> Due:
    """Return what happens to a row of `due_series`."""
    postponed = row["postpone_until"] if row["postpone_until"] != row["nominal"] else None
    return series.due(
        _plan(row), _occurrence(row), now=row["now"], postponed_until=postponed,
        caught_up=row["caught_up"], unfinished=row["running"],
    )  # fmt: skip


def all_due(rows: Sequence[asyncpg.Record]) -> list[tuple[asyncpg.Record, Due | RelevoError]]:
    """Return what happens to each row; an error for one that cannot be computed here."""
    found: list[tuple[asyncpg.Record, Due | RelevoError]] = []
    for row in rows:
        try:
            found.append((row, due(row)))
        except RelevoError as error:
            found.append((row, error))
    return found


def resumed(row: asyncpg.Record, now: datetime) -> Due:
    """Return how a row of `recurrence_of` runs now because somebody says so: it is not late."""
    return series.due(_plan(row), _occurrence(row), now=now, postponed_until=now)


def late(row: asyncpg.Record) -> str | None:
    """Return what a row of `ready_series` is to say of its lateness, None if it is in time."""
    return series.late(row["now"] - row["since"], _grace(_told(row)))


async def make_ready(
    tx: Transaction, found: Sequence[tuple[asyncpg.Record, Due]], *, status: int = READY
) -> None:
    """Tell rows what their claims need, and let them into their chains.

    `status` is what they have then; one that is left waiting is moved by the caller.
    """
    await tx.execute(
        SQL.start_series_rows, [row["id"] for row, _ in found],
        [one.occurrence.nominal for _, one in found],
        [one.next.nominal if one.next else None for _, one in found],
        [_queues(row) for row, _ in found], [one.friendly for _, one in found],
        [one.occurrence.ordinal for _, one in found],
        [one.next.ordinal if one.next else None for _, one in found], status,
    )  # fmt: skip


def _told(row: asyncpg.Record) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.json.decode(row["details"] or "{}")
    return told


def _grace(told: dict[str, Any]) -> timedelta:
    return timedelta(seconds=told.get("misfire_grace", series.MISFIRE_GRACE.total_seconds()))


def _plan(row: asyncpg.Record) -> Series:
    told = _told(row)
    overlap = told.get("overlap", "queue")
    return series.Series(
        pattern=parse(row["pattern"]), anchor=row["anchor"],
        zone=None if row["zone"] is None else zone_of(row["zone"]),
        missed=told.get("missed", "coalesce"),
        # The chain of the series sees to it that runs follow each other.
        overlap="parallel" if overlap == "queue" else overlap,
        misfire_grace=_grace(told),
    )  # fmt: skip


def _occurrence(row: asyncpg.Record) -> Occurrence:
    return series.Occurrence(row["nominal"], _told(row).get("ordinal") or 0)


def _queues(row: asyncpg.Record) -> bool:
    """Whether runs of its series follow each other."""
    return bool(_told(row).get("overlap", "queue") == "queue")
