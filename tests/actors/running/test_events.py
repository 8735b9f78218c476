"""Events of actors: of committed turns, in order, with gaps that show."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo.actors import Actor, ActorEvent, ActorRef, Event, Events, Gap, Interface
from relevo.errors import InvalidValue, NotFound, RemoteError
from relevo.limits import ACTOR_SUBSCRIBER_EVENTS_MAX

if TYPE_CHECKING:
    from relevo import App
    from tests.actors.bank import Gates
    from tests.actors.running.conftest import Hosts

pytestmark = pytest.mark.anyio


class Score(Struct):
    points: int


class Scores(Events):
    changed: Event[Score]
    cleared: Event[str]


class Game(Interface):
    async def score(self, points: list[int], fail: bool = False) -> None: ...
    async def clear(self) -> None: ...
    async def emit_wrong(self) -> None: ...


class GameState(Struct):
    total: int = 0


def define_game(app: App, gates: Gates | None = None) -> None:
    @app.actor("game", implements=Game)
    class GameActor(Actor[GameState]):
        async def score(self, points: list[int], fail: bool = False) -> None:
            for one in points:
                self.state.total += one
                self.emit(Scores.changed, Score(one))
            if fail:
                raise RuntimeError("no score")

        async def clear(self) -> None:
            self.state.total = 0
            self.emit(Scores.cleared, "all")

        async def emit_wrong(self) -> None:
            wrong: Any = "five"
            self.emit(Scores.changed, wrong)


async def taken(stream: Any, count: int) -> list[Any]:
    """The next events of a stream, as values, and gaps."""
    found = []
    for _ in range(count):
        one = await anext(stream)
        if isinstance(one, ActorEvent):
            value = one.value.points if isinstance(one.value, Score) else one.value
            found.append((one.sequence, value))
        else:
            found.append(one)
    return found


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_subscribers_hear_of_committed_turns(hosts: Hosts, where: str) -> None:
    host = await hosts.start(define_game)
    app = host.app if where == "here" else hosts.app()
    if where == "elsewhere":
        define_game(app)
        await hosts.enter(app)
    game: Any = app.actor(Game, "g")
    async with game.subscribe(Scores) as stream:
        await game.score([1, 2])
        with pytest.raises(RemoteError):
            await game.score([99], True)  # I24: nothing of a failed turn leaves
        await game.clear()
        await app.actor(Game, "other").score([7])
        await game.score([3])
        assert await taken(stream, 4) == [(1, 1), (2, 2), (3, "all"), (4, 3)]
        with pytest.raises(RemoteError, match="is no value of"):
            await game.emit_wrong()
    await game.score([5])  # nobody listens
    with pytest.raises(NotFound):
        async with app.actors.subscribe(ActorRef.of("nothing", "x"), Scores):
            pass


async def test_slow_subscribers_and_moves_show_as_gaps(hosts: Hosts) -> None:
    host = await hosts.start(define_game)
    game: Any = host.app.actor(Game, "g")
    async with game.subscribe(Scores) as slow, game.subscribe(Scores) as moved:
        await game.score([0] * (ACTOR_SUBSCRIBER_EVENTS_MAX + 5))  # I36
        assert await taken(slow, 2) == [Gap(1, 5), (6, 0)]
        await taken(moved, ACTOR_SUBSCRIBER_EVENTS_MAX + 1)
        activation = host.activation("game/s:g")
        assert activation is not None
        activation.deactivate("requested")  # a subscription belongs to the actor
        await game.score([8])
        newest = ACTOR_SUBSCRIBER_EVENTS_MAX + 6
        assert await taken(moved, 1) == [(newest, 8)]
        slot: Any = activation.home
        slot.lose()
        slot.is_open = True
        assert await taken(moved, 1) == [Gap(newest + 1, newest + 1)]
        while len(host.runtime.emitter._by_key) < 2:
            await asyncio.sleep(0.01)
        await game.score([9])
        assert await taken(moved, 1) == [(newest + 2, 9)]


def test_classes_of_events_are_checked() -> None:
    assert list(Scores.all()) == ["Scores.changed", "Scores.cleared"]
    with pytest.raises(InvalidValue):

        class Wrong(Events):
            changed: int
