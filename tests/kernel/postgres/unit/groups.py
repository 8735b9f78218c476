"""Statements that are plain functions: one keeps a table, one waits to be let through."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from relevo.errors import Conflict, InvalidValue, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["good", "refused", "bad"]
Fate = Literal["commits", "unavailable", "lost_done", "lost_undone"]


class Call(Struct, frozen=True):
    number: int
    key: int
    order: int | None
    kind: Kind = "good"


class Store:
    """What the statements of a group did: a table and a history, with faults as they are told."""

    def __init__(self, fates: Sequence[Fate] = (), ticks: Sequence[int] = ()) -> None:
        self.applied: list[Call] = []
        self.waves: list[list[Call]] = []
        self._fates = list(fates)
        self._ticks = list(ticks)

    async def statement(self, calls: Sequence[Call]) -> list[str | Exception]:
        self.waves.append(list(calls))
        fate = self._fates.pop(0) if self._fates else "commits"
        for _ in range(self._ticks.pop(0) if self._ticks else 1):
            await asyncio.sleep(0)
        if fate == "unavailable":
            raise Unavailable("the store is away")
        if any(call.kind == "bad" for call in calls):
            raise InvalidValue(f"one of {[call.number for call in calls]} is bad")
        if fate != "lost_undone":
            self.applied += [call for call in calls if call.kind == "good"]
        if fate != "commits":
            raise OutcomeUnknown("the answer was lost")
        return [
            f"done {call.number}" if call.kind == "good" else Conflict(f"refused {call.number}")
            for call in calls
        ]


class Gate:
    """A statement that waits to be let through, wave by wave."""

    def __init__(self) -> None:
        self.waves: list[list[int]] = []
        self._under_way = asyncio.Event()
        self._open = asyncio.Semaphore(0)

    async def statement(self, calls: Sequence[int]) -> list[int]:
        self.waves.append(list(calls))
        self._under_way.set()
        await self._open.acquire()
        return [2 * call for call in calls]

    async def under_way(self) -> None:
        await self._under_way.wait()
        self._under_way.clear()

    def let_through(self, waves: int = 1) -> None:
        for _ in range(waves):
            self._open.release()
