"""Warns of turns that hold the event loop: nothing else of the host runs meanwhile."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.running.turn import Turn

log = get_logger(__name__)
HELD_SECONDS: Final = 0.1
"""How long one stretch of code may hold the loop without a warning."""

IDLE_SECONDS: Final = 1.0
"""How often it looks while no actor is in memory."""


class LoopWatchdog:
    """Looks from a thread whether the loop still ticks."""

    def __init__(self, runtime: ActorRuntime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._ticked = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="relevo watchdog")

    async def run(self) -> None:
        """Watch until canceled."""
        self._thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._stopped.set()
            self._ticked.set()

    def _watch(self) -> None:
        while not self._stopped.wait(HELD_SECONDS if self._runtime.activations else IDLE_SECONDS):
            self._ticked.clear()
            try:
                self._loop.call_soon_threadsafe(self._ticked.set)
            except RuntimeError:
                return  # the loop is closed
            if not self._ticked.wait(HELD_SECONDS):
                self._warn()
                self._ticked.wait()

    def _warn(self) -> None:
        turn = self._turn()
        if turn is not None:
            log.warning(
                "actor.holds_loop", actor=turn.activation.canonical, turn=turn.work.name,
                seconds=HELD_SECONDS,
                advice="write a plain `def` method, which runs in a thread, or await in between",
            )  # fmt: skip

    def _turn(self) -> Turn | None:
        """Return the turn whose task has the loop now."""
        task = asyncio.current_task(self._loop)
        with suppress(RuntimeError):  # the loop went on, and what is looked at has changed
            for slot in self._runtime.slots.values():
                for activation in slot.activations.values():
                    for turn in activation.turns.values():
                        if turn.task is task:
                            return turn
        return None
