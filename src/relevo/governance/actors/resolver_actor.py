"""The actor that is a resolver: it keeps entities, partitions and resources, and moves partitions.

The rules are in `core/assignments.py` and `core/moves.py`. Every step of a move is stored. The
process that moves a partition copies its data and tells the end of it; if it is not heard of for a
while, the partition returns to its old resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args
from uuid import UUID

from msgspec import Struct, field

from relevo.actors.markers import reminder_handler
from relevo.errors import Conflict, InUse, NotFound, SettingsMismatch
from relevo.governance.actors.kit import KitActor
from relevo.governance.calls.resolver_calls import (
    ReaderNote,
    Resolved,
    ResolverOptions,
    ResolverView,
)
from relevo.governance.core import moves
from relevo.governance.core.assignments import (
    Assignment,
    Catalogue,
    Partition,
    Policy,
    Resource,
)
from relevo.governance.core.moves import Copy, Move, Reader, WaitForReaders
from relevo.governance.core.rebalancing import PlannedMove, plan_rebalance
from relevo.governance.core.resolutions import Notice

if TYPE_CHECKING:
    from relevo.actors.reminders import Tick

MOVER_SECONDS: Final = 30.0
"""After so long without a word of its mover a move is given up."""
LOOK_SECONDS: Final = 10.0


class ResolverState(Struct):
    """What is stored of a resolver, beside its entities and readers."""

    options: ResolverOptions | None = None
    version: int = 0
    resources: dict[str, Resource] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)


class ResolverActor(KitActor[ResolverState]):
    """Keeps where entities are, and moves partitions from one resource to another."""

    async def on_activate(self) -> None:
        self._entities = self.map("entities", Assignment)
        self._readers = self.map("readers", ReaderNote)
        self._known_readers: dict[str, tuple[ReaderNote, float]] = {}
        """Who may keep answers, with the time of the last."""
        self._mover_at = await self.kit.clock.now()
        self._catalogue: Catalogue | None = None
        if (options := self.state.options) is not None:
            self._catalogue = self._made(options)
            self._catalogue.version = self.state.version
            self._catalogue.resources = dict(self.state.resources)
            self._catalogue.partitions = dict(self.state.partitions)
            async for entity, assignment in self._entities.scan():
                self._catalogue.restore_entity(entity, assignment)
            async for name, note in self._readers.scan():
                self._known_readers[name] = (note, self._mover_at)

    def _made(self, options: ResolverOptions) -> Catalogue:
        if options.assign in get_args(Policy):
            return Catalogue(options.assign)  # type: ignore[arg-type]
        function = self.kit.assigning.get(str(self.ctx.key))
        if function is None:
            raise NotFound(f"this program has no function that assigns for {self.ctx.key!r}")
        return Catalogue(function)

    def _all(self) -> Catalogue:
        if self._catalogue is None:
            raise NotFound(f"there is no resolver {self.ctx.key!r}")
        return self._catalogue

    def _keep(self) -> None:
        """Store what has changed, but for entities."""
        catalogue, state = self._all(), self.state
        state.version = catalogue.version
        state.resources, state.partitions = (
            dict(catalogue.resources),
            dict(catalogue.partitions),
        )

    async def declare(self, options: ResolverOptions) -> None:
        if self._catalogue is None:
            self._catalogue = self._made(options)
            self.state.options = options
        elif options != self.state.options:
            raise SettingsMismatch(
                f"resolver {self.ctx.key!r} exists with assign={self.state.options} and this"
                f" program declares {options}; declare the same"
            )

    async def resolve(self, entity: str | None, reader: ReaderNote, version: int) -> Resolved:
        catalogue = self._all()
        await self._note(reader)
        resolution = None
        if entity is not None:
            is_new = entity not in catalogue.entities
            resolution = catalogue.resolve(entity)
            if is_new:
                await self._entities.set(entity, catalogue.entities[entity])
                self.state.version = catalogue.version
        notices = tuple(
            Notice(one.name, one.generation, one.name in self.state.moves)
            for one in catalogue.partitions.values() if one.generation > version
        )  # fmt: skip
        return Resolved(resolution, notices, catalogue.version)

    async def _note(self, reader: ReaderNote) -> None:
        """Keep who has answers, before it gets one; take in what it is done with."""
        if reader.id not in self._known_readers:
            await self._readers.set(reader.id, ReaderNote(reader.id, reader.host))
        self._known_readers[reader.id] = (reader, await self.kit.clock.now())
        for name, generation in reader.quiet:
            move = self.state.moves.get(name)
            if move is not None:
                self.state.moves[name] = moves.report(move, reader.id, generation)

    # -- what operators change ----------------------------------------------------------------

    async def add_resource(self, name: str, data: Any, capacity: float) -> Resource:
        catalogue = self._all()
        known = catalogue.resources.get(name)
        draining = known is not None and known.draining
        stored = catalogue.add_resource(Resource(name, data, capacity, draining))
        if known is not None and stored != known:
            for one in list(catalogue.partitions.values()):
                if one.resource == name:  # caches learn of it
                    self._check_still(one.name)
                    catalogue.touch(one.name)
        self._keep()
        return stored

    async def add_partition(self, name: str, on: str, low: str) -> Partition:
        stored = self._all().add_partition(name, on=on, low=low)
        self._keep()
        return stored

    async def pin(self, entity: str, partition: str) -> Assignment:
        catalogue = self._all()
        target, known = catalogue.partition(partition), catalogue.entities.get(entity)
        if known is not None and known.partition != partition:
            source = catalogue.partition(known.partition)
            if source.resource != target.resource:
                raise Conflict(
                    f"{entity!r} is on {source.resource!r}, and {partition!r} on"
                    f" {target.resource!r}; move a partition instead, or pin before the first"
                    " use"
                )
            self._check_still(source.name)
            self._check_still(partition)
            catalogue.touch(source.name)  # caches learn of it
        assignment = catalogue.pin(entity, partition)
        await self._entities.set(entity, assignment)
        self._keep()
        return assignment

    async def drain(self, resource: str, draining: bool) -> Resource:
        stored = self._all().drain_resource(resource, draining=draining)
        self._keep()
        return stored

    async def remove(self, resource: str) -> None:
        if any(resource in (one.target, one.source) for one in self.state.moves.values()):
            raise InUse(f"a partition is being moved from or to {resource!r}")
        self._all().remove_resource(resource)
        self._keep()

    async def plan(self) -> list[PlannedMove]:
        return plan_rebalance(self._all())

    async def view(self) -> ResolverView:
        catalogue = self._all()
        return ResolverView(
            tuple(catalogue.partitions.values()), tuple(catalogue.resources.values()),
            tuple(self.state.moves.values()), len(catalogue.entities),
        )  # fmt: skip

    # -- moves --------------------------------------------------------------------------------

    def _check_still(self, partition: str) -> None:
        if partition in self.state.moves:
            raise Conflict(f"partition {partition!r} is being moved; wait until that has ended")

    async def begin_move(self, partition: str, to: str, switch: bool) -> Move | None:
        catalogue, now = self._all(), await self.kit.clock.now()
        known = self.state.moves.get(partition)
        if known is not None and known.target == to:
            self._mover_at = now
            return known  # taken over from a mover that has gone
        self._check_still(partition)
        source = catalogue.partition(partition).resource
        catalogue.resource(to)
        if source == to:
            return None
        if switch:
            catalogue.point(partition, to)
            self._keep()
            return None
        assert self.state.options is not None
        marked = catalogue.touch(partition)
        self.state.moves[partition] = moves.begin(
            subject=partition, source=source, target=to, generation=marked.generation,
            now=now, rules=self.state.options.rules,
        )  # fmt: skip
        self._mover_at = now
        self._keep()
        await self.reminders.set("moves", self.look_at_moves, every=LOOK_SECONDS)
        return self.state.moves[partition]

    async def step_move(self, partition: str, generation: int) -> str:
        move = self.state.moves.get(partition)
        if move is None or move.generation != generation:
            return "ended"
        now = self._mover_at = await self.kit.clock.now()
        readers = await self._present_readers()
        move, step = moves.step(move, readers, now, readers_are_complete=True)
        self.state.moves[partition] = move
        if isinstance(step, WaitForReaders):
            return "wait"
        assert isinstance(step, Copy)  # what else there is follows at once in `end_move`
        return "copy"

    async def _present_readers(self) -> dict[str, Reader]:
        hosts = {UUID(one.host) for one, _ in self._known_readers.values() if one.host}
        ended = (await self.kit.ended_lives(hosts))[1] if hosts else set()
        found = {}
        for name, (note, asked_at) in list(self._known_readers.items()):
            if note.host is not None and UUID(note.host) in ended:
                del self._known_readers[name]
                await self._readers.delete(name)
                continue
            found[name] = Reader(name, asked_at)
        return found

    async def end_move(self, partition: str, generation: int, error: str) -> None:
        move = self.state.moves.get(partition)
        if move is None or move.generation != generation:
            raise Conflict(f"the move of partition {partition!r} was given up; begin it again")
        self._end(move, error)

    def _end(self, move: Move, error: str) -> None:
        if not error and move.state != "copying":
            raise Conflict(f"partition {move.subject!r} may still be in use; it is not moved")
        move = moves.failed(move, error) if error else moves.copied(move)
        self._all().point(move.subject, move.source if error else move.target)
        del self.state.moves[move.subject]
        self._keep()

    @reminder_handler
    async def look_at_moves(self, _: Tick[None]) -> None:
        """Give up moves whose mover has gone."""
        if self.state.moves and await self.kit.clock.now() - self._mover_at > MOVER_SECONDS:
            for move in list(self.state.moves.values()):
                self._end(move, "its mover has gone")
        if not self.state.moves:
            await self.reminders.cancel("moves")
