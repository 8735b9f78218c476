"""Jobs in queues: entering, leaving, the clocks meanwhile, and due times. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from relevo.router import events
from relevo.router.core import offers, selectors
from relevo.router.wire import announcements

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from relevo.router.core.offers import Reason
    from relevo.router.core.selectors import WorkerSelector
    from relevo.router.core.world import JobRow, World
    from relevo.router.storage import Resources
    from relevo.router.wire.exception_policies import ExceptionPolicy, ExceptionRule


def enqueue(world: World, job: JobRow, queue_id: str, *, anew: bool = False) -> None:
    """Let a job wait in a queue.

    In the queue that it was in it keeps its place and its clocks; in another one, or `anew`, it
    comes last.
    """
    moved = job.queue_id != queue_id
    if moved:
        job.round += 1
    if moved or anew or job.enqueued_at is None:
        job.enqueued_at, job.arrival, job.entered = world.now, world.next_arrival(), False
    job.queue_id, job.status = queue_id, "queued"
    start_clocks(world, job)
    if not job.entered and not any(length_rules(world.resources, queue_id)):
        job.entered = True
    plan(world, job)
    world.act_on(job)
    data = events.JobQueued(
        **announcements.job(job), priority=job.priority,
        requested_worker_selectors=announcements.selectors(job.requested),
        attached_worker_selectors=announcements.selectors(job.attached),
    )  # fmt: skip
    world.tell_of_job(job, "job.queued", data)


def leave(world: World, job: JobRow, status: str, reason: Reason) -> None:
    """Take a job out of its queue; while it is only classified it may keep its place there."""
    offers.revoke_all(world, job, reason)
    if status != "pendingClassification":
        job.enqueued_at = None
    if job.status != status:
        job.status = status
        world.act_on(job)
    plan(world, job)
    world.touch(job)


def reclassify(world: World, job: JobRow) -> None:
    """Have a job classified; workers that declined it may be asked again."""
    job.round += 1
    leave(world, job, "pendingClassification", "jobReclassified")


def suspend(world: World, job: JobRow) -> None:
    """Keep a job from matching until its caller activates it."""
    leave(world, job, "waitingForActivation", "jobSuspended")
    world.tell_of_job(job, "job.waiting_for_activation", announcements.waiting(job))


def start_clocks(world: World, job: JobRow) -> None:
    """Selectors that expire begin to do so when the job enters a queue, once."""
    job.requested = tuple(selectors.started(one, world.now) for one in job.requested)
    job.attached = tuple(selectors.started(one, world.now) for one in job.attached)
    job.expedite = selectors.is_expedited(job.selectors)


def expire_selectors(world: World, job: JobRow) -> bool:
    """End selectors whose time is up; True if there were any."""
    if job.status != "queued":
        return False
    requested, attached = _ended(job.requested, world.now), _ended(job.attached, world.now)
    if (requested, attached) == (job.requested, job.attached):
        return False
    data = events.JobSelectorsExpired(
        **announcements.job(job),
        expired_requested_worker_selectors=_newly(job.requested, requested),
        expired_attached_worker_selectors=_newly(job.attached, attached),
    )
    job.requested, job.attached = requested, attached
    job.expedite = selectors.is_expedited(job.selectors)
    world.edit(job)
    world.tell_of_job(job, "job.selectors_expired", data)
    return True


def _ended(found: tuple[WorkerSelector, ...], now: datetime) -> tuple[WorkerSelector, ...]:
    return tuple(selectors.expired(one) if selectors.is_over(one, now) else one for one in found)


def _newly(
    before: tuple[WorkerSelector, ...], after: tuple[WorkerSelector, ...]
) -> tuple[events.SelectorData, ...]:
    pairs = zip(before, after, strict=True)
    return announcements.selectors(new for old, new in pairs if old != new)


def plan(world: World, job: JobRow) -> None:
    """Set when the matcher must look at a job next."""
    job.due_at = min(due_times(world.resources, job), default=None)


def due_times(resources: Resources, job: JobRow) -> Iterable[datetime]:
    """Yield every instant at which something is to happen to a job."""
    if job.status == "scheduled" and job.scheduled_at is not None:
        yield job.scheduled_at
    if job.status == "completed" and job.close_at is not None:
        yield job.close_at
    if job.status != "queued" or job.queue_id is None or job.enqueued_at is None:
        return
    for selector in job.selectors:
        if selector.status != "expired" and selector.expires_at is not None:
            yield selector.expires_at
    for rule, seconds in wait_rules(resources, job.queue_id):
        if firing(job.queue_id, rule) not in job.fired:
            yield job.enqueued_at + timedelta(seconds=seconds)


def firing(queue_id: str, rule: ExceptionRule) -> str:
    """Return how a job remembers that a rule of a queue has fired for it: once, ever."""
    return f"{queue_id}\n{rule.id}"  # no id of a queue has a line break


def exception_policy(resources: Resources, queue_id: str) -> ExceptionPolicy | None:
    """Return the exception policy of a queue."""
    queue = resources.queues.get(queue_id)
    if queue is None or queue.exception_policy_id is None:
        return None
    return resources.exception_policies.get(queue.exception_policy_id)


def wait_rules(resources: Resources, queue_id: str) -> Iterable[tuple[ExceptionRule, float]]:
    """Yield the rules of a queue for jobs that wait too long, in their order."""
    policy = exception_policy(resources, queue_id)
    for rule in policy.exception_rules if policy else ():
        seconds = getattr(rule.trigger, "threshold_seconds", None)
        if seconds is not None:
            yield rule, seconds


def length_rules(resources: Resources, queue_id: str) -> Iterable[tuple[ExceptionRule, int]]:
    """Yield the rules of a queue for jobs that find it too long, in their order."""
    policy = exception_policy(resources, queue_id)
    for rule in policy.exception_rules if policy else ():
        threshold = getattr(rule.trigger, "threshold", None)
        if threshold is not None:
            yield rule, threshold
