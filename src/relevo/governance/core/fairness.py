"""Who is served next: keys take turns, whatever each of them asks for.

    queue = FairQueue(per_key=5)
    queue.add(Waiter(number=1, key="acme", since=0.0))
    queue.next(free=1, now=0.0)  # Waiter(number=1, ...)

It is deficit round robin without rounds. Each key has a tag: the weight it was granted, counted
from where the others stood when it began to wait. The key with the smallest tag goes next, so with
k keys waiting each gets a grant within 2k grants of equal weight.

Within a key a higher priority goes first, and equal ones in the order of their arrival. Who waits
ages into the next priority, so none waits for ever. A priority never overtakes another key.

A waiter too heavy for what is free lets others pass until they got as much as it asks for; then
everything is kept for it. So permits do not idle, and heavy waiters do not starve.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIORITY_MAX: Final = 9
AGEING_SECONDS: Final = 5.0
"""After how long a waiter counts as one of the next priority."""
KEYS_KEPT: Final = 1_000
"""So many keys without waiters are remembered before any are forgotten."""


class Waiter(Struct, frozen=True, gc=False):
    """A request that waits; `number` tells it from all others and grows."""

    number: int
    key: str
    since: float
    weight: int = 1
    priority: int = 4

    def urgency(self, now: float) -> int:
        """Return the priority, with what it has gained by waiting."""
        aged = int(max(0.0, now - self.since) / AGEING_SECONDS)
        return min(PRIORITY_MAX, self.priority + aged)


class _Key:
    """The waiters of a key, its turn, and what it holds."""

    __slots__ = ("held", "passed", "queues", "tag", "turn", "waiting")

    def __init__(self, tag: int) -> None:
        self.tag = tag
        self.turn = 0
        """The place among keys of equal tags; 0 if it is in no turn."""
        self.held = 0
        self.passed = 0
        """Weight that others got while its first waiter did not fit."""
        self.waiting = 0
        self.queues: dict[int, deque[Waiter]] = {}

    def first(self, now: float) -> Waiter:
        heads = (queue[0] for queue in self.queues.values())
        return min(heads, key=lambda waiter: (-waiter.urgency(now), waiter.number))

    def add(self, waiter: Waiter) -> None:
        self.queues.setdefault(waiter.priority, deque()).append(waiter)
        self.waiting += 1

    def remove(self, waiter: Waiter) -> None:
        queue = self.queues[waiter.priority]
        if queue[0] is waiter:
            queue.popleft()
        else:
            queue.remove(waiter)
        if not queue:
            del self.queues[waiter.priority]
        self.waiting -= 1


class FairQueue:
    """Waiters by key, and what each key holds; says who is next.

    `per_key` is the weight that a key may hold, None is no cap. With `burst` a key may hold more
    while no other key waits.
    """

    def __init__(self, *, per_key: int | None = None, burst: bool = False) -> None:
        self._per_key = per_key
        self._burst = burst
        self._keys: dict[str, _Key] = {}
        self._waiters: dict[int, Waiter] = {}
        self._turns: list[tuple[int, int, str]] = []
        """A heap of (tag, turn, key); an entry whose turn is not the key's is void."""
        self._turn = 0
        self._keys_max = KEYS_KEPT
        self._floor = 0
        """The tag of the last grant: where a key begins that did not wait."""
        self._waiting_keys = 0

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._waiters.values())

    def __contains__(self, number: int) -> bool:
        return number in self._waiters

    @property
    def waiting_keys(self) -> int:
        """How many keys have waiters."""
        return self._waiting_keys

    def held(self, key: str) -> int:
        """Return the weight that a key holds."""
        known = self._keys.get(key)
        return 0 if known is None else known.held

    def set_cap(self, per_key: int | None, *, burst: bool) -> None:
        """Change the cap of every key; what is held stays."""
        self._per_key, self._burst = per_key, burst
        for name, key in self._keys.items():
            self._uncap(name, key)

    def add(self, waiter: Waiter) -> None:
        """Put a waiter behind those of its key."""
        if len(self._keys) >= self._keys_max:
            self._forget_idle()
        key = self._keys.setdefault(waiter.key, _Key(self._floor))
        if not key.waiting:
            key.tag, key.passed = max(key.tag, self._floor), 0
            self._waiting_keys += 1
        key.add(waiter)
        self._waiters[waiter.number] = waiter
        self._queue_turn(waiter.key, key)

    def cancel(self, number: int) -> bool:
        """Remove a waiter; whether it was there."""
        waiter = self._waiters.get(number)
        if waiter is None:
            return False
        self._remove(waiter)
        return True

    def take(self, key: str, weight: int) -> None:
        """Note that a key holds more: granted, or known from before."""
        self._keys.setdefault(key, _Key(self._floor)).held += weight

    def release(self, key: str, weight: int) -> None:
        """Note that a key holds less."""
        known = self._keys.get(key)
        if known is None:
            return
        known.held = max(0, known.held - weight)
        self._uncap(key, known)
        self._forget(key, known)

    def next(self, free: int, now: float) -> Waiter | None:
        """Take out who is served next, if so much is free; its key then holds its weight."""
        aside: list[str] = []
        chosen: Waiter | None = None
        while chosen is None and (name := self._pop_turn()) is not None:
            key = self._keys[name]
            waiter = key.first(now)
            if self._is_capped(key, waiter):
                continue  # its turn comes back with a release
            aside.append(name)
            if waiter.weight <= free:
                chosen = waiter
            elif key.passed >= waiter.weight:
                break  # enough have passed: everything is kept for it
        if chosen is not None:
            self._grant(chosen, passed=[name for name in aside if name != chosen.key])
        for name in aside:
            if (left := self._keys.get(name)) is not None:
                self._queue_turn(name, left)
        return chosen

    def _grant(self, waiter: Waiter, passed: list[str]) -> None:
        key = self._keys[waiter.key]
        for name in passed:
            self._keys[name].passed += waiter.weight
        key.passed = 0
        self._floor = max(self._floor, key.tag)
        key.tag += waiter.weight
        key.held += waiter.weight
        self._remove(waiter)

    def _remove(self, waiter: Waiter) -> None:
        del self._waiters[waiter.number]
        key = self._keys[waiter.key]
        key.remove(waiter)
        if key.waiting:
            return
        key.turn = 0
        self._waiting_keys -= 1
        if self._burst and self._waiting_keys == 1:  # the key that is left may hold more
            name = next(iter(self._waiters.values())).key
            self._uncap(name, self._keys[name])
        self._forget(waiter.key, key)

    def _forget(self, name: str, key: _Key) -> None:
        if not key.waiting and not key.held and key.tag <= self._floor:
            del self._keys[name]

    def _forget_idle(self) -> None:
        """Forget keys whose past does not matter; if nobody waits, that is the past of all."""
        for name, key in list(self._keys.items()):
            if not self._waiters and not key.held:
                del self._keys[name]
            else:
                self._forget(name, key)
        self._keys_max = 2 * len(self._keys) + KEYS_KEPT

    def _is_capped(self, key: _Key, waiter: Waiter) -> bool:
        if self._per_key is None or key.held + waiter.weight <= self._per_key:
            return False
        return not (self._burst and self._waiting_keys == 1)

    def _uncap(self, name: str, key: _Key) -> None:
        """Give a key its turn back; while it was capped it saved nothing up."""
        if key.waiting and not key.turn:
            key.tag = max(key.tag, self._floor)
            self._queue_turn(name, key)

    def _queue_turn(self, name: str, key: _Key) -> None:
        if not key.waiting or key.turn:
            return
        if len(self._turns) > 2 * len(self._keys) + KEYS_KEPT:  # most of them are void
            self._turns = [entry for entry in self._turns if self._is_valid(entry)]
            heapq.heapify(self._turns)
        self._turn += 1
        key.turn = self._turn
        heapq.heappush(self._turns, (key.tag, key.turn, name))

    def _is_valid(self, entry: tuple[int, int, str]) -> bool:
        key = self._keys.get(entry[2])
        return key is not None and key.turn == entry[1]

    def _pop_turn(self) -> str | None:
        while self._turns:
            entry = heapq.heappop(self._turns)
            if self._is_valid(entry):
                self._keys[entry[2]].turn = 0
                return entry[2]
        return None
