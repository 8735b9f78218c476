"""How many replicas of consumers there should be.

Three measures propose a number: the backlog, the rate of arrivals and the service targets. The
largest wins. More are wanted at once, fewer only after fewer were proposed for a while.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.messaging.model import Scaling

Measure = Literal["backlog", "rate", "slo", "min", "max", "recent", "idle"]
"""What decided: a proposal, a bound, a recent larger proposal, or that nothing is to be done."""


class ClassLoad(Struct, frozen=True, kw_only=True):
    """What waits of a class that has a service target."""

    slo: float
    waiting: int
    oldest_age: float
    hold: float
    """Seconds that a handler has a message of it, on average."""


class ConsumersLoad(Struct, frozen=True, kw_only=True):
    """What consumers have to do, over all their sources."""

    active: int
    locked: int
    arrivals_per_second: float
    hold: float
    concurrency: int
    """Slots of one replica."""
    classes: tuple[ClassLoad, ...] = ()
    idle_for: float = 0.0
    """Seconds since anything was active or locked."""


class Proposal(Struct, frozen=True):
    """A number of replicas, and the measure that asks for it."""

    value: int
    by: Measure


class Recent(Struct, frozen=True):
    """A number that was proposed `at` seconds on any clock that does not go back."""

    at: float
    value: int


def propose(load: ConsumersLoad, scaling: Scaling) -> Proposal:
    """Return the largest number that a measure asks for, without bounds."""
    proposals = {"backlog": _backlog, "rate": _rate, "slo": _targets}
    found = [Proposal(proposals[by](load, scaling), by) for by in scaling.by]
    return max(found, key=lambda one: one.value)


def desired(
    load: ConsumersLoad, scaling: Scaling, recent: Sequence[Recent], now: float
) -> tuple[Proposal, tuple[Recent, ...]]:
    """Return how many replicas there should be, and the proposals to remember.

    None at all are wanted only if `min_replicas` is 0 and there was nothing to do for `cooldown`.
    """
    wanted = propose(load, scaling)
    kept = tuple(one for one in recent if one.at > now - scaling.cooldown)
    kept = (*kept, Recent(now, wanted.value))
    most = max(one.value for one in kept)
    if most > wanted.value:
        wanted = Proposal(most, "recent")
    busy = load.active + load.locked > 0 or load.idle_for < scaling.cooldown
    if scaling.min_replicas == 0 and not busy:
        return Proposal(0, "idle"), kept
    low = max(scaling.min_replicas, 1)
    if wanted.value < low:
        wanted = Proposal(low, "min")
    elif wanted.value > scaling.max_replicas:
        wanted = Proposal(scaling.max_replicas, "max")
    return wanted, kept


def checked(scaling: Scaling) -> Scaling:
    """Return settings that can be used, or refuse them by name."""
    if not 0 <= scaling.min_replicas <= scaling.max_replicas or scaling.max_replicas < 1:
        raise InvalidValue(
            f"there are {scaling.min_replicas} to {scaling.max_replicas} replicas to choose from;"
            " min_replicas must be at least 0, and max_replicas at least 1 and not less than it",
            pointer="min_replicas",
        )
    faults = {
        "by must name at least one of backlog, rate and slo": not (
            scaling.by and set(scaling.by) <= {"backlog", "rate", "slo"}
        ),
        "target_per_replica must be more than 0": not scaling.target_per_replica > 0,
        "utilization must be more than 0 and at most 1": not 0 < scaling.utilization <= 1,
        "cooldown must be at least 0 seconds": not scaling.cooldown >= 0,
    }
    for fault, there in faults.items():
        if there:
            field = fault.split(maxsplit=1)[0]
            raise InvalidValue(f"{fault}, not {getattr(scaling, field)!r}", pointer=field)
    return scaling


def _backlog(load: ConsumersLoad, scaling: Scaling) -> int:
    return math.ceil((load.active + load.locked) / scaling.target_per_replica)


def _rate(load: ConsumersLoad, scaling: Scaling) -> int:
    busy = load.arrivals_per_second * load.hold
    return math.ceil(busy / (load.concurrency * scaling.utilization))


def _targets(load: ConsumersLoad, scaling: Scaling) -> int:
    needed = (
        one.waiting * one.hold / (load.concurrency * max(one.slo - one.oldest_age, one.hold))
        for one in load.classes
        if one.waiting and one.hold > 0
    )
    return max(map(math.ceil, needed), default=0)
