"""Placement groups and the actor types in them, as hosts declare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import SettingsMismatch
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.leases.units import Bootstrap
    from relevo.kernel.postgres import Database
    from relevo.kernel.postgres.database import Transaction

SQL = catalog.load("relevo.actors")


class DeclaredType(Struct, frozen=True):
    """An actor type as the hosts that serve it know it."""

    name: str
    placement_group: str
    persist: Literal["durable", "volatile", "stateless"]
    interface: dict[str, Any]
    """What the hosts say about its methods."""


class PlacementGroups:
    """Knows how many slots the placement groups have, and which types are in them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def bootstrap(self, name: str, slots: int) -> Bootstrap:
        """Return what `leases.join` does for a placement group: it is made with so many slots.

        It raises `SettingsMismatch` if the group has another number of slots, or if all groups
        together would have too many.
        """

        async def join(tx: Transaction, _unit: int) -> None:
            row = await tx.fetchrow(SQL.join_group, name, slots, limits.ACTOR_SLOTS_MAX)
            assert row is not None
            if row["slots"] is None:
                raise SettingsMismatch(
                    f"placement group {name!r} cannot have {slots} slots: all groups together have"
                    f" {row['total']} already, and {limits.ACTOR_SLOTS_MAX} at most"
                )
            if row["slots"] != slots:
                raise SettingsMismatch(
                    f"placement group {name!r} has {row['slots']} slots since it was first joined;"
                    f" this host asks for {slots}. Configure {row['slots']} on all hosts, or stop"
                    f" them all and run: relevo actor slots {name} {slots}"
                )

        return join

    async def slots(self, name: str) -> int | None:
        """Return how many slots a placement group has; None if no host has ever joined it."""
        slots: int | None = await self._database.fetchval(SQL.group_slots, name)
        return slots

    async def declare(self, types: Sequence[DeclaredType]) -> None:
        """Store the types that this host serves."""
        rows = [
            (
                one.name,
                one.placement_group,
                one.persist,
                msgspec.json.encode(one.interface).decode(),
            )
            for one in types
        ]
        if rows:
            columns = map(list, zip(*rows, strict=True))
            await self._database.write(SQL.declare_types, *columns, idempotent=True)

    async def declared(self) -> list[DeclaredType]:
        """Return the types that hosts have declared, by name."""
        rows = await self._database.fetch(SQL.declared_types)
        return [
            DeclaredType(
                row["name"], row["placement_group"], row["persist"],
                msgspec.json.decode(row["interface"]),
            )
            for row in rows
        ]  # fmt: skip
