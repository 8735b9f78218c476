"""Which partition an entity is in, and which resource a partition points to.

    catalogue = Catalogue(policy="least_loaded")
    catalogue.add_resource(Resource("db1", data={"dsn": "…"}, capacity=400))
    catalogue.add_partition("eu-0", on="db1")
    catalogue.resolve("alice")  # Resolution(entity="alice", partition="eu-0", resource="db1", ...)

The first resolution of an entity chooses its partition, and the choice is kept. Everything that
changes gets the next number of the resolver, its generation; so generations only grow, and a
cache fetches what is younger than what it has.

A catalogue need not know all: what a method is about must have been restored before. What has
changed is in `take_changes`, so that no more than that is stored.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field, structs

from relevo.errors import Conflict, InUse, InvalidValue, NotFound
from relevo.governance.core.choices import choose
from relevo.governance.core.names import checked_name, own_name
from relevo.governance.errors import UnassignedEntity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

Policy = Literal["hash", "range", "least_loaded", "explicit"]
POLICIES: Final = ("hash", "range", "least_loaded", "explicit")


class Resource(Struct, frozen=True):
    """Something physical, such as a database; `data` is the user's own."""

    name: str
    data: Any = None
    capacity: float = 1.0
    """How much load it takes beside the others."""
    draining: bool = False
    """Whether nothing new is assigned to it."""
    generation: int = 0


class Partition(Struct, frozen=True):
    """A logical part; all entities in it have the same resource."""

    name: str
    resource: str
    generation: int
    low: str = ""
    """The first entity in it, where ranges assign."""
    own: bool = False
    """Whether it has only what is pinned to it: nothing is assigned to it."""
    origins: tuple[tuple[str, int], ...] = ()
    """Where its entities were before: uses of those partitions from before those generations may
    be uses of this one's entities. Empty once a move has waited for them.
    """


class Assignment(Struct, frozen=True):
    """The partition of an entity: chosen by the policy, or pinned."""

    partition: str
    generation: int
    pinned: bool = False


class Resolution(Struct, frozen=True):
    """Where an entity is; of two resolutions of an entity the one with the higher generation
    is the younger."""

    entity: str
    partition: str
    resource: Resource
    generation: int
    since: int = 0
    """The generation in which the partition came to its resource, or changed."""
    resolver: str = ""


class Tally(Struct):
    """What is on a resource."""

    partitions: int = 0
    entities: int = 0


class CatalogueChanges(Struct):
    """What has changed of a catalogue."""

    partitions: dict[str, int] = field(default_factory=dict)
    """The generations that partitions had before, by name; 0 for new ones."""
    entities: set[str] = field(default_factory=set)
    resources: set[str] = field(default_factory=set)


