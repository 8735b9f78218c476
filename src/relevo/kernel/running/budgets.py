"""Budgets: a bound on runs that a lane shares with others, such as the permits of a pool.

A claim never outruns its budget. A round takes permits that are in hand: one for each slot that
has work, or would have. A lane with fewer permits than slots works like a lane with only so many
slots: claims ahead follow on the permits that it has. While others wait for their turn, a round
claims no more than it has permits for. It asks for more only while it knows that work waits, and
gives back what no slot needs. So no slot and no claimed work waits for a permit.

    budgets = LocalBudgets({"erp": 4})  # at most four runs at once on this host
    budgets.open("erp", None)  # the budget of one lane
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from relevo.errors import Conflict, InvalidValue, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Budget(Protocol):
    """What one lane may run, as the lane sees it. No method waits."""

    @property
    def free(self) -> int:
        """Permits in hand that nothing uses."""

    @property
    def serves_ahead(self) -> bool:
        """Whether claims may be made that run after others on the permits that these use.

        False while others are to have their turn, and where each claim needs a permit of its own.
        """

    def want(self, count: int, ready: Callable[[], None]) -> None:
        """Ask for so many permits in hand; `ready` is called when some came.

        It replaces what was asked before. With 0 no work is known to wait, and permits in hand
        go back to those who need them.
        """

    def take(self, count: int) -> int:
        """Use permits in hand for claims, at most so many; returns how many."""

    def give_back(self, count: int, *, used: bool) -> None:
        """Give back permits that were taken; `used` if the work had begun."""


class BudgetSource(Protocol):
    """Opens the budgets that lanes and consumers name."""

    def open(self, pool: str | None, limit: str | None) -> Budget:
        """Return a budget for one lane; raises `NotFound` for names that do not exist."""

    async def shortage(self, pool: str | None, limit: str | None) -> str | None:
        """Return why nobody gets a permit now, for people; None if there is one."""


class LocalBudget:
    """So many runs at once on this host, whatever lanes they are in.

    Lanes that want permits get them in turns, one at a time.
    """

    def __init__(self, size: int) -> None:
        if isinstance(size, bool) or size < 1:
            raise InvalidValue(f"size is {size!r}; a budget has 1 permit or more", pointer="size")
        self.size = size
        self.in_use = 0
        """Permits that lanes have in hand or use; never more than the size."""
        self._waiting: deque[_LocalShare] = deque()

    def open(self) -> Budget:
        """Return the budget of one lane."""
        return _LocalShare(self)

    def _wants(self, share: _LocalShare) -> None:
        if share not in self._waiting:
            self._waiting.append(share)
        self._serve()

    def _returned(self, count: int) -> None:
        self.in_use -= count
        self._serve()

    def _serve(self) -> None:
        served = []
        while self._waiting and self.in_use < self.size:
            share = self._waiting.popleft()
            if share.wanted <= share.free:
                continue
            share.free += 1
            self.in_use += 1
            self._waiting.append(share)
            if share not in served:
                served.append(share)
        for share in served:
            share.ready()


class _LocalShare:
    """What one lane has of a local budget."""

    def __init__(self, budget: LocalBudget) -> None:
        self._budget = budget
        self.free = 0
        self.wanted = 0
        self.ready: Callable[[], None] = lambda: None

    @property
    def serves_ahead(self) -> bool:
        """As `Budget.serves_ahead`: until another lane waits."""
        others = (share for share in self._budget._waiting if share is not self)
        return not any(share.wanted > share.free for share in others)

    def want(self, count: int, ready: Callable[[], None]) -> None:
        self.wanted, self.ready = count, ready
        if self.free > count:
            spare, self.free = self.free - count, count
            self._budget._returned(spare)
        elif self.free < count:
            self._budget._wants(self)

    def take(self, count: int) -> int:
        taken = min(count, self.free)
        self.free -= taken
        self.wanted = max(0, self.wanted - taken)
        return taken

    def give_back(self, count: int, *, used: bool) -> None:
        del used
        self._budget._returned(count)


class LocalBudgets:
    """Budgets of this host alone, by the name of their pool."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._budgets = {name: LocalBudget(size) for name, size in sizes.items()}

    def open(self, pool: str | None, limit: str | None) -> Budget:
        """As `BudgetSource.open`; there are no limits here."""
        if limit is not None:
            raise NotFound(f"there is no limit {limit!r} on this host")
        if pool not in self._budgets:
            known = ", ".join(sorted(self._budgets)) or "none"
            raise NotFound(f"there is no pool {pool!r} on this host; there are {known}")
        return self._budgets[pool].open()

    async def shortage(self, pool: str | None, limit: str | None) -> str | None:
        """As `BudgetSource.shortage`; known for this host alone."""
        budget = self._budgets.get(pool or "")
        if limit is not None or budget is None or budget.in_use < budget.size:
            return None
        return f"pool {pool!r} has {budget.in_use} of {budget.size} permits in use on this host"


