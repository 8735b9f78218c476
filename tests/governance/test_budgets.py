"""Lanes and consumers under one budget: never above it, and nothing waits for a permit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import App
from relevo.errors import Conflict, InvalidValue, NotFound, RelevoError
from relevo.jobs.model import Lane
from relevo.kernel.running.budgets import Budget, LaneBudget, LocalBudget, LocalBudgets
from relevo.kernel.running.lanes import SHARED_SECONDS, HostLane

pytestmark = pytest.mark.anyio


class Gauge:
    """Counts runs at once, and how many have ended."""

    def __init__(self) -> None:
        self.running = self.most = self.ended = 0
        self.open = asyncio.Event()
        self.entered = asyncio.Condition()

    async def run(self, *_: Any) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        async with self.entered:
            self.entered.notify_all()
        try:
            await self.open.wait()
            await asyncio.sleep(0)
        finally:
            self.running -= 1
            self.ended += 1
            async with self.entered:
                self.entered.notify_all()

    async def until(self, **wanted: int) -> None:
        async with asyncio.timeout(30), self.entered:
            await self.entered.wait_for(
                lambda: all(getattr(self, name) >= count for name, count in wanted.items())
            )


async def test_jobs_and_messages_share_a_pool(relevo_url: str) -> None:
    app, gauge, budgets = App(relevo_url), Gauge(), LocalBudgets({"erp": 3})
    app.use_budgets(budgets)
    app.jobs.configure(Lane(name="erp", slots=8, pool="erp"))
    app.job("charge", lane="erp")(gauge.run)
    app.job("refund", pool="erp")(gauge.run)
    orders = app.queue("orders")
    app.consumers("orders", sources=[orders], concurrency=8, pool="erp")(gauge.run)
    free = Gauge()
    free.open.set()
    app.job("mail")(free.run)
    budget = budgets._budgets["erp"]
    async with app, app.host():
        jobs = [await app.jobs.submit(name, {}) for name in ["charge", "refund"] * 10]
        await asyncio.gather(*(orders.send(b"x") for _ in range(20)))
        await gauge.until(running=3)
        mail = await app.jobs.submit("mail", {})  # lanes without a budget go on
        await mail.wait(timeout=30)
        held = await app.database.fetchval(
            "select count(*) from relevo.job where status = 20"
        ) + await app.database.fetchval(
            "select count(*) from relevo.message where host is not null"
        )
        assert held == 3  # no claimed work waits for a permit
        gauge.open.set()
        await gauge.until(ended=40)
        for job in jobs:
            await job.wait(timeout=30)
        assert gauge.most == 3  # I44
    assert budget.in_use == 0


async def test_an_idle_lane_holds_no_permit(relevo_url: str) -> None:
    app, gauge, budgets = App(relevo_url), Gauge(), LocalBudgets({"erp": 1})
    app.use_budgets(budgets)
    app.job("charge", pool="erp")(gauge.run)
    gauge.open.set()
    async with app, app.host():
        for _ in range(3):
            job = await app.jobs.submit("charge", {})
            await job.wait(timeout=30)
        other, came = budgets.open("erp", None), asyncio.Event()
        other.want(1, came.set)
        async with asyncio.timeout(10):
            await came.wait()
        job = await app.jobs.submit("charge", {})
        assert gauge.ended == 3
        assert other.take(1) == 1
        other.give_back(1, used=True)
        other.want(0, came.clear)
        await job.wait(timeout=30)


async def test_a_job_that_fails_and_one_that_is_retried_give_their_permits_back(
    relevo_url: str,
) -> None:
    app, budgets = App(relevo_url), LocalBudgets({"erp": 1})
    app.use_budgets(budgets)
    runs: list[str] = []

    async def fails(ctx: Any, name: str) -> None:
        runs.append(name)
        raise ValueError(name)

    app.job("fails", pool="erp", retries=0)(fails)
    async with app, app.host():
        jobs = [await app.jobs.submit("fails", {"name": str(n)}) for n in range(5)]
        for job in jobs:
            with pytest.raises(RelevoError):
                await job.wait(timeout=30)
    assert len(set(runs)) == 5
    assert budgets._budgets["erp"].in_use == 0


async def test_pools_that_nobody_knows_are_refused() -> None:
    app = App("postgresql://unused")
    app.job("charge", pool="erp")(lambda: None)
    app.jobs.registry.budgets.source = None
    with pytest.raises(Conflict, match="use_budgets"):
        app.jobs.registry.budgets.open("erp", None, 1)
    app.use_budgets(LocalBudgets({"mail": 1}))
    with pytest.raises(NotFound, match="there are mail"):
        app.jobs.registry.budgets.open("erp", None, 1)
    with pytest.raises(InvalidValue, match="lane"):
        app.job("refund", lane="default", pool="mail")
    with pytest.raises(InvalidValue):
        LocalBudget(0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["round", "lost", "begin", "end", "return"]),
        st.integers(0, 2),
        st.integers(0, 6),
    ),
    max_size=60,
)


class ModelLane:
    """A lane of three slots, that takes, claims and runs as a host does."""

    SLOTS = 3

    def __init__(self, share: Budget) -> None:
        self.budget = LaneBudget(share, self.SLOTS)
        self.waiting = self.running = self.lost = 0
        self.claims_ahead = True

    @property
    def held(self) -> int:
        return self.waiting + self.running

    def step(self, what: str, count: int) -> None:
        if what in ("round", "lost"):
            self.budget.work_waits |= not self.budget.must_look(self.held) or count > 0
            self.budget.take(self.held, count, lambda: None)
            free = self.budget.in_use - self.held - self.lost
            asked = self.budget.claim(self.held, count, ahead=self.claims_ahead)
            assert asked <= count
            if not self.claims_ahead:
                assert asked <= max(0, free)
            if asked:  # no claimed work waits for a permit: it follows those that have one
                assert self.budget.in_use >= 1
            if what == "lost":  # looked up by a later round
                self.lost += asked
                return
            claimed = min(asked, (count + 1) // 2)
            self.budget.note(asked + self.lost, claimed, self.held)
            self.waiting, self.lost = self.waiting + claimed, 0
        elif what == "begin" and self.waiting and self.running < self.budget.in_use:
            self.waiting, self.running = self.waiting - 1, self.running + 1
        elif what == "end" and self.running:
            self.running -= 1
            self.budget.keep(self.held, used=True)
        elif what == "return":
            self.waiting -= min(count, self.waiting)
            self.budget.keep(self.held, used=False)


@given(st.integers(1, 7), STEPS, st.booleans())
def test_lanes_never_have_more_than_the_budget(
    size: int, steps: list[tuple[str, int, int]], ahead: bool
) -> None:
    budget = LocalBudget(size)
    shares: list[Budget] = [budget.open() for _ in range(3)]
    lanes = [ModelLane(share) for share in shares]
    for lane in lanes:
        lane.claims_ahead = ahead
    for what, number, count in steps:
        lanes[number].step(what, count)
        in_hand = [
            share.free + lane.budget.in_use for share, lane in zip(shares, lanes, strict=True)
        ]
        assert sum(in_hand) == budget.in_use <= size
        for lane in lanes:
            claims = lane.held + lane.lost
            assert lane.running <= lane.budget.in_use <= lane.SLOTS
            assert lane.budget.in_use >= min(claims, 1 if ahead else lane.SLOTS)
    for lane in lanes:
        lane.budget.close(0)
    assert budget.in_use == 0


@pytest.mark.parametrize("slots", [2, 8])
def test_a_lane_with_permits_claims_ahead_until_others_wait(slots: int) -> None:
    budget = LocalBudget(3)
    share, other = budget.open(), budget.open()
    lane = LaneBudget(share, slots)
    lane.work_waits = True
    lane.take(0, 100, lambda: None)  # asks for permits, and has none yet
    assert lane.claim(0, 100, ahead=True) == 0
    lane.take(0, 100, lambda: None)
    assert lane.in_use == min(slots, 3)
    assert lane.claim(0, 100, ahead=True) == 100
    lane.note(100, 100, 0)
    assert lane.claim(60, 40, ahead=True) == 40
    assert lane.claim(60, 40, ahead=False) == 0
    lane.note(40, 40, 60)
    other.want(2, lambda: None)
    assert other.free == 3 - lane.in_use
    assert lane.claim(60, 40, ahead=True) == 0  # another waits: what is here runs first
    lane.keep(1, used=True)
    assert other.free >= 1


def lane_of(slots: int, permits: int | None = None) -> HostLane[Any]:
    budget = None if permits is None else LaneBudget(LocalBudget(permits).open(), slots)
    return HostLane("erp", slots, ["charge"], SHARED_SECONDS, budget)


def claims_and_runs(lane: HostLane[Any], seconds: float) -> tuple[int, int]:
    """Claim while half of what is held has run; returns how many, and the most runs at once."""
    room = lane.room()
    if lane.budget is not None:
        lane.budget.work_waits = True
        room = lane.take_permits(room, lambda: None, ahead=True)
        lane.budget.note(room, room, lane.held)
    lane.waiting += range(room)
    most, rest = 0, lane.held // 2
    while lane.held > rest:
        while lane.may_begin and lane.running < lane.slots:
            lane.waiting.popleft()
            lane.running += 1
        most = max(most, lane.running)
        lane.end_run()
        lane.appetite.note_run(seconds)
    if room:
        lane.appetite.hungry()
    return room, most


@pytest.mark.parametrize("seconds", [0.0001, 0.002, 0.02, 5.0])
def test_a_lane_with_fewer_permits_than_slots_is_like_one_of_so_many_slots(
    seconds: float,
) -> None:
    tight, small = lane_of(8, permits=4), lane_of(4)
    assert claims_and_runs(tight, seconds) == (0, 0)  # it asks for permits
    steps = [(claims_and_runs(tight, seconds), claims_and_runs(small, seconds)) for _ in range(20)]
    for with_permits, with_slots in steps:
        assert with_permits == with_slots
        assert with_permits[1] <= 4
    if seconds < 0.01:
        assert max(room for (room, _), _ in steps) > 8


def test_more_permits_open_more_slots() -> None:
    budget = LocalBudget(4)
    other = budget.open()
    other.want(3, lambda: None)
    lane: HostLane[Any] = HostLane("erp", 8, ["charge"], budget=LaneBudget(budget.open(), 8))
    assert claims_and_runs(lane, 0.0001) == (0, 0)
    assert claims_and_runs(lane, 0.0001) == (1, 1)
    other.want(0, lambda: None)
    assert claims_and_runs(lane, 0.0001)[1] == 4
