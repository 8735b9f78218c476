"""Which partitions to move so that resources are loaded as their capacity says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from relevo.governance.core.assignments import Catalogue


class PlannedMove(Struct, frozen=True):
    """A partition that should go to another resource."""

    partition: str
    source: str
    target: str
    load: int
    """Its entities."""


def plan_rebalance(catalogue: Catalogue) -> list[PlannedMove]:
    """Return moves, in order, after which no single move would bring the loads closer together.

    Draining resources are emptied, if there is another one. Nothing is changed.
    """
    resources = catalogue.resources
    open_ = {name for name, one in resources.items() if not one.draining}
    if not open_:
        return []
    at = {name: one.resource for name, one in catalogue.partitions.items()}
    # A partition without entities weighs a little, so that empty ones are spread, too.
    weights = {name: catalogue.load(name) + 0.01 for name in at}
    loads = dict.fromkeys(resources, 0.0)
    for name, resource in at.items():
        loads[resource] += weights[name]

    def full(resource: str, more: float = 0.0) -> float:
        return (loads[resource] + more) / resources[resource].capacity

    def emptiest(weight: float) -> str:
        return min(open_, key=lambda name: (full(name, weight), name))

    moves: dict[str, str] = {}

    def move(partition: str, target: str) -> None:
        loads[at[partition]] -= weights[partition]
        loads[target] += weights[partition]
        at[partition] = moves[partition] = target

    heaviest_first = sorted(at, key=lambda name: (-weights[name], name))
    for name in heaviest_first:
        if at[name] not in open_:
            move(name, emptiest(weights[name]))
    for name in heaviest_first:  # each once: moves are dear
        target = emptiest(weights[name])
        if target != at[name] and full(target, weights[name]) < full(at[name]) - 1e-9:
            move(name, target)
    return [
        PlannedMove(name, catalogue.partitions[name].resource, target, catalogue.load(name))
        for name, target in moves.items()
        if target != catalogue.partitions[name].resource
    ]
