"""What travels between a resolver and those who resolve."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from relevo.actors import Interface, method
from relevo.errors import Conflict, InUse, InvalidValue, NotFound, SettingsMismatch
from relevo.governance.calls.gates import GateRef
from relevo.governance.core.assignments import Assignment, Partition, Resolution, Resource, Tally
from relevo.governance.core.moves import Move, MoveRules
from relevo.governance.core.rebalancing import PlannedMove
from relevo.governance.core.resolutions import Notice
from relevo.governance.errors import Moving, UnassignedEntity

RESOLVER_TYPE: Final = "relevo.resolver"
MoveStage = Literal["wait", "copy", "moved", "returned"]
"""Of a move: uses are waited for, the mover is to copy, it has ended well, or was given up."""


class ResolverOptions(Struct, frozen=True, kw_only=True):
    """How a resolver assigns, and how long its answers are used."""

    assign: str = "hash"
    rules: MoveRules = MoveRules()


class ReaderNote(Struct, frozen=True):
    """Who keeps answers of a resolver, and which moves it is done with."""

    id: str
    host: str | None = None
    """Its life, if it is a host."""
    quiet: tuple[tuple[str, int], ...] = ()
    """Partitions that it uses no more from before that generation."""


class Resolved(Struct, frozen=True):
    """An answer of a resolver."""

    resolution: Resolution | None
    notices: tuple[Notice, ...]
    """What has changed of partitions since the version that the reader knows."""
    version: int
    """Up to which version; there is more if it is below `newest`."""
    newest: int
    resources: dict[str, int] = {}
    """Generations of resources that have changed since then."""


class ResolverView(Struct, frozen=True):
    """A resolver, without its partitions and entities."""

    resources: tuple[Resource, ...]
    tallies: dict[str, Tally]
    """What is on each resource."""
    moves: tuple[Move, ...]
    options: ResolverOptions

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return sum(one.partitions for one in self.tallies.values())

    @property
    def entities(self) -> int:
        """How many entities have a partition."""
        return sum(one.entities for one in self.tallies.values())


class PartitionPage(Struct, frozen=True):
    """Some partitions, by name."""

    items: tuple[Partition, ...]
    end: str | None
    """The name after which the next page begins; None after the last one."""


_ERRORS = (
    Conflict, InUse, InvalidValue, Moving, NotFound, SettingsMismatch, UnassignedEntity,
)  # fmt: skip


class ResolverCalls(Interface):
    """The methods of the actor that is a resolver."""

    @method(idempotent=True, raises=_ERRORS)
    async def declare(self, options: ResolverOptions) -> bool:
        """Make the resolver; whether it is new. Raises `SettingsMismatch` if it has others."""

    @method(idempotent=True, read_only=True, raises=_ERRORS)
    async def look(self, entity: str | None, reader: str, version: int) -> Resolved | None:
        """As `resolve`, where that changes nothing; else None."""

    @method(idempotent=True, raises=_ERRORS)
    async def resolve(
        self, entity: str | None, reader: ReaderNote, version: int, choice: str | None = None
    ) -> Resolved:
        """Return where an entity is, and what has changed.

        A new one is assigned first: to the partition that the function of the caller chose, or as
        the resolver assigns.
        """

    @method(idempotent=True, raises=_ERRORS)
    async def resolve_once(self, entity: str) -> Resolution:
        """Return where an entity is, to a caller that keeps no answers and reports nothing.

        Raises `Moving` while its partition is moved; a move waits until such a use must be over.
        """

    @method(idempotent=True, raises=_ERRORS)
    async def add_resource(self, name: str, data: Any, capacity: float) -> Resource:
        """Add a resource, or change it."""

    @method(idempotent=True, raises=_ERRORS)
    async def attach(self, resource: str, gates: list[GateRef]) -> None:
        """Let pools and limits hear of the partitions that leave a resource; these alone."""

    @method(idempotent=True, raises=_ERRORS)
    async def add_partition(self, name: str, on: str, low: str) -> Partition:
        """Add a partition on a resource."""

    @method(idempotent=True, raises=_ERRORS)
    async def pin(self, entity: str, partition: str) -> Assignment:
        """Put an entity into a partition that has the same resource as its present one."""

    @method(idempotent=True, raises=_ERRORS)
    async def drain(self, resource: str, draining: bool) -> Resource:
        """Assign nothing new to a resource, or do so again."""

    @method(idempotent=True, raises=_ERRORS)
    async def remove(self, resource: str) -> None:
        """Remove a resource that no partition points to."""

    @method(raises=_ERRORS)
    async def split(self, partition: str, into: str, at: str | None) -> int:
        """Give some entities of a partition to a new one on the same resource; returns how many."""

    @method(raises=_ERRORS)
    async def merge(self, partition: str, into: str) -> int:
        """Give the entities of a partition to another on the same resource; returns how many."""

    @method(idempotent=True, raises=_ERRORS)
    async def detach(self, entity: str) -> str:
        """Return the partition that has an entity alone, made on its resource if there is none."""

    @method(idempotent=True, raises=_ERRORS)
    async def begin_move(self, partition: str, to: str, switch: bool, copies: bool) -> Move | None:
        """Mark a partition as moving; None if it is there, or was switched at once."""

    @method(idempotent=True, raises=_ERRORS)
    async def step_move(
        self, partition: str, to: str, generation: int, wait: float = 0.0
    ) -> MoveStage:
        """Return how a move stands; its mover counts as alive.

        While uses are waited for, it answers after `wait` seconds, or as soon as they have ended.
        """

    @method(idempotent=True, raises=_ERRORS)
    async def await_move(self, partition: str, generation: int, wait: float) -> None:
        """Return when a move has ended, or after `wait` seconds."""

    @method(idempotent=True, raises=_ERRORS)
    async def end_move(self, partition: str, to: str, generation: int, error: str) -> None:
        """End a move whose copy has ended, or failed with an error."""

    @method(idempotent=True, raises=_ERRORS)
    async def plan(self) -> list[PlannedMove]:
        """Return moves after which resources are loaded as their capacity says."""

    @method(idempotent=True, read_only=True, raises=_ERRORS)
    async def view(self) -> ResolverView:
        """Return resources, moves, and how much there is."""

    @method(idempotent=True, read_only=True, raises=_ERRORS)
    async def partition(self, name: str) -> Partition | None:
        """Return a partition; None if there is none."""

    @method(idempotent=True, read_only=True, raises=_ERRORS)
    async def partitions(self, after: str, limit: int, resource: str | None) -> PartitionPage:
        """Return partitions beyond a name; those of one resource if it is named.

        There may be fewer than `limit` before the last page.
        """
