"""Exception policies: when a rule fires for a waiting job, and its actions. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from relevo import limits
from relevo.errors import InvalidValue, RelevoError
from relevo.router import events
from relevo.router.core import jobs, offers, queueing
from relevo.router.core.states import FINISHED
from relevo.router.wire import announcements, exception_policies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.router.core.world import JobRow, World
    from relevo.router.wire.exception_policies import ExceptionAction, ExceptionRule


def enter(world: World, job_id: str, ahead: int) -> None:
    """A job has entered its queue behind `ahead` others: fire the rules for queues too long."""
    job = world.jobs.get(job_id)
    if job is None or job.status != "queued" or job.entered or job.queue_id is None:
        return
    job.entered = True
    world.touch(job)
    rules = queueing.length_rules(world.resources, job.queue_id)
    _fire(world, job, [rule for rule, threshold in rules if ahead >= threshold])


def look(world: World, job_id: str) -> None:
    """Fire the rules for jobs that have waited too long."""
    job = world.jobs.get(job_id)
    if job is None or job.status != "queued" or job.queue_id is None or job.enqueued_at is None:
        return
    waited = world.now - job.enqueued_at
    rules = queueing.wait_rules(world.resources, job.queue_id)
    _fire(world, job, [rule for rule, s in rules if waited >= timedelta(seconds=s)])


def _fire(world: World, job: JobRow, rules: Iterable[ExceptionRule]) -> None:
    """Fire each rule once per job and queue, until one takes the job away."""
    queue_id = job.queue_id
    assert queue_id is not None
    for rule in rules:
        mark = queueing.firing(queue_id, rule)
        if mark in job.fired:
            continue
        job.fired = [*job.fired, mark]
        data = events.JobExceptionTriggered(
            **announcements.job(job), rule_key=rule.id, exception_rule_id=rule.id
        )
        world.tell_of_job(job, "job.exception_triggered", data)
        for action in rule.actions:
            if job.status in FINISHED:
                break
            try:
                _act(world, job, action)
            except RelevoError as error:
                world.skipped.append((job.id, f"action {action.id!r} was refused: {error}"))
        if job.status != "queued" or job.queue_id != queue_id:
            return
    queueing.plan(world, job)


def _act(world: World, job: JobRow, action: ExceptionAction) -> None:
    match action:
        case exception_policies.CancelExceptionAction():
            jobs.cancel(world, job.id, action.note, action.disposition_code)
        case exception_policies.ManualReclassifyExceptionAction():
            _move(world, job, action)
        case exception_policies.ReclassifyExceptionAction():
            _reclassify(world, job, action)


def _move(
    world: World, job: JobRow, action: exception_policies.ManualReclassifyExceptionAction
) -> None:
    """Set queue and priority where given, and ask more of workers."""
    queue_id = action.queue_id or job.queue_id
    assert queue_id is not None
    if queue_id != job.queue_id and queue_id not in world.resources.queues:
        world.skipped.append((job.id, f"queue {queue_id!r} of action {action.id!r} is gone"))
        return
    if len(job.requested) + len(action.worker_selectors) > limits.ROUTER_SELECTORS_MAX:
        raise InvalidValue(f"job {job.id!r} asks for too much of workers already")
    if action.priority not in (None, job.priority) or action.worker_selectors:
        world.edit(job)
    job.priority = job.priority if action.priority is None else action.priority
    job.requested = job.requested + tuple(action.worker_selectors)
    if queue_id != job.queue_id:
        offers.revoke_all(world, job, "jobMoved")
        queueing.enqueue(world, job, queue_id)
        return
    if action.worker_selectors:
        offers.revoke_all(world, job, "selectorsChanged")
    if job.status == "queued":
        queueing.start_clocks(world, job)
    world.touch(job)


def _reclassify(
    world: World, job: JobRow, action: exception_policies.ReclassifyExceptionAction
) -> None:
    """Change labels and policy where given, and classify."""
    policy_id = action.classification_policy_id or job.policy_id
    if policy_id is None or policy_id not in world.resources.classification_policies:
        what = "is gone" if policy_id else "is given neither by the action nor by the job"
        world.skipped.append((job.id, f"the policy of action {action.id!r} {what}"))
        return
    merged = {**job.labels, **action.labels_to_upsert}
    job.labels = {key: value for key, value in merged.items() if value is not None}
    job.policy_id = policy_id
    world.edit(job)
    queueing.reclassify(world, job)
