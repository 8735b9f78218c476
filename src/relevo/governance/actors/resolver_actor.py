"""The actor that is a resolver: it keeps entities, partitions and resources, and moves partitions.

The rules are in `core/assignments.py` and `core/moves.py`. Every step of a move is stored. The
process that moves a partition copies its data and tells the end of it; if it is not heard of for a
while, the partition returns to its old resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from msgspec import Struct, field

from relevo.actors.calls.calling import headers
from relevo.actors.markers import reminder_handler
from relevo.actors.operating.events import BY
from relevo.errors import Conflict, InUse, NotFound, SettingsMismatch
from relevo.governance.actors.gates import outdate
from relevo.governance.actors.kit import KitActor
from relevo.governance.calls.gates import GateRef
from relevo.governance.calls.resolver_calls import (
    MoveStage,
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
    Resolution,
    Resource,
)
from relevo.governance.core.moves import Copy, Move, Reader, WaitForReaders
from relevo.governance.core.rebalancing import PlannedMove, plan_rebalance
from relevo.governance.core.resolutions import Notice
from relevo.governance.errors import Moving
from relevo.governance.operating import events

if TYPE_CHECKING:
    from relevo.actors.reminders import Tick

MOVER_SECONDS: Final = 30.0
"""After so long without a word of its mover a move is given up."""
LOOK_SECONDS: Final = 10.0
STEP_SECONDS: Final = 0.05
OUTSIDE: Final = "outside"
"""The reader that stands for all callers of `resolve_once`."""


class ResolverState(Struct):
    """What is stored of a resolver, beside its entities and readers."""

    options: ResolverOptions | None = None
    version: int = 0
    resources: dict[str, Resource] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    """Partitions that were merged into others, with their last generations."""
    gates: dict[str, tuple[GateRef, ...]] = field(default_factory=dict)
    """Pools and limits that are attached to resources."""


class ResolverActor(KitActor[ResolverState]):
    """Keeps where entities are, and moves partitions from one resource to another."""

    async def on_activate(self) -> None:
        self._entities = self.map("entities", Assignment)
        self._readers = self.map("readers", ReaderNote)
        self._known_readers: dict[str, tuple[ReaderNote, float]] = {}
        """Who may keep answers, with the time of the last."""
        now = await self.kit.clock.now()
        self._movers = dict.fromkeys(self.state.moves, now)
        """When the mover of each partition was heard of."""
        self._catalogue: Catalogue | None = None
        if (options := self.state.options) is not None:
            self._catalogue = self._made(options)
            self._catalogue.version = self.state.version
            self._catalogue.resources = dict(self.state.resources)
            self._catalogue.partitions = dict(self.state.partitions)
            self._catalogue.removed = dict(self.state.removed)
            async for entity, assignment in self._entities.scan():
                self._catalogue.restore_entity(entity, assignment)
            async for name, note in self._readers.scan():
                self._known_readers[name] = (note, now)
            self._drive()

    def _made(self, options: ResolverOptions) -> Catalogue:
        if options.assign == "function":  # callers have it, and say what it chose
            return Catalogue("explicit")
        return Catalogue(cast("Policy", options.assign))

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
        state.removed = dict(catalogue.removed)

    async def declare(self, options: ResolverOptions) -> bool:
        if self._catalogue is None:
            self._catalogue = self._made(options)
            self.state.options = options
            self.log_change(events.RESOLVER_CREATED)
            return True
        if options != self.state.options:
            raise SettingsMismatch(
                f"resolver {self.ctx.key!r} exists with assign={self.state.options} and this"
                f" program declares {options}; declare the same"
            )
        return False

    async def resolve(
        self, entity: str | None, reader: ReaderNote, version: int, choice: str | None = None
    ) -> Resolved:
        catalogue = self._all()
        await self._note(reader)
        resolution = None if entity is None else await self._resolved(entity, choice)
        return Resolved(resolution, self._notices(version), catalogue.version)

    def _notices(self, version: int) -> tuple[Notice, ...]:
        """Return what has changed since a version."""
        catalogue, moving = self._all(), self.state.moves
        changed = [
            Notice(one.name, one.generation, one.name in moving, one.origins)
            for one in catalogue.partitions.values() if one.generation > version
        ]  # fmt: skip
        removed = [
            Notice(name, generation, moving=False)
            for name, generation in catalogue.removed.items() if generation > version
        ]  # fmt: skip
        return (*changed, *removed)

    async def _resolved(self, entity: str, choice: str | None = None) -> Resolution:
        catalogue = self._all()
        is_new = entity not in catalogue.entities
        resolution = catalogue.resolve(entity, choice)
        if is_new:
            await self._entities.set(entity, catalogue.entities[entity])
            self.state.version = catalogue.version
        return resolution

    async def resolve_once(self, entity: str) -> Resolution:
        resolution = await self._resolved(entity)
        if resolution.partition in self.state.moves:
            raise Moving(f"the partition of {entity!r} in {self.ctx.key!r} is being moved")
        await self._note(ReaderNote(OUTSIDE))
        return resolution

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
        if stored != known:
            self.log_change(events.RESOURCE_PUT, name)
        return stored

    async def attach(self, resource: str, gates: list[GateRef]) -> None:
        self._all().resource(resource)
        self.state.gates[resource] = tuple(dict.fromkeys(gates))

    async def add_partition(self, name: str, on: str, low: str) -> Partition:
        is_new = name not in self._all().partitions
        stored = self._all().add_partition(name, on=on, low=low)
        self._keep()
        if is_new:
            self.log_change(events.PARTITION_PUT, name, on)
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
        assignment = catalogue.pin(entity, partition)
        await self._entities.set(entity, assignment)
        self._keep()
        if assignment != known:
            self.log_change(events.ENTITY_PINNED, entity, partition)
        return assignment

    async def split(self, partition: str, into: str, at: str | None) -> int:
        catalogue = self._all()
        self._check_still(partition)
        moved = catalogue.split(partition, into, at=at)
        self.log_change(events.PARTITION_SPLIT, partition, into)
        return await self._keep_entities(moved)

    async def merge(self, partition: str, into: str) -> int:
        catalogue = self._all()
        self._check_still(partition)
        self._check_still(into)
        moved = catalogue.merge(partition, into)
        self.log_change(events.PARTITION_MERGED, partition, into)
        return await self._keep_entities(moved)

    async def _keep_entities(self, names: list[str]) -> int:
        """Store where entities are now, with all else that has changed."""
        for name in names:
            await self._entities.set(name, self._all().entities[name])
        self._keep()
        return len(names)

    async def detach(self, entity: str) -> str:
        catalogue = self._all()
        self._check_still(catalogue.resolve(entity).partition)
        known = catalogue.entities[entity]
        partition = catalogue.own_partition(entity)
        await self._keep_entities([entity])
        if partition.name != known.partition:
            self.log_change(events.ENTITY_PINNED, entity, partition.name)
        return partition.name

    async def drain(self, resource: str, draining: bool) -> Resource:
        known = self._all().resource(resource)
        stored = self._all().drain_resource(resource, draining=draining)
        self._keep()
        if stored != known:
            self.log_change(
                events.RESOURCE_DRAINED if draining else events.RESOURCE_RESUMED, resource
            )
        return stored

    async def remove(self, resource: str) -> None:
        if any(resource in (one.target, one.source) for one in self.state.moves.values()):
            raise InUse(f"a partition is being moved from or to {resource!r}")
        self._all().remove_resource(resource)
        self.state.gates.pop(resource, None)
        self._keep()
        self.log_change(events.RESOURCE_REMOVED, resource)

    async def plan(self) -> list[PlannedMove]:
        return plan_rebalance(self._all())

    async def view(self) -> ResolverView:
        catalogue = self._all()
        assert self.state.options is not None
        return ResolverView(
            tuple(catalogue.partitions.values()), tuple(catalogue.resources.values()),
            tuple(self.state.moves.values()), len(catalogue.entities), self.state.options,
        )  # fmt: skip

    # -- moves --------------------------------------------------------------------------------

    def _check_still(self, partition: str) -> None:
        if partition in self.state.moves:
            raise Conflict(f"partition {partition!r} is being moved; wait until that has ended")

    async def begin_move(
        self, partition: str, to: str, switch: bool, copies: bool
    ) -> Move | None:  # fmt: skip
        catalogue, now = self._all(), await self.kit.clock.now()
        known = self.state.moves.get(partition)
        if known is not None and (known.target, known.copies) == (to, copies):
            self._movers[partition] = now
            return known  # taken over from a mover that has gone
        self._check_still(partition)
        source = catalogue.partition(partition).resource
        catalogue.resource(to)
        if source == to:
            return None
        if switch:
            moved = catalogue.point(partition, to)
            self._keep()
            await outdate(self, self.state.gates.get(source, ()), moved)
            self.log_change(events.PARTITION_MOVED, partition, to)
            return None
        assert self.state.options is not None
        marked = catalogue.touch(partition)
        self.state.moves[partition] = moves.begin(
            subject=partition, source=source, target=to, generation=marked.generation,
            now=now, rules=self.state.options.rules, copies=copies, by=headers().get(BY),
        )  # fmt: skip
        self._movers[partition] = now
        self._keep()
        await self.reminders.set("moves", self.look_at_moves, every=LOOK_SECONDS)
        self._drive()
        return self.state.moves[partition]

    async def step_move(self, partition: str, to: str, generation: int) -> MoveStage:
        move = self.state.moves.get(partition)
        if move is None or move.generation != generation:
            return self._ended(partition, to)
        self._movers[partition] = await self.kit.clock.now()
        return await self._step(move)

    def _ended(self, partition: str, to: str) -> MoveStage:
        stored = self._all().partitions.get(partition)
        return "moved" if stored is not None and stored.resource == to else "returned"

    async def _step(self, move: Move) -> MoveStage:
        now, readers = await self.kit.clock.now(), await self._present_readers()
        move, step = moves.step(move, readers, now, readers_are_complete=True)
        self.state.moves[move.subject] = move
        if isinstance(step, WaitForReaders):
            return "wait"
        assert isinstance(step, Copy)  # what else there is follows at once in `_end`
        if move.copies:
            return "copy"
        await self._end(move, "")
        return "moved"

    def _drive(self) -> None:
        """Carry on with moves that need nobody to copy anything, also after a crash."""
        if any(not move.copies for move in self.state.moves.values()):
            self.timers.set("drive", self._step_all, every=STEP_SECONDS, keep_alive=True)
        else:
            self.timers.cancel("drive")

    async def _step_all(self) -> None:
        for move in list(self.state.moves.values()):
            if not move.copies:
                await self._step(move)
        self._drive()

    async def _present_readers(self) -> dict[str, Reader]:
        hosts = {UUID(one.host) for one, _ in self._known_readers.values() if one.host}
        ended = (await self.kit.ended_lives(hosts))[1] if hosts else set()
        assert self.state.options is not None
        silent_since = await self.kit.clock.now() - self.state.options.rules.silence
        found = {}
        for name, (note, asked_at) in list(self._known_readers.items()):
            if silent_since > asked_at or (note.host is not None and UUID(note.host) in ended):
                del self._known_readers[name]
                await self._readers.delete(name)
                continue
            found[name] = Reader(name, asked_at)
        return found

    async def end_move(self, partition: str, to: str, generation: int, error: str) -> None:
        move = self.state.moves.get(partition)
        if move is not None and move.generation == generation:
            await self._end(move, error)
        elif not error and self._ended(partition, to) != "moved":
            raise Conflict(f"the move of partition {partition!r} was given up; begin it again")

    async def _end(self, move: Move, error: str) -> None:
        if not error and move.state != "copying":
            raise Conflict(f"partition {move.subject!r} may still be in use; it is not moved")
        move = moves.failed(move, error) if error else moves.copied(move)
        resource = move.source if error else move.target
        moved = self._all().point(move.subject, resource, is_quiet=not error)
        await outdate(self, self.state.gates.get(move.source, ()), moved)
        del self.state.moves[move.subject]
        self._movers.pop(move.subject, None)
        self._keep()
        type_name = events.PARTITION_RETURNED if error else events.PARTITION_MOVED
        self.log_change_for(move.by, type_name, move.subject, resource)

    @reminder_handler
    async def look_at_moves(self, _: Tick[None]) -> None:
        """Be in memory after a crash, and give up moves whose mover has gone with its copy."""
        late = await self.kit.clock.now() - MOVER_SECONDS
        for move in list(self.state.moves.values()):
            if move.copies and self._movers.get(move.subject, 0.0) < late:
                await self._end(move, "its mover has gone")
        if not self.state.moves:
            await self.reminders.cancel("moves")
