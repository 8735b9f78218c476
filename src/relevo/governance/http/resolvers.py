"""`/v1/resolvers`: resolvers for operators, and resolutions for programs in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import (
    Conflict,
    InUse,
    InvalidValue,
    NoHost,
    NotFound,
    OutcomeUnknown,
    SettingsMismatch,
)
from relevo.governance.calls.resolver_calls import ResolverOptions
from relevo.governance.core.assignments import Partition, Policy
from relevo.governance.core.moves import MoveRules
from relevo.governance.core.names import NAME_BYTES_MAX
from relevo.governance.core.rebalancing import PlannedMove
from relevo.governance.errors import Moving, UnassignedEntity
from relevo.governance.http.models import WAIT_SECONDS_MAX, ByName
from relevo.governance.http.pools import CREATED, ListGoverned, PutDone
from relevo.governance.operating.resolvers import (
    MoveOutcome,
    MoveSubject,
    ResolverDetails,
    ResolverService,
    ResolverSummary,
    ShownResource,
)
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations, OtherStatus

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

ONE: Final = "/v1/resolvers/{name}"
RESOURCE: Final = f"{ONE}/resources/{{resource}}"
PARTITION: Final = f"{ONE}/partitions/{{partition}}"
MOVES_MAX: Final = 1_000
_COMMON: Final = (NotFound, NoHost, OutcomeUnknown)

operation = Operations(scope="resolver:{name}", errors=_COMMON)

ResourceName = Annotated[
    str, Meta(min_length=1, max_length=NAME_BYTES_MAX, description="The resource.")
]
PartitionName = Annotated[
    str, Meta(min_length=1, max_length=NAME_BYTES_MAX, description="The partition.")
]
EntityName = Annotated[
    str, Meta(min_length=1, max_length=NAME_BYTES_MAX, description="The entity, such as a user.")
]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


@operation("resolvers.list", "GET /v1/resolvers", "governance:read", scope=None)
async def list_resolvers(
    services: Services, _: Principal, command: ListGoverned
) -> Page[ResolverSummary]:
    """List resolvers by name."""
    after = paging.decode(command.cursor, str) or ""
    found, end = await _resolvers(services).list(after, command.limit)
    return paging.page(services.page_bytes, found, lambda one: one.name, end=end)


@operation("resolvers.get", f"GET {ONE}", "governance:read")
async def get_resolver(services: Services, _: Principal, command: ByName) -> ResolverDetails:
    """Show a resolver: how it assigns, and moves that have not ended."""
    return await _resolvers(services).get(command.name)


class PutResolver(ByName, frozen=True, kw_only=True):
    """How a resolver assigns, and how long its answers are used."""

    assign: Annotated[
        Policy, Meta(description="How a new entity gets a partition, if it is not pinned to one.")
    ] = "hash"
    max_stale: Annotated[
        Seconds, Meta(description="For how many seconds an answer is used again.")
    ] = 5.0
    max_pause: Annotated[
        float, Meta(ge=0, le=3_600, description="For how many seconds a use waits for a move.")
    ] = 10.0
    use_ttl: Annotated[
        Seconds, Meta(description="After how many seconds a use is over at the latest.")
    ] = 60.0


@operation(
    "resolvers.put", f"PUT {ONE}", "governance:manage", outcomes=CREATED,
    errors=(*_COMMON, SettingsMismatch),
)  # fmt: skip
async def put_resolver(services: Services, principal: Principal, command: PutResolver) -> PutDone:
    """Make a resolver; one that exists keeps its settings."""
    rules = MoveRules(
        max_stale=command.max_stale, max_pause=command.max_pause, use_ttl=command.use_ttl
    )
    options = ResolverOptions(assign=command.assign, rules=rules)
    return PutDone(await _resolvers(services).put(command.name, options, by=principal.name))


class ListParts(ByName, frozen=True, kw_only=True):
    """Which page of what a resolver has."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("resolvers.resources", f"GET {ONE}/resources", "governance:read")
async def list_resources(
    services: Services, _: Principal, command: ListParts
) -> Page[ShownResource]:
    """List the resources of a resolver, without their data."""
    after = paging.decode(command.cursor, str) or ""
    found = await _resolvers(services).resources(command.name, after, command.limit)
    return paging.page(services.page_bytes, found, lambda one: one.name)


@operation("resolvers.partitions", f"GET {ONE}/partitions", "governance:read")
async def list_partitions(services: Services, _: Principal, command: ListParts) -> Page[Partition]:
    """List the partitions of a resolver and the resources that they point to."""
    after = paging.decode(command.cursor, str) or ""
    found = await _resolvers(services).partitions(command.name, after, command.limit)
    return paging.page(services.page_bytes, found, lambda one: one.name)


