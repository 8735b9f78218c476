"""How much a lane may hold on a host: its slots, and a little more while handlers are quick.

With only as many claims as slots, a host of quick handlers spends its time waiting for the
database. So a lane that finds itself idle between two statements claims ahead, twice as much each
time; as soon as what it claimed has to wait, it goes back. Half of it runs while a statement
settles the other half and claims as many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Generic

from relevo.kernel.running.ledger import C
from relevo.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from relevo.kernel.running.budgets import LaneBudget

AHEAD_MAX: Final = 2_000
"""The most claims that a lane holds."""
AHEAD_BYTES_MAX: Final = 16 * MIB
"""The approximate memory of claims ahead."""
WAIT_SECONDS: Final = 0.25
"""A claim that waits longer than this on a host was made too early."""
KEEP_SECONDS: Final = 1.0
"""A claim that waits longer for a slot is returned."""
SHARED_SECONDS: Final = 0.25
"""How far a lane with a budget claims ahead at most: its permits soon go back to others."""
SHORTEST_RUN_SECONDS: Final = 0.00005
"""Runs that take less are not told apart: the event loop has other work between them."""
RUN_WEIGHT: Final = 0.1
"""How much a run counts in the time that runs take."""


class Appetite:
    """The number of claims that a lane should have in hand.

    `begin_within` bounds it by time: no more than can begin within so many seconds, as long as
    runs take what the last ones took. 0 never claims ahead of free slots.
    """

    def __init__(self, slots: int, begin_within: float | None = None) -> None:
        self.slots = slots
        """How many runs there may be at once; fewer than the lane's where permits lack."""
        self._begin_within = begin_within
        self._run_seconds = 0.0
        """What the last runs took, the latest weighing most."""
        self._ahead_max = self._bound(AHEAD_MAX)
        self._hold(slots)

    def hungry(self) -> None:
        """Everything in hand was finished before the next statement brought more."""
        self._hold(min(max(self.most * 2, self.slots), self._bound(self._ahead_max)))

    def note_run(self, seconds: float) -> None:
        """Learn how long a run took; one that takes longer than the others counts at once."""
        if self._begin_within:
            known = self._run_seconds
            self._run_seconds = max(seconds, known + (seconds - known) * RUN_WEIGHT)
            if self._run_seconds * self.most > self._begin_within * self.slots:
                self._hold(self._bound(self.most))

    def weigh(self, claims: int, size: int) -> None:
        """So many claims came with so much data: of large ones fewer are held."""
        fit = AHEAD_BYTES_MAX * claims // max(1, size)
        self._ahead_max = self._bound(min(AHEAD_MAX, fit))
        self._hold(min(self.most, self._ahead_max))

    def resize(self, slots: int) -> None:
        """So many runs may there be at once from now on."""
        if slots == self.slots:
            return
        is_ahead = self.most > self.slots
        self.slots = slots
        self._hold(self._bound(self.most) if is_ahead else slots)

    def full(self) -> None:
        """Something had to wait for a slot for too long."""
        self._hold(self.slots)

    def _bound(self, most: int) -> int:
        """At least the slots; and no more ahead than may begin in time."""
        if self._begin_within is not None:
            turns = self._begin_within / max(self._run_seconds, SHORTEST_RUN_SECONDS)
            most = min(most, int(self.slots * turns))
        return max(self.slots, most)

    def _hold(self, most: int) -> None:
        self.most = most
        self.step = max(1, most // 2)
        """How many to settle and claim with one statement."""

    def room(self, held: int) -> int:
        """How many more to claim; 0 for very few, to save statements."""
        room = min(self.most - held, max(self.step, self.slots - held))
        return room if room >= self.step or held < self.slots else 0


class HostLane(Generic[C]):
    """The claims of a lane on this host."""

    def __init__(
        self, name: str, slots: int, handlers: Iterable[str], begin_within: float | None = None,
        budget: LaneBudget | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.slots = slots
        """How many runs there are at once."""
        self.handlers = tuple(handlers)
        """The handlers of the lane that this host runs."""
        self.waiting: deque[C] = deque()
        self.running = 0
        self.more = False
        """Whether there was more to claim than the last statement took."""
        self.is_open = True
        """Whether anything is claimed for it now."""
        self.came = asyncio.Event()
        self.budget = budget
        """What bounds its claims beside its slots."""
        if budget is not None:
            ahead = SHARED_SECONDS if begin_within is None else begin_within
            begin_within = min(ahead, SHARED_SECONDS)
        self._begin_within = begin_within
        """Seconds after which claims that have not begun go back, if not `KEEP_SECONDS`."""
        self.appetite = Appetite(slots, begin_within)

    @property
    def may_begin(self) -> bool:
        """Whether a claim waits that a free slot may run; with a budget, on a permit."""
        if not self.waiting:
            return False
        return self.budget is None or self.running < self.budget.in_use

    def room(self) -> int:
        """How many more to claim if nothing but its slots bounds them."""
        room = self.appetite.room(self.held)
        return room if self.budget is None else max(room, self.free)

    def take_permits(self, room: int, wake: Callable[[], None], *, ahead: bool) -> int:
        """Take permits for so many claims; returns how many to make.

        With fewer permits than slots it claims `ahead` like a lane that has only so many slots.
        `wake` is called when more permits come.
        """
        budget = self.budget
        assert budget is not None
        budget.take(self.held, room, wake)
        if budget.in_use:
            self.appetite.resize(budget.in_use)
        return budget.claim(self.held, min(room, self.appetite.room(self.held)), ahead=ahead)

    def count_running(self) -> int:
        """Return how many runs there are."""
        return self.running

    @property
    def held(self) -> int:
        """Claims that wait or run."""
        return len(self.waiting) + self.running

    @property
    def free(self) -> int:
        """How many more could begin at once."""
        return max(0, self.slots - self.held)

    def late(self, now: float, *, stopping: bool) -> list[C]:
        """Take out claims that waited too long; other hosts may have a slot for them."""
        if not self.waiting:
            return []
        wait, keep = self._begin_within or WAIT_SECONDS, self._begin_within or KEEP_SECONDS
        if self.waiting[0].taken_at < now - wait:
            self.appetite.full()
        found = []
        while self.waiting and (stopping or self.waiting[-1].taken_at < now - keep):
            found.append(self.waiting.pop())
        self._not_begun()
        return found

    def take_all(self, wanted: Callable[[C], bool]) -> list[C]:
        """Take out the claims that wait and are wanted."""
        found = [one for one in self.waiting if wanted(one)]
        if found:
            left = [one for one in self.waiting if not wanted(one)]
            self.waiting.clear()
            self.waiting.extend(left)
        self._not_begun()
        return found

    def take(self, id_: Hashable) -> C | None:
        """Take out a claim that waits, if it is here."""
        for claim in self.waiting:
            if claim.id == id_:
                self.waiting.remove(claim)
                self._not_begun()
                return claim
        return None

    def end_run(self) -> None:
        """A run has ended: its slot is free, and so is its permit, unless another run follows."""
        self.running -= 1
        if self.budget is not None:
            self.budget.keep(self.held, used=True)

    def _not_begun(self) -> None:
        if self.budget is not None:
            self.budget.keep(self.held, used=False)
