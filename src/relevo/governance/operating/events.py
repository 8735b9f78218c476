"""Events of changes of pools, limits and resolvers."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from relevo.kernel.events import Catalogue, EventType


class GovernanceData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A change of a pool, a limit or a resolver."""

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
PARTITION_RETURNED: Final = "relevo.resolver.partition_returned"
PARTITION_SPLIT: Final = "relevo.resolver.partition_split"
PARTITION_MERGED: Final = "relevo.resolver.partition_merged"
ENTITY_PINNED: Final = "relevo.resolver.entity_pinned"


def _type(name: str, sentence: str) -> EventType:
    return EventType(name=name, payload=GovernanceData, sentence=sentence)


TYPES: Final = (
    _type(POOL_CREATED, "A pool was made."),
    _type(POOL_CHANGED, "The settings of a pool were changed."),
    _type(POOL_DELETED, "A pool was removed."),
    _type(LIMIT_CREATED, "A limit was made."),
    _type(LIMIT_CHANGED, "The rates of a limit were changed."),
    _type(LIMIT_DELETED, "A limit was removed."),
    _type(RESOLVER_CREATED, "A resolver was made."),
    _type(RESOURCE_PUT, "A resource of a resolver was added or changed."),
    _type(RESOURCE_DRAINED, "Nothing new is assigned to a resource any more."),
    _type(RESOURCE_RESUMED, "A resource that was drained is assigned to again."),
    _type(RESOURCE_REMOVED, "A resource was removed."),
    _type(PARTITION_PUT, "A partition of a resolver was added."),
    _type(PARTITION_MOVED, "A partition that was moved is on its new resource."),
    _type(PARTITION_RETURNED, "The move of a partition failed; it is on its old resource."),
    _type(PARTITION_SPLIT, "Some entities of a partition went to a new one of its resource."),
    _type(PARTITION_MERGED, "The entities of a partition went to another one, and it is gone."),
    _type(ENTITY_PINNED, "An entity was put into a partition."),
)


CATALOGUE: Final = Catalogue(TYPES)


def subject_of(type_name: str, name: str) -> str:
    """Return the subject of an event: the pool, limit or resolver of a name."""
    return f"{type_name.split('.')[1]}/{name}"
