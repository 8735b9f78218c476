"""Who should own which lease: one host's plan, from one reading of a unit (change-feed 7.3).

Every host computes the same quotas from the same reading and only ever moves itself towards its
own: it takes what is free and asks those above their quota. Each lease so moved lowers the sum of
all needs by one and nothing in a plan raises it: the moves are the fewest possible, and once the
sum is zero every plan is empty.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from hashlib import blake2b
from heapq import heapify, heappop, heapreplace
from math import lcm
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from relevo.leases.model import LeaseView, Member, Plan, UnitSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["plan", "quotas"]


def quotas(
    unit: str, members: Sequence[Member], owned: Mapping[UUID, int], total: int
) -> dict[UUID, int]:
    """How many of `total` leases each host that takes part should own.

    Live members that are not draining take part; nobody else has a key. `owned` is n(i) of 7.3:
    it only decides who keeps the odd leases, so that a fulfilled result reproduces itself. The sum
    is `total` unless the maxima forbid it.
    """
    takers = {m.host: m for m in members if m.live and not m.draining}
    minima_fit = sum(m.min_leases for m in takers.values()) <= total
    quota = {host: m.min_leases if minima_fit else 0 for host, m in takers.items()}
    step = _steps(takers.values())
    digest = {host: _digest(unit, m.name) for host, m in takers.items()}

    def bid(host: UUID) -> tuple[int, int, bytes, UUID]:
        """The smallest bid gets the next lease."""
        has = quota[host]
        return has * step[host], has - owned.get(host, 0), digest[host], host

    bids = [bid(host) for host, m in takers.items() if _below_max(m, quota[host])]
    heapify(bids)
    for _ in range(total - sum(quota.values())):
        if not bids:
            break
        host = bids[0][-1]
        quota[host] += 1
        if _below_max(takers[host], quota[host]):
            heapreplace(bids, bid(host))
        else:
            heappop(bids)
    return quota


def plan(
    me: UUID,
    unit: str,
    settings: UnitSettings,
    interval: float,
    members: Sequence[Member],
    leases: Sequence[LeaseView],
) -> Plan:
    """What host `me` should do now in this unit; falsy when there is nothing to do.

    `interval` is the time between two ticks in seconds. `members` must also hold the hosts that
    have ended but still own a lease that is not takeable: an owner that is missing here counts as
    a live host that has left the unit. No lease is named twice in a plan; taking or seizing a
    lease is expected to end the hand-off request on it.
    """
    reading = _read(members, leases)
    member = next((m for m in members if m.host == me and m.live and not m.draining), None)
    if member is None:
        return Plan(clear=_names(reading.stale))
    quota = quotas(unit, members, reading.counted, reading.total)
    has = reading.counted[me]
    need = quota[me] - has
    take = _take(member, has, need, 2 * interval, reading.free)
    overdue = [] if settings.strict else [x for x in reading.pending[me] if x.handoff_overdue]
    return Plan(
        take=tuple(take),
        seize=_names(overdue),
        ask=tuple(_ask(need - len(take), quota, settings, reading)),
        clear=tuple(name for name in _names(reading.stale) if name not in take),
    )


class _Reading(Struct, frozen=True):
    """The leases of a unit sorted by what may happen to them."""

    total: int
    """P: all active leases."""
    counted: Counter[UUID]
    """n(i): owned by i and staying, plus pending towards i."""
    free: list[LeaseView]
    movable: dict[UUID, list[LeaseView]]
    """By owner: no request stands on it."""
    pending: dict[UUID, list[LeaseView]]
    """By target: the owner has been asked and has not handed over yet."""
    giving: Counter[UUID]
    """By owner: how many of its leases are pending."""
    stale: list[LeaseView]
    """Requests by somebody who is gone, whatever the state of the lease."""


def _read(members: Sequence[Member], leases: Sequence[LeaseView]) -> _Reading:
    takers = {m.host for m in members if m.live and not m.draining}
    ended = {m.host for m in members if not m.live}
    counted: Counter[UUID] = Counter()
    giving: Counter[UUID] = Counter()
    movable: defaultdict[UUID, list[LeaseView]] = defaultdict(list)
    pending: defaultdict[UUID, list[LeaseView]] = defaultdict(list)
    stale = [x for x in leases if x.handoff_to is not None and x.handoff_to not in takers]
    active = [x for x in leases if x.state == "active"]
    for lease in active:
        owner, target = lease.owner, lease.handoff_to
        if lease.takeable or owner is None or owner in ended:
            continue
        if target is None:
            counted[owner] += 1
            movable[owner].append(lease)
        elif target in takers:
            counted[target] += 1
            pending[target].append(lease)
            giving[owner] += 1
        else:
            # It stays with its owner, but is asked for only once the clearing has been written:
            # a row changed twice in one plan would depend on the order of the writes.
            counted[owner] += 1
    free = [x for x in active if x.takeable]
    return _Reading(len(active), counted, free, movable, pending, giving, stale)


def _take(
    member: Member, has: int, need: int, patience: float, free: Iterable[LeaseView]
) -> list[str]:
    """The longest free up to the need; beyond it what its rightful host has left lying too long."""
    waiting = sorted(free, key=lambda x: (-x.free_for, x.name))
    long_free = sum(x.free_for > patience for x in waiting)
    room = len(waiting) if member.max_leases is None else max(0, member.max_leases - has)
    return [x.name for x in waiting[: max(need, min(long_free, room))]]


def _ask(
    need: int, quota: Mapping[UUID, int], settings: UnitSettings, reading: _Reading
) -> list[str]:
    """Leases of donors, by falling surplus; a host that is not in `quota` gives everything."""
    surplus = {host: n - quota.get(host, 0) for host, n in reading.counted.items()}
    asked: list[str] = []
    for donor in sorted(surplus, key=lambda host: (-surplus[host], host)):
        count = min(need - len(asked), surplus[donor])
        if settings.max_moves is not None:
            count = min(count, settings.max_moves - reading.giving[donor])
        if count <= 0:
            continue
        # Rest keeps a single odd lease from going back and forth. Who leaves gets nothing back, and
        # who needs more than one has just come: it would wait for what its fellows got before it.
        odd = surplus[donor] == 1 and need == 1 and donor in quota
        rest = settings.rest if odd else 0.0
        ready = [x for x in reading.movable[donor] if x.moved_ago is None or x.moved_ago >= rest]
        ready.sort(key=lambda x: (x.load, x.name))
        asked += [x.name for x in ready[:count]]
    return asked


def _steps(members: Iterable[Member]) -> dict[UUID, int]:
    """What one lease adds to q / weight, in a unit that makes it whole for every member.

    Ties must be exact, since they decide who keeps a lease; a weight means the decimal number it
    was written as, so 0.1 and 0.3 tie at one lease and three.
    """
    ratios = {m.host: Decimal(repr(m.weight)).as_integer_ratio() for m in members}
    common = lcm(*(numerator for numerator, _ in ratios.values()))
    return {host: common // top * bottom for host, (top, bottom) in ratios.items()}


def _digest(unit: str, name: str) -> bytes:
    """The same number on every host, and another order of hosts in every unit."""
    return blake2b(f"{unit}\0{name}".encode(), digest_size=16).digest()


def _below_max(member: Member, count: int) -> bool:
    return member.max_leases is None or count < member.max_leases


def _names(leases: Iterable[LeaseView]) -> tuple[str, ...]:
    return tuple(sorted(x.name for x in leases))
