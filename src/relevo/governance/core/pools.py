"""A pool: its permits, and who waits for one.

Every method returns the grants that follow, in order; the pool actor stores them before it
answers.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.governance.core.fairness import PRIORITY_MAX, FairQueue, Waiter
from relevo.governance.core.permits import Holder, Permit, PermitLedger
from relevo.governance.errors import PoolExhausted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

WAITERS_MAX: Final = 10_000


class PoolOptions(Struct, frozen=True, kw_only=True):
    """How a pool grants; `size` counts unless there are `items`."""

    size: int = 0
    items: tuple[str, ...] | None = None
    per_key: int | None = None
    burst: bool = False
    max_waiters: int = WAITERS_MAX


def shown_options(options: PoolOptions | None) -> str:
    """Return options as a message shows them."""
    if options is None:
        return "nothing"
    size = f"size={options.size}" if options.items is None else f"{len(options.items)} items"
    return f"{size}, per_key={options.per_key}, burst={options.burst}"


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """What a caller asks a pool for."""

    key: str = ""
    weight: int = 1
    priority: int = 4
    holder: Holder = Holder()
    ttl: float | None = None
    """Seconds that the permit is valid without renewal; None for a host, whose life it shares."""
    chunk: str | None = None
    """The chunk that is to grow by it, instead of a permit of its own."""


class Grant(Struct, frozen=True):
    """The permit for the waiter of a number."""

    waiter: int
    permit: Permit
    chunk: str | None = None
    """The chunk that has grown; the permit is the whole of it."""


class WaitingKey(Struct, frozen=True):
    """A key that waits for permits of a pool."""

    key: str
    callers: int
    weight: int
    """What they ask for together."""
    seconds: float
    """How long the first of them has waited."""


class Pool:
    """Grants permits to waiters in their turns, never more than the size."""

    def __init__(self, options: PoolOptions, ledger: PermitLedger | None = None) -> None:
        self.options = options
        if ledger is None:
            ledger = PermitLedger(options.size, items=options.items)
        self.ledger = ledger
        self._queue = FairQueue(per_key=options.per_key, burst=options.burst)
        self._requests: dict[int, Request] = {}
        self._number = 0
        self.chunks: dict[str, int] = {}
        """Permits that are chunks, by the name that their host gave them."""
        for permit in self.ledger:
            self._queue.take(permit.key, permit.weight)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    @property
    def waiting_weight(self) -> int:
        """How much they wait for."""
        return sum(waiter.weight for waiter in self._queue)

    def waiting_keys(self, now: float, limit: int) -> tuple[WaitingKey, ...]:
        """Return the keys that wait; those that have waited longest first."""
        keys: dict[str, list[Waiter]] = {}
        for waiter in self._queue:  # in the order of their arrival
            keys.setdefault(waiter.key, []).append(waiter)
        return tuple(
            WaitingKey(
                key, len(waiters), sum(one.weight for one in waiters),
                round(max(0.0, now - waiters[0].since), 3),
            )
            for key, waiters in islice(keys.items(), limit)
        )  # fmt: skip

    def ask(self, request: Request, now: float) -> tuple[int, list[Grant]]:
        """Take in a request; returns its number, and the grants that follow.

        Raises `PoolExhausted` if it would wait and as many wait as may, and `InvalidValue` for a
        weight that is never granted.
        """
        self.check(request.weight, request.priority)
        self._number += 1
        number = self._number
        self._requests[number] = request
        self._queue.add(Waiter(number, request.key, now, request.weight, request.priority))
        grants = self._serve(now)
        if number in self._queue and len(self._queue) > self.options.max_waiters:
            self.cancel(number)
            raise PoolExhausted(
                f"{self.options.max_waiters} callers wait for the pool already; try again later,"
                " or raise max_waiters"
            )
        return number, grants

    def check(self, weight: int, priority: int) -> None:
        """Raise `InvalidValue` for what is never granted."""
        most = self.ledger.size if self.options.per_key is None else self.options.per_key
        most = 1 if self.options.items is not None else most
        if not 1 <= weight <= max(1, most):
            raise InvalidValue(
                f"weight is {weight}; this pool grants 1 to {max(1, most)} at once",
                pointer="weight",
            )
        if not 0 <= priority <= PRIORITY_MAX:
            raise InvalidValue(
                f"priority is {priority}; it must be from 0 to {PRIORITY_MAX}",
                pointer="priority",
            )

    def cancel(self, number: int) -> bool:
        """Remove a waiter who has gone; whether it was still waiting."""
        self._requests.pop(number, None)
        return self._queue.cancel(number)

    def release(self, numbers: Iterable[int], now: float) -> list[Grant]:
        """Take permits back; those that are back already are nothing new."""
        return self._freed([self.ledger.release(number) for number in numbers], now)

    def tick(self, now: float, ended: Collection[str] = ()) -> list[Grant]:
        """Take back what has expired, and what belonged to lives of hosts that have ended."""
        return self._freed([*self.ledger.expire(now), *self.ledger.end_hosts(ended)], now)

    def chunk(self, name: str) -> Permit | None:
        """Return the permit that is a chunk; None if nothing of it is lent."""
        number = self.chunks.get(name)
        permit = None if number is None else self.ledger.get(number)
        if permit is None:
            self.chunks.pop(name, None)
        return permit

    def return_chunk(self, name: str, weight: int, now: float) -> list[Grant]:
        """A host returns a part of a chunk."""
        before = self.chunk(name)
        if before is None:
            return []
        after = self.ledger.resize_chunk(before.number, before.weight - weight)
        if after is not None:
            self._queue.release(before.key, before.weight - after.weight)
        return self._serve(now)

    def extend_chunk(self, name: str, weight: int) -> int:
        """Lend a host more than it needs, as far as nobody waits; returns how much."""
        before = self.chunk(name)
        if before is None or self._queue:
            return 0
        if self.options.per_key is not None and not self.options.burst:
            weight = min(weight, self.options.per_key - self._queue.held(before.key))
        weight = min(weight, self.ledger.free)
        if weight <= 0:
            return 0
        self.ledger.resize_chunk(before.number, before.weight + weight)
        self._queue.take(before.key, weight)
        return weight

    def change(self, options: PoolOptions, now: float) -> list[Grant]:
        """Change size, items and caps; nothing is revoked."""
        if (options.items is None) != (self.options.items is None):
            raise InvalidValue("a pool either counts or has items; make another pool instead")
        if options.items is None:
            self.ledger.resize(options.size)
        else:
            self.ledger.set_items(options.items)
        self.options = options
        self._queue.set_cap(options.per_key, burst=options.burst)
        return self._serve(now)

    def _freed(self, permits: Iterable[Permit | None], now: float) -> list[Grant]:
        for permit in permits:
            if permit is not None:
                self._queue.release(permit.key, permit.weight)
        return self._serve(now)

    def _serve(self, now: float) -> list[Grant]:
        grants = []
        while (free := self.ledger.free) and (waiter := self._queue.next(free, now)) is not None:
            request = self._requests.pop(waiter.number)
            grants.append(Grant(waiter.number, self._permit_for(request, now), request.chunk))
        return grants

    def _permit_for(self, request: Request, now: float) -> Permit:
        """Grant what fits: the queue was asked for no more than is free."""
        lent = None if request.chunk is None else self.chunk(request.chunk)
        if lent is not None:
            permit = self.ledger.resize_chunk(lent.number, lent.weight + request.weight)
        else:
            expires_at = None if request.ttl is None else now + request.ttl
            permit = self.ledger.grant(
                request.key, request.weight, request.holder,
                expires_at=expires_at, chunk=request.chunk is not None,
            )  # fmt: skip
        assert permit is not None
        if request.chunk is not None:
            self.chunks[request.chunk] = permit.number
        return permit
