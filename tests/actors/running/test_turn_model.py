"""Turns, nested turns and their undoing, against a model with dicts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, field

from relevo import App
from relevo.actors import Actor, Interface
from relevo.errors import RemoteError
from relevo.testing import ActorTest

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS = "abc"


class Step(Struct):
    """A turn: it adds, goes on with the next step, and may fail or catch that one's failure."""

    key: str
    add: int
    fails: bool = False
    catches: bool = False


class Walker(Interface):
    async def walk(self, steps: list[Step]) -> int: ...


class Sum(Struct):
    total: int = 0
    seen: list[list[int]] = field(default_factory=list)


def walker(app: App) -> type[Actor[Sum]]:
    @app.actor("walker", implements=Walker)
    class WalkerActor(Actor[Sum]):
        async def walk(self, steps: list[Step]) -> int:
            step, *rest = steps
            self.state.total += step.add
            self.state.seen.append([step.add])
            await self.map("m", int).set("total", self.state.total)
            if rest:
                try:
                    await app.actor(Walker, rest[0].key).walk(rest)
                except RemoteError:
                    if not step.catches:
                        raise
            if step.fails:
                raise RuntimeError("by design")
            return self.state.total

    return WalkerActor


class Failed(Exception):
    pass


class Model:
    def __init__(self) -> None:
        self.stored = dict.fromkeys(KEYS, (0, 0))
        """Total, and how many turns were seen."""

    def walk(self, steps: Sequence[Step], working: dict[str, tuple[int, int]]) -> int:
        step, *rest = steps
        is_nested = step.key in working
        before = working[step.key] if is_nested else self.stored[step.key]
        working[step.key] = (before[0] + step.add, before[1] + 1)
        try:
            if rest:
                try:
                    self.walk(rest, working)
                except Failed:
                    if not step.catches:
                        raise
            if step.fails:
                raise Failed
        except Failed:
            working[step.key] = before
            if not is_nested:
                del working[step.key]
            raise
        total = working[step.key][0]
        if not is_nested:
            self.stored[step.key] = working.pop(step.key)
        return total


STEPS = st.lists(
    st.builds(
        Step, st.sampled_from(KEYS), st.integers(-9, 9), fails=st.booleans(), catches=st.booleans()
    ),
    min_size=1,
    max_size=6,
)


@given(st.lists(STEPS | st.just("leave"), min_size=1, max_size=6))
def test_chains_of_turns_do_what_the_model_does(walks: list[list[Step] | str]) -> None:
    asyncio.run(_same(walks))  # I16, I18, I21, I22


async def _same(walks: list[list[Step] | str]) -> None:
    app, model = App(), Model()
    async with ActorTest(walker(app), "a") as test:
        for steps in walks:
            if isinstance(steps, str):
                await test.deactivate()
                continue
            try:
                wanted: Any = model.walk(steps, {})
            except Failed:
                wanted = Failed
            try:
                found: Any = await app.actor(Walker, steps[0].key).walk(steps)
            except RemoteError:
                found = Failed
            assert found == wanted
            for key in KEYS:
                stored = test.storage.of(f"walker/s:{key}")
                state: Sum = test._definition.codec.read(stored.actor)
                assert (state.total, len(state.seen)) == model.stored[key]
                if stored.entries:
                    assert msgspec.msgpack.decode(stored.entries["m", "total"]) == state.total
