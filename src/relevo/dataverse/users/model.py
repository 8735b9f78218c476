"""Who works with rows, and the rights on them."""

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
"""From the narrowest to the widest."""

RIGHTS: Final = {
    "job.read": "see system jobs, without what they carry",
    "job.write": "cancel, pause, resume and postpone system jobs, and change how they recur",
    "job.delete": "delete system jobs",
    "job.payload.read": "see what system jobs carry, keep and return",
    "job.submit": "submit system jobs",
    "pipeline.bypass": "leave out steps of the event pipeline",
    "bulk.run": "start bulk operations",
}
"""Every right, and what it allows; the reach of the last three does not matter."""
OF_ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "admin": tuple(RIGHTS),
    "operator": ("job.read", "job.write", "job.delete"),
    "producer": ("job.submit",),
    "reader": ("job.read",),
    "supervisor": ("job.read",),
    "viewer": ("job.read",),
}
"""The rights of roles, all of which reach everything; other roles have none."""

ORGANIZATION: Final = UUID("00000000-0000-7000-8000-000000000001")
"""The business unit of all who are in no other."""


class User(Struct, frozen=True, kw_only=True):
    """A user as it was when it was read, with the instant of that by the storage's clock."""

    id: UUID
    name: str
    unit: UUID
    teams: tuple[UUID, ...]
    language: str
    zone: str
    disabled: bool
    now: datetime


class UserInfo(Struct, frozen=True, kw_only=True):
    """A user as lists show it."""

    id: UUID
    name: str
    unit: UUID
    unit_name: str
    language: str
    zone: str
    disabled: bool
    """Whether it is kept out, whatever keys it has."""
    created_at: datetime


class UserView(UserInfo, frozen=True, kw_only=True):
    """A user with its teams and what it may do."""

    teams: dict[str, UUID]
    """The teams it is in, by name."""
    rights: dict[str, Reach]
    """The rights that its keys give it, and how far each reaches; none if it is disabled."""


class TeamInfo(Struct, frozen=True, kw_only=True):
    """A team, whose members share what it owns."""

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
    """The unit it is a part of; None for the organization itself."""
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
    """Return the right and reach that a text such as `job.read:unit` names, None if it names none.

    >>> right_of("job.read:own"), right_of("job.read"), right_of("job.eat:own")
    (('job.read', 'own'), None, None)
    """
    name, _, reach = text.rpartition(":")
    for known in REACHES:
        if name in RIGHTS and reach == known:
            return name, known
    return None


def rights_of(roles: Iterable[str]) -> dict[str, Reach]:
    """Return the rights that roles and single rights give together, with the reach of each.

    >>> rights_of(["reader", "job.read:own", "job.write:unit", "job.write:own"])
    {'job.read': 'all', 'job.write': 'unit'}
    """
    found: dict[str, Reach] = {}
    for role in roles:
        single = right_of(role)
        given = [single] if single else [(name, REACHES[-1]) for name in OF_ROLES.get(role, ())]
        for name, reach in given:
            found[name] = wider(found.get(name, reach), reach)
    return found
