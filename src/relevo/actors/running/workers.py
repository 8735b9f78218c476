"""Tasks that run turns, one after the other, while turns leave their context unchanged.

A task for each turn would isolate turns as well, but cost more than most of them. Turns begin in
the order in which they are given. While one waits for something, another task runs the next.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from relevo.actors.running.turn import CURRENT
from relevo.kernel import uses
from relevo.kernel.telemetry import tracing
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.actors.running.recording import TurnRecorder
    from relevo.actors.running.turn import Turn

log = get_logger(__name__)
IDLE_MAX: Final = 64
"""Tasks that are kept without work."""
STRETCH_SECONDS: Final = 0.002
"""How long turns may follow each other before other tasks of the loop go first."""


class Workers:
    """Runs the turns of all actors of a host."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Turn] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._closed = False
        self._is_coming = False
        """A task is about to look for turns: it need not be called again."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._surroundings = contextvars.Context()
        """Context variables as every turn finds them."""
        self._surroundings.run(uses.begin, "handlers")
        self.host = ""
        """Its name."""
        self.recorder: TurnRecorder | None = None
        """Records turns for a test."""
        self.traced = tracing.is_on()
        """Whether turns have spans."""

    def run(self, turn: Turn) -> None:
        """Run a turn soon."""
        self._ready.append(turn)
        if not self._is_coming:
            self._call_one()

    def close(self) -> None:
        """Let tasks go that have no turn."""
        self._closed = True
        for idle in self._idle:
            idle.cancel()
        self._idle.clear()

    def _call_one(self) -> None:
        self._is_coming = True
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        task = self._loop.create_task(self._work(), context=self._surroundings.copy())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            self._is_coming = False
            if not await self._run_turns(task):
                return
            if self._closed or len(self._idle) >= IDLE_MAX:
                return
            CURRENT.set(None)
            idle = self._loop.create_future()
            self._idle.append(idle)
            await idle

    async def _run_turns(self, task: asyncio.Task[None]) -> bool:
        """Run what is ready; False if this task can run no more."""
        ready, began = self._ready, time.perf_counter()
        while ready:
            turn = ready.popleft()
            if ready and not self._is_coming:
                self._call_one()  # it begins when this turn waits for something, or all are run
            CURRENT.set(turn)
            before = contextvars.copy_context()
            turn.task = task
            await turn.activation.runner.execute(turn)
            is_spent = bool(task.cancelling()) or contextvars.copy_context() != before
            if is_spent or time.perf_counter() - began > STRETCH_SECONDS:
                if ready and not self._is_coming:
                    self._call_one()  # it goes on, after the other tasks of the loop
                return not is_spent
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("actor.worker_failed", error=repr(error)[:500])
