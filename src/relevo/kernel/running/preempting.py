"""Which running handler is asked to make room for waiting work that is more urgent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


class PreemptionRules(Protocol):
    """When a handler may be asked."""

    @property
    def gap(self) -> int:
        """Levels between the waiting and the running work, at least."""

    @property
    def min_run(self) -> float:
        """Seconds that a handler is left alone first."""

    @property
    def max_preemptions(self) -> int:
        """How often the same work makes room."""


class RunningWork(Struct, frozen=True):
    """Work that a handler has."""

    key: Any
    level: int
    """Its priority; higher is more urgent."""
    elapsed: float
    """Seconds since its handler began."""
    preempt_count: int = 0
    asked: bool = False
    """Whether it was asked already."""


R = TypeVar("R", bound=RunningWork)


def choose_victim(level: int, running: Sequence[R], rules: PreemptionRules) -> R | None:
    """Return the work whose handler makes room for work of a level, if there is any.

    The lowest level, and of that the handler that has run for the shortest time loses least.
    """
    candidates = [
        one
        for one in running
        if level - one.level >= rules.gap
        and one.elapsed >= rules.min_run
        and one.preempt_count < rules.max_preemptions
        and not one.asked
    ]
    return min(candidates, key=lambda one: (one.level, one.elapsed, one.key), default=None)


def choose_victims(
    levels: Sequence[int], running: Sequence[R], rules: PreemptionRules
) -> list[R | None]:
    """Return a victim for each level of waiting work, which has no slot; none is asked twice."""
    left, victims = list(running), list[R | None]()
    for level in levels:
        victim = choose_victim(level, left, rules)
        victims.append(victim)
        left = [one for one in left if one is not victim]
    return victims
