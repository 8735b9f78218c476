"""`/v1/bulk-deletes`: preview a query, delete its rows by a job, and follow that job.

A bulk delete is a job: cancel, pause and delete it like other jobs, under `/v1/jobs`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.dataverse.bulk import RowQuery
from relevo.dataverse.bulk.handlers import DELETE as HANDLER
from relevo.dataverse.bulk.sources import JOB_COLUMNS
from relevo.dataverse.http.bulk_actions import RUN, bounds_of, value_of
from relevo.dataverse.http.changes import DELETE
from relevo.dataverse.http.requester import READ, need, requester_of
from relevo.dataverse.users.model import narrower
from relevo.errors import InvalidRecurrence, InvalidValue, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.jobs.errors import JobMissing
from relevo.jobs.http.jobs import jobs_found, page_of, seen, views_of
from relevo.jobs.http.models import ByJob, Status
from relevo.jobs.http.submits import JobSubmitted, RecurrenceBody
from relevo.jobs.model import NAME_LENGTH_MAX, SYSTEM, Recurrence
from relevo.jobs.querying.catalogue import JOBS
from relevo.jobs.querying.views import shown_code
from relevo.kernel.operation import Operations
from relevo.kernel.pages import first
from relevo.kernel.querying.fetchxml.conditions import Asker
from relevo.store.http.bulk import ItemCondition
from relevo.store.query import CONDITIONS_MAX

if TYPE_CHECKING:
    from relevo.dataverse.bulk.model import RecordedFailure
    from relevo.dataverse.http.requester import Requester
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.jobs.model import Job

QUERIES_MAX: Final = 100
FILTER_LENGTH_MAX: Final = limits.QUERY_URL_BYTES_MAX


operation = Operations(minds_reach=True)


class BulkRows(Struct, frozen=True, kw_only=True):
    """A query for rows: items of a container, or jobs."""

    container: Annotated[str, Meta(min_length=1, description="Items of this container.")] | None = (
        None
    )
    jobs: Annotated[
        bool,
        Meta(
            description="Jobs instead: paths are columns of `asyncoperation`. Only completed ones,"
            " unless a condition names `statecode` or `statuscode`."
        ),
    ] = False
    where: Annotated[
        tuple[ItemCondition, ...],
        Meta(max_length=CONDITIONS_MAX, description="Conditions, all of which must hold."),
    ] = ()
    filter: (
        Annotated[
            str,
            Meta(
                max_length=FILTER_LENGTH_MAX,
                description="A further condition, as in OData's `$filter`, over columns of jobs or"
                " of the container's table: `statecode eq 3 and not (depth gt 1)`. Relative"
                " conditions refer to the start of each run.",
            ),
        ]
        | None
    ) = None


class PreviewBulkDelete(BulkRows, frozen=True, kw_only=True):
    """A query to preview."""


class BulkPreview(Struct, frozen=True, kw_only=True):
    """The rows that a bulk delete would delete now."""

    count: int
    sample: list[Any]
    """The first ten: items as they are stored, or jobs as `/v1/jobs` shows them."""


class CreateBulkDelete(Struct, frozen=True, kw_only=True):
    """What to delete, when, and how often."""

    queries: Annotated[
        tuple[BulkRows, ...],
        Meta(
            min_length=1,
            max_length=QUERIES_MAX,
            description="Objects with `container` or `jobs`, and `where`; they run in order.",
        ),
    ]
    name: Annotated[
        str,
        Meta(min_length=1, max_length=NAME_LENGTH_MAX, description="The name of the job."),
    ] = "Bulk delete"
    start: Annotated[datetime, Meta(tz=True, description="Not before this time.")] | None = None
    recurrence: (
        Annotated[RecurrenceBody, Meta(description="Repeats it, daily or less often.")] | None
    ) = None
    max_failures: (
        Annotated[int, Meta(ge=0, description="The job fails if more rows than this fail.")] | None
    ) = None


class ListBulkDeletes(Struct, frozen=True, kw_only=True):
    """A page of bulk deletes."""

    status: Annotated[
        tuple[Status, ...], Meta(max_length=8, description="Only with these statuses.")
    ] = ()
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


class ListFailures(ByJob, frozen=True, kw_only=True):
    """A page of failures of a bulk delete."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


