"""The catalogue of a resolver as it is stored: entries of maps, of which memory has a few.

Partitions and entities are read when they are asked for; all partitions only where the policy
chooses among them. What a turn has changed is stored entry by entry, so a change writes no more
for a resolver with many tenants than for one with few. The map `changes` has the name of each
partition under its generation: readers that were away learn from it what they have missed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.governance.calls.resolver_calls import PartitionPage
from relevo.governance.core.assignments import Assignment, Catalogue, Partition, Resource, Tally
from relevo.governance.core.names import checked_name
from relevo.governance.core.resolutions import Notice

if TYPE_CHECKING:
    from collections.abc import Collection

    from relevo.actors import Actor
    from relevo.governance.core.assignments import Policy

KEPT_MAX: Final = 10_000
"""Entities, and partitions, in memory between turns."""
RECENT_MAX: Final = 10_000
NOTICES_MAX: Final = 1_000
"""Changed partitions that one answer tells of."""
SCANNED_MAX: Final = 1_000
"""Partitions that one turn reads for a page."""
NAMES_SHOWN: Final = 11


class StoredPartition(Struct, frozen=True):
    """A partition, and how many entities it has."""

    partition: Partition
    load: int


class StoredResource(Struct, frozen=True):
    """A resource, and what is on it."""

    resource: Resource
    partitions: int
    entities: int


class StoredCatalogue:
    """A catalogue whose entries are in the maps of an actor."""

    def __init__(self, actor: Actor[Any], policy: Policy) -> None:
        self.catalogue = Catalogue(policy)
        self._knows_all = policy != "explicit"
        """Whether all partitions are in memory."""
        self._resources = actor.map("resources", StoredResource)
        self._partitions = actor.map("partitions", StoredPartition)
        self._entities = actor.map("entities", Assignment)
        self._removed = actor.map("removed", int)
        self._changes = actor.map("changes", str)
        self._known_removed: set[str] = set()
        self._recent: deque[tuple[int, str]] = deque()
        """The last changed partitions with their generations, oldest first."""
        self._recent_since = 0
        """The generation after which all changes are in `_recent`."""

    async def restore(self, version: int, moving: Collection[str]) -> None:
        """Read what must be in memory."""
        catalogue = self.catalogue
        catalogue.version = self._recent_since = version
        async for _, stored in self._resources.scan():
            tally = Tally(stored.partitions, stored.entities)
            catalogue.restore_resource(stored.resource, tally)
        if self._knows_all:
            async for _, kept in self._partitions.scan():
                catalogue.restore_partition(kept.partition, kept.load)
        for name in moving:
            await self.partition(name)

    async def partition(self, name: str) -> Partition | None:
        """Return a partition, which is then in memory; None if there is none."""
        catalogue = self.catalogue
        known = catalogue.partitions.get(checked_name(name, "partition"))
        if known is not None:
            return known
        if not self._knows_all and (stored := await self._partitions.get(name)) is not None:
            catalogue.restore_partition(stored.partition, stored.load)
            return stored.partition
        if (generation := await self._removed.get(name)) is not None:
            catalogue.removed[name] = generation
            self._known_removed.add(name)
        return None

    async def need(self, *names: str) -> None:
        """Bring partitions into memory; if one lacks, also some that errors can name."""
        found = [await self.partition(name) for name in names]
        if None in found and not self._knows_all:
            async for _, stored in self._partitions.scan(limit=NAMES_SHOWN):
                self.catalogue.restore_partition(stored.partition, stored.load)

    async def entity(self, name: str) -> tuple[Assignment, Partition] | None:
        """Return where an entity is, which is then in memory; None if it has no partition."""
        catalogue = self.catalogue
        assignment = catalogue.entities.get(checked_name(name, "entity"))
        if assignment is None:
            assignment = await self._entities.get(name)
            if assignment is None:
                return None
            catalogue.restore_entity(name, assignment)
        partition = await self.partition(assignment.partition)
        assert partition is not None  # what has entities is not removed
        return assignment, partition

    async def need_entities_of(self, partition: str) -> None:
        """Bring all entities of a partition into memory."""
        lacking = self.catalogue.load(partition)
        async for name, assignment in self._entities.scan():
            if not lacking:
                return
            if assignment.partition == partition:
                self.catalogue.restore_entity(name, assignment)
                lacking -= 1

    async def keep(self) -> None:
        """Store what has changed, and nothing else."""
        catalogue = self.catalogue
        changes = catalogue.take_changes()
        for name in changes.resources:
            await self._keep_resource(name)
        kept = [await self._keep_partition(*one) for one in changes.partitions.items()]
        for name in changes.entities:
            await self._entities.set(name, catalogue.entities[name])
        self._recent.extend(sorted(one for one in kept if one is not None))
        while len(self._recent) > RECENT_MAX:
            self._recent_since = self._recent.popleft()[0]

    async def _keep_resource(self, name: str) -> None:
        resource = self.catalogue.resources.get(name)
        if resource is None:
            await self._resources.delete(name)
            return
        tally = self.catalogue.tallies[name]
        stored = StoredResource(resource, tally.partitions, tally.entities)
        await self._resources.set(name, stored)

    async def _keep_partition(self, name: str, before: int) -> tuple[int, str] | None:
        """Store a partition; return its generation, with its name, if readers are to learn of it.

        A new one may have the name of one that was removed in the generation `before`.
        """
        catalogue = self.catalogue
        partition = catalogue.partitions.get(name)
        if partition is None:
            generation = catalogue.removed[name]
            await self._partitions.delete(name)
            await self._removed.set(name, generation)
            self._known_removed.add(name)
        else:
            generation = partition.generation
            await self._partitions.set(name, StoredPartition(partition, catalogue.load(name)))
            if name in self._known_removed:
                self._known_removed.discard(name)
                await self._removed.delete(name)
        if generation == before:
            return None
        if before:
            await self._changes.delete(_row(before))
        await self._changes.set(_row(generation), name)
        return generation, name

    def trim(self, moving: Collection[str]) -> None:
        """Forget what can be read again, if it is much."""
        catalogue = self.catalogue
        if self._knows_all:
            if len(catalogue.entities) > KEPT_MAX:
                catalogue.entities.clear()
        elif max(len(catalogue.entities), len(catalogue.partitions)) > KEPT_MAX:
            catalogue.forget(but=moving)

    async def notices(
        self, version: int, moving: Collection[str]
    ) -> tuple[tuple[Notice, ...], int]:
        """Return what has changed of partitions since a version, and up to which one.

        A reader that knows nothing yet need not learn of changes, but of what is being moved.
        """
        upto = self.catalogue.version
        if not version:
            names = list(moving)
        else:
            changes = await self._since(version)
            if len(changes) > NOTICES_MAX:
                changes = changes[:NOTICES_MAX]
                upto = changes[-1][0]
            names = list(dict.fromkeys(name for _, name in changes))
        return tuple([await self._notice(name, moving) for name in names]), upto

    async def _since(self, version: int) -> list[tuple[int, str]]:
        """Return the partitions that have changed since a version, a few more than are told of."""
        if version < self._recent_since:
            rows = self._changes.scan(after=_row(version), limit=NOTICES_MAX + 1)
            return [(int(row), name) async for row, name in rows]
        found = []
        for generation, name in reversed(self._recent):
            if generation <= version:
                break
            found.append((generation, name))
        return found[::-1]

    async def _notice(self, name: str, moving: Collection[str]) -> Notice:
        partition = await self.partition(name)
        if partition is None:
            return Notice(name, self.catalogue.removed[name], moving=False)
        return Notice(name, partition.generation, name in moving, partition.origins)

    def changed_resources(self, version: int) -> dict[str, int]:
        """Return the generations of resources that have changed since a version."""
        resources = self.catalogue.resources.values() if version else ()
        return {one.name: one.generation for one in resources if one.generation > version}

    async def page(self, after: str, limit: int, resource: str | None) -> PartitionPage:
        """Return partitions by name from after a name on; those of one resource if it is named."""
        found: list[Partition] = []
        scanned, last = 0, after
        async for name, stored in self._partitions.scan(after, SCANNED_MAX):
            scanned, last = scanned + 1, name
            if resource in (None, stored.partition.resource):
                found.append(stored.partition)
                if len(found) == limit:
                    return PartitionPage(tuple(found), last)
        return PartitionPage(tuple(found), last if scanned == SCANNED_MAX else None)

    async def whole(self) -> Catalogue:
        """Return a catalogue with all partitions, but no entities."""
        if self._knows_all:
            return self.catalogue
        whole = Catalogue("explicit")
        for name, resource in self.catalogue.resources.items():
            whole.restore_resource(resource, self.catalogue.tallies[name])
        async for _, stored in self._partitions.scan():
            whole.restore_partition(stored.partition, stored.load)
        return whole


def _row(generation: int) -> str:
    """Return a key by which generations sort."""
    return f"{generation:020}"
