"""Events that a turn writes to the event log: with its commit, or not at all. I23."""

from __future__ import annotations

import pytest
from msgspec import Struct

from relevo import App, EventType
from relevo.actors import Actor, Interface
from relevo.errors import InvalidValue, RemoteError

pytestmark = pytest.mark.anyio


class Opened(Struct):
    name: str


class Door(Interface):
    async def open(self, name: str) -> None: ...
    async def open_twice(self, name: str) -> None: ...
    async def jam(self, name: str) -> None: ...
    async def mislabel(self, name: str, type_name: str) -> None: ...


class DoorState(Struct):
    opened: int = 0


class DoorActor(Actor[DoorState]):
    async def open(self, name: str) -> None:
        self.log_event("lodge.door.opened", "door/front", Opened(name))

    async def open_twice(self, name: str) -> None:
        await self.open(name)
        await self.save()
        await self.open(name)

    async def mislabel(self, name: str, type_name: str) -> None:
        self.log_event(type_name, "door/front", DoorState())

    async def jam(self, name: str) -> None:
        await self.open(name)
        raise RuntimeError("jammed")


async def test_a_turn_that_fails_logs_nothing(relevo_url: str) -> None:
    app = App(relevo_url)
    opened = EventType(name="lodge.door.opened", payload=Opened, sentence="A door was opened.")
    app.events.catalogue.register(opened)
    app.actor("door", implements=Door)(DoorActor)
    app.actor("glass-door", implements=Door, persist="volatile")(
        type("GlassDoorActor", (DoorActor,), {})
    )
    async with app, app.host():
        door = app.actor(Door, "front", type="door")
        await door.open("ana")
        with pytest.raises(RemoteError, match="jammed"):
            await door.jam("bob")
        with pytest.raises(RemoteError, match=r"no event type 'lodge\.door\.shut'"):
            await door.mislabel("bob", "lodge.door.shut")
        with pytest.raises(RemoteError, match="is a Opened, not a DoorState"):
            await door.mislabel("bob", "lodge.door.opened")
        await door.open_twice("eva")
        with pytest.raises((InvalidValue, RemoteError), match="volatile"):
            await app.actor(Door, "back", type="glass-door").open("ana")
        logged = [one for one in (await app.events.read()).events if one.subject == "door/front"]
        assert [one.data["name"] for one in logged] == ["ana", "eva", "eva"]
        versions = [one.version for one in logged]
        assert versions == sorted(set(versions))  # of two events, the higher is the later
