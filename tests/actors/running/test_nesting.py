"""Calls that come back to an actor of their chain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from msgspec import Struct

from relevo.actors import Actor, Interface, headers, method
from relevo.errors import ReadOnlyTurn, RemoteError
from relevo.limits import ACTOR_CHAIN_DEPTH_MAX

if TYPE_CHECKING:
    from relevo import App
    from tests.actors.bank import Gates
    from tests.actors.running.conftest import Hosts

pytestmark = pytest.mark.anyio


class Total(Struct):
    total: int = 0


class Knot(Interface):
    async def add(self, number: int) -> int: ...
    async def relay(self, path: list[str], number: int) -> int: ...
    async def fan(self, through: list[str], number: int) -> int: ...
    @method(read_only=True)
    async def cheat(self, through: str) -> int: ...
    @method(read_only=True)
    async def spoil(self) -> None: ...
    async def call_spoil(self, through: str, back: str) -> int: ...
    async def forward_spoil(self, back: str) -> None: ...
    async def leave_behind(self, through: str, back: str) -> int: ...
    async def back_slowly(self, back: str, gate: str) -> None: ...
    async def slow(self, gate: str) -> int: ...
    async def dive(self, depth: int) -> int: ...
    async def header(self, through: str) -> dict[str, str]: ...
    async def bad_rollback(self, through: str) -> int: ...
    async def fail(self, back: str) -> None: ...
    async def raises(self) -> None: ...


class KnotActor(Actor[Total]):
    app: ClassVar[App]
    gates: ClassVar[Gates]
    rollback_fails = False

    def knot(self, key: str) -> Any:
        return self.app.actor(Knot, key)

    def on_rollback(self) -> None:
        if self.rollback_fails:
            raise RuntimeError("rollback")

    async def add(self, number: int) -> int:
        self.state.total += number
        return self.state.total

    async def relay(self, path: list[str], number: int) -> int:
        self.state.total += number
        try:
            if path:
                await self.knot(path[0]).relay(path[1:], number)
        except ReadOnlyTurn as error:
            self.gates.log.append(("refused", error.executed))
            raise
        return self.state.total

    async def fan(self, through: list[str], number: int) -> int:
        self.state.total += 100
        me = str(self.ctx.key)
        await asyncio.gather(*(self.knot(one).relay([me], number) for one in through))
        return self.state.total

    async def cheat(self, through: str) -> int:
        return int(await self.knot(through).relay([str(self.ctx.key)], 1))

    async def spoil(self) -> None:
        self.state.total = 1_000_000

    async def call_spoil(self, through: str, back: str) -> int:
        self.state.total += 1
        try:
            await self.knot(through).forward_spoil(back)
        except RemoteError as error:
            self.gates.log.append(error.remote_message)
        return self.state.total

    async def forward_spoil(self, back: str) -> None:
        await self.knot(back).spoil()

    async def leave_behind(self, through: str, back: str) -> int:
        self.state.total += 1
        task = asyncio.ensure_future(self.knot(through).back_slowly(back, "slow"))
        await self.gates.event("slow").wait()
        self.gates.log.append(task)
        raise RuntimeError("fails while a nested call runs")

    async def back_slowly(self, back: str, gate: str) -> None:
        await self.knot(back).slow(gate)

    async def slow(self, gate: str) -> int:
        self.state.total += 10
        try:
            await self.gates.hold(gate)
        finally:
            self.state.total += 10
        return self.state.total

    async def dive(self, depth: int) -> int:
        return int(await self.knot(str(depth + 1)).dive(depth + 1))

    async def header(self, through: str) -> dict[str, str]:
        if through:
            return dict(await self.knot(through).with_(headers={"b": "2"}).header(""))
        return dict(headers())

    async def bad_rollback(self, through: str) -> int:
        self.state.total += 1
        self.rollback_fails = True
        try:
            await self.knot(through).fail(str(self.ctx.key))
        except RemoteError:
            self.rollback_fails = False
        return self.state.total

    async def fail(self, back: str) -> None:
        await self.knot(back).raises()

    async def raises(self) -> None:
        self.state.total += 1_000
        raise RuntimeError("nested")


def define_knot(app: App, gates: Gates, **options: Any) -> None:
    own = type("KnotActor", (KnotActor,), {"app": app, "gates": gates})
    app.actor("knot", implements=Knot, **options)(own)


async def test_chains_run_nested_and_fail_alone(hosts: Hosts) -> None:
    host = await hosts.start(define_knot)

    def of(key: str) -> Any:
        return host.app.actor(Knot, key)

    assert await of("a").relay(["b", "a", "b", "a"], 1) == 3  # I16
    assert await of("b").add(0) == 2
    assert await of("a").fan(["b", "c", "d"], 1) == 106  # three branches, one after the other
    assert await of("x").bad_rollback("y") == 1  # I18, also when on_rollback raises
    assert await of("x").call_spoil("y", "x") == 2
    assert "only reads" in host.gates.log[-1]
    with pytest.raises(RemoteError, match="only reads"):
        await of("a").cheat("b")
    assert host.gates.log[-1] == ("refused", False)
    assert await of("h").with_(headers={"a": "1"}).header("i") == {"a": "1", "b": "2"}
    with pytest.raises(RemoteError, match=f"{ACTOR_CHAIN_DEPTH_MAX} calls wait"):
        await of("0").dive(0)


async def test_nested_calls_end_with_the_turn_that_they_are_in(hosts: Hosts) -> None:
    host = await hosts.start(define_knot)
    a: Any = host.app.actor(Knot, "a")
    await a.add(1)
    with pytest.raises(RemoteError, match="fails while"):
        await a.leave_behind("b", "a")
    assert await a.add(0) == 1  # I11, I21
    assert isinstance((await asyncio.gather(*host.gates.log, return_exceptions=True))[0], Exception)


async def test_other_chains_wait(hosts: Hosts) -> None:
    host = await hosts.start(define_knot)
    a: Any = host.app.actor(Knot, "a")
    outer = asyncio.create_task(host.app.actor(Knot, "b").back_slowly("a", "g"))
    await host.gates.event("g").wait()
    other = asyncio.create_task(a.add(1))
    waiting = asyncio.create_task(a.relay([], 1))
    await asyncio.sleep(0)
    activation = host.activation("knot/s:a")
    assert activation is not None
    assert len(activation.turns) == 1  # I17
    host.gates.open("g")
    await outer
    assert (await other, await waiting) == (21, 22)


async def test_types_may_refuse_to_be_reentered(hosts: Hosts) -> None:
    host = await hosts.start(lambda app, gates: define_knot(app, gates, reentrancy="none"))
    with pytest.raises(RemoteError, match="reentrancy=") as error:
        await host.app.actor(Knot, "a").relay(["b", "a"], 1)
    assert error.value.executed is True
    assert await host.app.actor(Knot, "a").add(0) == 0
