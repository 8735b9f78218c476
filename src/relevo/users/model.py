"""Who works with rows, and the rights on them (async-service 9)."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, get_args
from uuid import UUID

from msgspec import Struct

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

ORGANIZATION: Final = UUID("00000000-0000-7000-8000-000000000001")
"""The business unit of all who are in no other."""
SYSTEM: Final = UUID("00000000-0000-7000-8000-000000000002")
"""Who does what nobody asked for, and whose is what nobody owns."""


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


def wider(one: Reach, other: Reach) -> Reach:
    """Return the wider of two reaches.

    >>> wider("own", "unit")
    'unit'
    """
    return max(one, other, key=REACHES.index)


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