class BulkDeleteView(Struct, frozen=True, kw_only=True):
    """A bulk delete, without its conditions, which are the payload of its job."""

    id: UUID
    """The id of its job."""
    name: str
    sources: list[str]
    """The container of each query, or `asyncoperation`."""
    status: str
    success: int
    failure: int
    """How many rows could not be deleted; `/failures` lists them."""
    progress: float | None
    owner: UUID | None
    created_at: datetime
    completed_at: datetime | None
    postpone_until: datetime | None
    series: UUID | None
    pattern: str | None
    friendly_message: str | None


class BulkDeleteFailure(Struct, frozen=True, kw_only=True):
    """A row that was not deleted."""

    row_id: str
    query_index: int
    code: str | None
    message: str
    at: datetime


class _FailurePosition(Struct, frozen=True, array_like=True):
    at: datetime
    id: UUID


@operation(
    "bulk_deletes.preview", "POST /v1/bulk-deletes:preview", RUN, audit=False, errors=(NotFound,)
)
async def preview(
    services: Services, principal: Principal, command: PreviewBulkDelete
) -> BulkPreview:
    """Count what a bulk delete would delete, and show the first rows."""
    requester = await requester_of(services, principal)
    row_query = await _rows(services, principal, requester, command)
    seeing = READ if row_query.of_jobs else "items:read"
    need(principal, seeing, seeing)
    # A caller that may delete more than it may read sees only what it may read.
    visible = msgspec.structs.replace(row_query, reach=narrower(row_query.reach, row_query.scope))
    caller = msgspec.structs.replace(requester.caller, scope=row_query.scope)
    matched = await services.app.bulk.preview(visible, Asker(caller, requester.user.now))
    if not row_query.of_jobs:
        return BulkPreview(count=matched.count, sample=[row.body for row in matched.sample])
    keys = [row.id for row in matched.sample]
    shown = await services.app.jobs.query(requester.caller).where(id=keys) if keys else []
    return BulkPreview(count=matched.count, sample=list(await views_of(services, principal, shown)))


@operation(
    "bulk_deletes.create",
    "POST /v1/bulk-deletes",
    RUN,
    errors=(NotFound, InvalidRecurrence),
    status=201,
)
async def create(
    services: Services, principal: Principal, command: CreateBulkDelete
) -> JobSubmitted:
    """Delete many rows by a job, once or repeatedly.

    The job runs in the name of the caller.
    """
    requester = await requester_of(services, principal)
    queries = [await _rows(services, principal, requester, query) for query in command.queries]
    recurrence = command.recurrence
    job = await services.app.bulk.delete(
        queries,
        name=command.name,
        recurrence=None if recurrence is None else Recurrence(**msgspec.structs.asdict(recurrence)),
        max_failures=command.max_failures,
        start=command.start,
        owner=None if requester.user.id == SYSTEM else requester.user.id,
    )
    return JobSubmitted(job.id)


async def _rows(
    services: Services, principal: Principal, requester: Requester, selection: BulkRows
) -> RowQuery:
    """Return the query of a request; raises if it is invalid or not allowed."""
    if selection.jobs == (selection.container is not None):
        raise InvalidValue(
            "a query selects from a container or from jobs; give one of them", pointer="/container"
        )
    chosen: dict[str, Any] = {"filter": selection.filter, **bounds_of(principal)}
    if selection.container is not None:
        need(principal, "items:write", "items:write")
        await services.app.container(selection.container).describe()
        given = tuple((one.path, one.op, one.value) for one in selection.where)
        rows = RowQuery(container=selection.container, where=given, **chosen)
    else:
        need(principal, DELETE, "job.delete")
        where = tuple(_of_job(one) for one in selection.where)
        rows = RowQuery(table=JOBS.name, where=where, **chosen)
    return await services.app.bulk.checked(rows, Asker(requester.caller, requester.user.now))


