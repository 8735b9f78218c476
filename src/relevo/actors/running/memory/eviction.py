"""Which actors leave the memory of a host: those that nobody uses, and idle ones under pressure."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Final

from relevo.kernel.telemetry.logs import get_logger
from relevo.limits import ACTOR_IDLE_SCAN_SECONDS, ACTOR_IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.actors.running.runtime import ActorRuntime

log = get_logger(__name__)
RELIEF: Final = 0.95
"""Above a bound idle activations leave until so much of it is left."""


def resident_bytes() -> int:
    """Return the memory that this process has in use; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Eviction:
    """Lets idle activations of a host leave."""

    def __init__(self, runtime: ActorRuntime, activations_max: int) -> None:
        self._runtime = runtime
        self.activations_max = activations_max
        self.memory_max = 0
        """Bytes of the process above which idle activations leave; 0 without such a bound."""
        self.idle_seconds = ACTOR_IDLE_SECONDS
        """How long actors stay in memory without use, where their type does not say."""
        self.resident_bytes: Callable[[], int] = resident_bytes
        self._relief_at = activations_max

    def note_activation(self) -> None:
        """Hear of one more; above the bound the longest unused leave."""
        if self._runtime.activations > self._relief_at:
            surplus = self._relieve(int(self.activations_max * RELIEF))
            # Busy ones stay; to look at all of them for each further activation would be slow.
            self._relief_at = max(self.activations_max, self._runtime.activations + surplus // 10)

    def relieve_memory(self) -> None:
        """Let the longest unused leave, as many as would fit if each took the same memory."""
        if not self.memory_max or (used := self.resident_bytes()) <= self.memory_max:
            return
        activations = self._runtime.activations
        surplus = self._relieve(int(activations * self.memory_max * RELIEF / used))
        log.warning(
            "actors.memory_pressure", bytes=used, bound=self.memory_max, activations=activations,
            surplus=surplus,
        )  # fmt: skip

    def _relieve(self, most: int) -> int:
        """Let idle activations leave until so many are left; returns how many are too many."""
        staying = [one for one in self._runtime.in_memory() if one.state != "deactivating"]
        idle = sorted((one for one in staying if one.is_idle), key=lambda one: one.used_at)
        surplus = max(0, len(staying) - most)
        for activation in idle[:surplus]:
            activation.deactivate("pressure")
        return surplus

    def collect_idle(self) -> None:
        """Let activations leave that nobody has used for the idle time of their type."""
        now = asyncio.get_running_loop().time()
        for activation in list(self._runtime.in_memory()):
            idle_after = activation.definition.options.idle_after or self.idle_seconds
            if now >= max(activation.used_at + idle_after, activation.keep_until) and (
                activation.is_idle
            ):
                activation.deactivate("idle")

    async def run(self) -> None:
        """Look again and again."""
        while True:
            seconds = ACTOR_IDLE_SCAN_SECONDS * self._runtime.random.uniform(0.9, 1.1)
            await asyncio.sleep(seconds)
            self.collect_idle()
            self.relieve_memory()
