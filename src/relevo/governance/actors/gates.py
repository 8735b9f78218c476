"""Gates: kit actors before a resource, which refuse resolutions from before a partition moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from relevo.governance.actors.kit import KitActor
from relevo.governance.errors import StaleResolution

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.governance.calls.gates import GateRef, SeenGeneration
    from relevo.governance.core.assignments import Partition

S = TypeVar("S")
FLOORS = "floors"
"""The map of the least generation by partition: what was resolved before is stale."""


class GateActor(KitActor[S]):
    """Knows the youngest generation of each partition whose users came by, or was told of it."""

    async def outdate(self, partition: str, generation: int) -> None:
        """As `GateCalls.outdate`."""
        floors = self.map(FLOORS, int)
        if generation > (await floors.get(partition) or 0):
            await floors.set(partition, generation)

    async def check_generation(self, seen: SeenGeneration | None) -> None:
        """Raise `StaleResolution` if the partition has moved since a caller resolved."""
        if seen is None:
            return
        floors = self.map(FLOORS, int)
        floor = await floors.get(seen.partition) or 0
        if seen.generation < floor:
            raise StaleResolution(
                f"partition {seen.partition!r} was resolved in generation {seen.generation}, and"
                f" has moved in generation {floor}; resolve it again"
            )
        if seen.since > floor:
            await floors.set(seen.partition, seen.since)


async def outdate(actor: KitActor[Any], gates: Iterable[GateRef], partition: Partition) -> None:
    """Tell gates that a partition has moved, by messages that are stored with the move."""
    name = f"{actor.ctx.key}/{partition.name}"
    for gate in gates:
        await actor.send(actor.kit.gate(gate)).outdate(name, partition.generation)
