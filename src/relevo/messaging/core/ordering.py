"""The order of waiting messages: every policy is a tier of the class and a stored rank.

    rank(Aging(), HIGH, priority=8, arrived=now)  # smaller is served first

A claim compares (tier, rank, sequence number). The rank of a message never changes while it waits,
so one index serves every policy; the tier follows from its class and is not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.messaging.model import Aging, Deadline, Fifo, Strict, Weighted

if TYPE_CHECKING:
    from relevo.messaging.model import Ordering, PriorityClass

MICROS: Final = 1_000_000
SECONDS_PER_LEVEL_MAX: Final = 10 * 366 * 86_400.0
FLOOR_SHARE_MAX: Final = 0.5
FAIR: Final = (Strict, Weighted)
"""The policies that can be fair between tenants: the others rank by time."""


class Claimable(Struct, frozen=True, order=True):
    """A message that a claim may take, as the claim index has it."""

    rank: int
    sequence: int
    fairness_key: str = ""


def rank(
    ordering: Ordering, of: PriorityClass, *, priority: int, arrived: int, tag: int | None = None
) -> int:
    """Return the stored rank of a message of a class, which arrived at a microsecond.

    `tag` is what `fairness.py` gave it, for entities that are fair between tenants: then it is the
    rank, and its class is as one priority.
    """
    if tag is not None:
        return tag
    by_time = arrived if isinstance(ordering, Aging | Deadline) else 0
    return by_time + offset(ordering, of) - priority * step(ordering)


def step(ordering: Ordering) -> int:
    """Return by how much a level of priority lowers the rank."""
    match ordering:
        case Strict():
            return 1
        case Aging(seconds_per_level=seconds):
            return round(seconds * MICROS)
        case Fifo() | Weighted() | Deadline():
            return 0
        case _:
            assert_never(ordering)


def offset(ordering: Ordering, of: PriorityClass) -> int:
    """Return what the class adds to the rank."""
    if isinstance(ordering, Deadline):
        return round((ordering.otherwise if of.slo is None else of.slo) * MICROS)
    return 0


def tier(ordering: Ordering, of: PriorityClass, *, fair: bool = False) -> int:
    """Return the tier of a class: all messages of a lower one are served first."""
    match ordering:
        case Aging():
            return 0 if of.express else 1
        case Strict():
            return -of.base if fair else 0
        case Fifo() | Deadline() | Weighted():
            return 0
        case _:
            assert_never(ordering)


def checked(ordering: Ordering, *, fair: bool = False) -> Ordering:
    """Return a policy that can be used, or refuse it by name."""
    match ordering:
        case Aging(seconds_per_level=seconds, floor_share=share):
            _between("ordering/seconds_per_level", seconds, 0.0, SECONDS_PER_LEVEL_MAX)
            _between("ordering/floor_share", share, 0.0, FLOOR_SHARE_MAX)
        case Deadline(otherwise=otherwise):
            _between("ordering/otherwise", otherwise, 0.0, SECONDS_PER_LEVEL_MAX)
        case Fifo() | Strict() | Weighted():
            pass
        case _:
            raise InvalidValue(
                f"ordering is {ordering!r}; it must be one of Aging(), Strict(), Fifo(), Deadline()"
                " and Weighted()",
                pointer="ordering",
            )
    if fair and not isinstance(ordering, FAIR):
        raise InvalidValue(
            f"fair=True does not fit the ordering {type(ordering).__name__}, which ranks by time;"
            " use Strict() or Weighted()",
            pointer="fair",
        )
    return ordering


def _between(what: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also what is not a number
        raise InvalidValue(
            f"{what} is {value!r}; it must be from {low:g} to {high:g}", pointer=what
        )
