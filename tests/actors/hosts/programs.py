"""What the processes of these tests run: hosts with actors that count what was done to them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from relevo.actors import Actor, Interface, Tick, method, reminder_handler
from relevo.actors.host import ActorsPart
from relevo.errors import DeadlockDetected
from relevo.testing.turns import record_turns
from tests.support.parts import serve

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing.recorder import Recorder

TYPE = "tally"


class Tally(Interface):
    async def add(self, tag: str) -> int: ...
    @method(idempotent=True)
    async def put(self, tag: str) -> int: ...
    @method(read_only=True)
    async def counts(self) -> dict[str, int]: ...
    @method(read_only=True)
    async def total(self) -> int: ...
    async def host(self) -> str: ...
    async def hold(self, seconds: float) -> int: ...
    @method(idempotent=True)
    async def wait_for(self, path: str) -> str: ...
    @method(idempotent=True)
    async def fall(self) -> None: ...
    async def remind(self) -> None: ...
    async def cross(self, other: Tally, folder: str) -> str: ...
    async def visit(self, other: Tally, tag: str) -> int: ...
    async def come_back(self, origin: Tally, tag: str) -> int: ...


class TallyState(Struct):
    counts: dict[str, int] = field(default_factory=dict)
    total: int = 0


def define(app: App, host: str, record: Recorder | None = None) -> None:
    """Define the type; with `record` the turns of the host are recorded."""
    if record is not None:
        record_turns(app, record)

    @app.actor(TYPE, implements=Tally)
    class TallyActor(Actor[TallyState]):
        async def add(self, tag: str) -> int:
            self.state.counts[tag] = self.state.counts.get(tag, 0) + 1
            self.state.total += 1
            await asyncio.sleep(0)
            return self.state.total

        async def put(self, tag: str) -> int:
            return await self.add(tag)

        async def counts(self) -> dict[str, int]:
            return self.state.counts

        async def total(self) -> int:
            return self.state.total

        async def host(self) -> str:
            return host

        async def hold(self, seconds: float) -> int:
            await asyncio.sleep(seconds)
            return self.state.total

        async def wait_for(self, path: str) -> str:
            while not Path(path).exists():
                await asyncio.sleep(0.01)
            return host

        async def fall(self) -> None:
            """End the process, as a fault in a native library does."""
            if record is not None:
                record("fall", key=str(self.ctx.key))
            os._exit(9)

        async def remind(self) -> None:
            await self.reminders.set("fall", self.on_fall, after=0.1)

        @reminder_handler
        async def on_fall(self, tick: Tick[None]) -> None:
            await self.fall()

        async def cross(self, other: Tally, folder: str) -> str:
            """Call another actor, which does the same, once both have begun."""
            (Path(folder) / str(self.ctx.key)).touch()
            while len(list(Path(folder).iterdir())) < 2:
                await asyncio.sleep(0.01)
            try:
                await other.add("t")
            except DeadlockDetected as error:
                return str(error)
            return "passed"

        async def visit(self, other: Tally, tag: str) -> int:
            return await other.come_back(app.actor(Tally, str(self.ctx.key)), tag)

        async def come_back(self, origin: Tally, tag: str) -> int:
            return await origin.add(tag)


async def tallies(app: App, record: Recorder) -> None:
    """A host of actors."""
    define(app, app.leases.name, record)
    await app.parts.of(ActorsPart).stop(5.0)  # it serves Relevo's own actors already
    await serve(app, ActorsPart)
