"""An overloaded queue in simulated time: what the express tier and the floor share are for."""

from __future__ import annotations

from random import Random
from typing import Any

from docs.simulation import Served, Traffic, simulate, wait_percentile
from msgspec.structs import replace

from relevo.messaging.core.classes import CLASSES
from relevo.messaging.core.reserving import Reservation
from relevo.messaging.model import Aging, Ordering, Strict, Weighted

SLOTS, HOLD = 8, 2.0
CAPACITY = SLOTS / HOLD
PLAIN = tuple(replace(one, express=False) for one in CLASSES)


def overloaded(
    policy: Ordering, high: float, low: float, seconds: float, **options: Any
) -> list[Served]:
    """What is served while the two classes arrive at these shares of the capacity."""
    traffic = [Traffic("high", high * CAPACITY), Traffic("low", low * CAPACITY)]
    random = Random(1)
    return simulate(
        traffic, policy=policy, slots=SLOTS, hold=HOLD, seconds=seconds, random=random, **options
    )


def test_the_express_tier_keeps_the_target_that_ageing_alone_breaks() -> None:
    hour = 3_600.0
    with_tier = overloaded(Aging(), 0.013, 1.287, hour)
    without = overloaded(Aging(), 0.013, 1.287, hour, classes=PLAIN)
    assert wait_percentile(with_tier, "high", 0.99) <= HOLD
    assert wait_percentile(without, "high", 0.99) >= 200  # old low work outranks new high work
    assert len(with_tier) >= 0.98 * CAPACITY * hour


def test_the_floor_share_keeps_low_work_moving_where_strict_starves_it() -> None:
    strict, aging = (
        sum(one.of == "low" for one in overloaded(policy, 1.2, 0.2, 1_000)) / (CAPACITY * 1_000)
        for policy in (Strict(), Aging())
    )
    assert strict < 0.01
    assert 0.045 <= aging <= 0.055


def test_weights_are_shares_of_an_overloaded_queue() -> None:
    served = overloaded(Weighted(), 1.0, 1.0, 500)
    high, low = (sum(one.of == of for one in served) for of in ("high", "low"))
    assert 7.5 <= high / low <= 8.5


def test_reserved_slots_stay_free_for_what_comes() -> None:
    served = overloaded(Strict(), 0.01, 1.5, 1_000, reserved=(Reservation(CLASSES[0], 2),))
    assert wait_percentile(served, "high", 0.9) == 0
    low = sum(one.of == "low" for one in served)
    assert low <= (SLOTS - 2) / HOLD * 1_000 + SLOTS


def test_tenants_share_an_overloaded_queue() -> None:
    traffic = [Traffic("normal", 2 * CAPACITY, "many"), Traffic("normal", 0.1 * CAPACITY, "few")]
    served = simulate(
        traffic, policy=Strict(), slots=SLOTS, hold=HOLD, seconds=500, random=Random(1), fair=True
    )
    waits = [one.began - one.arrived for one in served if one.fairness_key == "few"]
    assert max(waits) <= 2 * HOLD
