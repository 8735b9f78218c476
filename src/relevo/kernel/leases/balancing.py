"""Balancing: one host's plan for the leases of a unit, from one read of it.

Every host computes the same quotas from the same reading and only ever moves itself towards its
own: it takes what is free and asks those above their quota. Each lease so moved lowers the sum of
all needs by one and nothing in a plan raises it: the moves are the fewest possible, and once the
sum is zero every plan is empty.

In a unit that is balanced by load, quotas are what each host has, and the least used host asks the
most used one for some of what that one has too much of.
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

from relevo.kernel.leases import load
from relevo.kernel.leases.model import Plan, PlannedLease, UnitMember, UnitSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = ["is_uneven", "plan", "quotas"]


def quotas(
    unit: str,
    members: Sequence[UnitMember],
    owned: Mapping[UUID, int],
    total: int,
    *,
    keep: bool = False,
) -> dict[UUID, int]:
    """How many of `total` leases each host that takes part should own.

    Live members that are not draining take part; no other host has a key. `owned` only decides
    which hosts keep the odd leases, so that a reached result is stable. With `keep`, each host
    keeps its leases within its minimum and maximum, and only the rest is shared out. The sum is
    `total` unless the maxima forbid it.
    """
    takers = {m.host: m for m in members if m.live and not m.draining}
    minima_fit = sum(m.min_leases for m in takers.values()) <= total
    quota = {host: m.min_leases if minima_fit else 0 for host, m in takers.items()}
    step = _steps(takers.values())
    digest = {host: _digest(unit, m.name) for host, m in takers.items()}
    if keep:
        quota = _kept(takers, quota, owned, total, step)

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
    members: Sequence[UnitMember],
    leases: Sequence[PlannedLease],
    uneven_ticks: int = 0,
) -> Plan:
    """Return the plan of host `me` for this unit; falsy when there is nothing to do.

    `interval` is the time between two ticks in seconds; `uneven_ticks` is for how many ticks in a
    row `is_uneven` was true, in a unit that is balanced by load. `members` must also hold the hosts
    that have ended but still own a lease that is not takeable: an owner that is missing here counts
    as a live host that has left the unit. No lease is named twice in a plan; taking or seizing a
    lease is expected to end the hand-off request on it.
    """
    reading = _read(members, leases)
    member = next((m for m in members if m.host == me and m.live and not m.draining), None)
    if member is None:
        return Plan(clear=_names(reading.stale))
    by_load = settings.strategy == "load" and load.is_loaded(members, leases)
    quota = quotas(unit, members, reading.counted, reading.total, keep=by_load)
    has = reading.counted[me]
    need = quota[me] - has
    others = quota.keys() - {me}
    take = _take(member, has, need, 2 * interval, _welcome(reading.free, me, others))
    overdue = [] if settings.strict else [x for x in reading.pending[me] if x.handoff_overdue]
    ask = _ask(me, need - len(take), quota, settings, reading)
    if by_load and uneven_ticks >= load.TICKS and not (take or ask):
        ask = _relieve(member, settings, members, reading)
    return Plan(
        take=tuple(take),
        seize=_names(overdue),
        ask=tuple(ask),
        clear=tuple(name for name in _names(reading.stale) if name not in take),
    )


def is_uneven(members: Sequence[UnitMember], leases: Sequence[PlannedLease]) -> bool:
    """Whether a host is used much more than the mean and than another one, hand-offs done."""
    return load.is_uneven(load.use(members, _read(members, leases).loads))


class _UnitReading(Struct, frozen=True):
    """The leases of a unit by what may be done with them."""

    total: int
    """P: all active leases."""
    counted: Counter[UUID]
    """n(i): owned by i and staying, plus pending towards i."""
    loads: dict[UUID, list[float]]
    """How busy those are."""
    free: list[PlannedLease]
    movable: dict[UUID, list[PlannedLease]]
    """By owner: no request stands on it."""
    pending: dict[UUID, list[PlannedLease]]
    """By target: the owner has been asked and has not handed over yet."""
    giving: Counter[UUID]
    """By owner: how many of its leases are pending."""
    stale: list[PlannedLease]
    """Requests of hosts that are gone, in any state of the lease."""


def _read(members: Sequence[UnitMember], leases: Sequence[PlannedLease]) -> _UnitReading:
    takers = {m.host for m in members if m.live and not m.draining}
    ended = {m.host for m in members if not m.live}
    giving: Counter[UUID] = Counter()
    loads: defaultdict[UUID, list[float]] = defaultdict(list)
    movable: defaultdict[UUID, list[PlannedLease]] = defaultdict(list)
    pending: defaultdict[UUID, list[PlannedLease]] = defaultdict(list)
    stale = [x for x in leases if x.handoff_to is not None and x.handoff_to not in takers]
    active = [x for x in leases if x.state == "active"]
    for lease in active:
        owner, target = lease.owner, lease.handoff_to
        if lease.takeable or owner is None or owner in ended:
            continue
        if target is None:
            loads[owner].append(lease.load)
            movable[owner].append(lease)
        elif target in takers:
            loads[target].append(lease.load)
            pending[target].append(lease)
            giving[owner] += 1
        else:
            # It stays with its owner, but is asked for only once the clearing has been written:
            # a row changed twice in one plan would depend on the order of the writes.
            loads[owner].append(lease.load)
    counted = Counter({host: len(found) for host, found in loads.items()})
    free = [x for x in active if x.takeable]
    return _UnitReading(len(active), counted, loads, free, movable, pending, giving, stale)


def _welcome(
    leases: Iterable[PlannedLease], me: UUID, others: Collection[UUID]
) -> list[PlannedLease]:
    """Leases that do not avoid this host; without others there is no choice."""
    return [x for x in leases if x.avoid != me or not others]


def _take(
    member: UnitMember, has: int, need: int, patience: float, free: Iterable[PlannedLease]
) -> list[str]:
    """The longest free up to the need; beyond it what its rightful host has left lying too long."""
    waiting = sorted(free, key=lambda x: (-x.free_for, x.name))
    long_free = sum(x.free_for > patience for x in waiting)
    room = len(waiting) if member.max_leases is None else max(0, member.max_leases - has)
    return [x.name for x in waiting[: max(need, min(long_free, room))]]


def _ask(
    me: UUID, need: int, quota: Mapping[UUID, int], settings: UnitSettings, reading: _UnitReading
) -> list[str]:
    """Leases of donors, by falling surplus; a host that is not in `quota` gives everything."""
    surplus = {host: n - quota.get(host, 0) for host, n in reading.counted.items()}
    asked: list[str] = []
    for donor in sorted(surplus, key=lambda host: (-surplus[host], host)):
        count = min(need - len(asked), surplus[donor], _moves_left(donor, settings, reading))
        if count <= 0:
            continue
        # Rest keeps a single odd lease from going back and forth. Who leaves gets nothing back, and
        # who needs more than one has just come: it would wait for what its fellows got before it.
        odd = surplus[donor] == 1 and need == 1 and donor in quota
        hot = load.REST_SECONDS if settings.strategy == "load" and donor in quota else 0.0
        ready = [
            x
            for x in _welcome(reading.movable[donor], me, quota.keys() - {me})
            if x.moved_ago is None
            or x.moved_ago >= max(settings.rest if odd else 0.0, hot if x.load else 0.0)
        ]
        ready.sort(key=lambda x: (x.load, x.name))
        asked += [x.name for x in ready[:count]]
    return asked


def _relieve(
    member: UnitMember, settings: UnitSettings, members: Sequence[UnitMember], reading: _UnitReading
) -> list[str]:
    """The leases that the least used host requests from the most used one; else none."""
    used = load.use(members, reading.loads)
    least, most = load.extremes(used)
    if least != member.host or not load.is_uneven(used):
        return []
    donor = next(m for m in members if m.host == most)
    count = min(
        reading.counted[most] - donor.min_leases,
        _moves_left(most, settings, reading),
        reading.total
        if member.max_leases is None
        else member.max_leases - reading.counted[member.host],
    )
    ready = _welcome(reading.movable[most], member.host, [most])
    return load.relieve(member, donor, used, ready, count)


def _moves_left(donor: UUID, settings: UnitSettings, reading: _UnitReading) -> int:
    if settings.max_moves is None:
        return reading.total
    return settings.max_moves - reading.giving[donor]


def _kept(
    takers: Mapping[UUID, UnitMember],
    minima: Mapping[UUID, int],
    owned: Mapping[UUID, int],
    total: int,
    step: Mapping[UUID, int],
) -> dict[UUID, int]:
    """The leases of each, within bounds; if minima exceed the total, the largest give some up."""
    quota = {}
    for host, m in takers.items():
        has = owned.get(host, 0)
        quota[host] = max(minima[host], has if m.max_leases is None else min(has, m.max_leases))
    for _ in range(sum(quota.values()) - total):
        host = max(
            (one for one in quota if quota[one] > minima[one]),
            key=lambda one: (quota[one] * step[one], one),
        )
        quota[host] -= 1
    return quota


def _steps(members: Iterable[UnitMember]) -> dict[UUID, int]:
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


def _below_max(member: UnitMember, count: int) -> bool:
    return member.max_leases is None or count < member.max_leases


def _names(leases: Iterable[PlannedLease]) -> tuple[str, ...]:
    return tuple(sorted(x.name for x in leases))
