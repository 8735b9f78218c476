"""A unit that one transaction has for itself: no plan, no cut and no fenced write beside it.

Order of locks: the unit's, then those of its leases in rising order. A lease that was
cut while its lock was waited for has children with higher numbers, so they are locked after it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from relevo.errors import Conflict, ContainerRecreated, NotFound
from relevo.feed.operating import lease_splitting, unit
from relevo.feed.operating.unit import UnitOptions
from relevo.feed.reading import log as reading
from relevo.feed.reading import start as starts
from relevo.kernel.leases.model import LeaseState
from relevo.kernel.postgres import catalog
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    import asyncpg

    from relevo.feed.model import Mode
    from relevo.feed.reading.log import FeedSource
    from relevo.feed.reading.start import Start
    from relevo.feed.reading.tokens import TokenPlace
    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.feed")


class UnitLease(Struct, frozen=True, kw_only=True):
    """One lease of a unit, as it is."""

    id: int
    token: str
    interval: Interval
    positions: dict[int, int]
    """LSN by range."""
    state: LeaseState
    owner: str | None
    running: bool
    """Whether its owner may still be at work on it."""
    epoch: int
    attempts: int
    checkpoint_at: datetime | None
    position_ts: datetime | None
    properties: dict[str, str]
    """Data that users store with it."""


class LockedUnit:
    """A unit and its leases in a transaction; wake `woken` after the commit."""

    def __init__(self, tx: Transaction, container: str, row: asyncpg.Record) -> None:
        self.tx = tx
        self.id: int = row["id"]
        self.mode: Mode = row["mode"]
        self.generation: int = row["generation"]
        self.incarnation = str(row["container_incarnation"])
        self.filter = msgspec.json.decode(row["settings"], type=UnitOptions).filter
        self.leases: list[UnitLease] = []
        self.woken: set[UUID] = set()
        self._container = container

    @classmethod
    async def lock(cls, tx: Transaction, container: str, name: str) -> LockedUnit:
        """Lock the unit of that name and all its leases; `NotFound` if it was never made."""
        await tx.execute(SQL.lock_unit, (await find(tx, name))["id"])
        locked = cls(tx, container, await find(tx, name))
        known: set[int] = set()
        while True:
            locked.leases = await read_leases(tx, locked.id)
            new = {lease.id for lease in locked.leases} - known
            if not new:
                return locked
            await tx.execute(SQL.lock_leases, sorted(new))
            known |= new

    def chosen(self, wanted: Collection[str] | None) -> list[UnitLease]:
        """Return the leases of these tokens, or all."""
        if unknown := set(wanted or ()) - {lease.token for lease in self.leases}:
            raise NotFound(f"the unit has no lease {min(unknown)!r}; state() shows those it has")
        return [lease for lease in self.leases if wanted is None or lease.token in wanted]

    async def source(self) -> FeedSource:
        """Return the container as it is; refuse another one of the same name."""
        source = await reading.look(self.tx, self._container)
        if source.incarnation != self.incarnation:
            raise ContainerRecreated(
                f"container {self._container!r} was dropped and created again since this unit was"
                " created; delete the unit and start its processor again"
            )
        return source

    async def places(self, leases: Collection[UnitLease]) -> tuple[TokenPlace, ...]:
        """Return where leases stand, in the ranges that are open now."""
        ranges = (await self.source()).ranges
        found = [unit.places_of(ranges, lease.interval, lease.positions) for lease in leases]
        return tuple(place for places in found for place in places)

    async def target(self, to: Start) -> tuple[TokenPlace, ...]:
        """Return the positions that an operator names; own snapshots come before others'."""
        return await starts.resolve(
            self.tx, await self.source(), self.mode, starts.check(to), wanted=self.filter,
            unit_id=self.id,
        )  # fmt: skip

    async def positions(
        self, intervals: Sequence[Interval], places: tuple[TokenPlace, ...]
    ) -> list[dict[int, int]]:
        """Return where leases over `intervals` must begin so as to go on from `places`."""
        source = await self.source()
        current = await starts.current(self.tx, source, self.mode, places)
        return [unit.positions_in(source.ranges, interval, current) for interval in intervals]

    async def set_state(self, leases: Collection[UnitLease], state: LeaseState) -> None:
        """Pause or resume leases."""
        rows = await self.tx.fetch(SQL.set_lease_states, [lease.id for lease in leases], state)
        self.woken |= {row["owner"] for row in rows} - {None}

    async def rewind(self, leases: Sequence[UnitLease], places: tuple[TokenPlace, ...]) -> None:
        """Let leases go on from `places`; their owners lose the calls under way."""
        found = await self.positions([lease.interval for lease in leases], places)
        ids = [lease.id for lease in leases]
        texts = [lease_splitting.position_text(positions) for positions in found]
        rows = await self.tx.fetch(SQL.rewind_leases, ids, texts)
        self.woken |= {row["owner"] for row in rows} - {None}
        await self.tx.execute(SQL.forget_failures, ids)
        await self.tx.execute(SQL.forget_done, ids)
        await self.tx.execute(SQL.raise_generation, self.id)


def check_idle(leases: Collection[UnitLease], *, force: bool) -> None:
    """Refuse to act under the owners of leases unless the caller insists."""
    for lease in leases:
        if not force and (lease.running or lease.state == "active"):
            state = f"owned by {lease.owner}" if lease.owner else "active"
            raise Conflict(
                f"lease {lease.token!r} is {state};"
                " pause the unit first, or pass force=True to take the work from its owners"
            )


async def find(connection: Database | Transaction, name: str) -> asyncpg.Record:
    """Return the row of a unit; `NotFound` if it was never made."""
    row = await connection.fetchrow(SQL.find_unit, name)
    if row is None:
        raise NotFound(f"no processor was ever started for {name}")
    return row


async def read_leases(connection: Database | Transaction, unit_id: int) -> list[UnitLease]:
    """Return the leases of a unit in the order of the hash space."""
    return [
        UnitLease(
            id=row["id"],
            token=row["name"],
            interval=Interval(row["epk_min"], row["epk_max"]),
            positions={int(k): v for k, v in msgspec.json.decode(row["position"]).items()},
            state=row["state"],
            owner=row["owner_name"],
            running=row["running"],
            epoch=row["epoch"],
            attempts=row["attempts"],
            checkpoint_at=row["checkpoint_at"],
            position_ts=row["position_ts"],
            properties=msgspec.json.decode(row["properties"]),
        )
        for row in await connection.fetch(SQL.unit_leases, unit_id)
    ]
