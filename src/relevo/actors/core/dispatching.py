"""Which activation of a stateless type takes which call. Pure.

All activations of a type share one queue and one bound. Calls that name their activations are apart
from others, so the queue is kept by name.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from msgspec import Struct

from relevo.errors import MailboxFull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class QueuedCall(Protocol):
    """A call in the queue."""

    name: str
    """Of the activations that may take it."""
    is_queued: bool


C = TypeVar("C", bound=QueuedCall)


class SharedQueue(Generic[C]):
    """Calls that wait, in the order of arrival, by the name of their activations."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_name: dict[str, deque[tuple[int, C]]] = {}
        self._arrivals = 0
        self.calls = 0
        """Calls that wait."""

    def add(self, call: C) -> None:
        """Let a call wait; raises `MailboxFull`."""
        if self.calls >= self._limit:
            raise MailboxFull(
                f"{self.calls:,} calls wait for this type, and no more may; try later"
            )
        self._arrivals += 1
        self.calls += 1
        call.is_queued = True
        self._by_name.setdefault(call.name, deque()).append((self._arrivals, call))

    def remove(self, call: C) -> None:
        """Take out a call that nobody waits for any more."""
        if call.is_queued:
            call.is_queued = False
            self.calls -= 1

    def names(self) -> list[str]:
        """Return the names with calls; the one whose first call is the oldest comes first."""
        for name, calls in list(self._by_name.items()):
            while calls and not calls[0][1].is_queued:
                calls.popleft()
            if not calls:
                del self._by_name[name]
        return sorted(self._by_name, key=lambda name: self._by_name[name][0][0])

    def take(self, name: str) -> C:
        """Take out the first call of a name that `names` returned."""
        _, call = self._by_name[name].popleft()
        self.remove(call)
        return call

    def take_all(self, name: str | None = None) -> list[C]:
        """Take out all calls, or all of a name, in the order of arrival."""
        found = sorted(
            (number, call)
            for each, calls in self._by_name.items() if name in (None, each)
            for number, call in calls if call.is_queued
        )  # fmt: skip
        for _, call in found:
            self.remove(call)
        return [call for _, call in found]


class Worker(Protocol):
    """An activation, as the choice sees it."""

    @property
    def name(self) -> str:
        """Whose calls it takes."""

    @property
    def is_free(self) -> bool:
        """Whether it would begin a call at once."""

    @property
    def is_leaving(self) -> bool:
        """Whether it ends and makes room for another."""


W = TypeVar("W", bound=Worker)


class Step(Struct, Generic[W], frozen=True):
    """What happens next: an activation takes a call, is made for it, or leaves for its sake."""

    action: Literal["give", "make", "evict"]
    name: str
    worker: W | None = None
    """The activation that takes the call, or leaves."""


def next_step(
    names: Sequence[str], workers: Sequence[W], most: int, may_make: Callable[[str], bool]
) -> Step[W] | None:
    """Return what happens next, or None if all that waits has to wait on.

    `names` are those of `SharedQueue.names`, `workers` the activations in the order in which they
    were made, `most` how many there may be. The first free activation takes a call; a new one is
    made only if none is free. At the bound an idle one of another name leaves, and for a name that
    has none also one for which calls wait: so no name waits for ever.
    """
    leaving = sum(one.is_leaving for one in workers)
    for name in names:
        own = [one for one in workers if one.name == name and not one.is_leaving]
        free = next((one for one in own if one.is_free), None)
        if free is not None:
            return Step("give", name, free)
        if not may_make(name):
            continue
        if len(workers) < most:
            return Step("make", name)
        if leaving:
            leaving -= 1  # its place is for this name
            continue
        spare = [
            one for one in workers
            if one.is_free and one.name != name and (not own or one.name not in names)
        ]  # fmt: skip
        if spare:
            return Step("evict", name, spare[-1])
    return None
