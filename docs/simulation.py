"""A queue and its consumers in simulated time, served by the decisions that real claims follow.

    served = simulate([Traffic("high", 0.05), Traffic("low", 5.15)], policy=Aging(), slots=8,
                      hold=2.0, seconds=3_600, random=Random(1))
    wait_percentile(served, "high", 0.99)

It shows what a policy does under a load before anyone relies on it.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.messaging.core import fairness, ordering
from relevo.messaging.core.claiming import SourceState, Tally, claim
from relevo.messaging.core.classes import CLASSES, named
from relevo.messaging.core.reserving import Reservation, Slots

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from relevo.messaging.model import Ordering, PriorityClass


class Traffic(Struct, frozen=True):
    """Messages of a class that arrive at random, so many per second on average."""

    of: str
    per_second: float
    fairness_key: str = ""


class Served(Struct, frozen=True):
    """A message that a handler got."""

    sequence: int
    of: str
    fairness_key: str
    arrived: float
    began: float
    floor: bool


def simulate(
    traffic: Sequence[Traffic],
    *,
    slots: int,
    hold: float,
    seconds: float,
    random: Random,
    policy: Ordering,
    classes: Sequence[PriorityClass] = CLASSES,
    reserved: tuple[Reservation, ...] = (),
    fair: bool = False,
) -> list[Served]:
    """Return what is served in so many seconds, in order; every handler takes `hold` seconds."""
    queue = _Queue(policy, tuple(classes), fair=fair)
    arrivals = _arrivals(traffic, seconds, random)
    busy: list[tuple[float, str]] = []
    served: list[Served] = []
    following = 0
    while following < len(arrivals) or busy:
        next_arrival = arrivals[following][0] if following < len(arrivals) else math.inf
        if busy and busy[0][0] <= next_arrival:
            now, _ = heapq.heappop(busy)
        else:
            now = next_arrival
            queue.accept(following, *arrivals[following])
            following += 1
        if now >= seconds:
            break
        if len(busy) == slots:
            continue
        in_use = Counter(of for _, of in busy)
        free = Slots(free=slots - len(busy), in_use=in_use, reserved=reserved)
        for one in queue.claim(free, now):
            heapq.heappush(busy, (now + hold, one.of))
            served.append(one)
    return served


def wait_percentile(served: Sequence[Served], of: str, share: float) -> float:
    """Return the wait that this share of the served messages of a class did not exceed."""
    waits = sorted(one.began - one.arrived for one in served if one.of == of)
    return waits[max(0, math.ceil(share * len(waits)) - 1)]


class _Queue:
    def __init__(self, policy: Ordering, classes: tuple[PriorityClass, ...], *, fair: bool) -> None:
        self._policy, self._classes, self._fair = policy, classes, fair
        self._tally = Tally()
        self._waiting: dict[str, list[ordering.Claimable]] = {one.name: [] for one in classes}
        self._arrived: dict[int, float] = {}
        self._tags: dict[tuple[str, str], int] = {}

    def accept(self, sequence: int, at: float, stream: Traffic) -> None:
        of = named(self._classes, stream.of, "traffic")
        tag = None
        if self._fair:
            last = self._tags.get((of.name, stream.fairness_key))
            reached = self._tally.tags.get(of.name, 0)
            tag = fairness.next_tag(sequence, reached=reached, last=last)
            self._tags[of.name, stream.fairness_key] = tag
        arrived = round(at * ordering.MICROS)
        rank = ordering.rank(self._policy, of, priority=of.base, arrived=arrived, tag=tag)
        self._arrived[sequence] = at
        insort(self._waiting[of.name], ordering.Claimable(rank, sequence, stream.fairness_key))

    def claim(self, slots: Slots, now: float) -> list[Served]:
        source = SourceState(
            name="",
            waiting=self._waiting,
            classes=self._classes,
            ordering=self._policy,
            fair=self._fair,
            tally=self._tally,
        )
        decision = claim([source], slots.free, slots=slots)
        self._tally = decision.tallies[""]
        for one in decision.taken:
            self._waiting[one.of].remove(one.message)
        return [
            Served(
                one.message.sequence,
                one.of,
                one.message.fairness_key,
                self._arrived.pop(one.message.sequence),
                now,
                one.floor,
            )
            for one in decision.taken
        ]


def _arrivals(
    traffic: Sequence[Traffic], seconds: float, random: Random
) -> list[tuple[float, Traffic]]:
    found: list[tuple[float, Traffic]] = []
    for stream in traffic:
        at = random.expovariate(stream.per_second)
        while at < seconds:
            found.append((at, stream))
            at += random.expovariate(stream.per_second)
    return sorted(found, key=lambda one: one[0])
