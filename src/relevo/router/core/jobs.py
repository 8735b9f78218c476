"""Actions on a job (cancel, complete, close, unassign, …) and their consequences. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import (
    InvalidState,
    InvalidValue,
    NotFound,
    UnassignLimitReached,
)
from relevo.router import events
from relevo.router.core import offers, queueing
from relevo.router.core.states import DELETABLE
from relevo.router.model import CloseJobOptions, JobNote
from relevo.router.wire import announcements

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.router.core.world import JobRow, OfferRow, World

CLASSIFIABLE: Final = frozenset({"queued", "pendingClassification", "classificationFailed"})


class Unassigned(Struct, frozen=True, rename="camel"):
    """How often a job has been taken back."""

    job_id: str
    unassignment_count: int


def cancel(world: World, job_id: str, note: str | None, disposition: str | None) -> None:
    """Finish a job without further work."""
    job = find(world, job_id)
    if job.status == "cancelled":
        return
    if job.status in ("completed", "closed"):
        raise InvalidState(f"job {job_id!r} is {job.status} and cannot be canceled any more")
    offers.revoke_all(world, job, "jobCancelled")
    held = world.current(job)
    if held is not None:
        offers.give_back(world, held, "cancelled", idle=True)
    job.disposition = disposition or "Cancelled"
    add_note(world, job, note)
    _finish(world, job, "cancelled")
    data = events.RouterJobCanceled(
        **announcements.job(job), note=note, disposition_code=job.disposition,
        worker_id=held.worker_id if held else None,
    )  # fmt: skip
    world.tell_of_job(job, "job.cancelled", data)


def complete(world: World, job_id: str, assignment_id: UUID, note: str | None) -> None:
    """The work is done; the worker keeps its capacity taken until the job is closed."""
    job, held = _assignment(world, job_id, assignment_id)
    if job.status == "completed" and held.state == "completed":
        return
    if job.status != "assigned" or held.state != "assigned":
        raise InvalidState(
            f"job {job_id!r} is {job.status}, assignment {assignment_id} is {held.state}; only an"
            " assigned job can be completed, by its present assignment"
        )
    held.state, held.completed_at = "completed", world.now
    world.changed_offers.add(held.id)
    job.status = "completed"
    add_note(world, job, note)
    world.step(job)
    data = events.JobAssignment(
        **announcements.job(job), assignment_id=str(assignment_id), worker_id=held.worker_id
    )
    world.tell_of_job(job, "job.completed", data)


def close(world: World, job_id: str, assignment_id: UUID, options: CloseJobOptions) -> None:
    """Finish a completed job and return its worker's capacity, now or later."""
    job, held = _assignment(world, job_id, assignment_id)
    if job.status == "closed" and held.state == "closed":
        return
    if job.status != "completed" or held.state != "completed":
        raise InvalidState(
            f"job {job_id!r} is {job.status}, assignment {assignment_id} is {held.state}; complete"
            " it first, then close it"
        )
    if options.close_at is not None and options.close_at > world.now:
        job.close_at = options.close_at
        job.closing = {"disposition_code": options.disposition_code, "note": options.note}
        queueing.plan(world, job)
        world.touch(job)
        return
    _close(world, job, held, options)


def _close(world: World, job: JobRow, held: OfferRow, options: CloseJobOptions) -> None:
    offers.give_back(world, held, "closed", idle=True)
    job.disposition = options.disposition_code or job.disposition or "Closed"
    job.close_at = job.closing = None
    add_note(world, job, options.note)
    _finish(world, job, "closed")
    data = events.JobClosed(
        **announcements.job(job), assignment_id=str(held.assignment_id),
        worker_id=held.worker_id, disposition_code=job.disposition,
    )  # fmt: skip
    world.tell_of_job(job, "job.closed", data)


def unassign(world: World, job_id: str, assignment_id: UUID, *, suspend: bool) -> Unassigned:
    """Take a job back from its worker, to be offered again or to wait for its caller."""
    job, held = _assignment(world, job_id, assignment_id)
    if job.status != "assigned" or held.state != "assigned":
        raise InvalidState(
            f"job {job_id!r} is {job.status}, assignment {assignment_id} is {held.state}; only an"
            " assigned job can be taken back"
        )
    most = world.resources.options.unassign_max
    if most is not None and job.unassigned >= most:
        raise UnassignLimitReached(
            f"job {job_id!r} was unassigned {job.unassigned} times, which is its limit"
        )
    offers.give_back(world, held, "unassigned", idle=True)
    job.unassigned += 1
    data = events.JobAssignment(
        **announcements.job(job), assignment_id=str(assignment_id), worker_id=held.worker_id
    )
    world.tell_of_job(job, "job.unassigned", data)
    if suspend:
        job.mode = "suspend"
        queueing.suspend(world, job)
    else:
        assert job.queue_id is not None
        queueing.enqueue(world, job, job.queue_id, anew=True)
    return Unassigned(job_id, job.unassigned)


def reclassify(world: World, job_id: str) -> None:
    """Classify a waiting job again, by its policy as it is now."""
    job = find(world, job_id)
    if job.policy_id is None:
        raise InvalidValue(f"job {job_id!r} has no classification policy; set one first")
    if job.status not in CLASSIFIABLE:
        raise InvalidState(f"job {job_id!r} is {job.status}; only a waiting job can be classified")
    queueing.reclassify(world, job)


def delete(world: World, job_id: str) -> None:
    """Delete a finished job; a missing one is no error."""
    job = world.jobs.get(job_id)
    if job is None:
        return
    if job.status not in DELETABLE:
        raise InvalidState(
            f"job {job_id!r} is {job.status}; only one that is closed, canceled or could not be"
            " classified can be deleted"
        )
    world.tell_of_job(job, "job.deleted", events.RouterJobData(**announcements.job(job)))
    world.forget_job(job)


def look(world: World, job_id: str) -> bool:
    """Carry out what is due for a job, except exception rules; True if anything was."""
    job = world.jobs.get(job_id)
    if job is None:
        return False
    if job.status == "scheduled" and job.scheduled_at and job.scheduled_at <= world.now:
        queueing.suspend(world, job)
        return True
    held = world.current(job)
    if job.status == "completed" and job.close_at and job.close_at <= world.now and held:
        options = job.closing or {}
        _close(world, job, held, CloseJobOptions(**options))
        return True
    return queueing.expire_selectors(world, job)


def find(world: World, job_id: str) -> JobRow:
    """Return a job, which must exist."""
    job = world.jobs.get(job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id!r}")
    return job


def add_note(world: World, job: JobRow, note: str | None) -> None:
    """Append a note, with the time."""
    if note is not None:
        job.notes = (*job.notes, JobNote(message=note, added_at=world.now))
        world.job_documents.add(job.id)


def _assignment(world: World, job_id: str, assignment_id: UUID) -> tuple[JobRow, OfferRow]:
    job = find(world, job_id)
    for one in world.assignments(job):
        if one.assignment_id == assignment_id:
            return job, one
    raise NotFound(f"job {job_id!r} has never had an assignment {assignment_id}")


def _finish(world: World, job: JobRow, status: str) -> None:
    job.status, job.due_at, job.ended_at = status, None, world.now
    world.step(job)