class ResolveEntity(ByName, frozen=True, kw_only=True):
    """Which entity."""

    entity: EntityName


class ResolvedEntity(Struct, frozen=True, kw_only=True):
    """Where an entity is."""

    entity: str
    partition: str
    resource: str
    data: Any
    """Of the resource, as it was added."""
    generation: int
    """Grows with each change; of two answers the higher one is the younger."""
    use_within_seconds: float
    """Use the resource no longer than this, and then resolve again: it may be moved."""


@operation(
    "resolvers.resolve", f"POST {ONE}:resolve", "governance:use",
    errors=(*_COMMON, Moving, UnassignedEntity),
)  # fmt: skip
async def resolve_entity(
    services: Services, _: Principal, command: ResolveEntity
) -> ResolvedEntity:
    """Find the resource of an entity; a new one is assigned to a partition, and stays there."""
    resolvers = _resolvers(services)
    found = await resolvers.resolve(command.name, command.entity)
    return ResolvedEntity(
        entity=found.entity, partition=found.partition, resource=found.resource.name,
        data=found.resource.data, generation=found.generation,
        use_within_seconds=(await resolvers.get(command.name)).use_ttl,
    )  # fmt: skip


class ByResource(ByName, frozen=True, kw_only=True):
    """Which resource."""

    resource: ResourceName


class PutResource(ByResource, frozen=True, kw_only=True):
    """A resource and its data."""

    data: Annotated[Any, Meta(description="Your own, such as a connection string.")] = None
    capacity: Annotated[
        float, Meta(gt=0, le=1e9, description="How much load it takes beside the others.")
    ] = 1.0


@operation("resolvers.add_resource", f"PUT {RESOURCE}", "governance:manage", status=204,
           errors=(*_COMMON, Conflict))  # fmt: skip
async def add_resource(services: Services, principal: Principal, command: PutResource) -> None:
    """Add a resource, or change it."""
    await _resolvers(services).add_resource(
        command.name, command.resource, command.data, command.capacity, by=principal.name
    )


class PutPartition(ByName, frozen=True, kw_only=True):
    """A partition and its resource."""

    partition: PartitionName
    on: ResourceName
    low: Annotated[
        str,
        Meta(max_length=NAME_BYTES_MAX, description="The first entity in it, of ranges."),
    ] = ""


@operation("resolvers.add_partition", f"PUT {PARTITION}", "governance:manage", status=204,
           errors=(*_COMMON, Conflict))  # fmt: skip
async def add_partition(services: Services, principal: Principal, command: PutPartition) -> None:
    """Add a partition on a resource."""
    await _resolvers(services).add_partition(
        command.name, command.partition, command.on, command.low, by=principal.name
    )


class PinEntity(ByName, frozen=True, kw_only=True):
    """Which entity goes into which partition."""

    entity: EntityName
    partition: PartitionName


@operation("resolvers.pin", f"PUT {ONE}/entities/{{entity}}", "governance:manage", status=204,
           errors=(*_COMMON, Conflict))  # fmt: skip
async def pin_entity(services: Services, principal: Principal, command: PinEntity) -> None:
    """Put an entity into a partition, before its first use or on the same resource."""
    await _resolvers(services).pin(
        command.name, command.entity, command.partition, by=principal.name
    )


class DrainResource(ByResource, frozen=True, kw_only=True):
    """Which resource."""

    draining: Annotated[bool, Meta(description="False: assign to it again.")] = True


@operation("resolvers.drain", f"POST {RESOURCE}:drain", "governance:manage")
async def drain_resource(services: Services, principal: Principal, command: DrainResource) -> None:
    """Assign nothing new to a resource; `plan` then says how to empty it."""
    await _resolvers(services).drain(
        command.name, command.resource, draining=command.draining, by=principal.name
    )


@operation("resolvers.remove", f"DELETE {RESOURCE}", "governance:manage", errors=(*_COMMON, InUse))
async def remove_resource(services: Services, principal: Principal, command: ByResource) -> None:
    """Remove a resource that no partition points to."""
    await _resolvers(services).remove(command.name, command.resource, by=principal.name)


Switch = Annotated[
    bool, Meta(description="Wait for no use to end: uses of both resources may overlap.")
]
WaitMove = Annotated[
    float, Meta(ge=0, le=WAIT_SECONDS_MAX, description="For how many seconds to wait for the end.")
]
GOES_ON: Final = (OtherStatus(202, lambda done: not done.ended, "It goes on."),)


