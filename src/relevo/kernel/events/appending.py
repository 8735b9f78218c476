"""Appends events in the transaction that causes them; every part appends through here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.errors import TooLarge
from relevo.kernel.events import model
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.events.catalogue import Catalogue
    from relevo.kernel.events.model import Event
    from relevo.kernel.postgres import Transaction

SQL = catalog.load(__package__)


async def append(
    tx: Transaction, catalogue: Catalogue, events: Sequence[Event], pipeline: int | None = None
) -> None:
    """Append events of a catalogue, as the last statement of a transaction.

    `EventLog.append` explains the order of events, and what is refused before anything is written.
    """
    if len(events) > model.EVENTS_PER_APPEND_MAX:
        raise TooLarge(
            f"{len(events)} events in one append; at most {model.EVENTS_PER_APPEND_MAX} are"
            " taken, use several transactions"
        )
    if events:
        rows = [catalogue.row(event) for event in events]
        await tx.execute(SQL.append, *map(list, zip(*rows, strict=True)), pipeline)
