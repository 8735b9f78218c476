"""What the clock and exception rules do to waiting jobs, without a database (15.7, 17, 18)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from relevo.errors import InvalidValue
from relevo.router.core import exceptions, jobs, queueing
from tests.router.scenes import START, Scene, check_numbers, resources, rule

CANCEL = {"kind": "cancel", "note": "too late", "dispositionCode": "TimedOut"}
MOVE = {"kind": "manualReclassify", "queueId": "other"}
RAISE = {"kind": "manualReclassify", "priority": 50}
ASK = {
    "kind": "manualReclassify",
    "workerSelectors": [
        {"key": "a", "labelOperator": "equal", "value": 1, "expiresAfterSeconds": 30}
    ],
}
RECLASSIFY = {"kind": "reclassify", "classificationPolicyId": "c", "labelsToUpsert": {"late": True}}


def scene(*rules: Any) -> Scene:
    return Scene(resources(rules=rules))


def test_a_job_overflows_when_as_many_wait_as_the_threshold_says() -> None:
    found = scene(rule("r", CANCEL, length=10))
    for ahead in (9, 10, 11):
        job = found.job(f"j{ahead}")
        before = job.entered
        exceptions.enter(found.world, job.id, ahead)
        assert (before, job.entered) == (False, True)
        assert job.status == ("queued" if ahead < 10 else "cancelled")
    cancelled = found.world.jobs["j10"]
    assert (cancelled.disposition, cancelled.notes[0].message) == ("TimedOut", "too late")
    assert found.told("job/j10") == [
        "job.received", "job.queued", "job.exception_triggered", "job.cancelled"
    ]  # fmt: skip


def test_the_rules_for_entering_are_looked_at_once() -> None:  # J18
    found = scene(rule("r", RAISE, length=0))
    job = found.job()
    exceptions.enter(found.world, "j", 0)
    exceptions.enter(found.world, "j", 5)
    assert found.told().count("job.exception_triggered") == 1
    assert job.priority == 50


def test_a_job_in_a_queue_without_such_rules_has_entered_at_once() -> None:
    assert scene(rule("r", CANCEL, waits=5)).job().entered


def test_waiting_too_long_fires_at_its_time_once() -> None:  # J11, J18
    found = scene(rule("r", RAISE, waits=60))
    job = found.job()
    planned = [job.due_at]
    found.later(59.999)
    found.look()
    assert "job.exception_triggered" not in found.told()
    found.later(0.001)
    found.look()
    found.look()
    assert found.told().count("job.exception_triggered") == 1
    assert [*planned, job.due_at] == [START + timedelta(seconds=60), None]
    assert (job.priority, job.enqueued_at) == (50, START)


def test_rules_fire_in_order_until_one_takes_the_job_away() -> None:
    found = scene(
        rule("a", RAISE, waits=10), rule("b", MOVE, waits=20), rule("c", CANCEL, waits=30)
    )
    job = found.job()
    found.later(100)
    found.look()
    assert found.told("job/j")[2:] == [
        "job.exception_triggered", "job.exception_triggered", "job.queued"
    ]  # fmt: skip
    assert (job.queue_id, job.status, job.enqueued_at) == ("other", "queued", found.world.now)
    assert job.due_at is None  # the other queue has no rules


def test_a_rule_fires_once_for_a_job_and_queue_also_if_it_comes_back() -> None:  # J18
    found = scene(rule("b", MOVE, waits=20))
    found.job()
    found.later(20)
    found.look()
    job = found.job(queueId="q")
    assert job.due_at is None
    found.later(100)
    found.look()
    assert found.told().count("job.exception_triggered") == 1
    assert job.queue_id == "q"


def test_after_cancel_the_rest_is_skipped() -> None:
    found = scene(rule("a", CANCEL, MOVE, waits=1))
    job = found.job()
    found.later(1)
    found.look()
    assert (job.status, job.queue_id) == ("cancelled", "q")


def test_selectors_are_added_and_their_clocks_start_now() -> None:
    found = scene(rule("a", ASK, waits=10))
    mine = {"key": "x", "labelOperator": "equal", "value": 2}
    job = found.job(requestedWorkerSelectors=[mine])
    found.worker()
    offer = found.offer()
    found.later(10)
    found.look()
    assert [one.key for one in job.requested] == ["x", "a"]
    assert job.requested[1].expires_at == job.due_at == found.world.now + timedelta(seconds=30)
    assert (offer.state, offer.reason) == ("revoked", "selectorsChanged")


def test_a_reclassifying_rule_merges_labels_and_classifies() -> None:
    found = scene(rule("a", RECLASSIFY, waits=10))
    job = found.job(labels={"old": 1})
    found.later(10)
    found.look()
    assert (job.status, job.policy_id) == ("pendingClassification", "c")
    assert job.labels == {"old": 1, "late": True}
    assert job.enqueued_at == START  # it may keep its place


@pytest.mark.parametrize(
    "lost",
    [
        {"kind": "reclassify"},
        {"kind": "reclassify", "classificationPolicyId": "gone"},
        {"kind": "manualReclassify", "queueId": "gone"},
    ],
)
def test_an_action_that_cannot_be_done_is_recorded_and_skipped(lost: Any) -> None:
    found = scene(rule("a", lost, RAISE, waits=10))
    job = found.job()
    found.later(10)
    found.look()
    assert (job.status, job.priority, len(found.world.skipped)) == ("queued", 50, 1)


def test_an_action_that_is_refused_does_not_lose_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = scene(rule("a", CANCEL, RAISE, waits=10), rule("b", MOVE, waits=10))
    job = found.job()

    def refuse(*_: Any) -> None:
        raise InvalidValue("no")

    monkeypatch.setattr(jobs, "cancel", refuse)
    found.later(10)
    found.look()
    assert (job.priority, job.queue_id) == (50, "other")
    assert len(found.world.skipped) == 1


def test_a_rule_whose_actions_change_nothing_leaves_the_tag() -> None:  # J15
    found = scene(rule("a", {"kind": "reclassify"}, waits=10))
    before = found.job().etag
    found.later(10)
    found.look()
    assert found.world.jobs["j"].etag == before


def test_a_job_never_asks_for_more_than_the_bound() -> None:
    many = [{"key": f"k{n}", "labelOperator": "equal", "value": 1} for n in range(100)]
    found = scene(rule("a", ASK, RAISE, waits=10))
    job = found.job(requestedWorkerSelectors=many)
    found.later(10)
    found.look()
    assert (len(job.requested), job.priority, len(found.world.skipped)) == (100, 50, 1)


def test_a_selector_expires_once_and_expedites_no_more() -> None:  # J11
    wish = {
        "key": "Id", "labelOperator": "equal", "value": "ana", "expiresAfterSeconds": 30,
        "expedite": True,
    }  # fmt: skip
    found = scene()
    job = found.job(requestedWorkerSelectors=[wish])
    assert (job.expedite, job.due_at) == (True, START + timedelta(seconds=30))
    found.later(29)
    assert not queueing.expire_selectors(found.world, job)
    found.later(1)
    before = job.etag
    assert queueing.expire_selectors(found.world, job)
    assert not queueing.expire_selectors(found.world, job)
    assert (job.expedite, job.requested[0].status) == (False, "expired")
    assert job.etag != before
    data: Any = found.world.events[-1].data
    assert [one.key for one in data.expired_requested_worker_selectors] == ["Id"]
    check_numbers(found.world)


def test_moving_does_not_restart_the_clock_of_a_selector_and_replacing_does() -> None:
    wish = {"key": "a", "labelOperator": "equal", "value": 1, "expiresAfterSeconds": 30}
    found = scene()
    job = found.job(requestedWorkerSelectors=[wish])
    found.later(10)
    found.job(queueId="other")
    assert job.requested[0].expires_at == START + timedelta(seconds=30)
    found.job(requestedWorkerSelectors=[wish, {**wish, "key": "b"}])
    assert job.requested[0].expires_at == found.world.now + timedelta(seconds=30)


def test_the_clock_of_a_selector_waits_until_the_job_enters_a_queue() -> None:
    wish = {"key": "a", "labelOperator": "equal", "value": 1, "expiresAfterSeconds": 30}
    found = scene()
    job = found.job(requestedWorkerSelectors=[wish], matchingMode={"kind": "suspend"})
    assert job.requested[0].expires_at is None
    found.later(100)
    found.job(matchingMode={"kind": "queueAndMatch"})
    assert job.requested[0].expires_at == found.world.now + timedelta(seconds=30)