def _of_job(condition: ItemCondition) -> tuple[str, str, Any]:
    """Return a condition on jobs with its value in the type of the column."""
    path = condition.path.removeprefix("/")
    if path not in JOB_COLUMNS:
        raise InvalidValue(
            f"unknown column {path[:64]!r}; jobs have {', '.join(sorted(JOB_COLUMNS))}",
            pointer="/where",
        )
    kind = JOBS.by_name[path].type
    match condition.op, condition.value:
        case "exists", value:
            return path, condition.op, value
        case "in", list(values):
            return path, condition.op, [value_of(one, kind) for one in values]
        case _, value:
            return path, condition.op, value_of(value, kind)


@operation("bulk_deletes.list", "GET /v1/bulk-deletes", READ)
async def list_deletes(
    services: Services, principal: Principal, command: ListBulkDeletes
) -> Page[BulkDeleteView]:
    """List bulk deletes and their progress.

    Newest first.
    """
    requester = await requester_of(services, principal)
    query = services.app.jobs.query(requester.caller).where(handler=HANDLER)
    query = query.where(status=command.status) if command.status else query
    page = await jobs_found(query.order_by("-createdon", "-sequence"), command, payload=True)
    return page_of(services, page, await _views(services, page.jobs))


@operation("bulk_deletes.get", "GET /v1/bulk-deletes/{id}", READ, errors=(JobMissing,))
async def get(services: Services, principal: Principal, command: ByJob) -> BulkDeleteView:
    """Show a bulk delete and its progress."""
    (view,) = await _views(services, [await _delete(services, principal, command.id)])
    return view


@operation(
    "bulk_deletes.failures", "GET /v1/bulk-deletes/{id}/failures", READ, errors=(JobMissing,)
)
async def failures(
    services: Services, principal: Principal, command: ListFailures
) -> Page[BulkDeleteFailure]:
    """List the rows that a bulk delete could not delete.

    In the order in which they failed.
    """
    await _delete(services, principal, command.id)
    place = paging.decode(command.cursor, _FailurePosition)
    recorded = await services.app.bulk.recorded_failures(
        command.id, command.limit + 1, None if place is None else (place.at, place.id)
    )
    return paging.page(
        services.page_bytes,
        first(recorded, command.limit),
        lambda one: _FailurePosition(one.at, one.id),
        show=_failure,
    )


async def _delete(services: Services, principal: Principal, key: UUID) -> Job:
    job = await seen(services, principal, key)
    if job.handler != HANDLER:
        raise JobMissing(f"job {key} is not a bulk delete; see /v1/jobs/{key}")
    return job


async def _views(services: Services, jobs: list[Job]) -> list[BulkDeleteView]:
    counts = await services.app.bulk.counts_of([job.id for job in jobs])
    return [_view(job, *counts.get(job.id, (0, 0))) for job in jobs]


def _view(job: Job, success: int, failure: int) -> BulkDeleteView:
    return BulkDeleteView(
        id=job.id, name=job.name, sources=_sources(job.data), status=job.status,
        success=success, failure=failure, progress=job.progress, owner=job.owner,
        created_at=job.created_at, completed_at=job.completed_at,
        postpone_until=job.postpone_until, series=job.series, pattern=job.pattern,
        friendly_message=job.friendly,
    )  # fmt: skip


class _QuerySource(Struct, frozen=True):
    container: str | None = None
    table: str | None = None


class _Sources(Struct, frozen=True):
    queries: list[_QuerySource]


def _sources(data: Any) -> list[str]:
    try:
        queries = msgspec.convert(data, _Sources).queries
    except msgspec.ValidationError:
        return []  # submitted by other means with invalid data; its run fails
    return [one.container or one.table or "import" for one in queries]


def _failure(one: RecordedFailure) -> BulkDeleteFailure:
    return BulkDeleteFailure(
        row_id=one.row_id, query_index=one.query_index, code=shown_code(one.code),
        message=one.message, at=one.at,
    )  # fmt: skip
