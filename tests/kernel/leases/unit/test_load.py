"""Balancing by load (change-feed 7.5, 7.6): what is measured, and what moves because of it."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from relevo.kernel.leases import load
from relevo.kernel.leases.balancing import is_uneven, plan, quotas
from relevo.kernel.leases.load import Meter, Streak
from relevo.kernel.leases.model import IDLE, Load, Plan, PlannedLease, UnitMember, UnitSettings
from tests.kernel.leases.unit.test_balancing import INTERVAL, clusters, host, member, teams

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

    from tests.kernel.leases.unit.test_balancing import Cluster

BY_LOAD = UnitSettings(strategy="load")
BUSY = st.sampled_from([0.0, 0.0, 0.03, 0.1, 0.3, 0.7, 1.0])
timeless = settings(deadline=None)
lengthy = settings(deadline=None, max_examples=30)
seeds = st.randoms(use_true_random=False)


def lease(name: str, owner: int, busy: float, **told: Any) -> PlannedLease:
    return PlannedLease(id=1, name=name, owner=host(owner), takeable=False, load=busy, **told)


def planned(
    me: int, members: list[UnitMember], leases: list[PlannedLease], ticks: int = load.TICKS
) -> Plan:
    return plan(host(me), "u", BY_LOAD, INTERVAL, members, leases, ticks)


TWO = [member(1), member(2)]
UNEVEN = [lease("a", 1, 0.5), lease("b", 1, 0.3), lease("c", 1, 0.1), lease("d", 2, 0.0)]
"""Use is 0.9 and 0, its mean 0.45: up to 60 % of 0.45 = 0.27 may move."""


# What a plan does


@timeless
@given(clusters(), st.integers(0, 5))
def test_without_load_the_plan_is_that_of_an_equal_unit(cluster: Cluster, ticks: int) -> None:
    views = [replace(cluster.view(row), load=0.0) for row in cluster.rows.values()]
    members = list(cluster.members.values())
    by_load = replace(cluster.rules, strategy="load")
    for me in cluster.members:
        equal = plan(me, "u", cluster.rules, INTERVAL, members, views)
        assert plan(me, "u", by_load, INTERVAL, members, views, ticks) == equal


def test_the_least_used_host_asks_the_most_used_one_for_what_fits() -> None:
    assert planned(2, TWO, UNEVEN).ask == ("c",)
    assert not planned(1, TWO, UNEVEN)
    three = [*TWO, member(3)]  # as unused as host 2: then the smaller number asks
    assert planned(2, three, UNEVEN)
    assert not planned(3, three, UNEVEN)


def test_three_ticks_of_imbalance_are_needed() -> None:
    assert not planned(2, TWO, UNEVEN, ticks=2)
    assert planned(2, TWO, UNEVEN, ticks=3)


@pytest.mark.parametrize(
    ("busy", "uneven"),
    [
        ((0.9, 0.0), True),
        ((0.2, 0.0), False),  # a gap of 0.2 is none
        ((0.21, 0.0), True),
        ((0.95, 0.9, 0.7), False),  # not above 1.15 times the mean
        ((1.0, 0.7, 0.7), True),
        ((1.0,), False),
    ],
)
def test_a_unit_is_uneven_above_the_mean_and_above_the_gap(
    busy: tuple[float, ...], uneven: bool
) -> None:
    members = [member(i) for i, _ in enumerate(busy)]
    leases = [lease(f"l{i}", i, one) for i, one in enumerate(busy)]
    assert is_uneven(members, leases) is uneven


def test_use_is_what_a_host_carries_for_its_weight_and_what_is_on_its_way_to_it() -> None:
    leases = [lease("a", 1, 0.6), lease("b", 2, 0.6, handoff_to=host(1)), lease("c", 2, 0.5)]
    assert not is_uneven([member(1, weight=2.0), member(2)], leases)  # 1.2 / 2 and 0.5
    assert is_uneven(TWO, leases)  # 1.2 and 0.5


def test_counts_are_kept_where_there_is_load_but_for_minimum_and_maximum() -> None:
    even = [lease("a", 1, 0.5), *(lease(f"b{i}", 2, 0.1) for i in range(5))]
    assert not any(planned(me, TWO, even) for me in (1, 2))
    hungry = [member(1, min_leases=2), member(2)]
    assert len(planned(1, hungry, even).ask) == 1
    capped = [member(1), member(2, max_leases=3)]
    assert len(planned(1, capped, even).ask) == 2


def test_what_is_free_is_shared_out_also_where_there_is_load() -> None:
    free = [PlannedLease(id=1, name=f"f{i}", load=0.4) for i in range(4)]
    owned = [lease("a", 1, 0.5), lease("b", 2, 0.5)]
    found = [planned(me, TWO, [*owned, *free]).take for me in (1, 2)]
    assert [len(names) for names in found] == [2, 2]


def test_what_a_draining_host_has_goes_at_once_also_where_there_is_load() -> None:
    leaving = [member(1, draining=True), member(2)]
    resting = [replace(one, moved_ago=1.0) for one in UNEVEN]
    assert planned(2, leaving, resting, ticks=0).ask == ("c", "b", "a")


@st.composite
def loaded_units(draw: st.DrawFn) -> tuple[list[UnitMember], list[PlannedLease]]:
    team = draw(teams(least=2))
    owners = st.integers(1, len(team))
    moved = st.sampled_from([None, 1.0, 59.0, 60.0, 400.0])
    avoided = st.sampled_from([None, None, None, host(1), host(2)])
    leases = [
        lease(f"l{i:02}", draw(owners), draw(BUSY), moved_ago=draw(moved), avoid=draw(avoided))
        for i in range(draw(st.integers(0, 25)))
    ]
    return team, leases


@timeless
@given(loaded_units())
def test_what_moves_for_its_load_is_60_percent_of_what_is_above_the_mean_or_one_that_evens(
    unit: tuple[list[UnitMember], list[PlannedLease]],
) -> None:
    team, leases = unit
    before = {m.host: fsum(x.load for x in leases if x.owner == m.host) / m.weight for m in team}
    most, mean = max(before.values()), fsum(before.values()) / len(before)
    for me in team:
        calm = set(plan(me.host, "u", BY_LOAD, INTERVAL, team, leases, 0).ask)
        asked = [
            x for x in leases
            if x.name in set(plan(me.host, "u", BY_LOAD, INTERVAL, team, leases, 3).ask) - calm
        ]  # fmt: skip
        if not asked:
            continue
        (owner,) = {x.owner for x in asked}
        donor = next(m for m in team if m.host == owner)
        assert before[me.host] == min(before.values())
        assert before[donor.host] == most
        assert most > 1.15 * mean
        assert most - before[me.host] > 0.2
        moved = fsum(x.load for x in asked)
        if moved > 0.6 * (most - mean) * min(donor.weight, me.weight) + 1e-9:
            (single,) = asked  # one that is too large on its own, and evens both
            after = most - single.load / donor.weight, before[me.host] + single.load / me.weight
            assert max(after) <= most - 0.1 + 1e-9
        assert all(x.moved_ago is None or x.moved_ago >= 60 for x in asked)
        assert all(x.avoid != me.host for x in asked)
        has = sum(x.owner == me.host for x in leases)
        assert me.max_leases is None or has + len(asked) <= me.max_leases  # B3
        assert sum(x.owner == owner for x in leases) - len(asked) >= donor.min_leases


# What comes of plans


class Row(Struct):
    name: str
    owner: int
    busy: float
    moved_at: float | None = None


class World:
    """A unit whose hosts tick every 5 s and hand over at once."""

    def __init__(self, team: list[UnitMember], rows: list[Row]) -> None:
        self.team, self.rows, self.now = team, rows, 0.0
        self.streaks = {m.host: Streak() for m in team}
        self.moves: list[tuple[float, str]] = []

    def views(self) -> list[PlannedLease]:
        return [
            lease(
                row.name, row.owner, row.busy,
                moved_ago=None if row.moved_at is None else self.now - row.moved_at,
            )
            for row in self.rows
        ]  # fmt: skip

    def use(self) -> dict[UUID, float]:
        return {
            m.host: fsum(r.busy for r in self.rows if host(r.owner) == m.host) / m.weight
            for m in self.team
        }

    def tick(self, me: UnitMember) -> None:
        views = self.views()
        ticks = self.streaks[me.host].note(is_uneven(self.team, views), self.now, 0.75 * INTERVAL)
        made = plan(me.host, "u", BY_LOAD, INTERVAL, self.team, views, ticks)
        assert made == Plan(ask=made.ask)
        for row in self.rows:
            if row.name in made.ask:
                row.owner, row.moved_at = me.host.int, self.now
                self.moves.append((self.now, row.name))
        if made.ask:
            self.streaks[me.host].reset()

    def round(self, rng: Random) -> None:
        self.now += INTERVAL
        for me in rng.sample(self.team, len(self.team)):
            self.tick(me)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    weights = draw(st.lists(st.sampled_from([1.0, 1.0, 2.0, 0.5]), min_size=2, max_size=5))
    team = [member(i, weight=weight) for i, weight in enumerate(weights, 1)]
    owners = st.integers(1, len(team))
    rows = [Row(f"l{i:02}", draw(owners), draw(BUSY)) for i in range(draw(st.integers(1, 30)))]
    return World(team, rows)


@lengthy
@given(worlds(), seeds)
def test_a_steady_load_comes_to_rest_and_nobody_gets_more_than_the_most_used_had(
    world: World, rng: Random
) -> None:
    if not load.is_loaded(world.team, world.views()):
        return
    peak = max(world.use().values())
    for _ in range(80):
        world.round(rng)
        assert max(world.use().values()) <= peak + 1e-9
    before = len(world.moves)
    for _ in range(20):
        world.round(rng)
    assert len(world.moves) == before


@lengthy
@given(worlds(), seeds)
def test_no_lease_moves_twice_within_a_minute_however_the_load_changes(
    world: World, rng: Random
) -> None:
    world.rows[0].busy = 1.0
    for number in range(80):
        if number % 2:  # a window of 10 s is over
            for row in world.rows[1:]:
                last = Load(rng.choice([0.0, 0.0, 0.2, 1.0]))
                row.busy = load.smooth(Load(row.busy), last).busy
        world.round(rng)
    moved_at: dict[str, float] = {}
    for at, name in world.moves:
        assert at - moved_at.get(name, -60.0) >= 60
        moved_at[name] = at


def test_a_hot_host_is_relieved_by_one_that_has_just_come() -> None:
    rows = [Row(f"l{i}", 1, 0.2) for i in range(8)]
    world = World([member(1), member(2)], rows)
    while world.now < 300 and is_uneven(world.team, world.views()):
        for me in world.team:
            world.tick(me)
        world.now += INTERVAL
    assert max(world.use().values()) - min(world.use().values()) <= 0.4 + 1e-9
    assert world.now > 2 * INTERVAL  # three ticks, not one
    assert len(world.moves) in (3, 4)


@pytest.mark.parametrize(
    ("busy", "hosts"), [((1.0, 1.0), 2), ((0.9, 0.8), 2), ((1.0, 1.0, 1.0), 3), ((0.6, 0.5), 2)]
)
def test_two_hot_leases_are_spread(busy: tuple[float, ...], hosts: int) -> None:
    rows = [Row(f"l{i}", 1, one) for i, one in enumerate(busy)] + [Row("idle", 1, 0.0)]
    world = World([member(number) for number in range(1, hosts + 1)], rows)
    while world.now < 120:
        for me in world.team:
            world.tick(me)
        world.now += INTERVAL
    owners = {row.owner for row in rows if row.busy}
    assert len(owners) == len(busy)
    assert len(world.moves) == len(busy) - 1


def test_a_hot_lease_that_is_alone_stays() -> None:
    world = World([member(1), member(2)], [Row("l0", 1, 1.0), Row("l1", 1, 0.01)])
    while world.now < 300:
        for me in world.team:
            world.tick(me)
        world.now += INTERVAL
    assert world.moves == []


@timeless
@given(teams(leaving=True), st.integers(0, 60), seeds)
def test_kept_quotas_are_what_each_has_within_its_bounds_and_reproduce_themselves(
    team: list[UnitMember], total: int, rng: Random
) -> None:
    takers = {m.host: m for m in team if m.live and not m.draining}
    owned, left = {}, total
    for who in takers:
        owned[who] = rng.randrange(left + 1)
        left -= owned[who]
    quota = quotas("u", team, owned, total, keep=True)
    room = sum(total if m.max_leases is None else m.max_leases for m in takers.values())
    assert sum(quota.values()) == min(total, room)
    minima_fit = sum(m.min_leases for m in takers.values()) <= total
    for who, m in takers.items():  # B3
        assert m.max_leases is None or quota[who] <= m.max_leases
        assert not minima_fit or quota[who] >= m.min_leases
    if all(m.min_leases == 0 for m in takers.values()):
        for who, m in takers.items():
            assert quota[who] >= min(
                owned[who], quota[who] if m.max_leases is None else m.max_leases
            )
    assert quotas("u", team, quota, total, keep=True) == quota


# A lease that keeps away from a host


def failing(**told: Any) -> PlannedLease:
    return PlannedLease(id=1, name="x", avoid=host(1), free_for=60.0, **told)


def test_a_host_does_not_take_what_avoids_it_while_others_live() -> None:  # 7.6
    equal = UnitSettings()
    for strategy in (equal, BY_LOAD):
        mine = plan(host(1), "u", strategy, INTERVAL, TWO, [failing()])
        other = plan(host(2), "u", strategy, INTERVAL, TWO, [failing()])
        assert (mine.take, other.take) == ((), ("x",))


@pytest.mark.parametrize("other", [member(2, live=False), member(2, draining=True)])
def test_a_host_that_is_alone_takes_what_avoids_it(other: UnitMember) -> None:
    found = plan(host(1), "u", UnitSettings(), INTERVAL, [member(1), other], [failing()])
    assert found.take == ("x",)


def test_a_host_asks_for_another_lease_than_the_one_that_avoids_it() -> None:
    leases = [lease("a", 2, 0.0, avoid=host(1)), lease("b", 2, 0.0), lease("c", 2, 0.0)]
    found = plan(host(1), "u", UnitSettings(), INTERVAL, TWO, leases)
    assert found.ask == ("b",)


# What is measured


def test_a_lease_is_busy_for_the_share_of_time_in_which_a_call_runs() -> None:
    meter = Meter(IDLE, 100.0)
    meter.begin(101.0)
    meter.end(105.0, changes=20, size=4_000)
    assert meter.read(109.9) == IDLE  # its window is not over
    assert meter.read(110.0) == Load(0.2, 1.0, 200.0)  # half of 0.4, 2 and 400
    assert meter.read(120.0) == Load(0.1, 0.5, 100.0)


def test_calls_that_run_side_by_side_count_once() -> None:
    meter = Meter(IDLE, 0.0)
    meter.begin(0.0)
    meter.begin(1.0)
    meter.end(2.0)
    meter.end(4.0)
    assert meter.read(10.0).busy == 0.2


def test_a_call_that_runs_over_several_windows_counts_in_each() -> None:
    meter = Meter(IDLE, 0.0)
    meter.begin(5.0)
    assert [meter.read(at).busy for at in (10.0, 20.0, 30.0)] == [0.25, 0.625, 0.8125]
    meter.end(10_000.0)
    assert meter.read(10_000.0).busy == 1.0


def test_an_idle_lease_is_as_if_it_had_never_been_busy() -> None:  # P12: then nothing is written
    meter = Meter(Load(1.0, 12.5, 10_000.0), 0.0)
    seen = [meter.read(10.0 * n) for n in range(1, 30)]
    assert seen[-1] == IDLE
    assert meter.read(1e9) == IDLE
    assert sorted(seen, key=lambda one: -one.busy) == seen


def test_what_moved_for_its_load_is_known_to_be_busy_for_the_minute_that_it_rests() -> None:
    meter = Meter(Load(load.WORTH), 0.0)
    assert all(meter.read(10.0 * n).busy > 0 for n in range(1, 7))


@timeless
@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 30.0)), max_size=20))
def test_a_share_of_time_is_never_above_one(spans: list[tuple[float, float]]) -> None:
    meter, now = Meter(IDLE, 0.0), 0.0
    for pause, span in spans:
        now += pause
        meter.begin(now)
        now += span
        meter.end(now)
        assert 0.0 <= meter.read(now).busy <= 1.0


def test_a_host_that_is_woken_often_does_not_count_ticks_faster() -> None:
    streak = Streak()
    assert [streak.note(True, at, 4.0) for at in (0.0, 0.1, 0.2, 4.0, 5.0, 8.0)] == [
        1,
        1,
        1,
        2,
        2,
        3,
    ]
    assert streak.note(False, 8.1, 4.0) == 0
    assert streak.note(True, 8.2, 4.0) == 0
    assert streak.note(True, 12.0, 4.0) == 1
