"""Resolvers as operators and other programs see them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.errors import NotFound
from relevo.governance.calls.resolver_calls import RESOLVER_TYPE, ResolverCalls, ResolverOptions
from relevo.governance.core.moves import MoveState
from relevo.governance.operating.kit_service import KitService
from relevo.governance.resolvers import Resolver
from relevo.kernel.pages import Fetched, first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.governance.calls.resolver_calls import PartitionPage, ResolverView
    from relevo.governance.core.assignments import Assignment, Partition, Resolution, Resource
    from relevo.governance.core.rebalancing import PlannedMove


class ResolverSummary(Struct, frozen=True, kw_only=True):
    """A resolver, in a list."""

    name: str
    assign: str | None = None
    """Null, as the others, if it does not answer now."""
    entities: int | None = None
    partitions: int | None = None
    resources: int | None = None
    moving: int | None = None
    """Partitions that are being moved."""


class ShownMove(Struct, frozen=True, kw_only=True):
    """A move of a partition that has not ended."""

    partition: str
    source: str
    target: str
    state: MoveState
    generation: int


class ResolverDetails(Struct, frozen=True, kw_only=True):
    """A resolver: how it assigns, and its moves."""

    name: str
    assign: str
    max_stale: float
    """For how many seconds an answer is used again."""
    max_pause: float
    """For how many seconds a new use waits while its partition is moved."""
    use_ttl: float
    """After how many seconds a use is over."""
    entities: int
    partitions: int
    resources: int
    moves: tuple[ShownMove, ...]


class ShownResource(Struct, frozen=True, kw_only=True):
    """A resource, without its data."""

    name: str
    capacity: float
    draining: bool
    generation: int
    partitions: int
    """Partitions that point to it."""


class MoveSubject(Struct, frozen=True, kw_only=True):
    """What is moved: one of these."""

    partition: str | None = None
    entity: str | None = None
    resource: str | None = None


class MoveOutcome(Struct, frozen=True):
    """What has become of a move."""

    ended: bool
    """False if it goes on; then look at the resolver until it has no such move."""


class ResolverService(KitService):
    """Shows and changes the partitions and resources of resolvers."""

    type_name = RESOLVER_TYPE

    async def list(self, after: str, limit: int) -> tuple[Fetched[ResolverSummary], str]:
        """Return resolvers beyond a name, and the name at which the page ends."""
        found, end = await self.views(after, limit, self.view)
        return found.each(lambda one: _summary(*one)), end

    async def get(self, name: str) -> ResolverDetails:
        """Return a resolver; raises `NotFound`."""
        view = await self.view(name)
        rules = view.options.rules
        return ResolverDetails(
            name=name, assign=view.options.assign, max_stale=rules.max_stale,
            max_pause=rules.max_pause, use_ttl=rules.use_ttl, entities=view.entities,
            partitions=view.partitions, resources=len(view.resources),
            moves=tuple(
                ShownMove(
                    partition=one.subject, source=one.source, target=one.target, state=one.state,
                    generation=one.generation,
                )
                for one in view.moves
            ),
        )  # fmt: skip

    async def put(self, name: str, options: ResolverOptions, *, by: str | None = None) -> bool:
        """Make a resolver; whether it is new. Raises `SettingsMismatch` if it has others."""
        return bool(await (await self._proxy(name, by)).declare(options))

    async def resources(self, name: str, after: str, limit: int) -> Fetched[ShownResource]:
        """Return resources beyond a name, without their data."""
        view = await self.view(name)
        later = sorted((one for one in view.resources if one.name > after), key=_name)
        return first(later, limit).each(
            lambda one: ShownResource(
                name=one.name, capacity=one.capacity, draining=one.draining,
                generation=one.generation, partitions=view.tallies[one.name].partitions,
            )
        )  # fmt: skip

    async def partitions(self, name: str, after: str, limit: int) -> Fetched[Partition]:
        """Return partitions beyond a name."""
        proxy = await self._proxy(name)
        found: list[Partition] = []
        end: str | None = after
        while end is not None and len(found) <= limit:
            page: PartitionPage = await proxy.partitions(end, limit + 1 - len(found), None)
            found += page.items
            end = page.end
        return first(found, limit)

    async def view(self, name: str) -> ResolverView:
        """Return the resources and moves of a resolver; raises `NotFound`."""
        found: ResolverView = await (await self._proxy(name)).view()
        return found

    async def resolve(self, name: str, entity: str) -> Resolution:
        """Return where an entity is, for a use of `use_ttl` at most; assigns it if it is new.

        Raises `Moving` while its partition is moved.
        """
        found: Resolution = await (await self._proxy(name)).resolve_once(entity)
        return found

    async def add_resource(
        self, name: str, resource: str, data: Any, capacity: float, *, by: str | None = None
    ) -> None:
        """Add a resource, or change it."""
        await (await self._proxy(name, by)).add_resource(resource, data, capacity)

    async def add_partition(
        self, name: str, partition: str, on: str, low: str, *, by: str | None = None
    ) -> None:
        """Add a partition on a resource."""
        await (await self._proxy(name, by)).add_partition(partition, on, low)

    async def pin(
        self, name: str, entity: str, partition: str, *, by: str | None = None
    ) -> Assignment:
        """Put an entity into a partition."""
        found: Assignment = await (await self._proxy(name, by)).pin(entity, partition)
        return found

    async def drain(
        self, name: str, resource: str, *, draining: bool, by: str | None = None
    ) -> None:
        """Assign nothing new to a resource, or do so again."""
        await (await self._proxy(name, by)).drain(resource, draining)

    async def remove(self, name: str, resource: str, *, by: str | None = None) -> None:
        """Remove a resource that no partition points to; raises `InUse`."""
        await (await self._proxy(name, by)).remove(resource)

    async def plan(self, name: str) -> Sequence[PlannedMove]:
        """Return moves after which resources are loaded as their capacity says."""
        found: Sequence[PlannedMove] = await (await self._proxy(name)).plan()
        return found

    async def split(
        self, name: str, partition: str, into: str, at: str | None, *, by: str | None = None
    ) -> int:
        """Give entities of a partition to a new one on the same resource; returns how many."""
        moved: int = await (await self._proxy(name, by)).split(partition, into, at)
        return moved

    async def merge(self, name: str, partition: str, into: str, *, by: str | None = None) -> int:
        """Give the entities of a partition to another of its resource; returns how many."""
        moved: int = await (await self._proxy(name, by)).merge(partition, into)
        return moved

    async def move(
        self, name: str, subject: MoveSubject, to: str, *, switch: bool, wait: float,
        by: str | None = None,
    ) -> MoveOutcome:  # fmt: skip
        """Move a partition, an entity, or all partitions of a resource; nothing is copied."""
        view = await self.view(name)
        if subject.entity is not None:
            _check(view, [to])
            moves = [(await (await self._proxy(name, by)).detach(subject.entity), to)]
        elif subject.resource is not None:
            _check(view, [subject.resource])
            resolver = self._resolver(name, view, by)
            users = resolver.partitions(resource=subject.resource)
            moves = [(one.name, to) async for one in users]
        else:
            assert subject.partition is not None
            moves = [(subject.partition, to)]
            await self._check_partitions(name, moves)
        return await self._move_each(name, view, moves, switch=switch, wait=wait, by=by)

    async def move_all(
        self, name: str, moves: Sequence[tuple[str, str]], *, switch: bool, wait: float,
        by: str | None = None,
    ) -> MoveOutcome:  # fmt: skip
        """Move partitions to resources, one after the other; nothing is copied.

        Waits so many seconds. A move that has begun then ends by itself; those after it begin as
        long as this process runs.
        """
        await self._check_partitions(name, moves)
        view = await self.view(name)
        return await self._move_each(name, view, moves, switch=switch, wait=wait, by=by)

    async def _move_each(
        self, name: str, view: ResolverView, moves: Sequence[tuple[str, str]], *, switch: bool,
        wait: float, by: str | None,
    ) -> MoveOutcome:  # fmt: skip
        _check(view, [to for _, to in moves])
        resolver = self._resolver(name, view, by)
        errors: list[Exception] = []

        async def work() -> None:
            try:
                for partition, to in moves:
                    await resolver.move(partition=partition, to=to, switch=switch)
            except Exception as error:  # its caller raises it, if that still waits
                errors.append(error)

        task = self.governance.holders.run(work())
        await asyncio.wait({task}, timeout=wait)
        if errors:
            raise errors[0]
        return MoveOutcome(task.done())

    async def _check_partitions(self, name: str, moves: Sequence[tuple[str, str]]) -> None:
        proxy = await self._proxy(name)
        for partition, _ in moves:
            if await proxy.partition(partition) is None:
                raise NotFound(f"there is no partition {partition!r}; nothing was moved")

    def _resolver(self, name: str, view: ResolverView, by: str | None) -> Resolver:
        governance = self.governance
        return Resolver(name, view.options, governance.actors, governance.holders, by=by)

    async def _proxy(self, name: str, by: str | None = None) -> Any:
        return await self.proxy(ResolverCalls, name, by)


def _check(view: ResolverView, targets: Sequence[str]) -> None:
    """Refuse all of the moves if one of them leads from or to nowhere."""
    resources = {one.name for one in view.resources}
    for to in targets:
        if to not in resources:
            raise NotFound(f"there is no resource {to!r}; nothing was moved")


def _name(one: Resource) -> str:
    return one.name


def _summary(name: str, view: ResolverView | None) -> ResolverSummary:
    if view is None:
        return ResolverSummary(name=name)
    return ResolverSummary(
        name=name, assign=view.options.assign, entities=view.entities,
        partitions=view.partitions, resources=len(view.resources), moving=len(view.moves),
    )  # fmt: skip
