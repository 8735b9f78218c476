"""What happens by itself: offers, timers, exception rules, restarts of the matcher."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from relevo import App, settings
from relevo.errors import OfferGone
from relevo.router.jobs import selector
from relevo.testing.clock import Clock
from tests.router.floor import Floor

pytestmark = pytest.mark.anyio
DAY = 86_400


async def test_a_job_finds_a_worker_and_a_worker_a_job(floor: Floor) -> None:  # J2, J9
    await floor.open()
    await floor.job("first")
    await floor.worker("a")
    await floor.offered("a", "first")
    await floor.worker("b")
    await floor.job("second")
    offer = await floor.offered("b", "second")
    assert offer.capacity_cost == 1
    assert await floor.told("worker/b") == ["worker.registered", "offer.issued"]
    await floor.finish("second", await floor.accepted("b", "second"))
    assert await floor.told("job/second") == [
        "job.received", "job.queued", "job.completed", "job.closed"
    ]  # fmt: skip
    await floor.check()


async def test_an_ineligible_worker_gets_nothing(floor: Floor) -> None:  # J2
    await floor.open()
    await floor.worker("elsewhere", queues=["other"])
    await floor.worker("mute", channels={"d": 1})
    await floor.worker("small", channels={"c": 2})
    await floor.worker("unskilled", labels={"skill": 4})
    await floor.worker("off")
    await floor.router.deregister_worker("off")
    await floor.job(selectors=[selector("skill", ">=", 5)])
    await floor.settled()
    assert all([not one.offers async for one in floor.router.workers()])
    await floor.router.update_worker("unskilled", labels={"skill": 5})
    await floor.offered("unskilled")


async def test_round_robin_goes_by_id_and_its_pointer_is_durable(floor: Floor) -> None:
    await floor.open(mode="roundRobin")
    for name in ("a", "b", "c"):
        await floor.worker(name, capacity=10)
    got = []
    for n in range(4):
        await floor.job(f"j{n}")
        await floor.until(partial(_somebody, floor, f"j{n}"), "somebody is offered it")
        got.append(await _who(floor, f"j{n}"))
    assert got == ["a", "b", "c", "a"]
    pointer = await floor.app.database.fetchval("select worker_id from relevo.router_pointer")
    assert pointer == "a"


async def _who(floor: Floor, job_id: str) -> str | None:
    async for one in floor.router.workers():
        if any(offer.job_id == job_id for offer in one.offers):
            return one.id
    return None


async def _somebody(floor: Floor, job_id: str) -> bool:
    return await _who(floor, job_id) is not None


async def test_the_best_worker_is_picked_by_its_score(floor: Floor) -> None:
    rule = {"kind": "expression", "expression": "worker.sales * 2"}
    await floor.open(mode={"kind": "bestWorker", "scoringRule": rule})
    for name, sales in (("a", 1), ("b", 9), ("c", 5)):
        await floor.worker(name, labels={"sales": sales})
    for n in range(3):
        await floor.job(f"j{n}")
    await floor.offered("b", "j0")
    await floor.offered("c", "j1")
    await floor.offered("a", "j2")


async def test_so_many_offers_at_once_and_never_more(floor: Floor) -> None:  # J4
    await floor.open(mode={"kind": "longestIdle", "maxConcurrentOffers": 2})
    for name in "abc":
        await floor.worker(name)
    await floor.job()
    await floor.settled()
    got = [one.id async for one in floor.router.workers() if one.offers]
    assert got == ["a", "b"]
    await floor.router.accept_offer("a", (await floor.offers("a"))["j"].offer_id)
    assert not await floor.offers("b")
    await floor.check()


async def test_offers_go_on_after_a_channel_was_defined(floor: Floor) -> None:
    await floor.open()
    await floor.worker()
    await floor.job("before")
    await floor.offered("w", "before")
    await floor.router.define_channel("c", "Chat")
    await floor.worker("x")
    await floor.job("after")
    await floor.offered("x", "after")


async def test_the_more_urgent_job_is_served_first(floor: Floor) -> None:  # J8
    await floor.open()
    await floor.job("low", priority=1)
    await floor.job("high", priority=5)
    wish = selector("skill", "==", 1, expires_after=60, expedite=True)
    await floor.job("wished", priority=-5, selectors=[wish])
    await floor.worker("w", labels={"skill": 1})
    await floor.offered("w", "wished")
    assert (await floor.router.position("wished")).position == 1
    await floor.clock.advance(61)
    await floor.until(lambda: _expired(floor, "wished"), "the selector expires")
    assert (await floor.router.position("wished")).position == 3
    assert "job.selectors_expired" in await floor.told("job/wished")
    assert list(await floor.offers()) == ["wished"]  # what was offered stays offered
    await floor.worker("v")
    await floor.offered("v", "high")


async def _expired(floor: Floor, job_id: str) -> bool:
    return (await floor.router.get_job(job_id)).requested_worker_selectors[0].status == "expired"


async def test_after_the_preferred_worker_anybody_may_take_the_job(floor: Floor) -> None:
    await floor.open()
    await floor.worker("somebody")
    await floor.job(selectors=[selector("Id", "equal", "favourite", expires_after=30)])
    await floor.settled()
    assert not await floor.offers("somebody")
    await floor.clock.advance(30)
    await floor.offered("somebody")


async def test_a_declined_job_comes_back_as_it_was_said(floor: Floor) -> None:  # J10
    await floor.open()
    await floor.worker()
    await floor.job()
    offer = await floor.offered()
    later = await floor.clock.now() + timedelta(seconds=60)
    await floor.router.decline_offer("w", offer.offer_id, retry_at=later)
    await floor.settled()
    assert not await floor.offers()
    await floor.clock.advance(61)
    again = await floor.offered()
    await floor.router.decline_offer("w", again.offer_id)
    await floor.settled()
    await floor.clock.advance(3600)
    await floor.settled()
    assert not await floor.offers()
    await floor.router.deregister_worker("w")
    await floor.worker()
    await floor.offered()
    await floor.check()


async def test_a_retry_at_once_is_one(floor: Floor) -> None:  # J10
    await floor.open()
    await floor.worker()
    await floor.job()
    offer = await floor.offered()
    now = await floor.clock.now()
    await floor.router.decline_offer("w", offer.offer_id, retry_at=now - timedelta(days=1))
    await floor.until(lambda: _another(floor, offer.offer_id), "it is offered again")


async def _another(floor: Floor, offer_id: str) -> bool:
    return any(one.offer_id != offer_id for one in (await floor.offers()).values())


async def test_who_lets_an_offer_expire_is_deregistered_and_others_are_asked(
    floor: Floor,
) -> None:  # J11
    await floor.open(ttl=900)
    await floor.worker("a", capacity=5)
    await floor.job("one")
    await floor.job("two")
    first = await floor.offered("a", "one")
    await floor.offered("a", "two")
    await floor.clock.advance(700)
    await floor.settled()
    assert len(await floor.offers("a")) == 2
    await floor.clock.advance(201)
    await floor.until(lambda: _inactive(floor, "a"), "a is gone")
    with pytest.raises(OfferGone):
        await floor.router.accept_offer("a", first.offer_id)
    told = await floor.told("worker/a")
    assert told == [
        "worker.registered", "offer.issued", "offer.issued", "offer.expired", "offer.expired",
        "worker.deregistered",
    ]  # fmt: skip
    await floor.worker("b", capacity=5)
    await floor.offered("b", "one")
    await floor.worker("a")
    await floor.check()


async def _inactive(floor: Floor, worker_id: str) -> bool:
    return (await floor.router.get_worker(worker_id)).state == "inactive"


async def test_an_installation_may_keep_who_lets_offers_expire(relevo_url: str) -> None:
    told = {"database_url": relevo_url, "router_deregister_on_expiry": False}
    async with App(settings=settings.load(told, environ={})) as app, app.host(name="h"):
        floor = Floor(app, Clock(app.database))
        await floor.open(ttl=30)
        await floor.worker()
        await floor.job()
        first = await floor.offered()
        await floor.clock.advance(31)
        await floor.until(lambda: _another(floor, first.offer_id), "it is offered again")
        assert (await floor.router.get_worker("w")).state == "active"
        assert (await floor.told("worker/w"))[-2:] == ["offer.expired", "offer.issued"]


async def test_a_scheduled_job_waits_for_its_caller_when_it_is_due(floor: Floor) -> None:  # J11
    await floor.open()
    await floor.worker()
    at = await floor.clock.now() + timedelta(hours=1)
    made = await floor.job(schedule_at=at)
    assert made.status == "pendingSchedule"
    assert await floor.status() == "scheduled"
    await floor.clock.advance(3500)
    await floor.settled()
    assert await floor.status() == "scheduled"
    await floor.clock.advance(101)
    await floor.becomes("waitingForActivation")
    assert not await floor.offers()
    done = await floor.router.update_job("j", matching_mode={"kind": "queueAndMatch"})
    assert (done.status, done.scheduled_at) == ("queued", at)
    await floor.offered()


async def test_a_close_that_was_ordered_for_later_happens_then(floor: Floor) -> None:  # J11
    await floor.open()
    await floor.worker()
    await floor.job("one")
    assignment = await floor.accepted("w", "one")
    await floor.router.complete_job("one", assignment)
    at = await floor.clock.now() + timedelta(seconds=60)
    await floor.router.close_job("one", assignment, at=at, disposition="Wrapped")
    await floor.job("two")
    await floor.settled()
    assert not await floor.offers()
    await floor.clock.advance(61)
    await floor.offered("w", "two")
    assert (await floor.router.get_job("one")).disposition_code == "Wrapped"


async def rules(floor: Floor, *found: Any) -> None:
    change = {"exceptionRules": list(found)}
    await floor.router.policies.patch("exceptionPolicies", "e", change)
    await floor.router.set_queue("q", distribution_policy="d", exception_policy="e")


def waits(seconds: float, *actions: Any) -> Any:
    trigger = {"kind": "waitTime", "thresholdSeconds": seconds}
    return {"id": f"waits-{seconds}", "trigger": trigger, "actions": list(actions)}


def length(threshold: int, *actions: Any) -> Any:
    trigger = {"kind": "queueLength", "threshold": threshold}
    return {"id": f"length-{threshold}", "trigger": trigger, "actions": list(actions)}


async def test_the_job_that_finds_the_queue_full_overflows(floor: Floor) -> None:  # J18
    await floor.open()
    await floor.router.set_queue("spill", distribution_policy="d")
    await rules(floor, length(3, {"kind": "manualReclassify", "queueId": "spill", "priority": 7}))
    for n in range(5):
        await floor.job(f"j{n}")
    await floor.settled()
    found = [
        (one.id, one.queue_id, one.priority) async for one in floor.router.jobs(status="queued")
    ]
    assert found == [
        ("j0", "q", 1), ("j1", "q", 1), ("j2", "q", 1), ("j3", "spill", 7), ("j4", "spill", 7)
    ]  # fmt: skip
    assert await floor.told("job/j4") == [
        "job.received", "job.queued", "job.exception_triggered", "job.queued"
    ]  # fmt: skip


async def test_a_job_that_has_waited_too_long_is_cancelled(floor: Floor) -> None:  # J11, J18
    await floor.open()
    await rules(floor, waits(900, {"kind": "cancel", "note": "sorry"}))
    await floor.job()
    await floor.clock.advance(700)
    await floor.settled()
    assert await floor.status() == "queued"
    await floor.clock.advance(201)
    await floor.becomes("cancelled")
    assert (await floor.router.get_job("j")).notes[0].message == "sorry"


async def test_a_rule_that_is_made_later_counts_for_jobs_that_wait(floor: Floor) -> None:  # J11
    await floor.open()
    await floor.job("old")
    await floor.clock.advance(100)
    await rules(floor, waits(60, {"kind": "manualReclassify", "priority": 9}))
    await floor.until(lambda: _has_priority(floor, "old", 9), "the rule fires, late")
    await rules(
        floor,
        waits(60, {"kind": "manualReclassify", "priority": 9}),
        waits(200, {"kind": "cancel"}),
    )
    await floor.settled()
    assert await floor.status("old") == "queued"
    await floor.clock.advance(101)
    await floor.becomes("cancelled", "old")
    assert (await floor.told("job/old")).count("job.exception_triggered") == 2


async def _has_priority(floor: Floor, job_id: str, priority: int) -> bool:
    return (await floor.router.get_job(job_id)).priority == priority


async def test_offers_and_rounds_are_counted(floor: Floor) -> None:
    metrics = floor.app.metrics.registry
    await floor.open(ttl=60.0)
    await floor.worker("declines")
    await floor.job()
    offer = await floor.offered("declines")
    await floor.router.decline_offer("declines", offer.offer_id)
    await floor.worker("accepts")
    await floor.accepted("accepts")
    await floor.worker("waits", channels={"d": 1})
    await floor.job("forgotten", channel="d")
    await floor.offered("waits", "forgotten")
    await floor.clock.advance(61)
    await floor.until(lambda: _is_told(floor, "worker/waits", "offer.expired"), "it runs out")
    await floor.settled()
    rows = await floor.app.database.fetch(
        "select substr(type, 21) as event, count(*) as n from relevo.event"
        " where type like 'relevo.router.offer.%' group by 1"
    )
    assert {row["event"] for row in rows} >= {"issued", "accepted", "declined", "expired"}
    for row in rows:
        name = "relevo_router_offers_total"
        assert metrics.get_sample_value(name, {"event": row["event"]}) == row["n"]
    rounds = metrics.get_sample_value("relevo_router_match_seconds_count")
    assert rounds is not None
    assert rounds > 0


async def _is_told(floor: Floor, subject: str, event: str) -> bool:
    return event in await floor.told(subject)
