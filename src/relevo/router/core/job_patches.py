"""Creates a job, or merges a change into it, and decides what follows from that. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.errors import (
    InvalidState,
    ReferenceNotFound,
)
from relevo.router import events, model
from relevo.router.core import offers, queueing, selectors
from relevo.router.core.states import FINISHED
from relevo.router.core.world import JobRow
from relevo.router.wire import announcements, documents, views

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.router.core.world import World
    from relevo.router.model import JobDocument


TAKEN: Final = frozenset({"assigned", "completed"})
RESTING: Final = frozenset({"waitingForActivation", "scheduled", "scheduleFailed"})
_STAYS_WHEN_TAKEN: Final = (
    ("channelId", "channel_id"),
    ("queueId", "queue_id"),
    ("classificationPolicyId", "classification_policy_id"),
    ("matchingMode", "matching_mode"),
)
_MAY_CHANGE_AFTERWARDS: Final = frozenset(
    {"notes", "tags", "disposition_code", "channel_reference"}
)


class PatchedJob(Struct, frozen=True):
    """A job after a patch, and the status to report, which it may have left already."""

    job: JobRow
    created: bool
    reported: str


def patch(world: World, job_id: str, change: Mapping[str, Any]) -> PatchedJob:
    """Create a job, or merge a change into it."""
    job = world.jobs.get(job_id)
    current = None if job is None else document(job)
    wanted: JobDocument = model.checked(
        "jobs", documents.merged("jobs", current, change), now=world.now
    )
    _check_references(world, job, wanted)
    if job is None:
        return PatchedJob(*_create(world, job_id, wanted))
    before: JobDocument = model.checked("jobs", current, now=world.now)
    changed = {
        name for name in wanted.__struct_fields__ if getattr(wanted, name) != getattr(before, name)
    }
    if not changed:
        return PatchedJob(job, False, job.status)
    _refuse_late_changes(job, changed)
    return PatchedJob(job, False, _edit(world, job, wanted, changed))


def document(job: JobRow) -> dict[str, Any]:
    """Return the fields of a job that callers may write, as on the wire."""
    return {
        "channelId": job.channel_id, "channelReference": job.channel_reference,
        "queueId": job.queue_id, "classificationPolicyId": job.policy_id,
        "priority": job.priority, "dispositionCode": job.disposition,
        "requestedWorkerSelectors": [selectors.asked(one) for one in job.requested],
        "labels": job.labels, "tags": job.tags,
        "notes": list(job.notes), "matchingMode": views.matching_mode(job),
    }  # fmt: skip


def _check_references(world: World, job: JobRow | None, wanted: JobDocument) -> None:
    queue_id, policy_id = wanted.queue_id, wanted.classification_policy_id
    resources = world.resources
    if job is None or job.channel_id != wanted.channel_id:
        resources.check_channel(wanted.channel_id, "/channelId")
    if queue_id not in (None, job and job.queue_id) and queue_id not in resources.queues:
        raise ReferenceNotFound(
            f"there is no queue {queue_id!r}; create it first", pointer="/queueId"
        )
    if (
        policy_id not in (None, job and job.policy_id)
        and policy_id not in resources.classification_policies
    ):
        raise ReferenceNotFound(
            f"there is no classification policy {policy_id!r}; create it first",
            pointer="/classificationPolicyId",
        )


def _create(world: World, job_id: str, wanted: JobDocument) -> tuple[JobRow, bool, str]:
    job = JobRow(
        id=job_id, version=world.next_arrival(), activity=0, events=0, created_at=world.now,
        modified_at=world.now, status="created", channel_id=wanted.channel_id,
        channel_reference=None, queue_id=None, policy_id=None,
        priority=1, disposition=None, mode="queueAndMatch",
        schedule_at=None, scheduled_at=None, enqueued_at=None, arrival=None, expedite=False,
        round=0, unassigned=0, fired=[], entered=False, due_at=None, close_at=None,
        ended_at=None, closing=None, requested=(), attached=(), labels={}, tags={}, notes=(),
    )  # fmt: skip
    _take_over(job, wanted)
    job.queue_id, job.requested = wanted.queue_id, wanted.requested_worker_selectors
    world.jobs[job_id] = job
    world.new_jobs.add(job_id)
    reported = {"scheduleAndSuspend": "pendingSchedule"}.get(job.mode, "created")
    if job.mode == "queueAndMatch" and job.policy_id is not None:
        reported = "pendingClassification"
    job.status = reported
    data = events.JobReceived(
        **announcements.job(job), job_status=announcements.pascal(reported),
        classification_policy_id=job.policy_id, priority=job.priority,
        requested_worker_selectors=announcements.selectors(job.requested),
        scheduled_on=job.schedule_at, unavailable_for_matching=job.mode == "suspend",
    )  # fmt: skip
    world.tell_of_job(job, "job.received", data)
    _follow_mode(world, job)
    return job, True, reported


def _take_over(job: JobRow, wanted: JobDocument) -> None:
    """Write a document's fields into the row, except the queue and the selectors."""
    job.channel_id, job.channel_reference = wanted.channel_id, wanted.channel_reference
    job.policy_id, job.priority = wanted.classification_policy_id, wanted.priority
    job.disposition, job.labels, job.tags = wanted.disposition_code, wanted.labels, wanted.tags
    job.notes = wanted.notes
    job.mode = wanted.matching_mode.kind
    job.schedule_at = wanted.matching_mode.schedule_at


