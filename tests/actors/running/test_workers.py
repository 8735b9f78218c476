"""Tasks that run turn after turn: what one turn does to its task never reaches another turn."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo import App
from relevo.actors import Actor, Interface, method
from relevo.errors import RemoteError
from relevo.kernel.running.deadlines import Deadlines
from relevo.testing import ActorTest
from tests.support.spans import is_child

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.spans import Spans

pytestmark = pytest.mark.anyio
MARK: ContextVar[str] = ContextVar("mark", default="none")
app = App("postgresql://nowhere")
events: dict[str, asyncio.Event] = {}


class Nothing(Struct):
    """No state."""


class Worked(Interface):
    async def mark(self, text: str) -> None: ...
    async def seen(self) -> str: ...
    @method(cancel=True)
    async def wait(self, event: str) -> str: ...
    async def cancel_itself(self) -> None: ...
    async def late(self) -> None: ...
    async def which(self) -> int: ...
    async def spin(self) -> None: ...


@app.actor("worked", implements=Worked, persist="volatile")
class WorkedActor(Actor[Nothing]):
    async def mark(self, text: str) -> None:
        MARK.set(text)

    async def seen(self) -> str:
        await asyncio.sleep(0)
        return MARK.get()

    async def wait(self, event: str) -> str:
        MARK.set(event)
        if "entered" in events:
            events["entered"].set()
        await events[event].wait()
        return MARK.get()

    async def cancel_itself(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    async def late(self) -> None:
        """Ends before it hears of its cancellation."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def spin(self) -> None:
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass

    async def which(self) -> int:
        return id(asyncio.current_task())


@pytest.fixture
async def actors() -> AsyncIterator[list[Any]]:
    events.clear()
    async with ActorTest(WorkedActor):
        yield [app.actor(Worked, n) for n in range(20)]


async def test_context_variables_that_a_turn_sets_end_with_it(actors: list[Any]) -> None:
    first, second, *_ = actors
    await first.mark("set")
    assert await first.seen() == "none"
    assert await second.seen() == "none"
    assert MARK.get() == "none"


async def test_turns_that_wait_keep_their_own_context_and_hold_up_nobody(
    actors: list[Any],
) -> None:
    names = [f"event {n}" for n in range(len(actors) - 1)]
    events.update({name: asyncio.Event() for name in names})
    waiting = [
        asyncio.create_task(actor.wait(name)) for actor, name in zip(actors[1:], names, strict=True)
    ]
    for _ in range(10):
        assert await actors[0].seen() == "none"
    for name in reversed(names):
        events[name].set()
    assert await asyncio.gather(*waiting) == names


@pytest.mark.parametrize("how", ["cancel_itself", "late"])
async def test_a_cancellation_reaches_only_the_turn_that_it_was_meant_for(
    actors: list[Any], how: str
) -> None:
    first, second, *_ = actors
    calls = [getattr(first, how)(), first.seen(), second.seen(), first.seen()]
    canceled, *seen = await asyncio.gather(*calls, return_exceptions=True)
    assert seen == ["none"] * 3
    assert isinstance(canceled, RemoteError) if how == "cancel_itself" else canceled is None


async def test_a_cut_turn_leaves_those_behind_it_alone(actors: list[Any]) -> None:
    actor = actors[0]
    events.update({"never": asyncio.Event(), "entered": asyncio.Event()})
    cut = asyncio.create_task(actor.wait("never"))
    behind = [asyncio.create_task(actor.seen()) for _ in range(50)]
    await events["entered"].wait()
    cut.cancel()
    assert await asyncio.gather(*behind) == ["none"] * 50
    with pytest.raises(asyncio.CancelledError):
        await cut


async def test_a_turn_needs_no_task_of_its_own(actors: list[Any]) -> None:
    tasks = {await actor.which() for actor in actors for _ in range(5)}
    assert len(tasks) < 5


async def test_other_tasks_get_on_while_many_turns_are_ready(actors: list[Any]) -> None:
    rounds = 0
    calls = asyncio.gather(*(actor.spin() for actor in actors * 15))
    while not calls.done():
        await asyncio.sleep(0)
        rounds += 1
    # Turns of a millisecond follow each other for two at most, and one that goes beyond.
    assert rounds >= len(actors) * 15 / 3


async def test_the_span_of_a_turn_is_part_of_its_callers(spans: Spans) -> None:
    async with ActorTest(WorkedActor):
        with spans.opened("caller"):
            asked = asyncio.create_task(app.actor(Worked, "traced").seen())
            await asyncio.sleep(0)  # the call is on its way
        with spans.opened("another"):
            await asked
    assert is_child(spans.one("relevo.actor.turn"), of=spans.one("caller"))


async def test_only_what_is_still_there_hears_of_its_deadline() -> None:
    loop = asyncio.get_running_loop()
    deadlines, heard = Deadlines(), asyncio.Event()
    told: list[str] = []

    class Timed:
        def __init__(self, name: str) -> None:
            self.name = name

        def expire(self) -> None:
            assert loop.time() >= soon - 0.002  # loops keep milliseconds
            told.append(self.name)
            heard.set()

    soon = loop.time() + 0.05
    removed, kept, later = Timed("removed"), Timed("kept"), Timed("later")
    deadlines.add(soon, removed)
    deadlines.add(soon, kept)
    deadlines.add(soon + 3_600, later)
    deadlines.remove(soon, removed)
    await heard.wait()
    assert told == ["kept"]
