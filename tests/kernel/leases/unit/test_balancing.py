"""The balancer against a small cluster in memory: what change-feed 7.3 and B1 to B3 promise."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from relevo.kernel.leases.balancing import plan, quotas
from relevo.kernel.leases.model import (
    ACTORS,
    FEED,
    LeaseState,
    Plan,
    PlannedLease,
    UnitMember,
    UnitSettings,
)

if TYPE_CHECKING:
    from random import Random

INTERVAL = 5.0
EAGER = UnitSettings(rest=0.0)
STRANGER = UUID(int=900)  # a live host that owns leases but has left the unit


def host(number: int) -> UUID:
    return UUID(int=number)


def member(number: int, **wishes: Any) -> UnitMember:
    return UnitMember(host=host(number), name=f"host-{number}", **wishes)


class Row(Struct):
    """A lease as the store would keep it; times on the cluster's clock."""

    name: str
    owner: UUID | None = None
    state: LeaseState = "active"
    target: UUID | None = None
    asked_at: float = 0.0
    free_since: float = 0.0
    moved_at: float | None = None
    held_until: float = 0.0  # strict units: a superseded owner may act until then
    load: float = 0.0


class Cluster:
    """Applies plans one at a time, as the balance lock does, and judges each before it acts."""

    def __init__(
        self, members: list[UnitMember], rows: list[Row], rules: UnitSettings = EAGER
    ) -> None:
        self.members = {m.host: m for m in members}
        self.rows = {row.name: row for row in rows}
        self.rules, self.now, self.moves = rules, 0.0, 0
        self.stuck: set[UUID] = set()  # hosts whose running batch does not end

    def takes_part(self, who: UUID | None) -> bool:
        return who in self.members and self.members[who].live and not self.members[who].draining

    def is_live(self, who: UUID) -> bool:
        return who not in self.members or self.members[who].live

    def view(self, row: Row) -> PlannedLease:
        ended = row.owner is None or not self.is_live(row.owner)
        takeable = ended and self.now >= row.held_until
        overdue = row.target is not None and self.now > row.asked_at + self.rules.handoff_timeout
        return PlannedLease(
            id=1,
            name=row.name,
            owner=row.owner,
            takeable=takeable,
            state=row.state,
            handoff_to=row.target,
            handoff_overdue=overdue,
            free_for=self.now - row.free_since if takeable else 0.0,
            moved_ago=None if row.moved_at is None else self.now - row.moved_at,
            load=row.load,
        )

    def plan_of(self, me: UUID) -> Plan:
        views = [self.view(row) for row in self.rows.values()]
        return plan(me, "u", self.rules, INTERVAL, list(self.members.values()), views)

    def counts(self) -> Counter[UUID]:
        """n(i) of 7.3, counted here a second time and more plainly."""
        n: Counter[UUID] = Counter()
        for row in self.rows.values():
            counts = row.state == "active" and not self.view(row).takeable
            if counts and row.owner is not None and self.is_live(row.owner):
                target = row.target if self.takes_part(row.target) else None
                n[target or row.owner] += 1
        return n

    def quotas(self) -> dict[UUID, int]:
        active = sum(row.state == "active" for row in self.rows.values())
        return quotas("u", list(self.members.values()), self.counts(), active)

    def need(self) -> int:
        n = self.counts()
        return sum(max(0, q - n[who]) for who, q in self.quotas().items())

    def tick(self, me: UUID) -> Plan:
        made = self.plan_of(me)
        self.judge(me, made)
        for name in made.take + made.seize:
            self.move(self.rows[name], me)
        for name in made.ask:
            self.rows[name].target, self.rows[name].asked_at = me, self.now
        for name in made.clear:
            self.rows[name].target = None
        return made

    def judge(self, me: UUID, made: Plan) -> None:
        named = made.take + made.seize + made.ask + made.clear
        assert len(named) == len(set(named))
        assert all(self.view(self.rows[name]).takeable for name in made.take)
        for name in made.clear:  # only requests of those who are gone
            assert self.rows[name].target
            assert not self.takes_part(self.rows[name].target)
        for name in made.seize:
            assert not self.rules.strict
            assert self.view(self.rows[name]).handoff_overdue
            assert self.rows[name].target == me
        for name in made.take + made.seize + made.ask:
            assert self.takes_part(me)
            assert self.rows[name].state == "active"
        self.judge_asking(me, made)

    def judge_asking(self, me: UUID, made: Plan) -> None:
        n, quota = self.counts(), self.quotas()
        asked = [self.rows[name] for name in made.ask]
        for row in asked:
            assert row.owner
            assert self.is_live(row.owner)
            assert row.target is None
            surplus = n[row.owner] - quota.get(row.owner, 0)
            count = sum(other.owner == row.owner for other in asked)
            assert count <= surplus
            if self.rules.max_moves is not None:
                assert count + self.giving(row.owner) <= self.rules.max_moves
            rested = row.moved_at is None or self.now - row.moved_at >= self.rules.rest
            needs_more = quota.get(me, 0) - n[me] - len(made.take) > 1
            assert rested or surplus > 1 or needs_more or row.owner not in quota
        taken = [self.view(self.rows[name]) for name in made.take]
        if all(x.free_for <= 2 * INTERVAL for x in taken):
            assert len(taken) + len(asked) <= max(0, quota.get(me, 0) - n[me])
        elif (most := self.members[me].max_leases) is not None:
            assert n[me] + len(taken) <= most

    def giving(self, donor: UUID) -> int:
        return sum(
            row.owner == donor and row.state == "active" and self.takes_part(row.target)
            for row in self.rows.values()
        )

    def move(self, row: Row, to: UUID) -> None:
        row.owner, row.target, row.moved_at = to, None, self.now
        self.moves += 1

    def hand_over(self) -> None:
        """Live donors do what they were asked; in a strict unit the stuck abort when it is time."""
        for row in self.rows.values():
            target = row.target if self.takes_part(row.target) else None
            if not (target and row.owner and self.is_live(row.owner) and row.state == "active"):
                continue
            if row.owner not in self.stuck:
                self.move(row, target)
            elif self.rules.strict and self.view(row).handoff_overdue:
                row.owner, row.target, row.free_since = None, None, self.now

    def everyone_ticks(self, rng: Random) -> None:
        for me in rng.sample([*self.members, STRANGER], len(self.members) + 1):
            self.tick(me)

    def idle(self) -> bool:
        return not any(self.plan_of(me) for me in self.members)

    def settle(self, rng: Random) -> int:
        """Rounds until nothing is planned and nothing pending."""
        for rounds in range(200):
            owners = {row.owner for row in self.rows.values() if row.owner}
            if self.idle() and not any(self.giving(who) for who in owners if self.is_live(who)):
                return rounds
            self.everyone_ticks(rng)
            self.now += INTERVAL
            self.hand_over()
        raise AssertionError("still moving after 200 rounds")


