"""The actor that is a resolver: beside its catalogue it moves partitions between resources.

The rules are in `core/moves.py`. Every step of a move is stored. The process that moves a partition
copies its data and tells the end of it; if it is not heard of for a while, the partition returns to
its old resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from relevo.actors import BY, headers, reminder_handler
from relevo.errors import Conflict
from relevo.governance.actors.catalogue_actor import CatalogueActor
from relevo.governance.actors.gates import outdate
from relevo.governance.actors.move_waits import MoveWaits
from relevo.governance.core import moves
from relevo.governance.core.moves import Copy, Move, Reader, WaitForReaders
from relevo.governance.operating import events

if TYPE_CHECKING:
    from relevo.actors import Tick
    from relevo.governance.calls.resolver_calls import MoveStage

MOVER_SECONDS: Final = 30.0
"""After so long without a word of its mover a move is given up."""
LOOK_SECONDS: Final = 10.0
STEP_SECONDS: Final = 0.25
"""How often hosts are looked at that may have ended, while a move waits for them."""


class ResolverActor(CatalogueActor):
    """Keeps where entities are, and moves partitions from one resource to another."""

    async def on_activate(self) -> None:
        await super().on_activate()
        self._waits = MoveWaits()
        now = await self.kit.clock.now()
        self._movers = dict.fromkeys(self.state.moves, now)
        """When the mover of each partition was heard of."""
        self._drive()

    def reported(self) -> None:
        self._drive(soon=True)

    async def begin_move(
        self, partition: str, to: str, switch: bool, copies: bool
    ) -> Move | None:  # fmt: skip
        stored, now = await self._open(), await self.kit.clock.now()
        known = self.state.moves.get(partition)
        if known is not None and (known.target, known.copies) == (to, copies):
            self._movers[partition] = now
            return known  # taken over from a mover that has gone
        self._check_still(partition)
        await stored.need(partition)
        catalogue = self._all()
        source = catalogue.partition(partition).resource
        catalogue.resource(to)
        if source == to:
            return None
        if switch:
            moved = catalogue.point(partition, to)
            await self._keep()
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
        await self._keep()
        await self.reminders.set("moves", self.look_at_moves, every=LOOK_SECONDS)
        self._drive()
        return self.state.moves[partition]

    async def step_move(self, partition: str, to: str, generation: int, wait: float = 0.0) -> Any:
        await self._open()
        now = await self.kit.clock.now()
        move = self.state.moves.get(partition)
        if move is None or move.generation != generation:
            return await self._stage(partition, to, generation)
        self._movers[partition] = now
        stage = await self._step(move)
        if stage != "wait" or wait <= 0:
            return stage
        self._drive()
        return self._waits.add(self.defer(), partition, to, generation, now + wait)

    async def await_move(self, partition: str, generation: int, wait: float) -> Any:
        move = self.state.moves.get(partition)
        if move is None or move.generation != generation:
            return None
        self._drive()
        until = await self.kit.clock.now() + wait
        return self._waits.add(self.defer(), partition, None, generation, until)

    async def _stage(self, partition: str, to: str | None, generation: int) -> MoveStage:
        """Return how a move stands, or how it has ended."""
        move = self.state.moves.get(partition)
        if move is not None and move.generation == generation:
            return "copy" if move.state == "copying" else "wait"
        known = await (await self._read()).partition(partition)
        return "moved" if known is not None and known.resource == to else "returned"

    async def _step(self, move: Move) -> MoveStage:
        now, readers = await self.kit.clock.now(), await self._present_readers()
        move, step = moves.step(move, readers, now, readers_are_complete=True)
        if move != self.state.moves[move.subject]:
            self.state.moves[move.subject] = move
        if isinstance(step, WaitForReaders):
            return "wait"
        assert isinstance(step, Copy)  # what else there is follows at once in `_end`
        if move.copies:
            return "copy"
        await self._end(move, "")
        return "moved"

    def _drive(self, *, soon: bool = False) -> None:
        """Carry on with moves while they need nobody to copy anything, also after a crash."""
        if self._waits or any(_goes_on(move) for move in self.state.moves.values()):
            after = 0.0 if soon else STEP_SECONDS
            self.timers.set("drive", self._step_all, after=after, keep_alive=True)
        else:
            self.timers.cancel("drive")

    async def _step_all(self) -> None:
        await self._open()
        for move in list(self.state.moves.values()):
            if _goes_on(move):
                await self._step(move)
        await self._waits.answer(await self.kit.clock.now(), self._stage)
        self._drive()

    async def _present_readers(self) -> dict[str, Reader]:
        hosts = {UUID(one.host) for one, _ in self._known_readers.values() if one.host}
        ended = (await self.kit.ended_lives(hosts))[1] if hosts else set()
        assert self.state.options is not None
        silent_since = await self.kit.clock.now() - self.state.options.rules.silence
        found = {}
        for name, (note, asked_at) in list(self._known_readers.items()):
            if silent_since > asked_at or (note.host is not None and UUID(note.host) in ended):
                self._in_doubt = True
                del self._known_readers[name]
                await self._readers.delete(name)
                continue
            found[name] = Reader(name, asked_at)
        return found

    async def end_move(self, partition: str, to: str, generation: int, error: str) -> None:
        await self._open()
        move = self.state.moves.get(partition)
        if move is not None and move.generation == generation:
            await self._end(move, error)
        elif not error and await self._stage(partition, to, generation) != "moved":
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
        await self._keep()
        self._drive(soon=True)
        type_name = events.PARTITION_RETURNED if error else events.PARTITION_MOVED
        self.log_change_for(move.by, type_name, move.subject, resource)

    @reminder_handler
    async def look_at_moves(self, _: Tick[None]) -> None:
        """Be in memory after a crash, and give up moves whose mover has gone with its copy."""
        await self._open()
        late = await self.kit.clock.now() - MOVER_SECONDS
        for move in list(self.state.moves.values()):
            if move.copies and self._movers.get(move.subject, 0.0) < late:
                await self._end(move, "its mover has gone")
        if not self.state.moves:
            await self.reminders.cancel("moves")


def _goes_on(move: Move) -> bool:
    """Whether a move goes on without its mover."""
    return not move.copies or move.state == "moving"