class SplitPartition(ByName, frozen=True, kw_only=True):
    """Which partition is split, and where."""

    partition: PartitionName
    into: Annotated[
        str, Meta(min_length=1, max_length=NAME_BYTES_MAX, description="The new partition.")
    ]
    at: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=NAME_BYTES_MAX,
                description="The first entity of the new one; by default it gets half of them.",
            ),
        ]
        | None
    ) = None


class MergePartition(ByName, frozen=True, kw_only=True):
    """Which partition goes into which."""

    partition: PartitionName
    into: Annotated[
        str, Meta(min_length=1, max_length=NAME_BYTES_MAX, description="The one that stays.")
    ]


class EntitiesMoved(Struct, frozen=True):
    """The answer to a split or a merge."""

    entities: int
    """How many have another partition now."""


@operation(
    "resolvers.split", f"POST {PARTITION}:split", "governance:manage", errors=(*_COMMON, Conflict)
)
async def split_partition(
    services: Services, principal: Principal, command: SplitPartition
) -> EntitiesMoved:
    """Give some entities of a partition to a new one on the same resource."""
    return EntitiesMoved(await _resolvers(services).split(
        command.name, command.partition, command.into, command.at, by=principal.name
    ))  # fmt: skip


@operation(
    "resolvers.merge", f"POST {PARTITION}:merge", "governance:manage", errors=(*_COMMON, Conflict)
)
async def merge_partition(
    services: Services, principal: Principal, command: MergePartition
) -> EntitiesMoved:
    """Give the entities of a partition to another one of its resource, and remove it."""
    return EntitiesMoved(await _resolvers(services).merge(
        command.name, command.partition, command.into, by=principal.name
    ))  # fmt: skip


class MoveBetween(ByName, frozen=True, kw_only=True):
    """What goes where: a partition, an entity, or a resource, which is all its partitions."""

    to: ResourceName
    partition: PartitionName | None = None
    entity: EntityName | None = None
    resource: ResourceName | None = None
    switch: Switch = False
    wait_seconds: WaitMove = 30.0


@operation(
    "resolvers.move", f"POST {ONE}:move", "governance:manage", wait="wait_seconds",
    outcomes=GOES_ON, errors=(*_COMMON, Conflict),
)  # fmt: skip
async def move_between(
    services: Services, principal: Principal, command: MoveBetween
) -> MoveOutcome:
    """Move partitions when no use of their old resource is left; no data is copied."""
    subject = MoveSubject(
        partition=command.partition, entity=command.entity, resource=command.resource
    )
    if sum(one is not None for one in msgspec.structs.astuple(subject)) != 1:
        raise InvalidValue("give one of partition, entity and resource, which is to move")
    return await _resolvers(services).move(
        command.name, subject, command.to, switch=command.switch, wait=command.wait_seconds,
        by=principal.name,
    )  # fmt: skip


class MovePlan(Struct, frozen=True):
    """Moves of partitions."""

    items: list[PlannedMove]


@operation("resolvers.plan", f"GET {ONE}/plan", "governance:read")
async def plan_moves(services: Services, _: Principal, command: ByName) -> MovePlan:
    """Plan moves after which resources are loaded as their capacity says; nothing is changed."""
    planned = await _resolvers(services).plan(command.name)
    return MovePlan(list(planned[:MOVES_MAX]))


class MoveBody(Struct, frozen=True):
    """A move of a plan; the other fields of a planned move may stay."""

    partition: PartitionName
    target: ResourceName


class ApplyPlan(ByName, frozen=True, kw_only=True):
    """Moves to carry out, as `plan` returns them."""

    items: Annotated[list[MoveBody], Meta(min_length=1, max_length=MOVES_MAX)]
    switch: Switch = False
    wait_seconds: WaitMove = 30.0


@operation(
    "resolvers.apply", f"POST {ONE}:apply", "governance:manage", wait="wait_seconds",
    outcomes=GOES_ON, errors=(*_COMMON, Conflict),
)  # fmt: skip
async def apply_plan(services: Services, principal: Principal, command: ApplyPlan) -> MoveOutcome:
    """Carry out moves, one after the other."""
    return await _resolvers(services).move_all(
        command.name, [(one.partition, one.target) for one in command.items],
        switch=command.switch, wait=command.wait_seconds, by=principal.name,
    )  # fmt: skip


def _resolvers(services: Services) -> ResolverService:
    return ResolverService(services.app.governance)
