"""Events that a turn writes to the event log: with its commit, or not at all. I23."""

from __future__ import annotations

import pytest
from msgspec import Struct

from relevo import App
from relevo.actors import Actor, Interface
from relevo.errors import InvalidValue, RemoteError

pytestmark = pytest.mark.anyio


class Opened(Struct):
    name: str


class Door(Interface):
    async def open(self, name: str) -> None: ...
    async def jam(self, name: str) -> None: ...


class DoorState(Struct):
    opened: int = 0


class DoorActor(Actor[DoorState]):
    async def open(self, name: str) -> None:
        self.log_event("relevo.actor.moved", "actor/door", Opened(name))

    async def jam(self, name: str) -> None:
        await self.open(name)
        raise RuntimeError("jammed")


async def test_a_turn_that_fails_logs_nothing(relevo_url: str) -> None:
    app = App(relevo_url)
    app.actor("door", implements=Door)(DoorActor)
    app.actor("glass-door", implements=Door, persist="volatile")(
        type("GlassDoorActor", (DoorActor,), {})
    )
    async with app, app.host():
        door = app.actor(Door, "front", type="door")
        await door.open("ana")
        with pytest.raises(RemoteError, match="jammed"):
            await door.jam("bob")
        await door.open("eva")
        with pytest.raises((InvalidValue, RemoteError), match="volatile"):
            await app.actor(Door, "back", type="glass-door").open("ana")
        rows = await app.database.fetch(
            "select data ->> 'name' as name from relevo.event where subject = 'actor/door'"
            " order by lsn"
        )
        assert [row["name"] for row in rows] == ["ana", "eva"]