def _follow_mode(world: World, job: JobRow) -> None:
    """Move a job that is in no queue to the place of its matching mode."""
    if job.mode == "suspend":
        queueing.suspend(world, job)
    elif job.mode == "scheduleAndSuspend":
        job.scheduled_at = job.schedule_at
        queueing.leave(world, job, "scheduled", "jobSuspended")
    elif job.policy_id is not None:
        queueing.reclassify(world, job)
    else:
        assert job.queue_id is not None
        queueing.enqueue(world, job, job.queue_id, anew=True)


def _refuse_late_changes(job: JobRow, changed: set[str]) -> None:
    """Refuse a change of fields that an assigned or finished job must keep."""
    if job.status in FINISHED and not changed <= _MAY_CHANGE_AFTERWARDS:
        names = ", ".join(sorted(changed - _MAY_CHANGE_AFTERWARDS))
        raise InvalidState(
            f"job {job.id!r} is {job.status}: {names} cannot be changed any more; only notes,"
            " tags, dispositionCode and channelReference can"
        )
    for wire, name in _STAYS_WHEN_TAKEN:
        if job.status in TAKEN and name in changed:
            raise InvalidState(
                f"job {job.id!r} is {job.status}: {wire} cannot be changed while a worker has it"
            )


def _edit(world: World, job: JobRow, wanted: JobDocument, changed: set[str]) -> str:
    """Apply the changed fields and their consequences; return the status to report."""
    _take_over(job, wanted)
    if "requested_worker_selectors" in changed:
        job.requested = wanted.requested_worker_selectors
    world.edit(job)
    if job.status in TAKEN | FINISHED:
        return job.status
    if "matching_mode" in changed:
        _name_queue(world, job, wanted.queue_id)
        _follow_mode(world, job)
        return "pendingSchedule" if job.status == "scheduled" else job.status
    if job.status in RESTING:
        _name_queue(world, job, wanted.queue_id)
    else:
        _settle(world, job, wanted.queue_id, changed)
    return job.status


def _settle(world: World, job: JobRow, queue_id: str | None, changed: set[str]) -> None:
    """Move a waiting or unclassified job to its place after a change."""
    queued, moved = job.status == "queued", queue_id != job.queue_id
    decided_anew = moved and (not queued or queue_id is None)
    if job.policy_id is not None and (
        decided_anew or changed & {"labels", "classification_policy_id"}
    ):
        _name_queue(world, job, queue_id)
        queueing.reclassify(world, job)
    elif job.policy_id is not None and not queued:
        # It stays where it is; a classification under way was of the old document.
        world.touch(job)
    elif moved or not queued:
        offers.revoke_all(world, job, "jobMoved")
        assert queue_id is not None  # a document without a policy names a queue
        queueing.enqueue(world, job, queue_id)
    else:
        if changed & {"requested_worker_selectors", "channel_id"}:
            offers.revoke_all(world, job, "selectorsChanged")
        _requeue(world, job)


def _name_queue(world: World, job: JobRow, queue_id: str | None) -> None:
    """Set the queue of a job that does not wait in it yet."""
    if queue_id != job.queue_id:
        offers.revoke_all(world, job, "jobMoved")
        job.queue_id, job.enqueued_at = queue_id, None
        job.round += 1


def _requeue(world: World, job: JobRow) -> None:
    """Keep a waiting job in its queue; plan its clocks and its place again."""
    queueing.start_clocks(world, job)
    queueing.plan(world, job)
    world.touch(job)
