"""The life of a job over rows, without a database (spec 4, 11, 12, 18)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from relevo.errors import (
    Conflict,
    InUse,
    InvalidState,
    InvalidValue,
    MissingField,
    NotFound,
    OfferGone,
    ReferenceNotFound,
    UnassignLimitReached,
)
from relevo.router.core import classification, job_patches, jobs
from relevo.router.core.classification import Classified, Unclassifiable
from relevo.router.events import ErrorData
from tests.router.scenes import START, Scene, check_loads, check_numbers, resources

if TYPE_CHECKING:
    from collections.abc import Callable

SOON = {"kind": "scheduleAndSuspend", "scheduleAt": (START + timedelta(hours=1)).isoformat()}
SUSPEND = {"kind": "suspend"}
QUEUE = {"kind": "queueAndMatch"}


def classify(scene: Scene, queue_id: str = "q", job_id: str = "j", **found: Any) -> bool:
    job = scene.world.jobs[job_id]
    outcome = Classified(
        job_version=found.pop("version", job.version), policy_version=1, queue_id=queue_id,
        queue_by="fallback", attached=(), priority=found.pop("priority", 1), trail=(),
    )  # fmt: skip
    policy = found.pop("policy", scene.world.resources.classification_policies["c"])
    return classification.classified(scene.world, job_id, job.round, policy, outcome)


def fail(scene: Scene, job_id: str = "j") -> None:
    job = scene.world.jobs[job_id]
    outcome = Unclassifiable(
        job_version=job.version, policy_version=1, trail=(),
        errors=(ErrorData(code="x", message="y"),),
    )  # fmt: skip
    policy = scene.world.resources.classification_policies["c"]
    assert classification.classified(scene.world, job_id, job.round, policy, outcome)


STATES: dict[str, Callable[[Scene], object]] = {
    "queued": lambda s: s.job(),
    "pendingClassification": lambda s: s.job(classificationPolicyId="c"),
    "classificationFailed": lambda s: fail(s, s.job(classificationPolicyId="c").id),
    "scheduled": lambda s: s.job(matchingMode=SOON),
    "waitingForActivation": lambda s: s.job(matchingMode=SUSPEND),
    "assigned": lambda s: s.assigned(),
    "completed": lambda s: s.completed(),
    "closed": lambda s: s.close(s.completed()),
    "cancelled": lambda s: jobs.cancel(s.world, s.job().id, None, None),
}


def scene_with(status: str) -> Scene:
    scene = Scene()
    STATES[status](scene)
    assert scene.world.jobs["j"].status == status
    return scene


@pytest.mark.parametrize(
    ("change", "reported", "status", "told"),
    [
        ({}, "created", "queued", ["job.received", "job.queued"]),
        ({"classificationPolicyId": "c"}, "pendingClassification", "pendingClassification",
         ["job.received"]),
        ({"matchingMode": SOON}, "pendingSchedule", "scheduled", ["job.received"]),
        ({"matchingMode": SUSPEND}, "created", "waitingForActivation",
         ["job.received", "job.waiting_for_activation"]),
        ({"matchingMode": SUSPEND, "classificationPolicyId": "c"}, "created",
         "waitingForActivation", ["job.received", "job.waiting_for_activation"]),
    ],
)  # fmt: skip
def test_a_new_job_goes_where_its_document_says(
    change: Any, reported: str, status: str, told: list[str]
) -> None:  # J5
    scene = Scene()
    document = {"channelId": "chat", "queueId": "q", **change}
    done = job_patches.patch(scene.world, "j", document)
    assert (done.created, done.reported, done.job.status) == (True, reported, status)
    assert scene.told() == told
    check_numbers(scene.world)


EDITS: list[tuple[str, dict[str, Any], str]] = [
    ("queued", {"labels": {"a": 1}}, "queued"),
    ("queued", {"classificationPolicyId": "c"}, "pendingClassification"),
    ("queued", {"matchingMode": SUSPEND}, "waitingForActivation"),
    ("queued", {"matchingMode": SOON}, "scheduled"),
    ("queued", {"queueId": "other"}, "queued"),
    ("queued", {"queueId": None, "classificationPolicyId": "c"}, "pendingClassification"),
    ("scheduled", {"matchingMode": QUEUE}, "queued"),
    ("scheduled", {"matchingMode": QUEUE, "classificationPolicyId": "c"}, "pendingClassification"),
    ("scheduled", {"labels": {"a": 1}, "queueId": "other"}, "scheduled"),
    ("scheduled", {"matchingMode": SUSPEND}, "waitingForActivation"),
    ("waitingForActivation", {"matchingMode": QUEUE, "queueId": "other"}, "queued"),
    ("waitingForActivation", {"matchingMode": SOON}, "scheduled"),
    ("waitingForActivation", {"priority": 5}, "waitingForActivation"),
    ("waitingForActivation", {"classificationPolicyId": "c"}, "waitingForActivation"),
    ("pendingClassification", {"tags": {"a": 1}}, "pendingClassification"),
    ("pendingClassification", {"labels": {"a": 1}}, "pendingClassification"),
    ("pendingClassification", {"classificationPolicyId": None}, "queued"),
    ("pendingClassification", {"matchingMode": SUSPEND}, "waitingForActivation"),
    ("classificationFailed", {"tags": {"a": 1}}, "classificationFailed"),
    ("classificationFailed", {"priority": 3}, "classificationFailed"),
    ("classificationFailed", {"labels": {"a": 1}}, "pendingClassification"),
    ("classificationFailed", {"queueId": "other"}, "pendingClassification"),
    ("classificationFailed", {"queueId": None}, "pendingClassification"),
    ("classificationFailed", {"classificationPolicyId": None}, "queued"),
    ("assigned", {"labels": {"a": 1}, "priority": 7}, "assigned"),
    ("completed", {"notes": [{"message": "m"}], "tags": {"a": 1}}, "completed"),
    ("closed", {"notes": [{"message": "m"}], "tags": {"a": 1}, "dispositionCode": "x"}, "closed"),
    ("cancelled", {"channelReference": "x"}, "cancelled"),
]


@pytest.mark.parametrize(("status", "change", "after"), EDITS)
def test_an_edit_leads_to(status: str, change: Any, after: str) -> None:  # J5
    scene = scene_with(status)
    before = scene.world.jobs["j"].etag
    done = job_patches.patch(scene.world, "j", change)
    assert done.job.status == after
    assert done.reported == {"scheduled": "pendingSchedule" if "matchingMode" in change else
                             "scheduled"}.get(after, after)  # fmt: skip
    assert done.job.etag != before  # J15
    check_loads(scene.world)
    check_numbers(scene.world)


@pytest.mark.parametrize(
    ("status", "change"),
    [
        *[("assigned", one) for one in ({"queueId": "other"}, {"channelId": "voice"},
          {"classificationPolicyId": "c"}, {"matchingMode": SUSPEND})],
        *[("completed", one) for one in ({"queueId": "other"}, {"matchingMode": QUEUE | SUSPEND})],
        *[(status, one) for status in ("closed", "cancelled") for one in (
          {"labels": {"a": 1}}, {"priority": 4}, {"queueId": "other"}, {"channelId": "voice"},
          {"requestedWorkerSelectors": [{"key": "a", "labelOperator": "equal", "value": 1}]})],
    ],
)  # fmt: skip
def test_what_history_stands_on_cannot_be_edited(status: str, change: Any) -> None:  # J14
    scene = scene_with(status)
    before = scene.frozen()
    with pytest.raises(InvalidState):
        job_patches.patch(scene.world, "j", change)
    assert scene.frozen() == before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"queueId": "nowhere"}, ReferenceNotFound),
        ({"classificationPolicyId": "none"}, ReferenceNotFound),
        ({"matchingMode": {"kind": "scheduleAndSuspend"}}, MissingField),
        ({"priority": 101}, InvalidValue),
        ({"queueId": None}, MissingField),
    ],
)
@pytest.mark.parametrize("status", ["queued", None])
def test_a_document_that_is_wrong_changes_nothing(
    status: str | None, change: Any, error: type[Exception]
) -> None:  # J14
    scene = Scene() if status is None else scene_with(status)
    before = scene.frozen()
    with pytest.raises(error):
        job_patches.patch(scene.world, "j", {"channelId": "chat", "queueId": "q", **change})
    assert scene.frozen() == before


def test_sending_a_job_back_as_it_was_answered_changes_nothing() -> None:  # J15
    scene = scene_with("queued")
    job_patches.patch(scene.world, "j", {"notes": [{"message": "m"}], "labels": {"a": 1.0}})
    before = scene.frozen()
    done = job_patches.patch(scene.world, "j", job_patches.document(scene.world.jobs["j"]))
    assert scene.frozen() == before
    assert not done.created


def _complete(scene: Scene, which: Any) -> None:
    jobs.complete(scene.world, "j", which, None)


def _unassign(scene: Scene, which: Any) -> None:
    jobs.unassign(scene.world, "j", which, suspend=False)


ACTIONS: dict[str, tuple[Callable[[Scene, Any], object], dict[str, str]]] = {
    "complete": (_complete, {"assigned": "completed", "completed": "completed"}),
    "close": (lambda s, a: s.close(a), {"completed": "closed", "closed": "closed"}),
    "unassign": (_unassign, {"assigned": "queued"}),
    "cancel": (
        lambda s, _: jobs.cancel(s.world, "j", "why", None),
        {one: "cancelled" for one in STATES if one not in ("completed", "closed")},
    ),
    "reclassify": (
        lambda s, _: jobs.reclassify(s.world, "j"),
        {one: one for one in ("pendingClassification",)}
        | {"classificationFailed": "pendingClassification"},
    ),
    "delete": (
        lambda s, _: jobs.delete(s.world, "j"),
        dict.fromkeys(("closed", "cancelled", "classificationFailed"), ""),
    ),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("status", STATES)
def test_an_action_in_a_status_does_or_is_refused(status: str, action: str) -> None:  # J5, J14
    scene = scene_with(status)
    act, leads = ACTIONS[action]
    held = next(iter(scene.world.assignments(scene.world.jobs["j"])), None)
    assignment = held.assignment_id if held else uuid4()
    before = scene.frozen()
    if status not in leads:
        wrong = (InvalidValue, InvalidState, NotFound)
        with pytest.raises(wrong):
            act(scene, assignment)
        assert scene.frozen() == before
        return
    act(scene, assignment)
    job = scene.world.jobs.get("j")
    assert (job.status if job else "") == leads[status]
    check_loads(scene.world)
    check_numbers(scene.world)


def test_reclassify_needs_a_policy() -> None:
    scene = scene_with("queued")
    with pytest.raises(InvalidValue):
        jobs.reclassify(scene.world, "j")
    with pytest.raises(NotFound):
        jobs.reclassify(scene.world, "other")


@pytest.mark.parametrize("action", ["complete", "close", "cancel"])
def test_a_repeated_action_adds_no_event_and_no_note(action: str) -> None:  # J13
    scene = Scene()
    assignment = scene.assigned() if action != "close" else scene.completed()
    acts: dict[str, Callable[[], None]] = {
        "complete": lambda: jobs.complete(scene.world, "j", assignment, "note"),
        "close": lambda: scene.close(assignment, note="note"),
        "cancel": lambda: jobs.cancel(scene.world, "j", "note", None),
    }
    acts[action]()
    before = scene.frozen()
    acts[action]()
    assert scene.frozen() == before
    assert [one.message for one in scene.world.jobs["j"].notes] == ["note"]


def test_cancelling_an_assigned_job_returns_the_capacity() -> None:
    scene = Scene()
    scene.assigned()
    scene.later(5)
    jobs.cancel(scene.world, "j", None, None)
    worker, job = scene.world.workers["w"], scene.world.jobs["j"]
    assert (worker.used, worker.holding, worker.idle_since) == (0, 0, scene.world.now)
    assert (job.disposition, job.ended_at) == ("Cancelled", scene.world.now)
    assert scene.told("job/j")[-1] == "job.cancelled"


def test_completing_keeps_the_capacity_and_closing_returns_it() -> None:
    scene = Scene()
    assignment = scene.completed()
    assert scene.world.workers["w"].used == 20
    scene.close(assignment, disposition_code="done", note="n")
    assert scene.world.workers["w"].used == 0
    job = scene.world.jobs["j"]
    assert (job.status, job.disposition, job.notes[0].message) == ("closed", "done", "n")


def test_a_later_close_happens_at_its_time_and_a_second_one_replaces_it() -> None:  # J11
    scene = Scene()
    assignment = scene.completed()
    before = scene.world.jobs["j"].etag
    scene.close(assignment, close_at=scene.world.now + timedelta(seconds=60), note="first")
    scene.close(
        assignment, close_at=scene.world.now + timedelta(seconds=90), disposition_code="second"
    )
    assert scene.world.jobs["j"].etag == before  # nothing to be seen yet, J15
    scene.later(60)
    assert not jobs.look(scene.world, "j")
    scene.later(30)
    assert jobs.look(scene.world, "j")
    job = scene.world.jobs["j"]
    assert (job.status, job.disposition, job.notes, job.due_at) == ("closed", "second", (), None)


def test_a_job_is_taken_back_three_times_at_the_most() -> None:
    scene = Scene()
    for times in range(1, 4):
        assignment = scene.assigned()
        scene.later(1)
        done = jobs.unassign(scene.world, "j", assignment, suspend=False)
        assert done.unassignment_count == times
        assert scene.world.jobs["j"].enqueued_at == scene.world.now
    assignment = scene.assigned()
    with pytest.raises(UnassignLimitReached):
        jobs.unassign(scene.world, "j", assignment, suspend=False)
    assert scene.told("job/j").count("job.unassigned") == 3
    endless = Scene(resources(unassign_max=None))
    for _ in range(5):
        jobs.unassign(endless.world, "j", endless.assigned(), suspend=False)


def test_taking_back_can_suspend() -> None:
    scene = Scene()
    jobs.unassign(scene.world, "j", scene.assigned(), suspend=True)
    job = scene.world.jobs["j"]
    assert (job.status, job.mode, job.enqueued_at) == ("waitingForActivation", "suspend", None)
    assert scene.job(matchingMode=QUEUE).status == "queued"


def test_a_schedule_is_due_once_and_waits_for_its_caller() -> None:  # J11
    scene = scene_with("scheduled")
    scene.later(3599)
    assert not jobs.look(scene.world, "j")
    scene.later(1)
    assert jobs.look(scene.world, "j")
    assert not jobs.look(scene.world, "j")
    job = scene.world.jobs["j"]
    assert (job.status, job.due_at) == ("waitingForActivation", None)
    assert scene.told("job/j") == ["job.received", "job.waiting_for_activation"]
    active = scene.job(matchingMode=QUEUE)
    assert (active.status, active.scheduled_at) == ("queued", START + timedelta(hours=1))
    assert active.enqueued_at == scene.world.now


def test_in_the_same_queue_a_classified_job_keeps_its_place() -> None:
    scene = Scene()
    job = scene.job(classificationPolicyId="c")
    assert classify(scene)
    place, rounds = (job.enqueued_at, job.arrival), job.round
    scene.later(10)
    jobs.reclassify(scene.world, "j")
    assert (job.status, job.enqueued_at) == ("pendingClassification", place[0])
    assert classify(scene)
    assert (job.enqueued_at, job.arrival) == place
    assert job.round > rounds  # who declined it may be asked again, J10
    jobs.reclassify(scene.world, "j")
    assert classify(scene, "other")
    assert (job.queue_id, job.enqueued_at) == ("other", scene.world.now)


def test_a_job_that_was_suspended_comes_back_last() -> None:
    scene = Scene()
    job = scene.job(classificationPolicyId="c")
    classify(scene)
    scene.job(matchingMode=SUSPEND)
    scene.later(10)
    scene.job(matchingMode=QUEUE)
    classify(scene)
    assert job.enqueued_at == scene.world.now


def test_a_result_for_what_has_changed_is_thrown_away() -> None:  # J17
    scene = Scene()
    job = scene.job(classificationPolicyId="c")
    version = job.version
    scene.job(labels={"a": 1})
    assert not classify(scene, version=version)
    other = resources(queues=("q",)).classification_policies["c"]
    changed = type(other)(fallback_queue_id="q", name="another")
    assert not classify(scene, policy=changed)
    assert job.status == "pendingClassification"
    assert classify(scene)
    assert not classify(scene)


def test_deleting_and_making_a_job_again_in_one_group_leaves_no_trace() -> None:
    scene = Scene()
    scene.close(scene.completed())
    jobs.delete(scene.world, "j")
    jobs.delete(scene.world, "j")
    scene.job()
    world = scene.world
    assert (world.new_jobs, world.deleted_jobs, world.assignments(world.jobs["j"])) == (
        {"j"}, set(), []
    )  # fmt: skip
    assert not world.changed_offers


def test_errors_of_wrong_states_are_conflicts() -> None:  # J21
    for one in (InvalidState, OfferGone, UnassignLimitReached, InUse):
        assert issubclass(one, Conflict)
