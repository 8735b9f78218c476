"""Which running handler is asked to suspend for a waiting message of a higher class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.kernel.running import preempting
from relevo.kernel.running.preempting import RunningWork
from relevo.messaging.model import PriorityClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.messaging.model import Preemption


class RunningMessage(Struct, frozen=True):
    """A message that a handler of the consumers has, on any host."""

    sequence: int
    of: PriorityClass
    elapsed: float
    """Seconds since its handler began."""
    preempt_count: int = 0
    asked: bool = False
    """Whether it was asked already."""


def choose_victim(
    waiting: PriorityClass, running: Sequence[RunningMessage], rules: Preemption
) -> RunningMessage | None:
    """Return the message whose handler suspends for one of class `waiting`, if there is one.

    The lowest class, and of that the handler that has run for the shortest time loses least.
    """
    if not waiting.preempts:
        return None
    able = {one.sequence: one for one in running if one.of.preemptible}
    work = [
        RunningWork(one.sequence, one.of.base, one.elapsed, one.preempt_count, one.asked)
        for one in able.values()
    ]
    victim = preempting.choose_victim(waiting.base, work, rules)
    return None if victim is None else able[victim.key]


def choose_victims(
    waiting: Sequence[PriorityClass], running: Sequence[RunningMessage], rules: Preemption
) -> list[RunningMessage | None]:
    """Return a victim for each of the waiting messages, which have no slot; none is asked twice."""
    left, victims = list(running), []
    for of in waiting:
        victim = choose_victim(of, left, rules)
        victims.append(victim)
        left = [one for one in left if one is not victim]
    return victims


def checked(rules: Preemption, *, process: bool) -> Preemption:
    """Return rules that can be used, or refuse them by name."""
    for field in ("gap", "min_run", "max_preemptions", "grace"):
        if not getattr(rules, field) >= 0:
            raise InvalidValue(
                f"preempt.{field} is {getattr(rules, field)!r}; it must not be negative",
                pointer=f"preempt/{field}",
            )
    if rules.mode not in ("cooperative", "kill"):
        raise InvalidValue(
            f"preempt.mode is {rules.mode!r}; it must be cooperative or kill",
            pointer="preempt/mode",
        )
    if rules.mode == "kill" and not process:
        raise InvalidValue(
            "preempt.mode is 'kill', which ends the process of a handler; set process=True, or use"
            " 'cooperative'",
            pointer="preempt/mode",
        )
    return rules
