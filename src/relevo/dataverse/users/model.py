"""Users, teams, business units, and rights with their reach."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, get_args
from uuid import UUID

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Reach = Literal["own", "unit", "all"]
"""How far a right reaches: rows of the user and its teams, of its business unit, or all."""

REACHES: Final[tuple[Reach, ...]] = get_args(Reach)
"""All reaches, from the narrowest to the widest."""

RIGHTS: Final = {
    "job.read": "read system jobs, without their payload",
    "job.write": "cancel, pause, resume and postpone system jobs, and change their recurrence",
    "job.delete": "delete system jobs",
    "job.payload.read": "read the data, state and results of system jobs",
    "job.submit": "submit system jobs",
    "pipeline.bypass": "skip steps of the event pipeline",
    "bulk.run": "start bulk operations",
}
"""All rights; the reach of the last three does not matter."""
OF_ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "admin": tuple(RIGHTS),
    "operator": ("job.read", "job.write", "job.delete"),
    "producer": ("job.submit",),
    "reader": ("job.read",),
    "supervisor": ("job.read",),
    "viewer": ("job.read",),
}
"""The rights of roles, with the reach `all`; other roles have none."""

ORGANIZATION: Final = UUID("00000000-0000-7000-8000-000000000001")
"""The business unit of users and teams that are in no other."""


class User(Struct, frozen=True, kw_only=True):
    """A user as it was read, with the time of the database."""

    id: UUID
    name: str
    unit: UUID
    teams: tuple[UUID, ...]
    language: str
    zone: str
    disabled: bool
    now: datetime


class UserInfo(Struct, frozen=True, kw_only=True):
    """A user in a list."""

    id: UUID
    name: str
    unit: UUID
    unit_name: str
    language: str
    zone: str
    disabled: bool
    """Whether all its keys are refused."""
    created_at: datetime


class UserView(UserInfo, frozen=True, kw_only=True):
    """A user with its teams and rights."""

    teams: dict[str, UUID]
    """Its teams, by name."""
    rights: dict[str, Reach]
    """The rights of its keys, with their reach; empty if it is disabled."""


class TeamInfo(Struct, frozen=True, kw_only=True):
    """A team; its members share the rows that it owns."""

    id: UUID
    name: str
    unit: UUID
    unit_name: str
    members: int
    created_at: datetime


class UnitInfo(Struct, frozen=True, kw_only=True):
    """A business unit."""

    id: UUID
    name: str
    parent: UUID | None
    """The parent unit; None for the organization."""
    created_at: datetime


def wider(one: Reach, other: Reach) -> Reach:
    """Return the wider of two reaches.

    >>> wider("own", "unit")
    'unit'
    """
    return max(one, other, key=REACHES.index)


def narrower(one: Reach, other: Reach) -> Reach:
    """Return the narrower of two reaches.

    >>> narrower("own", "unit")
    'own'
    """
    return min(one, other, key=REACHES.index)


def right_of(text: str) -> tuple[str, Reach] | None:
    """Return the right and reach in a text such as `job.read:unit`; None if it is not a right.

    >>> right_of("job.read:own"), right_of("job.read"), right_of("job.eat:own")
    (('job.read', 'own'), None, None)
    """
    name, _, reach = text.rpartition(":")
    for known in REACHES:
        if name in RIGHTS and reach == known:
            return name, known
    return None


def rights_of(roles: Iterable[str]) -> dict[str, Reach]:
    """Return the rights of roles and single rights together, each with its widest reach.

    >>> rights_of(["reader", "job.read:own", "job.write:unit", "job.write:own"])
    {'job.read': 'all', 'job.write': 'unit'}
    """
    rights: dict[str, Reach] = {}
    for role in roles:
        single = right_of(role)
        given = [single] if single else [(name, REACHES[-1]) for name in OF_ROLES.get(role, ())]
        for name, reach in given:
            rights[name] = wider(rights.get(name, reach), reach)
    return rights
