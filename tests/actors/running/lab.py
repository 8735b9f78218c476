"""An actor for tests of turns: each method does one thing that a turn may do."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field

from relevo.actors import Actor, Deferred, Interface, Offloaded, method
from relevo.errors import OutsideTurn

if TYPE_CHECKING:
    from relevo import App
    from tests.actors.bank import Gates
    from tests.actors.running.conftest import Host


class LabState(Struct):
    number: int = 0
    deep: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    blob: bytes = b""


class Lab(Interface):
    async def add(self, number: int) -> int: ...
    @method(cancel=True)
    async def cut(self, gate: str) -> int: ...
    async def watch(self, gate: str) -> bool: ...
    async def dig(self, key: str, number: int) -> None: ...
    @method(read_only=True)
    async def number(self) -> int: ...
    @method(read_only=True)
    async def read(self, gate: str) -> int: ...
    @method(interleave=True)
    async def through(self, gate: str, number: int) -> int: ...
    async def answer_later(self) -> int: ...
    async def give(self, first: int, second: int, fail: bool = False) -> None: ...
    async def work(self, gate: str) -> None: ...
    async def save_then_fail(self) -> None: ...
    async def escape(self) -> None: ...
    async def swallow(self, gate: str) -> None: ...
    async def block(self) -> int: ...
    async def raise_it(self, name: str) -> None: ...
    async def grow(self, size: int) -> None: ...
    async def delete_and_save(self) -> None: ...
    async def hog(self) -> None: ...


class Blocking:
    """Holds plain methods in their threads."""

    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()


class LabActor(Actor[LabState]):
    gates: ClassVar[Gates]
    blocking: ClassVar[Blocking | None]
    waiting: Deferred[int] | None = None

    async def add(self, number: int) -> int:
        self.state.number += number
        return self.state.number

    async def cut(self, gate: str) -> int:
        self.state.number += 1
        await self.gates.hold(gate)
        return self.state.number

    async def watch(self, gate: str) -> bool:
        await self.gates.hold(gate)
        self.gates.log.append(("canceled", self.ctx.canceled))
        self.state.number += 1
        return self.ctx.canceled

    async def dig(self, key: str, number: int) -> None:
        self.state.deep.setdefault(key, [{}])[0]["n"] = number

    async def number(self) -> int:
        return self.state.number

    async def read(self, gate: str) -> int:
        await self.gates.hold(gate)
        return self.state.number

    async def through(self, gate: str, number: int) -> int:
        await self.gates.hold(gate)
        total: int = await self.run_turn(self.add, number)
        return total

    async def answer_later(self) -> Any:
        self.state.number += 1
        self.waiting = self.defer()
        return self.waiting

    async def give(self, first: int, second: int, fail: bool = False) -> None:
        assert self.waiting is not None
        self.waiting.resolve(first)
        self.waiting.resolve(second)
        if fail:
            raise RuntimeError("not given")

    async def work(self, gate: str) -> None:
        self.offload(_outside(self.gates, gate), then=self.worked)

    async def worked(self, outcome: Offloaded[int]) -> None:
        self.state.number += outcome.result()
        self.gates.open("worked")

    async def save_then_fail(self) -> None:
        self.state.number += 1
        await self.save()
        self.state.number += 10
        raise RuntimeError("after save")

    async def escape(self) -> None:
        async def later() -> None:
            await self.gates.hold("escape")
            try:
                self.state.number += 1
            except OutsideTurn:
                self.gates.log.append("outside")
            self.gates.open("escaped")

        self.gates.tasks = asyncio.ensure_future(later())  # type: ignore[attr-defined]

    async def swallow(self, gate: str) -> None:
        self.state.number += 1
        for _ in range(3):
            try:
                await self.gates.hold(gate)
            except asyncio.CancelledError:
                self.gates.open("swallowed")
                continue

    def block(self) -> int:
        blocking = self.blocking
        assert blocking is not None
        self.state.number += 1
        blocking.begun.set()
        blocking.end.wait(20)
        self.state.number += 1
        return threading.get_ident()

    async def raise_it(self, name: str) -> None:
        raise {"cancel": asyncio.CancelledError, "exit": SystemExit}[name]("by design")

    async def grow(self, size: int) -> None:
        self.state.blob = b"x" * size

    async def delete_and_save(self) -> None:
        self.ctx.delete()
        await self.save()

    async def hog(self) -> None:
        blocking = self.blocking
        assert blocking is not None
        blocking.end.wait(20)


def define_lab(app: App, gates: Gates, blocking: Blocking | None = None, **options: Any) -> Any:
    """Define the type `lab` of an app."""
    own = type("LabActor", (LabActor,), {"gates": gates, "blocking": blocking})
    return app.actor("lab", implements=Lab, **options)(own)


def of(host: Host, key: str) -> Any:
    """Return a proxy."""
    return host.app.actor(Lab, key)


async def _outside(gates: Gates, gate: str) -> int:
    await gates.hold(gate)
    return 5
