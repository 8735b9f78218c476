"""What the processes of these tests run: actors, reminders, durable messages and the kit."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

from relevo.actors import Actor, Interface, Tick, method, reminder_handler
from relevo.errors import RelevoError
from relevo.governance.core.windows import Rate
from relevo.governance.sinks import FileSink
from tests.actors.hosts import programs

if TYPE_CHECKING:
    from relevo import App
    from relevo.governance.pools import ResourcePool
    from relevo.governance.writers import ExclusiveWriter
    from relevo.testing.recorder import Recorder

FOLDER: Final = "CHAOS_FOLDER"
PERMITS: Final = 3
ADMITTED_MAX: Final = 200
USERS: Final = 2
"""Tasks of each host that want a permit again and again."""
TASKS: set[asyncio.Task[None]] = set()


class Relay(Interface):
    async def begin(self) -> None: ...
    async def pass_on(self, tag: str, to: Relay) -> None: ...
    async def take(self, tag: str, sender: str) -> None: ...
    @method(read_only=True)
    async def sent(self) -> dict[str, list[str]]: ...
    @method(read_only=True)
    async def taken(self) -> dict[str, list[str]]: ...
    @method(read_only=True)
    async def ticks(self) -> list[tuple[float, int]]: ...


class RelayState(Struct):
    sent: dict[str, list[str]] = field(default_factory=dict)
    """By receiver, in order."""
    taken: dict[str, list[str]] = field(default_factory=dict)
    """By sender, in order."""
    ticks: list[tuple[float, int]] = field(default_factory=list)
    """When each occurrence of the reminder was due, and how many it stands for beside itself."""


class Kit(NamedTuple):
    """The governed resources that hosts and the client share."""

    pool: ResourcePool
    direct: ExclusiveWriter
    stored: ExclusiveWriter
    limit: Any


def define(app: App) -> Kit:
    """Define the type of the relays, and declare the kit; hosts and the client do both."""

    @app.actor("relay", implements=Relay)
    class RelayActor(Actor[RelayState]):
        async def begin(self) -> None:
            await self.reminders.set("tick", self.on_tick, every=1.0)

        async def pass_on(self, tag: str, to: Relay) -> None:
            key = str(to.ref.key)  # type: ignore[attr-defined]
            self.state.sent.setdefault(key, []).append(tag)
            await self.send(to).take(tag, str(self.ctx.key))

        async def take(self, tag: str, sender: str) -> None:
            self.state.taken.setdefault(sender, []).append(tag)

        @reminder_handler
        async def on_tick(self, tick: Tick[None]) -> None:
            self.state.ticks.append((tick.scheduled_at.timestamp(), tick.missed))

        async def sent(self) -> dict[str, list[str]]:
            return self.state.sent

        async def taken(self) -> dict[str, list[str]]:
            return self.state.taken

        async def ticks(self) -> list[tuple[float, int]]:
            return self.state.ticks

    folder = Path(os.environ[FOLDER])
    rates = [Rate(ADMITTED_MAX, per=86_400)]
    return Kit(
        pool=app.governance.pool("erp", size=PERMITS),
        direct=app.governance.writer("direct", sink=FileSink(folder / "direct-{key}.log")),
        stored=app.governance.writer(
            "stored", sink=FileSink(folder / "stored-{key}.log"), ack="buffer"
        ),
        limit=app.governance.limit("mail", rates=rates),
    )


async def everything(app: App, record: Recorder) -> None:
    """A host of all of it, with users of the pool and of the limit."""
    kit = define(app)
    programs.define(app, app.leases.name, record)
    for number in range(USERS):
        TASKS.add(asyncio.create_task(use(kit, f"{app.leases.name} {number}", record)))


async def use(kit: Kit, key: str, record: Any) -> None:
    """Take permits and costs; the records are from within the body, so within the permit."""
    while True:
        try:
            async with kit.pool.lease(key) as permit:
                record("enter", number=permit.fence.number)
                await asyncio.sleep(0.005)
                record("leave", number=permit.fence.number)
            if await kit.limit.try_acquire():
                record("admitted")
        except RelevoError as error:
            record("refused", error=type(error).__name__)
            await asyncio.sleep(0.1)
