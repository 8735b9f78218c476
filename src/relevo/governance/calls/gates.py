"""What gates learn of resolutions: those from before a partition moved are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.actors import Interface, method

if TYPE_CHECKING:
    from relevo.governance.core.assignments import Resolution


class SeenGeneration(Struct, frozen=True):
    """The generation in which a caller has resolved a partition."""

    partition: str
    """With the name of its resolver."""
    generation: int
    since: int
    """The generation in which the partition came to its resource."""

    @classmethod
    def of(cls, resolution: Resolution | None) -> SeenGeneration | None:
        """Return what a gate is told of a resolution."""
        if resolution is None:
            return None
        name = f"{resolution.resolver}/{resolution.partition}"
        return cls(name, resolution.generation, resolution.since)


class GateRef(Struct, frozen=True):
    """A pool or a limit."""

    type: str
    name: str


class GateCalls(Interface):
    """What a resolver tells the gates of a resource."""

    @method(idempotent=True)
    async def outdate(self, partition: str, generation: int) -> None:
        """Refuse what was resolved before that generation of a partition."""
