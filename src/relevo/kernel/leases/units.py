"""A unit as a host that serves it knows it, how it is joined, and the wake-ups that are heard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from relevo.errors import LeaseLost, SettingsMismatch
from relevo.kernel.leases.held import Holder
from relevo.kernel.leases.model import Membership, UnitSettings
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    import asyncpg

    from relevo.kernel.postgres.database import Transaction

SQL = catalog.load(__package__)
Bootstrap = Callable[["Transaction", int], Awaitable[None]]
"""Makes what a part keeps with a unit, or verifies it: in the transaction that joins it, under the
unit's lock, with the unit's id."""


class Unit(Struct, kw_only=True, eq=False):
    """A unit that this host serves."""

    kind: str
    name: str
    settings: UnitSettings
    membership: Membership
    holder: Holder
    lease_names: tuple[str, ...] = ()
    bootstrap: Bootstrap | None = None
    id: int = 0
    served_by: UUID | None = None
    """The incarnation that has joined it."""

    @property
    def topic(self) -> str:
        """The wake-up of a unit's hosts: a lease is free, or a host has joined."""
        return f"unit:{self.id}"


def host_topic(incarnation: UUID) -> str:
    """Wake-up for one host: it was asked for something or given something."""
    return f"host:{incarnation}"


async def enter(
    tx: Transaction, unit: Unit, units: dict[int, Unit], host: UUID, name: str
) -> list[asyncpg.Record]:
    """Let a host join a unit; return the leases that an earlier life of the same name still held.

    The unit has its number afterwards, and stands under it in `units`.
    """
    wanted = unit.settings
    await tx.execute(SQL.stay_awake)
    await tx.execute(
        SQL.insert_unit, unit.kind, unit.name, wanted.strict,
        wanted.handoff_timeout, wanted.max_moves, wanted.rest, wanted.strategy,
    )  # fmt: skip
    row = await tx.fetchrow(SQL.find_unit, unit.kind, unit.name)
    assert row is not None
    stored = UnitSettings(**{k: v for k, v in row.items() if k != "id"})
    if stored != wanted:
        raise SettingsMismatch(
            f"unit {unit.kind}/{unit.name} exists with {stored}; this host asks for"
            f" {wanted}. All hosts of a unit need the same settings"
        )
    unit.id = row["id"]
    units[unit.id] = unit  # before the commit: a grant that is read at once finds it
    await tx.execute(SQL.lock_unit, unit.id)
    await tx.execute(SQL.insert_leases, unit.id, list(unit.lease_names))
    if unit.bootstrap is not None:
        await unit.bootstrap(tx, unit.id)
    asked = unit.membership
    joined = await tx.fetchval(
        SQL.insert_member, unit.id, host, asked.weight,
        asked.min_leases, asked.max_leases, asked.address,
    )  # fmt: skip
    if joined is None:
        raise LeaseLost(f"host {name!r} has ended meanwhile and can join nothing")
    mine = await tx.fetch(SQL.namesake_leases, unit.id, name, host)
    if not mine:
        return []
    ids = sorted(row["id"] for row in mine)
    await tx.execute(SQL.lock_leases, ids)
    return await tx.fetch(SQL.take_leases, ids, host)
