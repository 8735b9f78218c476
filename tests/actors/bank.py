"""Actors that tests call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from relevo.actors import Actor, Interface, method

if TYPE_CHECKING:
    from relevo import App

    from relevo.actors.states import DeactivationReason


class InsufficientFunds(Exception):
    """Declared by `withdraw`."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} cents are missing")
        self.missing = missing


class Account(Interface):
    async def deposit(self, cents: int) -> int: ...
    @method(raises=(InsufficientFunds,))
    async def withdraw(self, cents: int) -> int: ...
    @method(read_only=True)
    async def balance(self) -> int: ...
    async def note(self, tag: str) -> list[str]: ...
    async def fail_after(self, cents: int) -> None: ...
    @method(read_only=True)
    async def cheat(self) -> None: ...
    async def wait(self, gate: str) -> int: ...
    @method(interleave=True)
    async def peek(self) -> int: ...
    async def transfer(self, to: Account, cents: int) -> int: ...
    async def bounce(self, through: Account, cents: int, fail: bool) -> int: ...
    async def add_and_call_back(self, origin: Account, cents: int, fail: bool) -> int: ...
    async def later(self) -> int: ...
    async def resolve(self, value: int) -> int: ...
    async def close(self) -> None: ...
    async def leave(self) -> None: ...
    async def blocking(self, cents: int) -> int: ...


class AccountState(Struct):
    cents: int = 0
    tags: dict[str, list[str]] = field(default_factory=dict)


class Gates:
    """Lets tests hold turns at named points."""

    def __init__(self) -> None:
        self.reached: dict[str, asyncio.Event] = {}
        self.opened: dict[str, asyncio.Event] = {}
        self.log: list[Any] = []

    def event(self, name: str) -> asyncio.Event:
        return self.reached.setdefault(name, asyncio.Event())

    async def hold(self, name: str) -> None:
        self.event(name).set()
        await self.opened.setdefault(name, asyncio.Event()).wait()

    def open(self, name: str) -> None:
        self.opened.setdefault(name, asyncio.Event()).set()


def define(app: App, gates: Gates, **options: Any) -> type[Actor[AccountState]]:
    """Define the type `account` of an app."""

    @app.actor("account", implements=Account, **options)
    class AccountActor(Actor[AccountState]):
        deferred: Deferred[int] | None = None

        async def on_activate(self) -> None:
            gates.log.append(("activate", self.ctx.key))

        async def on_deactivate(self, reason: DeactivationReason) -> None:
            gates.log.append(("deactivate", self.ctx.key, reason))

        def on_rollback(self) -> None:
            gates.log.append(("rollback", self.ctx.key))

        async def deposit(self, cents: int) -> int:
            self.state.cents += cents
            return self.state.cents

        async def withdraw(self, cents: int) -> int:
            self.state.cents -= cents
            if self.state.cents < 0:
                raise InsufficientFunds(-self.state.cents)
            return self.state.cents

        async def balance(self) -> int:
            return self.state.cents

        async def note(self, tag: str) -> list[str]:
            self.state.tags.setdefault("all", []).append(tag)
            return self.state.tags["all"]

        async def fail_after(self, cents: int) -> None:
            self.state.cents += cents
            raise RuntimeError("by design")

        async def cheat(self) -> None:
            self.state.cents = 1_000_000

        async def wait(self, gate: str) -> int:
            self.state.cents += 1
            await gates.hold(gate)
            self.state.cents += 1
            return self.state.cents

        async def peek(self) -> int:
            return self.state.cents

        async def transfer(self, to: Account, cents: int) -> int:
            self.state.cents -= cents
            return await to.deposit(cents)

        async def bounce(self, through: Account, cents: int, fail: bool) -> int:
            self.state.cents += 1
            me = app.actor(Account, str(self.ctx.key))
            try:
                await through.add_and_call_back(me, cents, fail)
            except Exception as error:
                gates.log.append(("bounced", type(error).__name__))
            return self.state.cents

        async def add_and_call_back(self, origin: Account, cents: int, fail: bool) -> int:
            if fail:
                await origin.fail_after(cents)
            return await origin.deposit(cents)

        async def later(self) -> Any:
            self.deferred = self.defer()
            return self.deferred

        async def resolve(self, value: int) -> int:
            assert self.deferred is not None
            self.state.cents = value
            self.deferred.resolve(value)
            return value

        async def close(self) -> None:
            self.ctx.delete()

        async def leave(self) -> None:
            self.ctx.deactivate_when_idle()

        def blocking(self, cents: int) -> int:
            self.state.cents += cents
            return self.state.cents

    return AccountActor
