"""What is in an entity: counters by class, kept by the statements that move messages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.kernel.postgres import catalog
from relevo.messaging.core.entities import EntityProperties
from relevo.messaging.model import EntityKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.kernel.postgres import Database
    from relevo.messaging.entities import EntityRecord

SQL = catalog.load("relevo.messaging")
GAUGES: Final = ("active", "locked", "deferred", "scheduled", "bytes")
COUNTERS: Final = (
    "sent", "delivered", "completed", "abandoned", "lock_lost", "dead_lettered", "expired",
    "preempted", "in_target", "out_of_target", "floor_claims", "unrouted", "filter_errors",
)  # fmt: skip


WAIT_BOUNDS: Final = tuple(2**n / 1000 for n in range(25))
"""Seconds that end the buckets of `ClassFigures.waits`, but the last."""


class MessageCounts(Struct, frozen=True, kw_only=True):
    """Messages of an entity or one of its classes: what is there, and what has been."""

    active: int = 0
    locked: int = 0
    deferred: int = 0
    scheduled: int = 0
    dead_letter: int = 0
    bytes: int = 0
    sent: int = 0
    delivered: int = 0
    completed: int = 0
    abandoned: int = 0
    lock_lost: int = 0
    dead_lettered: int = 0
    expired: int = 0
    preempted: int = 0
    in_target: int = 0
    """First deliveries within the service target of the class, and after it."""
    out_of_target: int = 0
    floor_claims: int = 0
    unrouted: int = 0
    filter_errors: int = 0
    oldest_age: float | None = None
    """Seconds that the oldest claimable message has waited."""

    @property
    def slo_ratio(self) -> float | None:
        """The share of first deliveries within the target; None without a target or delivery."""
        total = self.in_target + self.out_of_target
        return self.in_target / total if total else None


class ClassFigures(MessageCounts, frozen=True, kw_only=True):
    """A class of an entity, with the waits of its messages."""

    waits: tuple[int, ...] = ()
    """First deliveries by how long the message had waited: less than 1 ms, 2 ms, 4 ms and so on;
    the last number counts all that waited longer."""


class EntityFigures(Struct, frozen=True, kw_only=True):
    """What is in an entity, and what has been, by class."""

    path: str
    kind: EntityKind
    classes: dict[str, ClassFigures]
    """The highest class first."""


class EntityDescription(Struct, frozen=True, kw_only=True):
    """An entity, its properties and its messages."""

    kind: EntityKind
    path: str
    version: int
    created_at: datetime
    updated_at: datetime
    properties: EntityProperties
    messages: MessageCounts
    classes: dict[str, MessageCounts]


async def described(database: Database, record: EntityRecord) -> EntityDescription:
    """Return the description of an entity."""
    counts = await counted(database, record.id)
    return EntityDescription(
        kind=record.kind, path=record.path, version=record.version, created_at=record.created_at,
        updated_at=record.updated_at, properties=record.properties,
        messages=total(counts.values()), classes=counts,
    )  # fmt: skip


def total(counts: Iterable[MessageCounts]) -> MessageCounts:
    """Return the sum of counters; the oldest age is the greatest."""
    given = list(counts)
    ages = [one.oldest_age for one in given if one.oldest_age is not None]
    names = (*GAUGES, *COUNTERS, "dead_letter")
    return MessageCounts(
        **{name: sum(getattr(one, name) for one in given) for name in names},
        oldest_age=max(ages, default=None),
    )


async def counted(database: Database, entity: int) -> dict[str, MessageCounts]:
    """Return counters by class; folded ones and the differences since are read together."""
    rows = await database.fetch(SQL.counts, entity)
    oldest = await database.fetch(SQL.oldest, entity)
    ages = {row["name"]: row["age"] for row in oldest}
    found: dict[str, dict[str, Any]] = {row["name"]: {} for row in oldest}
    for row in rows:
        one = found.setdefault(row["name"] or "", {})
        if row["sub_queue"] == 0:
            one.update({name: row[name] for name in (*GAUGES, *COUNTERS)})
        else:
            waiting = row["active"] + row["locked"] + row["deferred"]
            one["dead_letter"] = one.get("dead_letter", 0) + waiting
    return {
        name: MessageCounts(**values, oldest_age=ages.get(name)) for name, values in found.items()
    }


async def figures(database: Database, *, after: str, limit: int) -> list[EntityFigures]:
    """Return the figures of entities by path, a page with one statement."""
    found: dict[str, EntityFigures] = {}
    for row in await database.fetch(SQL.figures, after.lower(), limit):
        path = row["path"]
        one = found.setdefault(path, EntityFigures(path=path, kind=row["kind"], classes={}))
        counts = {name: row[name] for name in ClassFigures.__struct_fields__}
        one.classes[row["name"]] = ClassFigures(**counts)
    return list(found.values())
