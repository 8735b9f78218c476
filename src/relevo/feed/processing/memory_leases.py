"""Leases that live as long as the process: for programs of one process and for tests.

They are a private unit in the lease tables, with all that leases promise, that is dropped when the
processor stops; housekeeping removes the units of killed processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from relevo.errors import InvalidValue
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.reading import tokens
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.feed")
PREFIX: Final = "~memory-"
"""Names that begin with this are of leases in memory."""


class MemoryLeases:
    """Positions that a program keeps itself: `state` after the stop, handed in at the next start.

    >>> leases = MemoryLeases(state)  # doctest: +SKIP
    >>> orders.processor("kitchen", cook, leases_in=leases)  # doctest: +SKIP
    ... # after the host has stopped: leases.state
    """

    def __init__(self, state: str | None = None) -> None:
        self.state = state
        """Where the processor stood when it stopped, or None before; it is a token."""
        self.name = f"{PREFIX}{uuid4().hex}"

    async def keep(self, database: Database, wakeups: Wakeups, container: str, name: str) -> None:
        """Move the positions of the unit from the database into `state`."""
        unit = UnitHandle(database, wakeups, container, name, self.name)
        parts = [tokens.opened(one) for one in (await unit.tokens()).values()]
        places = tuple(place for part in parts for place in part.places)
        self.state = tokens.encode(msgspec.structs.replace(parts[0], places=places))
        await unit.delete()


def name_of(leases_in: str | MemoryLeases) -> str:
    """Return the name under which leases stand in the lease tables."""
    if isinstance(leases_in, MemoryLeases):
        return leases_in.name
    if leases_in.startswith(PREFIX):
        raise InvalidValue(f"names that begin with {PREFIX!r} are reserved for leases in memory")
    return leases_in


async def forget_abandoned(database: Database) -> None:
    """Remove memory leases of killed processes."""
    await database.write(SQL.forget_memory_units, PREFIX, idempotent=True)
