"""`/v1/jobs`: submit, find, follow and command system jobs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from relevo.dataverse.http.requester import PAYLOAD, READ, need, requester_of, scope_of
from relevo.errors import InvalidQuery, InvalidValue, QueryTooCostly
from relevo.http import paging
from relevo.http.etags import version_of
from relevo.http.paging import Page
from relevo.jobs.core.reasons import JobExplanation
from relevo.jobs.core.uniqueness import Unique
from relevo.jobs.errors import (
    BatchClosed,
    BatchMissing,
    JobMissing,
    JobRefused,
    PlatformJob,
    StaleJob,
)
from relevo.jobs.http.models import (
    COUNT_MAX,
    ByJob,
    CancelJob,
    ChosenJobs,
    CommandJob,
    CountJobs,
    JobPayload,
    JobsCounted,
    JobUnblocked,
    JobView,
    JobWaited,
    ListJobs,
    PostponeJob,
    WaitForJob,
    payload_of,
    view_of,
)
from relevo.jobs.http.submits import (
    JobsSubmitted,
    JobSubmitted,
    RunJobAgain,
    SubmitJob,
    SubmitJobs,
    UniqueBody,
)
from relevo.jobs.model import SYSTEM, Recurrence
from relevo.jobs.registry import check_open
from relevo.kernel.operation import OperationOptions, Operations, OtherStatus, Versioned
from relevo.kernel.pages import Fetched
from relevo.kernel.querying.model import Position

if TYPE_CHECKING:
    from relevo.dataverse.http.bulk_deletes import ListBulkDeletes
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.jobs.model import Job
    from relevo.jobs.querying.query import JobPage, JobQuery

V = TypeVar("V")
_EQUAL: Final = ("state", "status", "handler", "lane", "type", "token", "series", "batch", "origin")


_COMMAND: Final[OperationOptions] = {
    "errors": (JobMissing, JobRefused, StaleJob, PlatformJob),
    "headers": {"if_match": "If-Match"},
}
operation = Operations(minds_reach=True)


@operation(
    "jobs.submit",
    "POST /v1/jobs",
    "jobs:submit",
    errors=(InvalidValue, JobRefused, BatchMissing, BatchClosed),
    status=201,
    outcomes=(OtherStatus(200, lambda made: made.existed, "The job of its key exists."),),
    scope="handler:{handler}",
)
async def submit_job(services: Services, principal: Principal, command: SubmitJob) -> JobSubmitted:
    """Submit a job for a handler; it is stored when the answer comes.

    A host that has its handler runs it on behalf of the submitter.
    """
    options = await _submitted(services, principal, command)
    made = await services.app.jobs.submit(**options)
    return JobSubmitted(made.id, made.existed, made.warning)


@operation(
    "jobs.submit_many",
    "POST /v1/jobs:batch",
    "jobs:submit",
    errors=(InvalidValue, JobRefused, BatchMissing, BatchClosed),
    status=201,
    scope="handler:{handler}",
)
async def submit_jobs(
    services: Services, principal: Principal, command: SubmitJobs
) -> JobsSubmitted:
    """Submit jobs of one handler that differ in their data: all of them, or none."""
    made = await services.app.jobs.submit_many(**await _submitted(services, principal, command))
    existed = [job.id for job in made if job.existed]
    return JobsSubmitted([job.id for job in made], existed, made[0].warning)


async def _submitted(
    services: Services, principal: Principal, command: SubmitJob | SubmitJobs
) -> dict[str, Any]:
    """Return the arguments of a submit that a request asks for."""
    check_open(command.handler)
    who = await requester_of(services, principal)
    options = msgspec.structs.asdict(command)
    if (recurrence := options.pop("recurrence")) is not None:
        options["recurrence"] = Recurrence(**msgspec.structs.asdict(recurrence))
    if (unique := options.pop("unique")) is not None:
        options["unique"] = _unique(unique)
    return {**options, "owner": None if who.user.id == SYSTEM else who.user.id}


def _unique(body: UniqueBody) -> Unique:
    if body.key is not None and body.fields is not None:
        raise InvalidValue("unique has a key and fields; give one of them", pointer="unique")
    key = body.key if body.fields is None else body.fields
    return Unique(key=key, window=body.window, states=body.states)


@operation("jobs.list", "GET /v1/jobs", "jobs:read", errors=(InvalidQuery, QueryTooCostly))
async def list_jobs(services: Services, principal: Principal, command: ListJobs) -> Page[JobView]:
    """List jobs, filtered by their fields and status."""
    who = await requester_of(services, principal)
    query = narrowed(services.app.jobs.query(who.caller), command)
    newest = command.order == "newest"
    query = query.order_by(*(("-createdon", "-sequence") if newest else ("createdon", "sequence")))
    found = await jobs_found(query, command, payload=False)
    views = await views_of(services, principal, found.jobs)
    return page_of(services, found, views)


@operation("jobs.count", "GET /v1/jobs/count", "jobs:read", errors=(InvalidQuery, QueryTooCostly))
async def count_jobs(services: Services, principal: Principal, command: CountJobs) -> JobsCounted:
    """Count the jobs that a list would have, up to 5,000."""
    who = await requester_of(services, principal)
    found = await narrowed(services.app.jobs.query(who.caller), command).count()
    return JobsCounted(jobs=min(found, COUNT_MAX), more=found > COUNT_MAX)


async def jobs_found(
    query: JobQuery, command: ListJobs | ListBulkDeletes, *, payload: bool
) -> JobPage:
    """Return a page of jobs that are ordered by the time of their submit."""
    after = paging.decode(command.cursor, _Place)
    position = None if after is None else Position((after.created_at, after.sequence, after.id))
    return await query.page(command.limit, position, payload=payload)


def page_of(services: Services, found: JobPage, views: list[V]) -> Page[V]:
    """Return a page of jobs as it is shown."""
    end = None if found.position is None else _Place(*found.position.values)
    pairs = Fetched(list(zip(found.jobs, views, strict=True)), found.position is not None)
    return paging.page(
        services.page_bytes,
        pairs,
        lambda pair: _Place(pair[0].created_at, pair[0].sequence, pair[0].id),
        show=lambda pair: pair[1],
        end=end,
    )


class _Place(msgspec.Struct, frozen=True, array_like=True):
    created_at: Annotated[datetime, Meta(tz=True)]
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    id: UUID


def narrowed(query: JobQuery, command: ChosenJobs) -> JobQuery:
    """Return a query with the conditions of a request."""
    wanted = {name: getattr(command, name) for name in _EQUAL}
    query = query.where(**{name: one for name, one in wanted.items() if one not in (None, ())})
    query = query.created(after=command.created_after, before=command.created_before)
    if command.id_prefix is not None:
        query = query.id_begins(command.id_prefix)
    if command.filter is not None:
        query = query.filter(command.filter)
    return query


async def views_of(services: Services, principal: Principal, jobs: list[Job]) -> list[JobView]:
    """Return jobs as they are shown, with the jobs that they wait for."""
    blocked, heads = [job.id for job in jobs if job.blocked], dict[UUID, UUID | None]()
    if blocked:
        who = await requester_of(services, principal)
        heads = await services.app.jobs.chains.blocked_by(blocked, who.caller)
    return [view_of(job, heads) for job in jobs]


async def seen(services: Services, principal: Principal, key: UUID, permission: str = READ) -> Job:
    """Return a job that a permission reaches; others are as if they were not there."""
    who = await requester_of(services, principal)
    reach = principal.reach.get(permission, "all")
    caller = msgspec.structs.replace(who.caller, scope=reach)
    job = await services.app.jobs.query(caller).where(id=key).first()
    if job is None:
        raise JobMissing(f"there is no job {key}")
    return job


@operation("jobs.get", "GET /v1/jobs/{id}", "jobs:read", errors=(JobMissing,))
async def get_job(services: Services, principal: Principal, command: ByJob) -> Versioned[JobView]:
    """Show a job."""
    job = await seen(services, principal, command.id)
    (view,) = await views_of(services, principal, [job])
    return Versioned(body=view, etag=f'W/"{job.version}"', modified_at=job.modified_at)


@operation("jobs.payload", "GET /v1/jobs/{id}/payload", "jobs:payload", errors=(JobMissing,))
async def get_payload(services: Services, principal: Principal, command: ByJob) -> JobPayload:
    """Show the data, saved state and result of a job, and the traces of its attempts."""
    job = await seen(services, principal, command.id, PAYLOAD)
    return payload_of(job)


@operation("jobs.explain", "GET /v1/jobs/{id}/explanation", "jobs:read", errors=(JobMissing,))
async def explain_job(services: Services, principal: Principal, command: ByJob) -> JobExplanation:
    """Say why a job has not run: handler, lane, token, cap, time, brake, or its place in order."""
    await seen(services, principal, command.id)
    who = await requester_of(services, principal)
    reach = principal.reach.get(READ, "all")
    return await services.app.jobs.explain(
        command.id, msgspec.structs.replace(who.caller, scope=reach)
    )


@operation(
    "jobs.wait", "GET /v1/jobs/{id}/end", "jobs:read", wait="wait_seconds", errors=(JobMissing,)
)
async def wait_for_job(services: Services, principal: Principal, command: WaitForJob) -> JobWaited:
    """Wait until a job has ended; returns its outcome."""
    await seen(services, principal, command.id)  # one that never was is not waited for
    try:
        end = await services.app.jobs.end_of(command.id, command.wait_seconds)
        done = True
        if end.gone is not None:
            return JobWaited(done=True, job=None, deleted=True)
    except TimeoutError:
        done = False
    try:
        job = await services.app.jobs.get(command.id)
        (view,) = await views_of(services, principal, [job])
    except JobMissing:
        return JobWaited(done=True, job=None)
    return JobWaited(done=done or view.state == "completed", job=view)


@operation("jobs.cancel", "POST /v1/jobs/{id}:cancel", "jobs:write", _COMMAND)
async def cancel_job(services: Services, principal: Principal, command: CancelJob) -> None:
    """Cancel a job; a running handler is asked to stop."""
    await _give(services, principal, command, "cancel", series=command.series)


@operation("jobs.pause", "POST /v1/jobs/{id}:pause", "jobs:write", _COMMAND)
async def pause_job(services: Services, principal: Principal, command: CommandJob) -> None:
    """Ask a running job to yield at its next checkpoint."""
    await _give(services, principal, command, "pause")


@operation("jobs.resume", "POST /v1/jobs/{id}:resume", "jobs:write", _COMMAND)
async def resume_job(services: Services, principal: Principal, command: CommandJob) -> None:
    """Let a suspended job go on."""
    await _give(services, principal, command, "resume")


@operation("jobs.postpone", "POST /v1/jobs/{id}:postpone", "jobs:write", _COMMAND)
async def postpone_job(services: Services, principal: Principal, command: PostponeJob) -> None:
    """Let a job wait until an instant."""
    await _give(services, principal, command, "postpone", until=command.until)


@operation("jobs.retry", "POST /v1/jobs/{id}:retry", "jobs:write", _COMMAND)
async def retry_job(services: Services, principal: Principal, command: CommandJob) -> None:
    """Run a failed or canceled job again, with its data, saved state and count of attempts."""
    await _give(services, principal, command, "rerun")


@operation(
    "jobs.run_again", "POST /v1/jobs/{id}:run-again", "jobs:submit",
    errors=(InvalidValue, JobMissing), status=201,
    outcomes=(OtherStatus(200, lambda made: made.existed, "The job of its key exists."),),
)  # fmt: skip
async def run_job_again(
    services: Services, principal: Principal, command: RunJobAgain
) -> JobSubmitted:
    """Submit a new job like another one, which it names as its origin, with the same or other data.

    To run the same job again, retry it.
    """
    need(principal, READ, READ)
    job = await seen(services, principal, command.id)
    check_open(job.handler)
    who = await requester_of(services, principal)
    fields = msgspec.structs.asdict(command)
    id_, data = fields.pop("id"), fields.pop("data")
    changes = {name: value for name, value in fields.items() if value is not None}
    owner = None if who.user.id == SYSTEM else who.user.id
    made = await services.app.jobs.run_again(id_, data, **changes, owner=owner)
    return JobSubmitted(made.id, made.existed, made.warning)


@operation(
    "jobs.unblock",
    "POST /v1/jobs/{id}:unblock",
    "jobs:write",
    errors=(JobMissing, JobRefused),
    minds_reach=False,
)
async def unblock_job(services: Services, principal: Principal, command: ByJob) -> JobUnblocked:
    """Let a job no longer wait for the one before it in the chain of its token."""
    who = await requester_of(services, principal)
    return JobUnblocked(await services.app.jobs.unblock(command.id, user=who.user.id))


@operation("jobs.delete", "DELETE /v1/jobs/{id}", "jobs:delete", _COMMAND)
async def delete_job(services: Services, principal: Principal, command: CommandJob) -> None:
    """Remove a job and its record; a running handler is asked to stop."""
    await _give(services, principal, command, "delete")


async def _give(
    services: Services, principal: Principal, command: CommandJob, name: str, **options: Any
) -> None:
    who = await requester_of(services, principal)
    permission = "jobs:delete" if name == "delete" else "jobs:write"
    scope = await scope_of(services, principal, who, permission, [command.id])
    await services.app.jobs.command(
        command.id,
        name,
        version=version_of(command.if_match),
        user=who.user.id,
        scope=scope,
        **options,
    )
