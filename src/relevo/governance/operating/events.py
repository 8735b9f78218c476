"""Events of pools, limits and resolvers that operators cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo.kernel import events
from relevo.kernel.events import Catalogue, Event, EventType

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database, Transaction

Governed = Literal["pool", "limit", "resolver"]


class GovernanceData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A change of a pool, a limit or a resolver by an operator."""

    name: str
    by: str | None = None
    """The name of the key whose holder asked for it; none from a program."""
    subject: str | None = None
    """The resource, partition or entity of a resolver."""
    to: str | None = None
    """Where it goes: a resource or a partition."""


POOL_CREATED: Final = "relevo.pool.created"
POOL_CHANGED: Final = "relevo.pool.changed"
POOL_DELETED: Final = "relevo.pool.deleted"
LIMIT_CREATED: Final = "relevo.limit.created"
LIMIT_CHANGED: Final = "relevo.limit.changed"
LIMIT_DELETED: Final = "relevo.limit.deleted"
RESOLVER_CREATED: Final = "relevo.resolver.created"
RESOURCE_PUT: Final = "relevo.resolver.resource_put"
RESOURCE_DRAINED: Final = "relevo.resolver.resource_drained"
RESOURCE_RESUMED: Final = "relevo.resolver.resource_resumed"
RESOURCE_REMOVED: Final = "relevo.resolver.resource_removed"
PARTITION_PUT: Final = "relevo.resolver.partition_put"
PARTITION_MOVED: Final = "relevo.resolver.partition_moved"
PARTITION_SPLIT: Final = "relevo.resolver.partition_split"
PARTITION_MERGED: Final = "relevo.resolver.partition_merged"
ENTITY_PINNED: Final = "relevo.resolver.entity_pinned"


def _type(name: str, sentence: str) -> EventType:
    return EventType(name=name, payload=GovernanceData, sentence=sentence)


TYPES: Final = (
    _type(POOL_CREATED, "An operator made a pool."),
    _type(POOL_CHANGED, "An operator changed a pool."),
    _type(POOL_DELETED, "An operator removed a pool."),
    _type(LIMIT_CREATED, "An operator made a limit."),
    _type(LIMIT_CHANGED, "An operator changed a limit."),
    _type(LIMIT_DELETED, "An operator removed a limit."),
    _type(RESOLVER_CREATED, "An operator made a resolver."),
    _type(RESOURCE_PUT, "An operator added a resource of a resolver, or changed it."),
    _type(RESOURCE_DRAINED, "Nothing new is assigned to a resource any more."),
    _type(RESOURCE_RESUMED, "A resource that was drained is assigned to again."),
    _type(RESOURCE_REMOVED, "An operator removed a resource."),
    _type(PARTITION_PUT, "An operator added a partition of a resolver, or changed it."),
    _type(PARTITION_MOVED, "A partition that an operator moved is on its new resource."),
    _type(PARTITION_SPLIT, "Some entities of a partition went to a new one of its resource."),
    _type(PARTITION_MERGED, "The entities of a partition went to another one, and it is gone."),
    _type(ENTITY_PINNED, "An operator put an entity into a partition."),
)


CATALOGUE: Final = Catalogue(TYPES)


async def append(database: Database, kind: Governed, type_name: str, data: GovernanceData) -> None:
    """Write an event to the log, after the change that it tells of."""

    async def work(tx: Transaction) -> None:
        await events.append(tx, CATALOGUE, [Event(type_name, f"{kind}/{data.name}", 1, data)])

    await database.run(work)
