"""Applies the result of a classification to its job. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.router import events
from relevo.router.core import queueing
from relevo.router.core.classification import Classified, Unclassifiable
from relevo.router.events import ErrorData
from relevo.router.wire import announcements

if TYPE_CHECKING:
    from relevo.router.core.world import JobRow, World
    from relevo.router.wire.policies import ClassificationPolicy


def classified(
    world: World,
    job_id: str,
    round_: int,
    policy: ClassificationPolicy | None,
    outcome: Classified | Unclassifiable,
) -> bool:
    """Write an outcome, unless the job or its policy have changed since they were read."""
    job = world.jobs.get(job_id)
    if job is None or job.status != "pendingClassification":
        return False
    if (job.version, job.round) != (outcome.job_version, round_):
        return False
    if world.resources.classification_policies.get(job.policy_id or "") != policy:
        return False
    if isinstance(outcome, Unclassifiable):
        _fail(world, job, outcome.errors)
    elif outcome.queue_id not in world.resources.queues:
        gone = f"queue {outcome.queue_id!r} was deleted meanwhile; classify the job again"
        _fail(world, job, (ErrorData(code="QueueNotFound", message=gone),))
    else:
        _send(world, job, outcome)
    return True


def _send(world: World, job: JobRow, outcome: Classified) -> None:
    job.priority, job.attached = outcome.priority, outcome.attached
    world.edit(job)
    data = events.JobClassified(
        **{**announcements.job(job), "queue_id": outcome.queue_id},
        queue_details=announcements.queue(world.resources, outcome.queue_id),
        classification_policy_id=job.policy_id, priority=job.priority,
        attached_worker_selectors=announcements.selectors(job.attached),
    )  # fmt: skip
    world.tell_of_job(job, "job.classified", data)
    queueing.enqueue(world, job, outcome.queue_id)


def _fail(world: World, job: JobRow, errors: tuple[ErrorData, ...]) -> None:
    job.status = "classificationFailed"
    queueing.plan(world, job)
    world.act_on(job)
    data = events.JobClassificationFailed(
        **announcements.job(job), classification_policy_id=job.policy_id, errors=errors
    )
    world.tell_of_job(job, "job.classification_failed", data)
