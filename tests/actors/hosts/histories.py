"""Histories of calls of an actor, and whether they are linearizable.

The actor is a list of tags. An operation appends a tag, or reads how many there are. The actor ends
with one order of all tags, so each operation has one place in it, and the history is linearizable
if no operation has a place before one that had returned when it was called.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from relevo.errors import RelevoError
from tests.actors.hosts.programs import TYPE, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo import App

Outcome = Literal["ok", "unknown", "not run"]


class Operation(Struct):
    """A call, and what its caller was told."""

    called: float
    tag: str | None = None
    """What it appends; None if it reads."""
    returned: float = float("inf")
    outcome: Outcome = "unknown"
    count: int = 0
    """How many tags there are, as the caller was told."""


def fault_of(history: Sequence[Operation], tags: Sequence[str]) -> str | None:
    """Say why a history is not linearizable; None if it is. `tags` are there in the end."""
    places = {tag: place for place, tag in enumerate(tags, 1)}
    if len(places) < len(tags):
        return "a tag was appended twice"
    effects: list[tuple[Operation, int]] = []
    """With twice the place of each operation: a read of n tags is behind the n-th."""
    for one in history:
        if one.tag is None:
            if one.outcome == "ok":
                effects.append((one, 2 * one.count + 1))
            continue
        place = places.pop(one.tag, None)
        match one.outcome:
            case "ok" if place != one.count:
                return f"{one} is at place {place}"
            case "not run" if place is not None:
                return f"{one} has run"
        if place is not None:
            effects.append((one, 2 * place))
    if places:
        return f"nobody appended {sorted(places)[:5]}"
    return _first_inversion(effects)


def _first_inversion(effects: list[tuple[Operation, int]]) -> str | None:
    """Sweep over time: nothing that is called has a place before what has returned."""
    returns = sorted(effects, key=lambda effect: effect[0].returned)
    latest, done = (None, 0), 0
    for one, place in sorted(effects, key=lambda effect: effect[0].called):
        while done < len(returns) and returns[done][0].returned < one.called:
            if returns[done][1] > latest[1]:
                latest = returns[done]  # type: ignore[assignment]
            done += 1
        if place < latest[1]:
            return f"{one} comes before {latest[0]}, which had returned"
    return None


class Histories:
    """Callers that append to and read from actors, and keep what they were told."""

    def __init__(self, app: App, actors: int) -> None:
        self._app = app
        self.keys = [f"h{number}" for number in range(actors)]
        self.of: dict[str, list[Operation]] = defaultdict(list)
        self.outcomes: Counter[str] = Counter()
        self._stopping = False
        self._callers: list[asyncio.Task[None]] = []

    @property
    def calls(self) -> int:
        return self.outcomes.total()

    def tally(self, key: str) -> Tally:
        return self._app.actor(Tally, key, type=TYPE)

    def start(self, callers: int) -> None:
        loop = asyncio.get_running_loop()
        self._callers = [loop.create_task(self._call(number)) for number in range(callers)]

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._callers)

    async def cancel(self) -> None:
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    async def check(self) -> None:
        for key in self.keys:
            fault = fault_of(self.of[key], list(await self.tally(key).counts()))
            assert fault is None, f"{key}: {fault}"

    async def _call(self, caller: int) -> None:
        number = 0
        while not self._stopping:
            number += 1
            key = self.keys[(caller + number) % len(self.keys)]
            one = Operation(time.monotonic(), f"{caller}-{number}" if number % 2 else None)
            self.of[key].append(one)
            try:
                tally = self.tally(key)
                one.count = await (tally.total() if one.tag is None else tally.add(one.tag))
            except RelevoError as error:
                if getattr(error, "executed", None) is not None:
                    one.outcome = "not run"
            else:
                one.outcome, one.returned = "ok", time.monotonic()
            self.outcomes[one.outcome] += 1
