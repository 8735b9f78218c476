"""Which partition an entity is in, and which resource a partition points to.

    catalogue = Catalogue(policy="least_loaded")
    catalogue.add_resource(Resource("db1", data={"dsn": "…"}, capacity=400))
    catalogue.add_partition("eu-0", on="db1")
    catalogue.resolve("alice")  # Resolution(entity="alice", partition="eu-0", resource="db1", ...)

The first resolution of an entity chooses its partition, and the choice is kept. Everything that
changes gets the next number of the resolver, its generation; so generations only grow, and a
cache fetches what is younger than what it has.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, assert_never

from msgspec import Struct, structs

from relevo.errors import Conflict, InUse, InvalidValue, NotFound
from relevo.governance.errors import UnassignedEntity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Policy = Literal["hash", "range", "least_loaded", "explicit"]
POLICIES: Final = ("hash", "range", "least_loaded", "explicit")
NAME_LENGTH_MAX: Final = 256


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
        self._loads: Counter[str] = Counter()
        """Entities by partition."""

    def resolve(self, entity: str, choice: str | None = None) -> Resolution:
        """Return where an entity is; assigns it first if it is new, to the choice if there is one.

        Raises `UnassignedEntity` if nothing assigns it.
        """
        checked_name(entity, "entity")
        assignment = self.entities.get(entity)
        if assignment is None:
            chosen = self._choose(entity) if choice is None else self._checked(entity, choice)
            assignment = self._assign(entity, chosen, pinned=False)
        partition = self.partitions[assignment.partition]
        resource = self.resources[partition.resource]
        generation = max(assignment.generation, partition.generation)
        return Resolution(entity, partition.name, resource, generation, partition.generation)

    def entities_of(self, partition: str) -> Iterator[str]:
        """Yield the entities of a partition."""
        return (name for name, one in self.entities.items() if one.partition == partition)

    def load(self, partition: str) -> int:
        """Return how many entities a partition has."""
        return self._loads[partition]

    def resource_load(self, resource: str) -> int:
        """Return how many entities a resource has."""
        return sum(
            self._loads[one.name] for one in self.partitions.values() if one.resource == resource
        )

    def restore_entity(self, entity: str, assignment: Assignment) -> None:
        """Take in an assignment as it was stored."""
        if (known := self.entities.get(entity)) is not None:
            self._loads[known.partition] -= 1
        self.entities[entity] = assignment
        self._loads[assignment.partition] += 1
        self.version = max(self.version, assignment.generation)

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
        return stored

    def drain_resource(self, name: str, *, draining: bool = True) -> Resource:
        """Assign nothing new to a resource, or do so again."""
        return self.add_resource(structs.replace(self.resource(name), draining=draining))

    def remove_resource(self, name: str) -> None:
        """Remove a resource that no partition points to; raises `InUse`."""
        self.resource(name)
        users = sorted(one.name for one in self.partitions.values() if one.resource == name)
        if users:
            raise InUse(
                f"{len(users)} partitions are on resource {name!r}, first {users[0]!r}; move them"
                " to another one first"
            )
        del self.resources[name]
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
        self.removed.pop(name, None)
        self.partitions[name] = Partition(name, on, self.next_generation(), low)
        return self.partitions[name]

    def point(self, partition: str, resource: str, *, is_quiet: bool = False) -> Partition:
        """Point a partition to a resource, at the end of a move; `is_quiet` if uses have ended."""
        self.resource(resource)
        known = self.partition(partition)
        changed = structs.replace(
            known, resource=resource, generation=self.next_generation(),
            origins=() if is_quiet else known.origins,
        )  # fmt: skip
        self.partitions[partition] = changed
        return changed

    def touch(self, partition: str) -> Partition:
        """Give a partition a new generation: resolutions before are stale."""
        return self.point(partition, self.partition(partition).resource)

    def own_partition(self, entity: str) -> Partition:
        """Return a partition that has this entity alone, made on the same resource if needed."""
        assignment = self.entities[entity]
        source = self.partition(assignment.partition)
        if source.own and self._loads[source.name] == 1:
            return source
        name = _own_name(entity)
        if name in self.partitions:
            raise Conflict(f"there is a partition {name!r} already, which has not {entity!r} alone")
        self.partitions[name] = Partition(
            name, source.resource, self.next_generation(), own=True, origins=self._left(source.name)
        )
        self._assign(entity, name, pinned=True)
        return self.partitions[name]

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
            self.partitions[partition] = structs.replace(target, origins=origins)
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
        self.partitions[into] = structs.replace(made, origins=self._left(partition))
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
        del self.partitions[partition], self._loads[partition]
        self.removed[partition] = origins[-1][1]
        self.partitions[into] = structs.replace(
            target, low=low, origins=(*target.origins, *origins)
        )
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

    def _assign(self, entity: str, partition: str, *, pinned: bool) -> Assignment:
        known = self.entities.get(entity)
        if known is not None and (known.partition, known.pinned) == (partition, pinned):
            return known
        assignment = Assignment(partition, self.next_generation(), pinned)
        self.restore_entity(entity, assignment)
        return assignment

    def _choose(self, entity: str) -> str:
        if callable(self._policy):
            return self._checked(entity, self._policy(entity))
        if self._policy == "explicit":
            raise UnassignedEntity(f"entity {entity!r} has no partition; pin it to one first")
        shared = [one for one in self.partitions.values() if not one.own]
        open_ = [one for one in shared if not self.resources[one.resource].draining] or shared
        if not open_:
            raise UnassignedEntity(
                f"entity {entity!r} has no partition: there is none; add one first"
            )
        match self._policy:
            case "hash":
                return max(open_, key=lambda one: _weight(entity, one.name)).name
            case "range":
                return self._in_range(entity)
            case "least_loaded":
                return min(open_, key=self._fullness).name
        assert_never(self._policy)

    def _checked(self, entity: str, name: str) -> str:
        if name not in self.partitions:
            raise UnassignedEntity(
                f"entity {entity!r} was assigned to {name!r}, which is no partition; there are"
                f" {_listed(self.partitions)}"
            )
        return name

    def _in_range(self, entity: str) -> str:
        below = [one for one in self.partitions.values() if one.low <= entity and not one.own]
        if not below:
            raise UnassignedEntity(
                f"entity {entity!r} is before every partition; add one with low={entity!r} or less"
            )
        return max(below, key=lambda one: one.low).name

    def _fullness(self, partition: Partition) -> tuple[float, int, str]:
        resource = self.resources[partition.resource]
        full = (self.resource_load(resource.name) + 1) / resource.capacity
        return (full, self._loads[partition.name], partition.name)


def checked_name(name: Any, what: str) -> str:
    """Return the name of an entity, a partition or a resource; raises `InvalidValue`."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise InvalidValue(
            f"the name of the {what} is {str(name)[:80]!r}; it must be text of 1 to"
            f" {NAME_LENGTH_MAX} characters",
            pointer=what,
        )
    return name


def _own_name(entity: str) -> str:
    if len(entity) + 7 <= NAME_LENGTH_MAX:
        return f"entity/{entity}"
    digest = blake2b(entity.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"entity/{entity[:200]}~{digest}"


def _weight(entity: str, partition: str) -> bytes:
    """Rendezvous hashing: another partition takes entities only for itself."""
    text = f"{len(entity)}:{entity}{partition}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _listed(names: dict[str, Any]) -> str:
    shown = ", ".join(sorted(names)[:10]) or "none"
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