class Catalogue:
    """Entities, partitions and resources of one resolver."""

    def __init__(self, policy: Policy | Callable[[str], str] = "hash", *, version: int = 0) -> None:
        if not callable(policy) and policy not in POLICIES:
            raise InvalidValue(
                f"assign is {policy!r}; it must be one of {', '.join(POLICIES)}, or a function",
                pointer="assign",
            )
        self._policy = policy
        self.version = version
        """The youngest generation."""
        self.resources: dict[str, Resource] = {}
        self.partitions: dict[str, Partition] = {}
        self.entities: dict[str, Assignment] = {}
        self.removed: dict[str, int] = {}
        """Partitions that were merged into others, with the generation in which they ended."""
        self.tallies: dict[str, Tally] = {}
        """What is on each resource."""
        self._loads: Counter[str] = Counter()
        """Entities by partition."""
        self._changes = CatalogueChanges()

    def take_changes(self) -> CatalogueChanges:
        """Return what has changed since this was asked last."""
        changes, self._changes = self._changes, CatalogueChanges()
        return changes

    def resolve(self, entity: str, choice: str | None = None) -> Resolution:
        """Return where an entity is; assigns it first if it is new, to the choice if there is one.

        Raises `UnassignedEntity` if nothing assigns it.
        """
        checked_name(entity, "entity")
        assignment = self.entities.get(entity)
        if assignment is None:
            chosen = self._choose(entity) if choice is None else self._checked(entity, choice)
            assignment = self._assign(entity, chosen, pinned=False)
        return self.resolution(entity, assignment, self.partitions[assignment.partition])

    def resolution(self, entity: str, assignment: Assignment, partition: Partition) -> Resolution:
        """Return where an entity with this assignment is."""
        resource = self.resources[partition.resource]
        generation = max(assignment.generation, partition.generation, resource.generation)
        return Resolution(entity, partition.name, resource, generation, partition.generation)

    def entities_of(self, partition: str) -> Iterator[str]:
        """Yield the entities of a partition."""
        return (name for name, one in self.entities.items() if one.partition == partition)

    def load(self, partition: str) -> int:
        """Return how many entities a partition has."""
        return self._loads[partition]

    def resource_load(self, resource: str) -> int:
        """Return how many entities a resource has."""
        return self.tallies[resource].entities

    def restore_resource(self, resource: Resource, tally: Tally) -> None:
        """Take in a resource as it was stored, with what is on it."""
        self.resources[resource.name], self.tallies[resource.name] = resource, tally

    def restore_partition(self, partition: Partition, load: int) -> None:
        """Take in a partition as it was stored, with its number of entities."""
        self.partitions[partition.name], self._loads[partition.name] = partition, load

    def restore_entity(self, entity: str, assignment: Assignment) -> None:
        """Take in an assignment as it was stored."""
        self.entities[entity] = assignment

    def forget(self, *, but: Collection[str]) -> None:
        """Forget entities and partitions, which can be restored, but for some partitions."""
        self.entities.clear()
        for name in [name for name in self.partitions if name not in but]:
            del self.partitions[name], self._loads[name]

    def add_resource(self, resource: Resource) -> Resource:
        """Add a resource, or change its data and capacity."""
        checked_name(resource.name, "resource")
        if not resource.capacity > 0:
            raise InvalidValue(
                f"capacity of {resource.name!r} is {resource.capacity}; it must be more than 0",
                pointer="capacity",
            )
        known = self.resources.get(resource.name)
        if known is not None and structs.replace(resource, generation=known.generation) == known:
            return known
        stored = structs.replace(resource, generation=self.next_generation())
        self.resources[resource.name] = stored
        self._tally(resource.name)
        return stored

    def drain_resource(self, name: str, *, draining: bool = True) -> Resource:
        """Assign nothing new to a resource, or do so again."""
        return self.add_resource(structs.replace(self.resource(name), draining=draining))

    def remove_resource(self, name: str) -> None:
        """Remove a resource that no partition points to; raises `InUse`."""
        self.resource(name)
        if users := self.tallies[name].partitions:
            raise InUse(
                f"{users} partitions are on resource {name!r}; move them to another one first"
            )
        del self.resources[name], self.tallies[name]
        self._changes.resources.add(name)
        self.next_generation()

    def add_partition(self, name: str, *, on: str, low: str = "") -> Partition:
        """Add a partition on a resource; one that exists there is nothing new."""
        checked_name(name, "partition")
        self.resource(on)
        known = self.partitions.get(name)
        if known is not None:
            if (known.resource, known.low) == (on, low):
                return known
            raise Conflict(
                f"partition {name!r} is on {known.resource!r} from {known.low!r}; move it, or use"
                " another name"
            )
        shared = (one for one in self.partitions.values() if not one.own)
        if self._policy == "range" and any(one.low == low for one in shared):
            raise Conflict(f"another partition begins at {low!r}; split it instead")
        return self._put(Partition(name, on, self.next_generation(), low))

    def point(self, partition: str, resource: str, *, is_quiet: bool = False) -> Partition:
        """Point a partition to a resource, at the end of a move; `is_quiet` if uses have ended."""
        self.resource(resource)
        known = self.partition(partition)
        changed = structs.replace(
            known, resource=resource, generation=self.next_generation(),
            origins=() if is_quiet else known.origins,
        )  # fmt: skip
        return self._put(changed)

    def touch(self, partition: str) -> Partition:
        """Give a partition a new generation: resolutions before are stale."""
        return self.point(partition, self.partition(partition).resource)

    def own_partition(self, entity: str) -> Partition:
        """Return a partition that has this entity alone, made on the same resource if needed."""
        assignment = self.entities[entity]
        source = self.partition(assignment.partition)
        if source.own and self._loads[source.name] == 1:
            return source
        name = own_name(entity)
        if name in self.partitions:
            raise Conflict(f"there is a partition {name!r} already, which has not {entity!r} alone")
        made = self._put(Partition(
            name, source.resource, self.next_generation(), own=True, origins=self._left(source.name)
        ))  # fmt: skip
        self._assign(entity, name, pinned=True)
        return made

    def _left(self, source: str) -> tuple[tuple[str, int], ...]:
        """Outdate what is known of a partition that entities leave; returns their origins."""
        touched = self.touch(source)
        return (*touched.origins, (source, touched.generation))

    def pin(self, entity: str, partition: str) -> Assignment:
        """Put an entity into a partition, whatever the policy says."""
        checked_name(entity, "entity")
        target, known = self.partition(partition), self.entities.get(entity)
        if known is not None and known.partition != partition:
            origins = (*target.origins, *self._left(known.partition))
            self._put(structs.replace(target, origins=origins))
        return self._assign(entity, partition, pinned=True)

    def split(self, partition: str, into: str, *, at: str | None = None) -> list[str]:
        """Make another partition on the same resource, and give it half of the entities.

        `at` gives it all from that one on. Returns the entities that it got; resources do not
        change, so no use is disturbed.
        """
        source = self.partition(partition)
        names = sorted(self.entities_of(partition))
        if at is None:
            at = names[len(names) // 2] if len(names) > 1 else ""
        if not at > source.low:
            raise InvalidValue(
                f"partition {partition!r} cannot be split at {at!r}; give `at`, an entity after its"
                " first",
                pointer="at",
            )
        if into in self.partitions:
            raise Conflict(f"there is a partition {into!r} already; use another name")
        made = self.add_partition(into, on=source.resource, low=at)
        self._put(structs.replace(made, origins=self._left(partition)))
        moved = [name for name in names if name >= at and not self.entities[name].pinned]
        for name in moved:
            self._assign(name, into, pinned=False)
        return moved

    def merge(self, partition: str, into: str) -> list[str]:
        """Give all entities of a partition to another one on the same resource, and remove it."""
        source, target = self.partition(partition), self.partition(into)
        if partition == into or source.resource != target.resource:
            raise Conflict(
                f"partitions {partition!r} and {into!r} are not two of one resource; move one of"
                " them to the other's resource first"
            )
        if target.own and not source.own:
            raise Conflict(f"partition {into!r} has only what is pinned to it; merge it instead")
        moved = sorted(self.entities_of(partition))
        for name in moved:
            self._assign(name, into, pinned=self.entities[name].pinned)
        low = target.low if source.own else min(source.low, target.low)
        origins = self._left(partition)
        self._tally(source.resource).partitions -= 1
        del self.partitions[partition], self._loads[partition]
        self.removed[partition] = origins[-1][1]
        self._put(structs.replace(target, low=low, origins=(*target.origins, *origins)))
        self.touch(into)
        return moved

    def resource(self, name: str) -> Resource:
        """Return a resource; raises `NotFound`."""
        if name not in self.resources:
            raise NotFound(f"there is no resource {name!r}; there are {_listed(self.resources)}")
        return self.resources[name]

    def partition(self, name: str) -> Partition:
        """Return a partition; raises `NotFound`."""
        if name not in self.partitions:
            raise NotFound(f"there is no partition {name!r}; there are {_listed(self.partitions)}")
        return self.partitions[name]

    def next_generation(self) -> int:
        """Return a number above all before."""
        self.version += 1
        return self.version

    def _put(self, partition: Partition) -> Partition:
        name, known = partition.name, self.partitions.get(partition.name)
        before = self.removed.pop(name, 0) if known is None else known.generation
        self._changes.partitions.setdefault(name, before)
        if known is None or known.resource != partition.resource:
            if known is not None:
                self._count(known.resource, -1, -self._loads[name])
            self._count(partition.resource, 1, self._loads[name])
        self.partitions[name] = partition
        return partition

    def _tally(self, resource: str) -> Tally:
        """Return what is on a resource, to change it."""
        self._changes.resources.add(resource)
        return self.tallies.setdefault(resource, Tally())

    def _count(self, resource: str, partitions: int, entities: int) -> None:
        tally = self._tally(resource)
        tally.partitions += partitions
        tally.entities += entities

    def _assign(self, entity: str, partition: str, *, pinned: bool) -> Assignment:
        known = self.entities.get(entity)
        if known is not None and (known.partition, known.pinned) == (partition, pinned):
            return known
        assignment = Assignment(partition, self.next_generation(), pinned)
        if known is not None:
            self._load_more(known.partition, -1)
        self._load_more(partition, 1)
        self.entities[entity] = assignment
        self._changes.entities.add(entity)
        return assignment

    def _load_more(self, name: str, entities: int) -> None:
        partition = self.partitions[name]
        self._changes.partitions.setdefault(name, partition.generation)
        self._loads[name] += entities
        self._count(partition.resource, 0, entities)

    def _choose(self, entity: str) -> str:
        if callable(self._policy):
            return self._checked(entity, self._policy(entity))
        return choose(self, self._policy, entity)

    def _checked(self, entity: str, name: str) -> str:
        if name not in self.partitions:
            raise UnassignedEntity(
                f"entity {entity!r} was assigned to {name!r}, which is no partition; there are"
                f" {_listed(self.partitions)}"
            )
        return name


def _listed(names: dict[str, Any]) -> str:
    """Return the first names; there may be more that are not restored."""
    shown = ", ".join(sorted(names)[:10]) or "none"
    return shown if len(names) <= 10 else f"{shown} and more"
