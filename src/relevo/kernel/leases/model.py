"""The nouns of leasing: hosts, units, members, leases, fences. Plain data, no I/O."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

from relevo.errors import SettingsError

LeaseState = Literal["active", "paused", "blocked"]
Strategy = Literal["equal", "load"]
Position = dict[str, Any]


class LeaseConfig(Struct, frozen=True, kw_only=True):
    """How a host keeps its leases; one setting per host, since it has one heartbeat. Seconds."""

    expiration: float = 10.0
    """A host that has not renewed for this long has lapsed (ttl)."""
    renew: float = 3.0
    """Time between two renewals; at most a third of `expiration`."""
    acquire: float = 5.0
    """Time between two ticks of the balancer, give or take a fifth."""
    loop_stall_max: float = 30.0
    """An event loop that has not ticked for this long no longer renews."""

    def __post_init__(self) -> None:
        for name in ("expiration", "renew", "acquire", "loop_stall_max"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"lease {name} must be above 0, not {getattr(self, name)!r}")
        if self.renew > self.expiration / 3:
            raise SettingsError(
                f"lease renew is {self.renew} s and expiration {self.expiration} s: renew may be"
                " at most a third of it, so that two lost renewals do not cost the leases"
            )

    @property
    def margin(self) -> float:
        """How long before its lapse a host stops acting by itself."""
        return max(0.1 * self.expiration, min(1.0, self.expiration / 3))


class UnitSettings(Struct, frozen=True, kw_only=True):
    """The settings of a unit, equal on all hosts; stored when it is first joined."""

    strict: bool = False
    """Two owners must never act at the same time: no host seizes from a live one."""
    handoff_timeout: float = 30.0
    max_moves: int | None = None
    """Hand-offs that may be pending per donor; None is no limit."""
    rest: float = 30.0
    """A lease that has moved stays this long, unless the surplus is above one."""
    strategy: Strategy = "equal"
    """Whether hosts get leases by number, or, where there is load, by how busy these are."""


FEED = UnitSettings()
ACTORS = UnitSettings(strict=True, handoff_timeout=15.0, max_moves=8)
SINGLETON = UnitSettings(strict=True, handoff_timeout=5.0)
"""Matcher, housekeeping: one lease, one owner."""


class Membership(Struct, frozen=True, kw_only=True):
    """The request of a host in a unit."""

    weight: float = 1.0
    min_leases: int = 0
    max_leases: int | None = None
    address: str | None = None
    """Where the host takes what is for its leases, if that comes from other hosts."""

    def __post_init__(self) -> None:
        if not (self.weight > 0 and math.isfinite(self.weight)):
            raise SettingsError(f"weight must be a number above 0, not {self.weight!r}")
        if self.min_leases < 0:
            raise SettingsError(f"min_leases must be at least 0, not {self.min_leases!r}")
        if self.max_leases is not None and self.max_leases < self.min_leases:
            raise SettingsError(
                f"max_leases ({self.max_leases}) is below min_leases ({self.min_leases})"
            )


class UnitMember(Struct, frozen=True, kw_only=True):
    """A host in a unit, as the balancer sees it."""

    host: UUID
    name: str
    weight: float = 1.0
    min_leases: int = 0
    max_leases: int | None = None
    draining: bool = False
    live: bool = True


class Load(Struct, frozen=True):
    """How busy a lease is, smoothed over windows of 10 s."""

    busy: float = 0.0
    """Share of the time for which its handler runs."""
    changes_s: float = 0.0
    bytes_s: float = 0.0


IDLE = Load()


class PlannedLease(Struct, frozen=True, kw_only=True):
    """A lease, as the balancer sees it: every time is already a comparison made by the store."""

    id: int
    name: str
    owner: UUID | None = None
    takeable: bool = True
    """No owner, or one that has ended (in a strict unit also past its `lease_until`)."""
    state: LeaseState = "active"
    handoff_to: UUID | None = None
    handoff_overdue: bool = False
    free_for: float = 0.0
    """Seconds since it became free; 0 while owned by a live host."""
    moved_ago: float | None = None
    load: float = 0.0
    """The share of time for which it is busy."""
    avoid: UUID | None = None
    """A host on which its work failed lately; others have it first."""


class Fence(Struct, frozen=True, order=True):
    """Proof of ownership: a write in the name of a lease carries its epoch.

    `lease_id` is the lease's number in the database and the order in which fences are locked.
    """

    lease_id: int
    epoch: int
    unit: str
    name: str


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of a host for a unit, as lease names."""

    take: tuple[str, ...] = ()
    """Free leases to own."""
    seize: tuple[str, ...] = ()
    """Hand-offs towards this host that outlasted their time (never in a strict unit)."""
    ask: tuple[str, ...] = ()
    """Leases of donors to mark with a hand-off request."""
    clear: tuple[str, ...] = ()
    """Hand-off requests whose target is no longer there."""

    def __bool__(self) -> bool:
        return bool(self.take or self.seize or self.ask or self.clear)


class HostInfo(Struct, frozen=True, kw_only=True):
    """One life of a host."""

    name: str
    incarnation: UUID
    live: bool
    draining: bool
    leases: int
    version: str
    address: str | None
    labels: dict[str, str]
    started_at: datetime
    lease_until: datetime
    ended_at: datetime | None
    end_reason: str | None


class LeaseInfo(Struct, frozen=True, kw_only=True):
    """A lease and its owner."""

    id: int
    kind: str
    unit: str
    name: str
    owner: str | None
    owner_incarnation: UUID | None
    epoch: int
    state: LeaseState
    position: dict[str, Any]
    handoff_to: str | None
    handoff_until: datetime | None
    free_since: datetime | None
    moved_at: datetime | None
    clean: bool
