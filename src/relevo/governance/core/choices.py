"""Which partition a new entity gets, by the policy of its resolver.

    choose(catalogue, "least_loaded", "alice")

All policies but `explicit` look at all partitions. Those that draining resources have, and those
that one entity has for itself, are chosen only if there are no others, or not at all.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, assert_never

from relevo.governance.errors import UnassignedEntity

if TYPE_CHECKING:
    from relevo.governance.core.assignments import Catalogue, Partition, Policy


def choose(catalogue: Catalogue, policy: Policy, entity: str) -> str:
    """Return the name of the partition for a new entity; raises `UnassignedEntity`."""
    if policy == "explicit":
        raise UnassignedEntity(f"entity {entity!r} has no partition; pin it to one first")
    shared = [one for one in catalogue.partitions.values() if not one.own]
    open_ = [one for one in shared if not catalogue.resources[one.resource].draining] or shared
    if not open_:
        raise UnassignedEntity(f"entity {entity!r} has no partition: there is none; add one first")
    match policy:
        case "hash":
            return max(open_, key=lambda one: _weight(entity, one.name)).name
        case "range":
            return _in_range(shared, entity)
        case "least_loaded":
            return min(open_, key=lambda one: _fullness(catalogue, one)).name
    assert_never(policy)


def _in_range(shared: list[Partition], entity: str) -> str:
    below = [one for one in shared if one.low <= entity]
    if not below:
        raise UnassignedEntity(
            f"entity {entity!r} is before every partition; add one with low={entity!r} or less"
        )
    return max(below, key=lambda one: one.low).name


def _fullness(catalogue: Catalogue, partition: Partition) -> tuple[float, int, str]:
    resource = catalogue.resources[partition.resource]
    full = (catalogue.resource_load(resource.name) + 1) / resource.capacity
    return (full, catalogue.load(partition.name), partition.name)


def _weight(entity: str, partition: str) -> bytes:
    """Rendezvous hashing: another partition takes entities only for itself."""
    text = f"{len(entity)}:{entity}{partition}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
