"""Recognises a database that was restored from a backup, or copied, since hosts last served it.

`pg_dump` and logical replication move rows to another server, database or schema. The first host
that starts there logs it once. LSNs continue above every one that may have been used after the
backup. Positions in between belong to lost changes, and are refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from relevo.errors import SchemaError
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database

SQL = catalog.load(__package__)
log = get_logger(__name__)
Lost = tuple[tuple[int, int], ...]
"""Intervals of LSNs that may have been used after a backup that was restored."""
_lost: Final = msgspec.json.Decoder(Lost)


async def recognise(database: Database, *, serving: bool) -> None:
    """Record which database this is; the first host of a restored one logs a warning.

    Every client calls this when it connects, so that no write reuses an LSN.
    """
    found = (await database.write(SQL.recognise_database, serving, idempotent=True))[0][0]
    if found == "behind":
        raise SchemaError(
            f"rows of the schema {database.schema} were copied here without its sequences, so new"
            " changes would be skipped; set the sequences as in docs/how-to/upgrade-postgresql.md,"
            " then start again"
        )
    if found == "restored":
        log.warning(
            "database.restored",
            schema=database.schema,
            reason="this is not the database that hosts have served so far: it was restored,"
            " copied or upgraded. Work goes on from what it holds",
        )


class Served(Struct, frozen=True):
    """Whether hosts have served this database before."""

    is_same: bool | None
    """Whether it is the one that was served so far; None if none was."""
    restored_at: datetime | None


async def served(database: Database) -> Served:
    """Return whether this is the database that was served so far; changes nothing."""
    row = await database.fetchrow(SQL.served_database)
    assert row is not None
    return Served(row["is_served"], row["restored_at"])


def lost_in(text: str) -> Lost:
    """Return the lost intervals as a row of the database holds them."""
    return _lost.decode(text)


def is_lost(lsn: int, lost: Lost) -> bool:
    """Whether a position was taken after a backup that was restored since.

    >>> is_lost(7, ((5, 9),)), is_lost(4, ((5, 9),))
    (True, False)
    """
    return any(low <= lsn <= high for low, high in lost)


def regressed(lsn: int, place: str) -> str:
    """Return why a lost position is refused, and what to do."""
    return (
        f"position {lsn} of {place} was taken after the backup from which the database was restored"
        " since; start again from the beginning or from a time before the backup"
    )
