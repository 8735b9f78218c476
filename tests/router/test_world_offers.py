"""Offers and workers over rows, without a database (spec 15, 16)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from relevo.errors import InUse, InvalidState, NotFound, OfferGone
from relevo.router.core import jobs, offers, workers
from tests.router.scenes import CHANNELS, START, Scene, check_loads, check_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

SUSPEND = {"kind": "suspend"}


def test_one_of_two_workers_wins_and_the_other_is_told() -> None:  # J3
    scene = Scene()
    scene.job()
    for name in "ab":
        scene.worker(name)
    first, second = scene.offer(worker_id="a"), scene.offer(worker_id="b")
    assignment = scene.accept(first)
    assert scene.accept(first) == assignment  # J13
    with pytest.raises(OfferGone):
        scene.accept(second)
    assert (second.state, second.reason) == ("revoked", "acceptedByOther")
    assert scene.told("worker/b")[-1] == "offer.revoked"
    assert scene.told("worker/a").count("offer.accepted") == 1
    with pytest.raises(InvalidState):
        offers.decline(scene.world, "a", first.id, None)
    with pytest.raises(NotFound):
        offers.accept(scene.world, "b", first.id)
    with pytest.raises(NotFound):
        offers.decline(scene.world, "a", uuid4(), None)
    check_loads(scene.world)


def test_an_offer_whose_assignment_was_taken_back_is_gone() -> None:
    scene = Scene()
    assignment = scene.assigned()
    jobs.unassign(scene.world, "j", assignment, suspend=False)
    with pytest.raises(OfferGone):
        scene.accept(next(iter(scene.world.offers.values())))


def test_an_offer_whose_time_is_up_cannot_be_answered_before_its_timer() -> None:  # J11
    scene = Scene()
    scene.job()
    scene.worker()
    offer = scene.offer(ttl=10)
    scene.later(9)
    assert offers.expire(scene.world, offer.id) is None
    scene.later(1)
    for answer in (lambda: scene.accept(offer),
                   lambda: offers.decline(scene.world, "w", offer.id, None)):  # fmt: skip
        with pytest.raises(OfferGone):
            answer()
    assert offers.expire(scene.world, offer.id) is not None
    assert offers.expire(scene.world, offer.id) is None
    workers.take_for_absent(scene.world, "w")
    assert scene.told("worker/w")[-2:] == ["offer.expired", "worker.deregistered"]
    assert scene.world.workers["w"].state == "inactive"
    check_loads(scene.world)


def test_declining_twice_is_one_decline_and_a_retry_in_the_past_is_now() -> None:  # J13
    scene = Scene()
    scene.job()
    scene.worker()
    offer = scene.offer()
    offers.decline(scene.world, "w", offer.id, START - timedelta(days=1))
    before = scene.frozen()
    offers.decline(scene.world, "w", offer.id, None)
    assert scene.frozen() == before
    assert offer.retry_at == scene.world.now
    with pytest.raises(OfferGone):
        scene.accept(offer)


REVOCATIONS: list[tuple[str, Callable[[Scene], object], bool]] = [
    ("jobCancelled", lambda s: jobs.cancel(s.world, "j", None, None), True),
    ("jobMoved", lambda s: s.job(queueId="other"), True),
    ("jobSuspended", lambda s: s.job(matchingMode=SUSPEND), True),
    ("jobReclassified", lambda s: s.job(classificationPolicyId="c"), True),
    ("selectorsChanged", lambda s: s.job(requestedWorkerSelectors=[
        {"key": "a", "labelOperator": "notEqual", "value": 1}]), True),
    ("selectorsChanged", lambda s: s.job(channelId="voice"), True),
    ("workerDeregistered", lambda s: s.worker(availableForOffers=False), True),
    ("workerDeleted", lambda s: workers.delete(s.world, "w"), True),
    ("workerUpdated", lambda s: s.worker(labels={"a": 2}), True),
    ("workerUpdated", lambda s: s.worker(queues=["other"]), True),
    ("workerUpdated", lambda s: s.worker(channels=CHANNELS[1:]), True),
    ("priority", lambda s: s.job(priority=9), False),
    ("labels of the job", lambda s: s.job(labels={"a": 2}), False),
    ("the same labels", lambda s: s.worker(labels={"a": None}), False),
    ("tags", lambda s: s.worker(tags={"a": 1}), False),
    ("capacity", lambda s: s.worker(capacity=1), False),
    ("cost", lambda s: s.worker(channels=[{**CHANNELS[0], "capacityCostPerJob": 1}]), False),
    ("another queue", lambda s: s.worker(queues=["q"]), False),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "act", "gone"), REVOCATIONS)
def test_what_takes_an_offer_back(
    reason: str, act: Callable[[Scene], object], gone: bool
) -> None:  # 15.5, J4
    scene = Scene()
    scene.job()
    scene.worker()
    offer = scene.offer()
    act(scene)
    assert offer.state == ("revoked" if gone else "open")
    assert offer.reason == (reason if gone else None)
    assert ("offer.revoked" in scene.told()) is gone
    check_loads(scene.world)
    check_numbers(scene.world)


def test_a_worker_drains_and_ends_by_itself() -> None:
    scene = Scene()
    assignment = scene.completed()
    assert scene.worker(availableForOffers=False).state == "draining"
    with pytest.raises(InUse):
        workers.delete(scene.world, "w")
    scene.close(assignment)
    worker = scene.world.workers["w"]
    assert worker.state == "inactive"
    workers.delete(scene.world, "w")
    workers.delete(scene.world, "w")
    assert scene.told("worker/w")[-1] == "worker.deleted"
    assert "w" not in scene.world.workers


def test_a_worker_that_comes_back_under_its_id_has_declined_nothing() -> None:  # J10
    scene = Scene()
    first = scene.worker().registration
    scene.worker(availableForOffers=False)
    assert scene.worker(availableForOffers=True).registration != first
    known = {first, scene.world.workers["w"].registration}
    workers.delete(scene.world, "w")
    assert scene.worker().registration not in known


def test_the_properties_of_a_worker_that_changed_are_named() -> None:
    scene = Scene()
    scene.worker()
    scene.worker(capacity=7, tags={"a": 1}, labels={"b": 2})
    data: Any = scene.world.events[-1].data
    assert scene.told()[-1] == "worker.updated"
    assert set(data.updated_worker_properties) == {"TotalCapacity", "Tags", "Labels"}
    before = scene.frozen()
    scene.worker(capacity=7)
    assert scene.frozen() == before  # J15


def test_lowering_the_capacity_keeps_what_runs() -> None:  # J1
    scene = Scene()
    scene.assigned()
    worker = scene.worker(capacity=10)
    assert (worker.used, worker.capacity) == (20, 10)
