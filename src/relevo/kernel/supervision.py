"""Background loops that are kept running, and what a stop of the host waits for.

A loop that dies is started again, and that shows.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.kernel import uses
from relevo.kernel.backoff import Backoff
from relevo.kernel.telemetry.logs import get_logger
from relevo.kernel.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = get_logger(__name__)
HEALTHY_SECONDS = 30.0
"""A loop that has run this long since it died counts as well again."""


class LoopHealth(Struct, frozen=True):
    """How a loop fares."""

    name: str
    running: bool
    restarts: int
    error: str | None


class _Loop:
    def __init__(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self.work = work
        self.restarts = 0
        self.error: str | None = None
        self.task: asyncio.Task[None] | None = None


class Draining(Struct, frozen=True):
    """A step of a host's stop: the work that it waits for, and when it gives up."""

    work: tuple[str, ...]
    """What has not ended yet, by name."""
    until: float
    """When it is cut off, by the monotonic clock."""

    @property
    def seconds_left(self) -> float:
        """How long the work may still take."""
        return max(0.0, self.until - time.monotonic())


class Supervisor:
    """Runs named loops until it is stopped.

    A loop is a function that normally never returns. Whatever it raises is logged with its
    traceback and shown in `health()`; the loop starts again after a growing wait.
    """

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._loops: dict[str, _Loop] = {}
        self._backoff = Backoff(first=0.1, longest=15.0)
        self._random = random.Random()  # noqa: S311 - jitter, not a secret

    def run(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Start a loop and keep it running; a name that already runs is refused."""
        if name in self._loops:
            raise ValueError(f"a loop named {name!r} runs already")
        loop = self._loops[name] = _Loop(name, work)
        loop.task = asyncio.get_running_loop().create_task(self._keep(loop), name=name)

    def health(self) -> list[LoopHealth]:
        """Return every loop, sorted by name."""
        return [
            LoopHealth(one.name, one.error is None, one.restarts, one.error)
            for _, one in sorted(self._loops.items())
        ]

    async def stop(self, name: str | None = None) -> None:
        """Cancel one loop, or all, and wait until they have ended."""
        names = list(self._loops) if name is None else [name]
        loops = [self._loops.pop(one) for one in names if one in self._loops]
        tasks = [loop.task for loop in loops if loop.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, loop: _Loop) -> None:
        uses.begin("host")
        attempt = 0
        while True:
            began = asyncio.get_running_loop().time()
            well = asyncio.get_running_loop().call_later(HEALTHY_SECONDS, self._is_well, loop)
            try:
                await loop.work()
                loop.error = "ended by itself"
            except Exception as error:
                loop.error = f"{type(error).__name__}: {error}"
                log.exception("loop.died", loop=loop.name, restarts=loop.restarts)
            finally:
                well.cancel()
            ran = asyncio.get_running_loop().time() - began
            attempt = 0 if ran > HEALTHY_SECONDS else attempt + 1
            loop.restarts += 1
            self._metrics.loop_restarts.labels(loop=loop.name).inc()
            await asyncio.sleep(self._backoff.delay(attempt, self._random))

    @staticmethod
    def _is_well(loop: _Loop) -> None:
        loop.error = None
