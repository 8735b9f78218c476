"""The actor that is a rate limit: what it admits is stored as spent before it is answered.

So the limit holds across restarts. The rules are in `core/windows.py`. Each key has windows of its
own; who waits for one key is served in the order of arrival.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.errors import NotFound, SettingsMismatch
from relevo.governance.actors.charged_ids import ChargedCost, ChargedIds
from relevo.governance.actors.gates import GateActor
from relevo.governance.calls.changes import PutOutcome  # noqa: TC001 - read when it runs
from relevo.governance.calls.limit_calls import (
    LEND_SECONDS,
    Admission,
    CostAsk,
    LimitOptions,
    LimitView,
)
from relevo.governance.core.buckets import Buckets
from relevo.governance.core.windows import Windows, WindowsState
from relevo.governance.errors import PoolExhausted
from relevo.governance.operating import events

if TYPE_CHECKING:
    from relevo.actors import Deferred

WAITERS_MAX: Final = 10_000
TIDY_SECONDS: Final = 60.0
FORGET_SECONDS: Final = 0.1
"""After what time the next old ids are deleted."""


class LimitState(Struct):
    """What is stored of a limit, beside what its keys have spent."""

    declared: LimitOptions | None = None
    options: LimitOptions | None = None


class _CostWaiter:
    __slots__ = ("ask", "deferred", "until")

    def __init__(self, ask: CostAsk, deferred: Deferred[Admission], until: float) -> None:
        self.ask = ask
        self.deferred = deferred
        self.until = until


class LimitActor(GateActor[LimitState]):
    """Admits costs of the rates of one limit."""

    async def on_activate(self) -> None:
        self._spent = self.map("spent", WindowsState)
        self._ids = ChargedIds(self.map("charged", ChargedCost))
        self._queues: dict[str, deque[_CostWaiter]] = {}
        self._waiting: dict[str, _CostWaiter] = {}
        self._buckets: Buckets | None = None
        self.admitted = self.refused = 0.0
        """Costs, while it is in memory."""
        self.timers.set("tidy", self._tidy, every=TIDY_SECONDS)
        if (options := self.state.options) is not None:
            self._buckets = Buckets(options.rates, options.burst)

    @property
    def buckets(self) -> Buckets | None:
        """What there is to measure; None if it was removed."""
        return self._buckets

    @property
    def waiting(self) -> int:
        """How many wait to be admitted."""
        return len(self._waiting)

    def _known(self) -> Buckets:
        if self._buckets is None:
            raise NotFound(f"there is no limit {self.ctx.key!r}")
        return self._buckets

    async def declare(self, options: LimitOptions) -> None:
        if self._buckets is None:
            self._buckets = Buckets(options.rates, options.burst)
            self.state.declared = self.state.options = options
            self.log_change(events.LIMIT_CREATED)
        elif options not in (self.state.declared, self.state.options):
            raise SettingsMismatch(
                f"limit {self.ctx.key!r} exists with {_shown(self.state.options)}, and this"
                f" program declares {_shown(options)}; declare the same, or change the limit"
                " with change"
            )

    async def put(self, options: LimitOptions) -> PutOutcome:
        if self._buckets is None:
            await self.declare(options)
            return "created"
        return "changed" if await self.change(options) else "same"

    async def remove(self) -> bool:
        if self._buckets is None:
            return False
        await self.cancel(list(self._waiting))
        self._queues.clear()
        self._buckets = None
        self.state.declared = self.state.options = None
        self.log_change(events.LIMIT_DELETED)
        return True

    async def ask(self, ask: CostAsk) -> Any:
        await self.check_generation(ask.seen)
        now = await self.kit.clock.now()
        windows = await self._windows(ask.key, now)
        if (repeated := await self._ids.admitted(ask, now)) is not None:
            return repeated
        self._ids.check_room(ask, now)
        queue = self._queues.get(ask.key)
        admission = self._admit(windows, ask, now) if not queue else None
        if admission is not None and admission:
            await self._ids.note(ask, now)
            await self._store(ask.key, windows)
            return admission
        wait = windows.wait(1.0 if ask.lend else ask.cost, now)
        if ask.wait <= 0:
            self.refused += ask.cost
            return Admission(0.0, wait)
        if len(self._waiting) >= WAITERS_MAX:
            raise PoolExhausted(
                f"{WAITERS_MAX} callers wait for limit {self.ctx.key!r} already; try again later"
            )
        deferred: Deferred[Admission] = self.defer()
        waiter = _CostWaiter(ask, deferred, now + ask.wait)
        self._queues.setdefault(ask.key, deque()).append(waiter)
        self._waiting[ask.ticket] = waiter
        if not queue:
            self._come_back(ask.key, wait)
        return deferred

    def _admit(self, windows: Windows, ask: CostAsk, now: float) -> Admission:
        if ask.lend:
            windows.wait(1.0, now)
            lent = windows.lend(ask.cost, now, seconds=LEND_SECONDS)
            self.admitted += lent
            return Admission(lent, valid_until=now + LEND_SECONDS)
        wait = windows.admit(ask.cost, now)
        if wait:
            return Admission(0.0, wait)
        self.admitted += ask.cost
        return Admission(ask.cost)

    async def _windows(self, key: str, now: float) -> Windows:
        buckets = self._known()
        if key not in buckets and (stored := await self._spent.get(_entry(key))) is not None:
            buckets.put(key, Windows.restored(stored, now))
        return buckets.of(key, now)

    async def _store(self, key: str, windows: Windows) -> None:
        await self._spent.set(_entry(key), windows.state())

    def _come_back(self, key: str, seconds: float) -> None:
        self.timers.set(f"serve {key}", self._serve, key, after=max(0.001, seconds))

    async def _serve(self, key: str) -> None:
        """Admit those of a key who wait, as far as it goes."""
        queue, now = self._queues.get(key), await self.kit.clock.now()
        if queue is None:
            return
        windows, admitted, wait = await self._windows(key, now), False, 0.0
        while queue:
            waiter = queue[0]
            if waiter.deferred.is_over or waiter.until <= now:
                self._leave(queue.popleft(), Admission(0.0, 0.0))
                continue
            admission = await self._ids.admitted(waiter.ask, now)
            if admission is None:
                admission = self._admit(windows, waiter.ask, now)
                if not admission:
                    wait = windows.wait(1.0 if waiter.ask.lend else waiter.ask.cost, now)
                    break
                await self._ids.note(waiter.ask, now)
                admitted = True
            self._leave(queue.popleft(), admission)
        if admitted:
            await self._store(key, windows)
        if queue:
            self._come_back(key, wait)
        else:
            del self._queues[key]

    def _leave(self, waiter: _CostWaiter, admission: Admission) -> None:
        self._waiting.pop(waiter.ask.ticket, None)
        waiter.deferred.resolve(admission)

    async def cancel(self, tickets: list[str]) -> None:
        for ticket in tickets:
            waiter = self._waiting.pop(ticket, None)
            if waiter is not None:
                waiter.deferred.resolve(Admission(0.0, 0.0))
                queue = self._queues[waiter.ask.key]
                queue.remove(waiter)
                self._come_back(waiter.ask.key, 0.0)

    async def change(self, options: LimitOptions) -> bool:
        buckets = self._known()
        if options == self.state.options:
            return False
        buckets.change(options.rates, options.burst)
        self.state.options = options
        self.log_change(events.LIMIT_CHANGED)
        for key in self._queues:
            self._come_back(key, 0.0)
        return True

    async def view(self) -> LimitView:
        buckets = self._known()
        assert self.state.options is not None
        return LimitView(self.state.options, len(buckets), len(self._waiting))

    async def _tidy(self) -> None:
        if self._buckets is not None:
            for key in self._buckets.forget_idle(await self.kit.clock.now()):
                await self._spent.delete(_entry(key))
        if await self._ids.forget(await self.kit.clock.now()):
            self.timers.set("forget", self._tidy, after=FORGET_SECONDS)


def _entry(key: str) -> str:
    return f"key {key}"


def _shown(options: LimitOptions | None) -> str:
    if options is None:
        return "nothing"
    rates = ", ".join(f"{rate.amount:g} per {rate.per:g} s" for rate in options.rates)
    return f"{rates}, burst={options.burst:g}"
