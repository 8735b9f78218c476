"""Hosts and leases for operators: list, drain, move, pause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from relevo.errors import Conflict, NotFound
from relevo.kernel.leases.model import HostInfo, LeaseInfo
from relevo.kernel.leases.states import LEASE, LEASE_EVENTS
from relevo.kernel.leases.units import host_topic
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import datetime
    from uuid import UUID

    import asyncpg

    from relevo.kernel.leases.model import LeaseState
    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres.database import Database, Transaction
    from relevo.kernel.postgres.wakeups import Wakeups

SQL = catalog.load(__package__)


class Directory:
    """Reads and asks; needs no host of its own."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups

    async def hosts(
        self, *, after: tuple[str, UUID] | None = None, limit: int = 100
    ) -> list[HostInfo]:
        """Return hosts by name; `after` is the name and incarnation of the last one seen."""
        name, incarnation = after or (None, None)
        rows = await self._database.fetch(SQL.list_hosts, name, incarnation, limit)
        return [_read(HostInfo, row, "labels") for row in rows]

    async def ended_lives(self, incarnations: Iterable[UUID]) -> tuple[datetime, set[UUID]]:
        """Return the store's time, and which lives have ended with their lease passed, too."""
        row = await self._database.fetchrow(SQL.ended_lives, list(incarnations))
        assert row is not None
        return row["now"], set(row["ended"])

    async def host_page(self, after: tuple[str, UUID] | None, limit: int) -> Fetched[HostInfo]:
        """Return the same, no more than a page has bytes."""
        name, incarnation = after or (None, None)
        found = await self._database.fetch_page(
            SQL.list_hosts, name, incarnation, limit + 1, rows=limit
        )
        return found.each(lambda row: _read(HostInfo, row, "labels"))

    async def leases(
        self,
        *,
        kind: str | None = None,
        unit: str | None = None,
        after: tuple[str, str, str] | None = None,
        limit: int = 100,
    ) -> list[LeaseInfo]:
        """Return leases by kind, unit and name; `after` are those of the last one seen."""
        last = after or ("", "", "")
        rows = await self._database.fetch(SQL.list_leases, kind, unit, *last, limit)
        return [_read(LeaseInfo, row, "position") for row in rows]

    async def lease_page(
        self, kind: str | None, unit: str | None, after: tuple[str, str, str] | None, limit: int
    ) -> Fetched[LeaseInfo]:
        """Return the same, no more than a page has bytes."""
        last = after or ("", "", "")
        found = await self._database.fetch_page(
            SQL.list_leases, kind, unit, *last, limit + 1, rows=limit
        )
        return found.each(lambda row: _read(LeaseInfo, row, "position"))

    async def drain(self, host: str, *, draining: bool = True) -> None:
        """Ask a host to hand over all it owns, or let it take leases again."""
        rows = await self._database.write(SQL.drain_host_by_name, host, draining, idempotent=True)
        if not rows:
            raise NotFound(f"no host named {host!r} is running; `relevo host list` shows them")
        self._wakeups.send(*(host_topic(row["incarnation"]) for row in rows))

    async def move(
        self,
        kind: str,
        unit: str,
        name: str,
        *,
        to: str,
        note: Callable[[Transaction], Awaitable[None]] | None = None,
    ) -> None:
        """Ask for one lease to go to the host named `to`; `note` writes in the same transaction."""

        async def ask(tx: Transaction) -> list[asyncpg.Record]:
            rows = await tx.fetch(SQL.ask_move, kind, unit, name, to)
            if rows and note is not None:
                await note(tx)
            return list(rows)

        rows = await self._database.run(ask, idempotent=note is None)
        if not rows:
            raise Conflict(
                f"lease {name!r} of {kind}/{unit} cannot move to {to!r}: the host must be live,"
                " serve that unit and not own the lease, and a host must own it now"
            )
        self._wakeups.send(*(host_topic(row["owner"]) for row in rows))

    async def set_state(self, kind: str, unit: str, name: str, state: LeaseState) -> None:
        """Pause, block or resume one lease; its owner finishes what it does and lets go.

        `Conflict` if it is in a state from which nothing leads there (`states.LEASE`).
        """
        event = LEASE_EVENTS[state]
        before = [state, *LEASE.sources(event)]
        rows = await self._database.write(
            SQL.set_lease_state, kind, unit, name, state, before, idempotent=True
        )
        if not rows:
            found = await self._database.fetchval(SQL.lease_state, kind, unit, name)
            if found is None:
                raise NotFound(f"no lease {name!r} in {kind}/{unit}")
            LEASE.next(found, event)
        owners = (host_topic(row["owner"]) for row in rows if row["owner"])
        self._wakeups.send(*owners, *(f"unit:{row['unit_id']}" for row in rows))

    async def counts(self) -> dict[str, int]:
        """Return how many leases are in which state."""
        return {row["state"]: row["leases"] for row in await self._database.fetch(SQL.count_leases)}


def _read(kind: Any, row: asyncpg.Record, json_field: str) -> Any:
    values = dict(row)
    values[json_field] = msgspec.json.decode(values[json_field])
    return kind(**values)