def spread(total: int, hosts: int) -> list[Row]:
    return [Row(name=f"l{i:03}", owner=host(i % hosts + 1)) for i in range(total)]


@st.composite
def teams(draw: st.DrawFn, least: int = 1, leaving: bool = False) -> list[UnitMember]:
    """Members with weights, minima and maxima; with `leaving` some drain or have ended."""
    team = []
    for number in range(1, draw(st.integers(least, 7)) + 1):
        floor = draw(st.sampled_from([0, 0, 0, 1, 4]))
        room = draw(st.sampled_from([None, None, 0, 3, 20]))
        team.append(
            member(
                number,
                weight=draw(st.sampled_from([1.0, 1.0, 2.0, 3.0, 0.5, 0.1, 0.3, 0.7, 2.5])),
                min_leases=floor,
                max_leases=None if room is None else floor + room,
                draining=leaving and draw(st.integers(0, 5)) == 0,
                live=not leaving or draw(st.integers(0, 5)) > 0,
            )
        )
    return team


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Any state a crash may leave: strangers, ended owners, marks to anybody, paused leases."""
    team = draw(teams(leaving=True))
    anybody = [None, STRANGER, *(m.host for m in team)]
    rows = [
        Row(
            name=f"l{i:03}",
            owner=(owner := draw(st.sampled_from(anybody))),
            state=draw(st.sampled_from(["active", "active", "active", "paused", "blocked"])),
            target=draw(st.sampled_from([None, *anybody])) if owner else None,
            asked_at=-draw(st.sampled_from([0.0, 10.0, 40.0])),
            free_since=-draw(st.sampled_from([0.0, 4.0, 11.0])),
            moved_at=draw(st.sampled_from([None, -1.0, -40.0])),
            held_until=draw(st.sampled_from([0.0, 0.0, 12.0])) if owner else 0.0,
            load=draw(st.sampled_from([0.0, 0.5])),
        )
        for i in range(draw(st.integers(0, 30)))
    ]
    rules = draw(st.sampled_from([EAGER, FEED, ACTORS, UnitSettings(max_moves=1)]))
    cluster = Cluster(team, rows, rules)
    cluster.stuck = draw(st.sets(st.sampled_from([m.host for m in team])))
    return cluster


EVENTS = st.sampled_from(["join", "death", "drain", "leave", "nothing"])
timeless = settings(deadline=None)
seeds = st.randoms(use_true_random=False)


@timeless
@given(teams(leaving=True), st.integers(0, 80), seeds)
def test_quotas_share_out_all_leases_within_minima_and_maxima(
    team: list[UnitMember], total: int, rng: Random
) -> None:
    takers = {m.host: m for m in team if m.live and not m.draining}
    quota = quotas("u", team, {who: rng.randrange(20) for who in takers}, total)
    assert quota.keys() == takers.keys()
    room = sum(total if m.max_leases is None else m.max_leases for m in takers.values())
    assert sum(quota.values()) == min(total, room)  # all of P unless the maxima forbid it
    minima_fit = sum(m.min_leases for m in takers.values()) <= total
    for who, m in takers.items():  # B3
        assert m.max_leases is None or quota[who] <= m.max_leases
        assert not minima_fit or quota[who] >= m.min_leases


@timeless
@given(st.integers(1, 12), st.integers(0, 100), seeds)
def test_equal_hosts_get_equal_quotas_but_for_one(hosts: int, total: int, rng: Random) -> None:
    team = [member(i) for i in range(hosts)]
    quota = quotas("u", team, {m.host: rng.randrange(30) for m in team}, total)
    assert max(quota.values()) - min(quota.values()) <= 1  # B1


@timeless
@given(teams(), st.integers(0, 80), seeds)
def test_quotas_follow_the_weights_within_one_lease(
    team: list[UnitMember], total: int, rng: Random
) -> None:
    quota = quotas("u", team, {m.host: rng.randrange(20) for m in team}, total)
    minima_fit = sum(m.min_leases for m in team) <= total
    for a in team:
        for b in team:
            a_can_give = quota[a.host] > (a.min_leases if minima_fit else 0)
            b_can_take = b.max_leases is None or quota[b.host] < b.max_leases
            if a_can_give and b_can_take:  # B3: nobody deserves a's last lease more than a
                share_of_a = (quota[a.host] - 1) / Fraction(str(a.weight))
                assert share_of_a <= quota[b.host] / Fraction(str(b.weight))


@timeless
@given(teams(), st.integers(0, 80), seeds)
def test_fulfilled_quotas_reproduce_themselves(
    team: list[UnitMember], total: int, rng: Random
) -> None:
    quota = quotas("u", team, {m.host: rng.randrange(20) for m in team}, total)
    assert quotas("u", team, quota, total) == quota  # B1: then nothing moves


def every_fair_filling(team: list[UnitMember], total: int) -> set[tuple[int, ...]]:
    """All results of filling by smallest q / weight, whichever way ties are decided."""
    minima_fit = sum(m.min_leases for m in team) <= total
    fillings = {tuple(m.min_leases if minima_fit else 0 for m in team)}
    for _ in range(total - sum(next(iter(fillings)))):
        grown: set[tuple[int, ...]] = set()
        for q in fillings:
            room = [i for i, m in enumerate(team) if m.max_leases is None or q[i] < m.max_leases]
            shares = {i: q[i] / Fraction(str(team[i].weight)) for i in room}
            ties = [i for i in room if shares[i] == min(shares.values())]
            grown |= {(*q[:i], q[i] + 1, *q[i + 1 :]) for i in ties}
        fillings = grown or fillings
    return fillings


@timeless
@given(st.data(), teams(), st.integers(0, 14))
def test_quotas_are_the_fair_ones_that_need_the_fewest_moves(
    data: st.DataObject, team: list[UnitMember], total: int
) -> None:
    team = team[:4]
    n = [data.draw(st.integers(0, 8)) for _ in team]
    quota = quotas("u", team, {m.host: k for m, k in zip(team, n, strict=True)}, total)
    chosen = tuple(quota[m.host] for m in team)

    def needs(q: tuple[int, ...]) -> int:
        return sum(max(0, a - b) for a, b in zip(q, n, strict=True))

    fair = every_fair_filling(team, total)
    assert chosen in fair
    assert needs(chosen) == min(map(needs, fair))  # B2


@pytest.mark.parametrize("owned", [(4, 21), (3, 22)])
def test_weights_tie_as_the_decimal_numbers_they_are_written_as(owned: tuple[int, int]) -> None:
    # 3 / 0.1 and 21 / 0.7 differ as floats: one host would then always get the 25th lease.
    team = [member(1, weight=0.1), member(2, weight=0.7)]
    holders = dict(zip([host(1), host(2)], owned, strict=True))
    assert quotas("u", team, holders, 25) == holders


def test_single_leases_of_many_units_spread_over_the_hosts() -> None:
    team = [member(i) for i in range(4)]
    winners: Counter[UUID] = Counter()
    for number in range(400):
        winners.update(quotas(f"unit-{number}", team, {}, 1))
    assert all(60 < winners[m.host] < 140 for m in team)


def change(cluster: Cluster, event: str) -> None:
    who = next(iter(cluster.members))
    match event:
        case "join":
            cluster.members[host(50)] = member(50)
        case "death":
            cluster.members[who] = replace(cluster.members[who], live=False)
            for row in cluster.rows.values():
                row.free_since = cluster.now if row.owner == who else row.free_since
        case "drain":
            cluster.members[who] = replace(cluster.members[who], draining=True)
        case "leave":
            del cluster.members[who]


@timeless
@given(teams(least=2), st.integers(0, 60), EVENTS, seeds)
def test_a_change_of_membership_moves_the_minimum_within_two_ticks_and_then_nothing(
    team: list[UnitMember], total: int, event: str, rng: Random
) -> None:
    cluster = Cluster(team, [Row(name=f"l{i:03}") for i in range(total)])
    cluster.settle(rng)
    change(cluster, event)
    cluster.moves, needed = 0, cluster.need()
    assert cluster.settle(rng) <= 2  # B1: two ticks and the hand-off
    assert cluster.moves == needed  # B2
    counts, quota = cluster.counts(), cluster.quotas()
    assert all(counts[who] == q for who, q in quota.items())  # B3
    assert sum(quota.values()) < total or counts == Counter(quota)  # who leaves ends empty
    assert event != "nothing" or needed == 0
    cluster.now += 100.0
    assert cluster.idle()  # B1: also when everything has rested and nothing is young


@timeless
@given(clusters(), seeds)
def test_any_state_comes_to_rest_with_every_quota_met(cluster: Cluster, rng: Random) -> None:
    cluster.settle(rng)  # each plan on the way is judged by Cluster.judge
    cluster.now += 100.0  # so that who was superseded has lapsed and resting leases may move
    while cluster.settle(rng):
        cluster.now += 100.0
    counts, quota = cluster.counts(), cluster.quotas()
    assert all(counts[who] >= q for who, q in quota.items())  # B1, B3
    if sum(quota.values()) == sum(r.state == "active" for r in cluster.rows.values()):
        assert counts == Counter(quota)  # so who drains or has left the unit is empty
    assert all(r.target is None or cluster.takes_part(r.target) for r in cluster.rows.values())


@timeless
@given(clusters(), seeds)
def test_plans_do_not_depend_on_the_order_of_what_was_read(cluster: Cluster, rng: Random) -> None:
    before = {me: cluster.plan_of(me) for me in cluster.members}
    cluster.members = dict(rng.sample(list(cluster.members.items()), len(cluster.members)))
    cluster.rows = dict(rng.sample(list(cluster.rows.items()), len(cluster.rows)))
    assert {me: cluster.plan_of(me) for me in cluster.members} == before


@timeless
@given(st.integers(1, 4), st.integers(2, 5), st.integers(0, 60), seeds)
def test_no_donor_gives_more_than_max_moves_at_a_time(
    max_moves: int, hosts: int, total: int, rng: Random
) -> None:
    rules = UnitSettings(strict=True, max_moves=max_moves, rest=0.0)
    cluster = Cluster([member(i + 1) for i in range(hosts)], spread(total, 1), rules)
    while not cluster.idle():
        cluster.everyone_ticks(rng)
        cluster.everyone_ticks(rng)
        assert cluster.giving(host(1)) <= max_moves  # nor at any tick before: Cluster.judge
        assert cluster.giving(host(1)) == max_moves or cluster.need() == 0
        cluster.hand_over()
    assert cluster.need() == 0


def test_a_fifth_host_is_given_its_share_of_448_in_one_tick() -> None:
    cluster = Cluster([member(i) for i in range(1, 6)], spread(448, 4))
    assert len(cluster.tick(host(5)).ask) == 89  # three others keep the odd ones
    cluster.hand_over()
    assert cluster.idle()
    assert sorted(cluster.counts().values()) == [89, 89, 90, 90, 90]


def test_a_host_that_owns_nothing_is_counted_by_the_others() -> None:
    cluster = Cluster([member(1), member(2)], [Row(name=f"l{i}") for i in range(10)])
    assert len(cluster.tick(host(1)).take) == 5  # B3
    assert cluster.tick(host(2)).take == ("l5", "l6", "l7", "l8", "l9")


def test_the_longest_free_are_taken_first() -> None:
    rows = [Row(name="a"), Row(name="b", free_since=-1.0), Row(name="c", free_since=-2.0)]
    cluster = Cluster([member(1, max_leases=2)], rows)
    assert cluster.tick(host(1)).take == ("c", "b")


def test_what_others_leave_lying_for_two_intervals_is_taken_up_to_the_maximum() -> None:
    rows = [Row(name=f"l{i}", free_since=-2 * INTERVAL) for i in range(8)]
    cluster = Cluster([member(1, max_leases=6), member(2)], rows)
    assert len(cluster.plan_of(host(1)).take) == 4  # its quota
    cluster.now += 0.1
    assert len(cluster.plan_of(host(1)).take) == 6
    assert len(cluster.plan_of(host(2)).take) == 8


def test_the_largest_surplus_gives_first_and_of_it_small_loads_then_by_name() -> None:
    loads = {"b0": 0.9, "b1": 0.2, "b2": 0.0, "b3": 0.0, "b4": 0.9, "b5": 0.9, "b6": 0.9}
    rows = [Row(name=f"a{i}", owner=host(1)) for i in range(5)]
    rows += [Row(name=name, owner=host(2), load=load) for name, load in loads.items()]
    cluster = Cluster([member(1), member(2), member(3, max_leases=4)], rows)
    assert cluster.tick(host(3)).ask == ("b2", "b3", "b1", "a0")


@pytest.mark.parametrize(
    ("leases", "donor", "asked"),
    [(2, member(1), 0), (4, member(1), 2), (1, member(1, draining=True), 1)],
    ids=["a single odd lease rests", "a surplus above one moves", "who leaves does not wait"],
)
def test_a_lease_rests_after_a_move(leases: int, donor: UnitMember, asked: int) -> None:
    rows = [Row(name=f"l{i}", owner=host(1), moved_at=0.0) for i in range(leases)]
    cluster = Cluster([donor, member(2)], rows, FEED)
    assert len(cluster.plan_of(host(2)).ask) == asked
    cluster.now = FEED.rest
    assert len(cluster.plan_of(host(2)).ask) == (asked or 1)


def test_a_newcomer_does_not_wait_for_what_others_were_given_just_before() -> None:  # B1
    rows = [Row(name=f"{i}{j}", owner=host(i), moved_at=0.0) for i in range(1, 4) for j in range(4)]
    cluster = Cluster([member(i) for i in range(1, 5)], rows, FEED)
    assert len(cluster.plan_of(host(4)).ask) == 3


@pytest.mark.parametrize("strict", [False, True])
def test_an_overdue_hand_off_is_seized_but_never_in_a_strict_unit(strict: bool) -> None:
    rows = [Row(name=name, owner=host(1), target=host(2), asked_at=-31.0) for name in "ab"]
    rows[1].asked_at = 0.0
    cluster = Cluster([member(1), member(2)], rows, UnitSettings(strict=strict))
    assert cluster.plan_of(host(2)).seize == (() if strict else ("a",))
    assert not cluster.plan_of(host(1)).seize


@pytest.mark.parametrize(
    "target", [member(3, live=False), member(3, draining=True), member(4)], ids=lambda m: m.name
)
@pytest.mark.parametrize("state", ["active", "paused"])
def test_anybody_clears_the_request_of_a_target_that_is_gone(
    target: UnitMember, state: LeaseState
) -> None:
    present = [member(1), member(2, draining=True)] + [target] * (target.name == "host-3")
    asked = Row(name="l", owner=host(1), target=target.host, state=state)
    for me in (host(1), host(2)):
        assert Cluster(present, [asked]).plan_of(me) == Plan(clear=("l",))


def test_a_request_on_a_lease_that_is_taken_is_not_cleared_as_well() -> None:
    cluster = Cluster([member(1), member(2, live=False)], [Row(name="l", owner=host(2))])
    cluster.rows["l"].target = STRANGER
    assert cluster.plan_of(host(1)) == Plan(take=("l",))


def test_a_superseded_owner_in_a_strict_unit_is_waited_for_and_its_lease_still_counted() -> None:
    rows = [Row(name=f"l{i}", owner=host(9), held_until=4.0) for i in range(2)]
    rows += [Row(name=f"m{i}", owner=host(1)) for i in range(2)]
    cluster = Cluster([member(9, live=False), member(1), member(2)], rows, ACTORS)
    assert cluster.idle()  # host 2 is owed two of four, and nobody has one to spare
    cluster.now = 4.0
    assert cluster.tick(host(2)).take == ("l0", "l1")
    assert cluster.idle()
