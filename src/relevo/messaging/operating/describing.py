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


RATES: Final = ("sent", "delivered", "completed")
RATE_SECONDS: Final = (60, 300, 900)


class MessageRates(Struct, frozen=True):
    """Messages a second over the last 1, 5 and 15 minutes.

    The longer ago a message was, the less it weighs, as in a load average: a rate that begins is
    shown at 63 % after its time, and at 95 % after three times as long.
    """

    sent: tuple[float, float, float] = (0.0, 0.0, 0.0)
    delivered: tuple[float, float, float] = (0.0, 0.0, 0.0)
    completed: tuple[float, float, float] = (0.0, 0.0, 0.0)


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
    rates: MessageRates = MessageRates()
    """Up to half a second old; a leading host keeps them."""

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


_COUNTED: Final = tuple(name for name in ClassFigures.__struct_fields__ if name != "rates")


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
    """Return the sum of counters and rates; the oldest age is the greatest."""
    given = list(counts)
    ages = [one.oldest_age for one in given if one.oldest_age is not None]
    names = (*GAUGES, *COUNTERS, "dead_letter")
    return MessageCounts(
        **{name: sum(getattr(one, name) for one in given) for name in names},
        oldest_age=max(ages, default=None),
        rates=MessageRates(*(_sums(getattr(one.rates, name) for one in given) for name in RATES)),
    )


def _sums(rates: Iterable[tuple[float, float, float]]) -> tuple[float, float, float]:
    one, five, fifteen = (sum(column) for column in zip((0.0, 0.0, 0.0), *rates, strict=True))
    return one, five, fifteen


def rates_of(*counts: list[float] | None) -> MessageRates:
    """Return rates from the counts of `message_rate`, none for what has none.

    >>> rates_of([6.0, 6.0, 9.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]).sent
    (0.1, 0.02, 0.01)
    """
    return MessageRates(*(_per_second(given) for given in counts if given is not None))


def _per_second(counts: list[float]) -> tuple[float, float, float]:
    one, five, fifteen = (
        count / seconds for count, seconds in zip(counts, RATE_SECONDS, strict=True)
    )
    return one, five, fifteen


async def counted(database: Database, entity: int) -> dict[str, MessageCounts]:
    """Return counters by class; folded ones and the differences since are read together."""
    rows = await database.fetch(SQL.counts, entity)
    oldest = await database.fetch(SQL.oldest, entity)
    ages = {row["name"]: row["age"] for row in oldest}
    rates = {
        row["name"]: rates_of(*(row[name] for name in RATES))
        for row in await database.fetch(SQL.rates, entity)
    }
    found: dict[str, dict[str, Any]] = {row["name"]: {} for row in oldest}
    for row in rows:
        one = found.setdefault(row["name"] or "", {})
        if row["sub_queue"] == 0:
            one.update({name: row[name] for name in (*GAUGES, *COUNTERS)})
        else:
            waiting = row["active"] + row["locked"] + row["deferred"]
            one["dead_letter"] = one.get("dead_letter", 0) + waiting
    return {
        name: MessageCounts(
            **values, oldest_age=ages.get(name), rates=rates.get(name, MessageRates())
        )
        for name, values in found.items()
    }


async def figures(database: Database, *, after: str, limit: int) -> list[EntityFigures]:
    """Return the figures of entities by path, a page with one statement."""
    found: dict[str, EntityFigures] = {}
    for row in await database.fetch(SQL.figures, after.lower(), limit):
        path = row["path"]
        one = found.setdefault(path, EntityFigures(path=path, kind=row["kind"], classes={}))
        counts = {name: row[name] for name in _COUNTED}
        rates = rates_of(*(row[f"{name}_lately"] for name in RATES))
        one.classes[row["name"]] = ClassFigures(**counts, rates=rates)
    return list(found.values())
