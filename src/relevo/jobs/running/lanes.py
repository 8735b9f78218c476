"""What a host holds of each lane: claims that wait for a slot, and how many more to ask for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from relevo.kernel.running.slots import WAIT_SECONDS, Appetite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from relevo.jobs.model import Lane
    from relevo.jobs.registry import Handler, Registry
    from relevo.jobs.running.claims import Claim

KEEP_SECONDS: Final = 1.0
"""What waits longer for a slot is given back to the others."""


class HostLane:
    """What a lane holds on this host."""

    def __init__(self, lane: Lane, handlers: Sequence[Handler]) -> None:
        self.lane = lane
        self.handlers = {one.name: one for one in handlers}
        self.waiting: deque[Claim] = deque()
        self.running = 0
        self.more = False
        """Whether there was more to claim than the last statement took."""
        self.came = asyncio.Event()
        self.appetite = Appetite(lane.slots)

    @property
    def held(self) -> int:
        """Claims that wait or run."""
        return len(self.waiting) + self.running

    @property
    def free(self) -> int:
        """How many more could begin at once."""
        return max(0, self.lane.slots - self.held)

    def late(self, now: float, *, stopping: bool) -> list[Claim]:
        """Take out what has waited here for too long; others may have a slot for it."""
        if self.waiting and self.waiting[0].taken_at < now - WAIT_SECONDS:
            self.appetite.full()
        found = []
        while self.waiting and (stopping or self.waiting[-1].taken_at < now - KEEP_SECONDS):
            found.append(self.waiting.pop())
        return found

    def take_all(self, wanted: Callable[[Claim], bool]) -> list[Claim]:
        """Take out the claims that wait and are wanted."""
        found = [one for one in self.waiting if wanted(one)]
        if found:
            left = [one for one in self.waiting if not wanted(one)]
            self.waiting.clear()
            self.waiting.extend(left)
        return found

    def take(self, id_: UUID) -> Claim | None:
        """Take out a claim that waits, if it is here."""
        for claim in self.waiting:
            if claim.id == id_:
                self.waiting.remove(claim)
                return claim
        return None


def served(registry: Registry) -> dict[str, HostLane]:
    """Return the lanes that the handlers of an app are in."""
    found: dict[str, list[Handler]] = {}
    for one in registry.handlers.values():
        found.setdefault(one.lane, []).append(one)
    return {name: HostLane(registry.lanes[name], handlers) for name, handlers in found.items()}
