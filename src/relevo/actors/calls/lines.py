"""Calls that wait for the next owner of their slot, in the order in which they were made.

While a slot has no owner that takes calls, those of this process stand in a line. One request asks
for all of them whether the next owner takes calls; then they are sent at once, in their order, and
before any call that is made meanwhile. Calls inside of a chain do not stand in line: a turn waits
for them, which may keep the slot where it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import Context
from typing import TYPE_CHECKING, Final

from relevo.actors.core.calls import Call, Chain, MovedTo
from relevo.actors.transport.errors import NotSent
from relevo.errors import NoHost, RelevoError
from relevo.kernel.backoff import Backoff

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable

    from relevo.actors.calls.delivery import Way, Ways
    from relevo.actors.core.calls import Answer

SERVING: Final = "$serving"
"""The method that answers if the owner of the slot takes calls."""
ASK_SECONDS: Final = 2.0
"""How long calls wait for that answer; then they are sent all the same."""
AGAIN: Final = Backoff(first=0.02, longest=1.0, jitter=(1.0, 1.0))
_NO_ARGUMENTS: Final = b"\x90"


class _Line:
    """The calls that wait for one slot, by their numbers."""

    __slots__ = ("actor", "at_once", "seconds", "waiting")

    def __init__(self, actor: str) -> None:
        self.actor = actor
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.at_once = False
        self.seconds = 0.0

    def release(self, error: NoHost | None = None) -> None:
        """Let all go on, the oldest first, or fail."""
        waiting, self.waiting = self.waiting, {}
        for number in sorted(waiting):
            if waiting[number].done():
                continue
            if error is None:
                waiting[number].set_result(None)
            else:
                waiting[number].set_exception(NoHost(error.message))


class Lines:
    """The lines of the slots that are on their way."""

    def __init__(self, ways: Ways, dice: random.Random) -> None:
        self._ways = ways
        self._dice = dice
        self._lines: dict[tuple[str, int], _Line] = {}
        self._leading: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, place: object) -> bool:
        return place in self._lines

    async def wait(
        self, place: tuple[str, int], call: Call, number: int, left: float, *,
        at_once: bool = False, seconds: float = 0.0,
    ) -> None:  # fmt: skip
        """Wait until the owner of a slot takes calls; raises `TimeoutError` after `left` seconds.

        With `at_once` the owner is known; else nobody is asked for so many `seconds`. Raises
        `NoHost` if there will be no owner.
        """
        loop = asyncio.get_running_loop()
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = _Line(call.actor)
            line.at_once, line.seconds = at_once, seconds
            task = loop.create_task(self._lead(place, line), context=Context())
            self._leading.add(task)
            task.add_done_callback(self._leading.discard)
        released = line.waiting[number] = loop.create_future()
        try:
            async with asyncio.timeout(left):
                await released
        finally:
            if line.waiting.get(number) is released:
                del line.waiting[number]

    async def _lead(self, place: tuple[str, int], line: _Line) -> None:
        """Find the owner that takes calls, then let all go; ends when nobody waits."""
        attempt = 0
        try:
            await asyncio.sleep(0)  # others are answered in the same pass
            while line.waiting:
                if not line.at_once or attempt:
                    seconds = max(line.seconds, AGAIN.delay(attempt, self._dice))
                    await self._ways.changed(place[0], seconds)
                attempt += 1
                with contextlib.suppress(RelevoError):  # the database
                    if await self._takes_calls(place, line):
                        while line.waiting:
                            line.release()
                            await asyncio.sleep(0)  # behind them: they have been sent
        finally:
            del self._lines[place]
            line.release()

    async def _takes_calls(self, place: tuple[str, int], line: _Line) -> bool:
        call = Call(line.actor, SERVING, _NO_ARGUMENTS, ASK_SECONDS, Chain(0))
        try:
            async with asyncio.timeout(ASK_SECONDS):
                asked: Awaitable[Answer] | None = self._ways.here(call)
                if asked is None:
                    way = await self._way(place, line)
                    if way is None:
                        return False
                    call.epoch = way.epoch
                    asked = way.deliver(call)
                answer = await asked
        except TimeoutError:
            return True  # it is slow, and says of each call whether that has run
        except NotSent:
            return False
        if isinstance(answer, MovedTo):
            self._ways.learn(*place, answer)
            line.at_once, line.seconds = answer.address is not None, answer.pause
            return False
        return True

    async def _way(self, place: tuple[str, int], line: _Line) -> Way | None:
        try:
            return await self._ways.find(*place)
        except NoHost as error:
            line.release(error)
            return None