class Budgets:
    """Where a part gets the budgets that its lanes name; the app sets the source."""

    def __init__(self) -> None:
        self.source: BudgetSource | None = None

    def open(self, pool: str | None, limit: str | None, slots: int) -> LaneBudget | None:
        """Return the budget of a lane; None if it names neither a pool nor a limit."""
        if pool is None and limit is None:
            return None
        if self.source is None:
            raise Conflict(
                f"pool={pool!r} and limit={limit!r} are named, and the app has no budgets; set"
                " them with app.use_budgets(LocalBudgets({...}))"
            )
        return LaneBudget(self.source.open(pool, limit), slots)

    async def shortage(self, pool: str | None, limit: str | None) -> str | None:
        """Return why a lane that names these gets no permit now; None if it may get one."""
        if self.source is None or (pool is None and limit is None):
            return None
        return await self.source.shortage(pool, limit)


class LaneBudget:
    """The budget of a lane: a permit for each slot that has work.

    The lane says how many claims it holds, which wait or run.
    """

    def __init__(self, budget: Budget, slots: int) -> None:
        self._budget = budget
        self._slots = slots
        self.in_use = 0
        """Permits of slots that have work, or may get it by a statement under way."""
        self._coming = 0
        """Claims that statements under way may bring."""
        self.work_waits = False
        """Whether work is known to wait."""

    def must_look(self, held: int) -> bool:
        """Whether nobody knows if work waits, and there is no permit to find out by a claim."""
        has_permit = self._budget.free or self._uncovered(held) < 0
        return not (self.work_waits or has_permit or self.in_use >= self._slots)

    def take(self, held: int, room: int, ready: Callable[[], None]) -> None:
        """Take permits for claims in hand and as many more, and ask for those that lack."""
        lacking = self._uncovered(held, room)
        if not self.work_waits:  # only what is in hand needs more than there is
            lacking = max(self._uncovered(held), min(lacking, self._budget.free))
        taken = self._budget.take(lacking) if lacking > 0 else 0
        self.in_use += taken
        self._budget.want(max(0, lacking - taken), ready)

    def claim(self, held: int, room: int, *, ahead: bool) -> int:
        """Return how many claims to make: those with a permit each, or also `ahead` of runs."""
        if not (ahead and self._may_claim_ahead):
            room = min(room, max(0, -self._uncovered(held)))
        self._coming += room
        return room

    def note(self, asked: int, claimed: int, held: int) -> None:
        """Take in how much of what `take` allowed was claimed; other permits go back."""
        self.work_waits = 0 < asked <= claimed
        self._coming -= asked
        self.keep(held + min(asked, claimed), used=False)

    def keep(self, held: int, *, used: bool) -> None:
        """Give back the permits that so many claims do not need; `used` if a run had them."""
        if (spare := -self._uncovered(held)) > 0:
            self.in_use -= spare
            self._budget.give_back(spare, used=used)

    def close(self, running: int) -> None:
        """Give back all but those of runs that have not ended."""
        self.work_waits, self._coming = False, 0
        self._budget.want(0, lambda: None)
        self.keep(running, used=False)

    def _uncovered(self, held: int, room: int = 0) -> int:
        """Permits that lack for so many claims; below 0, permits that are not needed."""
        return min(held + room + self._coming, self._slots) - self.in_use

    @property
    def _may_claim_ahead(self) -> bool:
        """Whether there are permits that others are not to have now."""
        return self.in_use > 0 and self._budget.serves_ahead
