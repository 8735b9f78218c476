"""A unit as a host that serves it knows it, and the wake-ups that units and hosts hear."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from relevo.kernel.leases.held import Holder
from relevo.kernel.leases.model import Membership, UnitSettings

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Transaction

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
        """Wake-up for everybody who serves the unit: something is free, or somebody came."""
        return f"unit:{self.id}"


def host_topic(incarnation: UUID) -> str:
    """Wake-up for one host: it was asked for something or given something."""
    return f"host:{incarnation}"
