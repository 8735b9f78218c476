"""The actor that keeps the entities, partitions and resources of a resolver.

The rules are in `core/assignments.py`. `resolver_actor.py` adds how partitions are moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct, field

from relevo.errors import Conflict, InUse, NotFound, SettingsMismatch
from relevo.governance.actors.kit import KitActor
from relevo.governance.actors.stored_catalogue import StoredCatalogue
from relevo.governance.calls.gates import GateRef
from relevo.governance.calls.resolver_calls import (
    PartitionPage,
    ReaderNote,
    Resolved,
    ResolverOptions,
    ResolverView,
)
from relevo.governance.core import moves
from relevo.governance.core.assignments import Assignment, Partition, Resolution, Resource
from relevo.governance.core.moves import Move
from relevo.governance.core.names import own_name
from relevo.governance.core.rebalancing import PlannedMove, plan_rebalance
from relevo.governance.errors import Moving
from relevo.governance.operating import events

if TYPE_CHECKING:
    from relevo.governance.core.assignments import Catalogue, Policy

PLANNED_MAX: Final = 10_000
"""Moves of a plan."""
OUTSIDE: Final = "outside"
"""The reader that stands for all callers of `resolve_once`."""


class ResolverState(Struct):
    """What is stored of a resolver, beside what is in maps."""

    options: ResolverOptions | None = None
    version: int = 0
    moves: dict[str, Move] = field(default_factory=dict)
    gates: dict[str, tuple[GateRef, ...]] = field(default_factory=dict)
    """Pools and limits that are attached to resources."""


class CatalogueActor(KitActor[ResolverState]):
    """Keeps where entities are."""

    async def on_activate(self) -> None:
        self._readers = self.map("readers", ReaderNote)
        self._known_readers: dict[str, tuple[ReaderNote, float]] = {}
        """Who may keep answers, with the time of the last."""
        self._stored: StoredCatalogue | None = None
        self._in_doubt = False
        """Whether the present turn has changed what is in memory."""
        if self.state.options is not None:
            await self._restore(self.state.options)

    async def _restore(self, options: ResolverOptions) -> StoredCatalogue:
        """Read what must be in memory, as it is stored."""
        stored, now = self._opened(options), await self.kit.clock.now()
        await stored.restore(self.state.version, list(self.state.moves))
        self._known_readers = {name: (note, now) async for name, note in self._readers.scan()}
        self._stored = stored
        return stored

    def _opened(self, options: ResolverOptions) -> StoredCatalogue:
        if options.assign == "function":  # callers have it, and say what it chose
            return StoredCatalogue(self, "explicit")
        return StoredCatalogue(self, cast("Policy", options.assign))

    def on_rollback(self) -> None:
        if self._in_doubt:
            self._stored = None

    async def _open(self) -> StoredCatalogue:
        """Return the catalogue, at the beginning of a turn that may change it."""
        self._in_doubt = False
        stored = await self._read()
        stored.trim(list(self.state.moves))
        return stored

    async def _read(self) -> StoredCatalogue:
        """Return the catalogue to a turn that reads."""
        if self._stored is not None:
            return self._stored
        if self.state.options is None:
            raise NotFound(f"there is no resolver {self.ctx.key!r}")
        return await self._restore(self.state.options)

    def _all(self) -> Catalogue:
        """Return what is in memory of a catalogue that this turn has opened; it may change."""
        assert self._stored is not None
        self._in_doubt = True
        return self._stored.catalogue

    async def _keep(self) -> None:
        """Store what has changed."""
        assert self._stored is not None
        await self._stored.keep()
        self.state.version = self._stored.catalogue.version

    async def declare(self, options: ResolverOptions) -> bool:
        if self.state.options is None:
            self._in_doubt = True
            self._stored = self._opened(options)
            self.state.options = options
            self.log_change(events.RESOLVER_CREATED)
            return True
        if options != self.state.options:
            raise SettingsMismatch(
                f"resolver {self.ctx.key!r} exists with assign={self.state.options} and this"
                f" program declares {options}; declare the same"
            )
        return False

    async def look(self, entity: str | None, reader: str, version: int) -> Resolved | None:
        stored = await self._read()
        known = self._known_readers.get(reader)
        if known is None:
            return None
        resolution = None
        if entity is not None:
            at = await stored.entity(entity)
            if at is None:
                return None
            resolution = stored.catalogue.resolution(entity, *at)
        answer = await self._answer(stored, resolution, version)
        self._known_readers[reader] = (known[0], await self.kit.clock.now())
        return answer

    async def resolve(
        self, entity: str | None, reader: ReaderNote, version: int, choice: str | None = None
    ) -> Resolved:
        stored = await self._open()
        await self._note(reader)
        resolution = None if entity is None else await self._resolved(stored, entity, choice)
        return await self._answer(stored, resolution, version)

    async def _answer(
        self, stored: StoredCatalogue, resolution: Resolution | None, version: int
    ) -> Resolved:
        notices, upto = await stored.notices(version, self.state.moves)
        resources = stored.changed_resources(version)
        return Resolved(resolution, notices, upto, stored.catalogue.version, resources)

    async def _resolved(
        self, stored: StoredCatalogue, entity: str, choice: str | None = None
    ) -> Resolution:
        if (at := await stored.entity(entity)) is not None:
            return stored.catalogue.resolution(entity, *at)
        if choice is not None:
            await stored.need(choice)
        resolution = self._all().resolve(entity, choice)
        await self._keep()
        return resolution

    async def resolve_once(self, entity: str) -> Resolution:
        resolution = await self._resolved(await self._open(), entity)
        if resolution.partition in self.state.moves:
            raise Moving(f"the partition of {entity!r} in {self.ctx.key!r} is being moved")
        await self._note(ReaderNote(OUTSIDE))
        return resolution

    async def _note(self, reader: ReaderNote) -> None:
        """Keep who has answers, before it gets one; take in what it is done with."""
        if reader.id not in self._known_readers:
            self._in_doubt = True
            await self._readers.set(reader.id, ReaderNote(reader.id, reader.host))
        self._known_readers[reader.id] = (reader, await self.kit.clock.now())
        for name, generation in reader.quiet:
            move = self.state.moves.get(name)
            if move is not None and reader.id not in move.reported:
                self.state.moves[name] = moves.report(move, reader.id, generation)
                self.reported()

    def reported(self) -> None:
        """A reader has no use left of a partition that is being moved."""

    def _check_still(self, partition: str) -> None:
        if partition in self.state.moves:
            raise Conflict(f"partition {partition!r} is being moved; wait until that has ended")

    # -- what operators change ----------------------------------------------------------------

    async def add_resource(self, name: str, data: Any, capacity: float) -> Resource:
        known = (await self._open()).catalogue.resources.get(name)
        draining = known is not None and known.draining
        stored = self._all().add_resource(Resource(name, data, capacity, draining))
        if stored != known:  # caches learn of it
            await self._keep()
            self.log_change(events.RESOURCE_PUT, name)
        return stored

    async def attach(self, resource: str, gates: list[GateRef]) -> None:
        (await self._open()).catalogue.resource(resource)
        self.state.gates[resource] = tuple(dict.fromkeys(gates))

    async def add_partition(self, name: str, on: str, low: str) -> Partition:
        is_new = await (await self._open()).partition(name) is None
        partition = self._all().add_partition(name, on=on, low=low)
        if is_new:
            await self._keep()
            self.log_change(events.PARTITION_PUT, name, on)
        return partition

    async def pin(self, entity: str, partition: str) -> Assignment:
        stored = await self._open()
        at = await stored.entity(entity)
        await stored.need(partition)
        catalogue = self._all()
        target = catalogue.partition(partition)
        if at is not None and at[1] != target:
            source = at[1]
            if source.resource != target.resource:
                raise Conflict(
                    f"{entity!r} is on {source.resource!r}, and {partition!r} on"
                    f" {target.resource!r}; move a partition instead, or pin before the first"
                    " use"
                )
            self._check_still(source.name)
            self._check_still(partition)
        assignment = catalogue.pin(entity, partition)
        if at is None or assignment != at[0]:
            await self._keep()
            self.log_change(events.ENTITY_PINNED, entity, partition)
        return assignment

    async def split(self, partition: str, into: str, at: str | None) -> int:
        stored = await self._open()
        self._check_still(partition)
        await stored.need(partition, into)
        await stored.need_entities_of(partition)
        moved = self._all().split(partition, into, at=at)
        await self._keep()
        self.log_change(events.PARTITION_SPLIT, partition, into)
        return len(moved)

    async def merge(self, partition: str, into: str) -> int:
        stored = await self._open()
        self._check_still(partition)
        self._check_still(into)
        await stored.need(partition, into)
        await stored.need_entities_of(partition)
        moved = self._all().merge(partition, into)
        await self._keep()
        self.log_change(events.PARTITION_MERGED, partition, into)
        return len(moved)

    async def detach(self, entity: str) -> str:
        stored = await self._open()
        source = (await self._resolved(stored, entity)).partition
        self._check_still(source)
        await stored.partition(own_name(entity))
        partition = self._all().own_partition(entity)
        await self._keep()
        if partition.name != source:
            self.log_change(events.ENTITY_PINNED, entity, partition.name)
        return partition.name

    async def drain(self, resource: str, draining: bool) -> Resource:
        known = (await self._open()).catalogue.resource(resource)
        stored = self._all().drain_resource(resource, draining=draining)
        if stored != known:
            await self._keep()
            self.log_change(
                events.RESOURCE_DRAINED if draining else events.RESOURCE_RESUMED, resource
            )
        return stored

    async def remove(self, resource: str) -> None:
        await self._open()
        if any(resource in (one.target, one.source) for one in self.state.moves.values()):
            raise InUse(f"a partition is being moved from or to {resource!r}")
        self._all().remove_resource(resource)
        self.state.gates.pop(resource, None)
        await self._keep()
        self.log_change(events.RESOURCE_REMOVED, resource)

    async def plan(self) -> list[PlannedMove]:
        return plan_rebalance(await (await self._read()).whole())[:PLANNED_MAX]

    async def view(self) -> ResolverView:
        catalogue = (await self._read()).catalogue
        options = self.state.options
        assert options is not None
        resources, present = tuple(catalogue.resources.values()), tuple(self.state.moves.values())
        return ResolverView(resources, dict(catalogue.tallies), present, options)

    async def partition(self, name: str) -> Partition | None:
        return await (await self._read()).partition(name)

    async def partitions(self, after: str, limit: int, resource: str | None) -> PartitionPage:
        return await (await self._read()).page(after, limit, resource)
