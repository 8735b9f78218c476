"""A host's share of a pool: it serves its own callers from it, without asking the pool.

    chunk = Chunk(now=0.0)
    chunk.wait(Waiter(1, "", since=0.0), 0.0)
    message = chunk.ask(0.0)  # says what is needed here, and what goes back
    chunk.learn(message.seq, granted=8, recalled=False, now=0.1)  # the waiters that are served
    chunk.take(1)  # True: no message was sent

Host and pool never tell each other how much a host has, only how much the pool granted in all and
how much the host gave back in all. Both numbers only grow, so messages may be lost, repeated and
overtaken: the host never uses more than the pool counts for it.

What has been idle for a second goes back. While others wait for the pool, all that is idle goes
back, and what callers release does, too.
"""

from __future__ import annotations

import heapq
from typing import Final

from msgspec import Struct

from relevo.governance.core.fairness import FairQueue, Waiter

IDLE_SECONDS: Final = 1.0
AHEAD_MAX: Final = 256
"""The most permits that a host borrows ahead of its callers."""
NEEDS_MAX: Final = 64
"""Of so many waiting callers a host tells the pool."""


class Need(Struct, frozen=True):
    """What a caller of a host waits for."""

    weight: int = 1
    priority: int = 4


class ChunkMessage(Struct, frozen=True, kw_only=True):
    """What a host tells the pool of its chunk; the youngest message counts."""

    seq: int
    granted: int
    """All that the pool has granted, as far as this host knows."""
    returned: int
    """All that this host has given back."""
    needs: tuple[Need, ...] = ()
    """What callers wait for, in their order."""
    ahead: int = 0
    """How much more to grant if nobody else waits."""
    recalled: bool = False
    """Whether the host knows that others wait."""


class Chunk:
    """The permits that a pool lent to this host for one key, divided among its callers."""

    def __init__(self, now: float = 0.0) -> None:
        self.granted = 0
        self.returned = 0
        self.in_use = 0
        self.recalled = False
        """Whether others wait for what is idle here."""
        self._queue = FairQueue()
        self._seq = 0
        self._is_asking = False
        self._sent: tuple[Need, ...] = ()
        self._urgent = -1
        """The highest priority of a caller that the pool has not heard of."""
        self._ahead = 0
        self._low = 0
        """The least that was idle since `_since`: nobody needed it for so long."""
        self._since = now

    @property
    def size(self) -> int:
        """How much the pool lent."""
        return self.granted - self.returned

    @property
    def idle(self) -> int:
        """How much can be taken at once."""
        return max(0, self.size - self.in_use)

    @property
    def waiting(self) -> int:
        """How many callers wait here."""
        return len(self._queue)

    def take(self, weight: int) -> bool:
        """Serve a caller, if there is enough and nobody is before it."""
        if self.recalled or weight > self.granted - self.returned - self.in_use or self._queue:
            return False
        self.in_use += weight
        self._low = min(self._low, self.idle)
        return True

    def wait(self, waiter: Waiter, now: float) -> list[Waiter]:
        """Let a caller wait; returns those that are served."""
        self._queue.add(waiter)
        self._urgent = max(self._urgent, waiter.priority)
        return [] if self.recalled else self._serve(self.idle, now)

    def cancel(self, number: int) -> bool:
        """Remove a caller that has gone; whether it still waited."""
        return self._queue.cancel(number)

    def release(self, weight: int, now: float) -> list[Waiter]:
        """A caller is done; returns those that are served."""
        self.in_use -= weight
        return self._serve(self.idle, now) if self._queue and not self.recalled else []

    def must_ask(self, now: float) -> bool:
        """Whether the pool is to hear something new."""
        waiting, told = min(len(self._queue), NEEDS_MAX), len(self._sent)
        if not self._is_asking:
            return bool(self.size > 0 or waiting)
        if self.idle and (self.recalled or waiting):
            return True
        if waiting > told or (waiting < told and self.recalled):
            return True
        if waiting and self._urgent > max(need.priority for need in self._sent):
            return True
        return now - self._since >= IDLE_SECONDS and bool(self._idled or waiting < told)

    def ask(self, now: float) -> ChunkMessage:
        """Return what the pool is to hear; what goes back by it is not used any more."""
        waiting = heapq.nsmallest(
            NEEDS_MAX, self._queue, key=lambda one: (-one.priority, one.number)
        )
        back = self.idle
        if not self.recalled and not waiting:
            back = self._idled if now - self._since >= IDLE_SECONDS else 0
        self.returned += back
        ahead = 0
        if back:
            self._ahead = min(self._ahead, self.size)
        if waiting and not self.recalled:
            self._ahead = min(AHEAD_MAX, max(1, self._ahead * 2))
            ahead = min(AHEAD_MAX, self._ahead - 1 + len(self._queue) - len(waiting))
        self._sent = tuple(Need(one.weight, one.priority) for one in waiting)
        self._urgent, self._seq, self._is_asking = -1, self._seq + 1, True
        self._low, self._since = self.idle, now
        return ChunkMessage(
            seq=self._seq, granted=self.granted, returned=self.returned, needs=self._sent,
            ahead=ahead, recalled=self.recalled,
        )  # fmt: skip

    def learn(self, seq: int, *, granted: int, recalled: bool, now: float) -> list[Waiter]:
        """Take in the answer to a message; returns the callers that are served."""
        more = max(0, granted - self.granted)
        self.granted += more
        if seq == self._seq:
            self._is_asking, self.recalled = False, recalled
            if recalled:
                self._ahead = 0
        if more:
            self._low, self._since = self.idle, now
        return self._serve(min(more, self.idle) if self.recalled else self.idle, now)

    def failed(self, seq: int) -> None:
        """Take in that a message was not answered; what it gave back stays given back."""
        if seq == self._seq:
            self._is_asking = False

    def is_over(self) -> bool:
        """Whether there is nothing here and nobody needs anything."""
        return not (self.size or self.in_use or self._queue)

    @property
    def _idled(self) -> int:
        return min(self._low, self.idle)

    def _serve(self, room: int, now: float) -> list[Waiter]:
        served = []
        while room > 0 and self._queue and (waiter := self._queue.next(room, now)) is not None:
            self._queue.release(waiter.key, waiter.weight)  # it counts here
            room -= waiter.weight
            self.in_use += waiter.weight
            served.append(waiter)
        self._low = min(self._low, self.idle)
        return served
