"""Lives of the matcher: take-over, lost hints, fences, steps that break; and what is forgotten."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.kernel import faults
from relevo.kernel.leases import fencing
from relevo.router.core import exceptions
from relevo.router.jobs import selector
from relevo.router.matcher import matcher, memory
from relevo.router.service import RouterPart
from relevo.testing.clock import Clock
from tests.router.floor import Floor
from tests.router.test_matcher import length, rules, waits

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio
DAY = 86_400


async def test_a_matcher_that_takes_over_finds_what_others_left_undone(desk: Floor) -> None:  # J7
    """Everything is written by calls while nobody matches; the matcher begins with the rows."""
    await desk.open()
    await desk.router.set_queue("spill", distribution_policy="d")
    await rules(desk, length(2, {"kind": "manualReclassify", "queueId": "spill"}))
    await desk.router.policies.patch("classificationPolicies", "cp", {"fallbackQueueId": "spill"})
    for name in ("z", "y", "x"):  # the last by id came first
        await desk.job(name)
    await desk.job("policy", queue=None, classification_policy="cp")
    at = await desk.clock.now() + timedelta(seconds=30)
    await desk.job("later", schedule_at=at)
    await desk.clock.advance(31)
    async with desk.app.host(name="late"):
        await desk.becomes("waitingForActivation", "later")
        await desk.settled()
        queues = {one.id: one.queue_id async for one in desk.router.jobs(status="queued")}
        assert queues == {"z": "q", "y": "q", "x": "spill", "policy": "spill"}
    await desk.check()


async def test_a_rule_that_was_made_while_nobody_matched_counts(desk: Floor) -> None:  # J7
    await desk.open()
    await desk.job()
    await rules(desk, waits(60, {"kind": "cancel"}))
    await desk.clock.advance(61)
    async with desk.app.host(name="late"):
        await desk.becomes("cancelled")


async def test_a_restarted_matcher_offers_the_same(desk: Floor) -> None:  # J7
    await desk.open(mode="roundRobin")
    for n in range(4):
        await desk.worker(f"w{n}", capacity=3)
        await desk.job(f"j{n}")
    for life in range(2):
        async with desk.app.host(name=f"life-{life}"):
            await desk.settled()
            got = {one.id: [o.job_id for o in one.offers] async for one in desk.router.workers()}
            assert got == {f"w{n}": [f"j{n}"] for n in range(4)}
    await desk.check()


async def test_lost_wake_ups_only_delay(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor.app.wakeups, "send", lambda *_: None)
    await floor.open()
    await floor.worker()
    await floor.job()
    await floor.offered()


async def test_a_log_that_was_trimmed_makes_it_read_the_rows(floor: Floor) -> None:
    await floor.open()
    await floor.worker(capacity=9)
    await floor.job("before")
    await floor.offered("w", "before")
    database = floor.app.database

    async def trim(tx: Any) -> None:
        # As if a job had come whose hint nobody can read any more.
        await tx.execute(
            "update relevo.event_stripe set trimmed_lsn = trimmed_lsn + (1::bigint << 40)"
        )

    before = await _positions(database)
    await database.run(trim)
    await floor.job("after")
    await floor.until(lambda: _read_anew(floor), "the rows are read")
    await floor.offered("w", "after")
    assert await _positions(database) != before


async def _positions(database: Database) -> list[int]:
    rows = await database.fetch("select trimmed_lsn from relevo.event_stripe order by id")
    return [row[0] for row in rows]


async def _read_anew(floor: Floor) -> bool:
    return "after" in await floor.offers()


async def test_a_change_of_policy_between_decision_and_commit_is_seen(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:  # J2
    """The queue stops bypassing selectors just before an offer by that is committed."""
    await floor.open(mode={"kind": "longestIdle", "bypassSelectors": True})
    changed = asyncio.Event()
    point = faults.point

    async def change_first(name: str) -> None:
        if name == "before_offers" and not changed.is_set():
            changed.set()
            await floor.open(mode={"kind": "longestIdle", "bypassSelectors": False})
        await point(name)

    monkeypatch.setattr(faults, "point", change_first)
    await floor.job(selectors=[selector("skill", "==", 1)])
    await floor.worker()
    await changed.wait()
    await floor.settled()
    assert not await floor.offers()


async def test_a_step_that_breaks_keeps_no_other_from_being_done(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await floor.open()
    await rules(floor, waits(10, {"kind": "cancel"}))
    for n in range(4):
        await floor.job(f"j{n}")
    look = exceptions.look

    def breaks(world: Any, job_id: str) -> None:
        if job_id == "j2":
            raise RuntimeError("broken")
        look(world, job_id)

    monkeypatch.setattr(exceptions, "look", breaks)
    await floor.clock.advance(11)
    for n in (0, 1, 3):
        await floor.becomes("cancelled", f"j{n}")
    await floor.settled()
    assert await floor.status("j2") == "queued"


async def test_what_an_old_epoch_decided_is_refused(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:  # J19
    await floor.open()
    await floor.settled()
    tried = asyncio.Event()
    require = fencing.require

    async def seized_first(tx: Any, *fences: Any) -> None:
        if not tried.is_set():
            tried.set()
            await floor.app.database.write(
                "update relevo.lease set epoch = epoch + 1 where id = $1 returning 1",
                fences[0].lease_id,
            )
        await require(tx, *fences)

    monkeypatch.setattr(fencing, "require", seized_first)
    await floor.worker()
    await floor.job()
    await tried.wait()
    rows = await floor.app.database.fetch("select from relevo.router_offer where job_id = 'j'")
    assert len(rows) == 0
    await floor.offered()  # by whoever owns matching next
    await floor.check()


async def test_an_idle_worker_is_deregistered_after_a_week(floor: Floor) -> None:
    await floor.open(ttl=None)
    for name in ("idle", "seen", "busy"):
        await floor.worker(name, queues=["q"] if name == "busy" else [])
    await floor.job()
    assignment = await floor.accepted("busy")
    await floor.clock.advance(6 * DAY)
    await floor.router.get_worker("seen")
    await floor.app.parts.of(RouterPart).deregister_idle()
    assert {one.state async for one in floor.router.workers()} == {"active"}
    await floor.clock.advance(1.5 * DAY)
    await floor.app.parts.of(RouterPart).deregister_idle()
    states = {one.id: one.state async for one in floor.router.workers()}
    assert states == {"idle": "inactive", "seen": "active", "busy": "active"}
    await floor.finish("j", assignment)
    await floor.clock.advance(6 * DAY)
    await floor.app.parts.of(RouterPart).deregister_idle()
    assert (await floor.router.get_worker("busy")).state == "active"
    assert (await floor.told("worker/idle"))[-1] == "worker.deregistered"


async def test_ended_offers_are_remembered_for_a_day_and_declines_as_long_as_they_count(
    floor: Floor,
) -> None:  # J10
    await floor.open()
    await floor.worker("a")
    await floor.worker("b")
    await floor.job("declined", selectors=[selector("Id", "equal", "a")])
    await floor.job("moved", selectors=[selector("Id", "equal", "b")])
    offer = await floor.offered("a", "declined")
    await floor.offered("b", "moved")
    await floor.router.decline_offer("a", offer.offer_id)
    await floor.router.cancel_job("moved")
    await floor.clock.advance(2 * DAY)
    await floor.app.parts.of(RouterPart).forget()
    rows = await floor.app.database.fetch("select job_id, state from relevo.router_offer")
    assert [tuple(row) for row in rows] == [("declined", "declined")]
    await floor.settled()
    assert not await floor.offers("a")
    await floor.router.cancel_job("declined")
    await floor.app.parts.of(RouterPart).forget()
    assert await floor.app.database.fetch(
        "select from relevo.router_offer where job_id = 'declined'") == []  # fmt: skip


async def test_ended_jobs_are_kept_as_long_as_told(relevo_url: str) -> None:
    told = {"database_url": relevo_url, "router_job_retention_days": 90.0}
    async with App(settings=settings.load(told, environ={})) as app:
        floor = Floor(app, Clock(app.database))
        await floor.open()
        await floor.job("ended")
        await floor.job("waiting")
        await floor.router.cancel_job("ended")
        await floor.clock.advance(89 * DAY)
        await floor.app.parts.of(RouterPart).forget()
        assert await floor.status("ended") == "cancelled"
        await floor.clock.advance(2 * DAY)
        await floor.app.parts.of(RouterPart).forget()
        assert [one.id async for one in floor.router.jobs()] == ["waiting"]


async def test_hints_are_read_in_small_parts_without_losing_any(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "HINTS_MAX", 2)
    monkeypatch.setattr(memory, "ROWS_MAX", 3)
    monkeypatch.setattr(matcher, "ROWS_MAX", 3)
    await floor.open()
    await floor.worker(capacity=40)
    await asyncio.gather(*(floor.job(f"j{n}") for n in range(40)))
    await floor.until(lambda: _count(floor, 40), "all are offered")
    await floor.check()


async def _count(floor: Floor, number: int) -> bool:
    return len(await floor.offers()) == number
