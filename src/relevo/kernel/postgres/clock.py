"""Relevo's clock, read from Python."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database, Transaction

SQL = catalog.load(__package__)
MARK_BEHIND: Final = SQL.keep_mark
log = get_logger(__name__)
SHIFT_WARN_SECONDS = 1.0


class ClockReading(Struct, frozen=True, kw_only=True):
    """The store's time and how the clocks stand to each other."""

    now: datetime
    server_clock: datetime
    shift: float
    """Seconds by which `relevo.now()` is ahead of the server's own clock."""
    skew: float
    """Seconds by which the server's clock is ahead of this machine's."""


async def raise_mark(database: Database) -> float:
    """Make the time that was handed out stick; return the shift in force.

    After a failover to a server whose clock is behind, the shift grows, so that time goes on from
    where it was instead of standing still until the clock has caught up.
    """
    row = (await database.write(SQL.raise_mark, idempotent=True))[0]
    if row["added"] > SHIFT_WARN_SECONDS:
        log.warning("clock.moved_on", seconds=row["added"], reason="the server's clock fell behind")
    shift: float = row["shift"]
    return shift


async def now(connection: Database | Transaction) -> datetime:
    """Return the time by which Relevo decides, in the caller's transaction if it is one."""
    found: datetime = await connection.fetchval(SQL.now)
    return found


async def read(database: Database) -> ClockReading:
    """Return the store's time and the skew between server and this machine."""
    sent = time.time()
    row = await database.fetchrow(SQL.read_clock)
    assert row is not None
    middle = (sent + time.time()) / 2
    return ClockReading(
        now=row["now"],
        server_clock=row["server_clock"],
        shift=row["shift"],
        skew=row["server_clock"].timestamp() - middle,
    )
