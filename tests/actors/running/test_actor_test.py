"""`ActorTest`: an actor without a host."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct, field

from relevo import App
from relevo.actors import Actor, Interface, Tick, reminder_handler, timer
from relevo.errors import NotFound, RemoteError
from relevo.testing import ActorTest
from tests.actors import bank

pytestmark = pytest.mark.anyio


class Clockwork(Interface):
    async def remind(self, every: float) -> None: ...
    async def post(self, text: str) -> None: ...
    async def order(self, key: str, count: int) -> list[str]: ...


class ClockworkState(Struct):
    ticks: int = 0
    reminded: list[float] = field(default_factory=list)


def clockwork(app: App) -> type[Actor[ClockworkState]]:
    @app.actor("clockwork", implements=Clockwork)
    class ClockworkActor(Actor[ClockworkState]):
        @timer(every=10.0)
        async def tick(self) -> None:
            self.state.ticks += 1

        async def remind(self, every: float) -> None:
            await self.reminders.set("r", self.on_reminder, every=every)

        @reminder_handler
        async def on_reminder(self, tick: Tick[Any]) -> None:
            self.state.reminded.append(tick.scheduled_at.timestamp() - test_start)
            if len(self.state.reminded) == 3:
                await self.reminders.cancel("r")

        async def post(self, text: str) -> None:
            await self.send(app.actor(Clockwork, "other")).post(text)

        async def order(self, key: str, count: int) -> list[str]:
            await self.map("orders", int).set(key, count)
            return [name async for name, _ in self.map("orders", int).scan()]

    return ClockworkActor


test_start = 0.0


async def test_an_actor_runs_without_a_host() -> None:
    app, gates = App(), bank.Gates()
    account = bank.define(app, gates)
    async with ActorTest(account, "alice") as alice:
        assert await alice.proxy.deposit(500) == 500
        assert alice.state.cents == 500
        with pytest.raises(RemoteError):
            await alice.proxy.fail_after(5)
        bob = app.actor(bank.Account, "bob")
        assert await alice.proxy.transfer(bob, 100) == 100  # others run in memory, too
        assert alice.state.cents == 400
        await alice.deactivate()
        assert await alice.proxy.with_(call_id="c").deposit(1) == 401
        assert await alice.proxy.with_(call_id="c").deposit(1) == 401
        await alice.proxy.close()
        assert await alice.proxy.balance() == 0
    with pytest.raises(NotFound):
        ActorTest(Actor)


async def test_its_time_is_moved_by_the_test() -> None:
    global test_start
    app = App()
    async with ActorTest(clockwork(app)) as test:
        test_start = test.clock.now.timestamp()
        await test.proxy.remind(20.0)
        await test.advance(45)
        assert test.state.ticks == 4
        assert test.state.reminded == [20.0, 40.0]
        await test.deactivate()  # timers end, reminders do not
        await test.advance(60)
        assert test.state.reminded == [20.0, 40.0, 60.0]
        assert test.reminders == {}
        await test.proxy.post("hello")
        assert test.sent == [("clockwork/s:other", "post", ("hello",))]
        assert await test.proxy.order("b", 1) == ["b"]
        assert await test.proxy.order("a", 1) == ["a", "b"]
