"""`/v1/bulk-deletes`: see what a query finds, delete it by a job, and follow that.

A bulk delete is a job: it is canceled, paused and deleted as others are, under `/v1/jobs`.
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
from relevo.dataverse.http.asking import READ, asker, need
from relevo.dataverse.http.bulk import RUN, bounds_of, value_of
from relevo.dataverse.http.changes import DELETE
from relevo.dataverse.users.model import narrower
from relevo.errors import InvalidRecurrence, InvalidValue, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.jobs.errors import JobMissing
from relevo.jobs.http.jobs import jobs_found, page_of, seen, views_of
from relevo.jobs.http.models import ByJob, JobSubmitted, RecurrenceBody, Status
from relevo.jobs.model import NAME_LENGTH_MAX, SYSTEM, Recurrence
from relevo.jobs.querying.catalogue import JOBS
from relevo.jobs.querying.views import shown_code
from relevo.kernel.operation import Operations
from relevo.kernel.pages import first
from relevo.kernel.querying.fetchxml.conditions import Asker as Now
from relevo.store.http.bulk import ItemCondition
from relevo.store.query import CONDITIONS_MAX

if TYPE_CHECKING:
    from relevo.dataverse.bulk.model import RecordedFailure
    from relevo.dataverse.http.asking import Asker
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.jobs.model import Job

QUERIES_MAX: Final = 100
FILTER_LENGTH_MAX: Final = limits.QUERY_URL_BYTES_MAX


operation = Operations(minds_reach=True)


class BulkRows(Struct, frozen=True, kw_only=True):
    """Which rows: items of a container, or jobs."""

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
        Meta(max_length=CONDITIONS_MAX, description="Conditions that all have to hold."),
    ] = ()
    filter: (
        Annotated[
            str,
            Meta(
                max_length=FILTER_LENGTH_MAX,
                description="What has to hold as well, as in OData's `$filter`, over columns of"
                " jobs, or of the table that the container is. `statecode eq 3 and not"
                " (depth gt 1)`. What is relative in it is meant at the start of each run.",
            ),
        ]
        | None
    ) = None


class PreviewBulkDelete(BulkRows, frozen=True, kw_only=True):
    """Rows to be looked at before they are deleted."""


class BulkPreview(Struct, frozen=True, kw_only=True):
    """What a bulk delete would delete if it ran now."""

    count: int
    sample: list[Any]
    """The first ten: items as they are stored, or jobs as `/v1/jobs` shows them."""


class CreateBulkDelete(Struct, frozen=True, kw_only=True):
    """What is to be deleted, when and how often."""

    queries: Annotated[
        tuple[BulkRows, ...],
        Meta(
            min_length=1,
            max_length=QUERIES_MAX,
            description="Each an object of `container` or `jobs`, and `where`; they run in order.",
        ),
    ]
    name: Annotated[
        str,
        Meta(min_length=1, max_length=NAME_LENGTH_MAX, description="What people call it."),
    ] = "Bulk delete"
    start: Annotated[datetime, Meta(tz=True, description="Not before this time.")] | None = None
    recurrence: (
        Annotated[RecurrenceBody, Meta(description="Makes it a series; daily or less often.")]
        | None
    ) = None
    max_failures: (
        Annotated[int, Meta(ge=0, description="With more rows than that failed, the job fails.")]
        | None
    ) = None


class ListBulkDeletes(Struct, frozen=True, kw_only=True):
    """Which bulk deletes, and which page of them."""

    status: Annotated[
        tuple[Status, ...], Meta(max_length=8, description="Only with these statuses.")
    ] = ()
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


class ListFailures(ByJob, frozen=True, kw_only=True):
    """Of which bulk delete, and which page."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


class BulkDeleteView(Struct, frozen=True, kw_only=True):
    """A bulk delete, without the conditions that users gave it: these are the job's payload."""

    id: UUID
    """That of its job."""
    name: str
    sources: list[str]
    """What it deletes from, query by query: containers, or `asyncoperation`."""
    status: str
    success: int
    failure: int
    """How many rows could not be deleted; `/failures` says which and why."""
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


class _Place(Struct, frozen=True, array_like=True):
    at: datetime
    id: UUID


@operation("bulk_deletes.preview", "POST /v1/bulk-deletes:preview", RUN, errors=(NotFound,))
async def preview(
    services: Services, principal: Principal, command: PreviewBulkDelete
) -> BulkPreview:
    """Count what a bulk delete would delete, and show the first rows."""
    who = await asker(services, principal)
    asked = await _rows(services, principal, who, command)
    seeing = READ if asked.of_jobs else "items:read"
    need(principal, seeing, seeing)
    # Whoever deletes further than it sees is told of what it sees.
    visible = msgspec.structs.replace(asked, reach=narrower(asked.reach, asked.scope))
    caller = msgspec.structs.replace(who.caller, scope=asked.scope)
    found = await services.app.bulk.preview(visible, Now(caller, who.user.now))
    if not asked.of_jobs:
        return BulkPreview(count=found.count, sample=[row.body for row in found.sample])
    keys = [row.id for row in found.sample]
    shown = await services.app.jobs.query(who.caller).where(id=keys) if keys else []
    return BulkPreview(count=found.count, sample=list(await views_of(services, principal, shown)))


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
    """Delete many rows by a job, once or again and again.

    The job runs in the name of who asked for it.
    """
    who = await asker(services, principal)
    queries = [await _rows(services, principal, who, one) for one in command.queries]
    told = command.recurrence
    job = await services.app.bulk.delete(
        queries,
        name=command.name,
        recurrence=None if told is None else Recurrence(**msgspec.structs.asdict(told)),
        max_failures=command.max_failures,
        start=command.start,
        owner=None if who.user.id == SYSTEM else who.user.id,
    )
    return JobSubmitted(job.id)


async def _rows(services: Services, principal: Principal, who: Asker, asked: BulkRows) -> RowQuery:
    """Return the query that is meant; what it would never find, or must not, is refused."""
    if asked.jobs == (asked.container is not None):
        raise InvalidValue(
            "a query is about a container or about jobs; name one of them", pointer="/container"
        )
    chosen: dict[str, Any] = {"filter": asked.filter, **bounds_of(principal)}
    if asked.container is not None:
        need(principal, "items:write", "items:write")
        await services.app.container(asked.container).describe()
        given = tuple((one.path, one.op, one.value) for one in asked.where)
        rows = RowQuery(container=asked.container, where=given, **chosen)
    else:
        need(principal, DELETE, "job.delete")
        where = tuple(_of_job(one) for one in asked.where)
        rows = RowQuery(table=JOBS.name, where=where, **chosen)
    return await services.app.bulk.checked(rows, Now(who.caller, who.user.now))


def _of_job(asked: ItemCondition) -> tuple[str, str, Any]:
    """Return a condition on jobs whose value is written as rows have it: instants in one form."""
    path = asked.path.removeprefix("/")
    if path not in JOB_COLUMNS:
        raise InvalidValue(
            f"jobs have no column {path[:64]!r} here; there are {', '.join(sorted(JOB_COLUMNS))}",
            pointer="/where",
        )
    kind = JOBS.by_name[path].type
    match asked.op, asked.value:
        case "exists", value:
            return path, asked.op, value
        case "in", list(values):
            return path, asked.op, [value_of(one, kind) for one in values]
        case _, value:
            return path, asked.op, value_of(value, kind)


@operation("bulk_deletes.list", "GET /v1/bulk-deletes", READ)
async def list_deletes(
    services: Services, principal: Principal, command: ListBulkDeletes
) -> Page[BulkDeleteView]:
    """List bulk deletes and how far they are.

    Newest first.
    """
    who = await asker(services, principal)
    query = services.app.jobs.query(who.caller).where(handler=HANDLER)
    query = query.where(status=command.status) if command.status else query
    found = await jobs_found(query.order_by("-createdon", "-sequence"), command, payload=True)
    return page_of(services, found, await _views(services, found.jobs))


@operation("bulk_deletes.get", "GET /v1/bulk-deletes/{id}", READ, errors=(JobMissing,))
async def get(services: Services, principal: Principal, command: ByJob) -> BulkDeleteView:
    """Show a bulk delete and how far it is."""
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
    place = paging.decode(command.cursor, _Place)
    found = await services.app.bulk.recorded_failures(
        command.id, command.limit + 1, None if place is None else (place.at, place.id)
    )
    return paging.page(
        services.page_bytes,
        first(found, command.limit),
        lambda one: _Place(one.at, one.id),
        show=_failure,
    )


async def _delete(services: Services, principal: Principal, key: UUID) -> Job:
    job = await seen(services, principal, key)
    if job.handler != HANDLER:
        raise JobMissing(f"job {key} is no bulk delete; see it under /v1/jobs")
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


class _Source(Struct, frozen=True):
    container: str | None = None
    table: str | None = None


class _Sources(Struct, frozen=True):
    queries: list[_Source]


def _sources(data: Any) -> list[str]:
    try:
        asked = msgspec.convert(data, _Sources).queries
    except msgspec.ValidationError:
        return []  # submitted by hand, wrongly: its run says so
    return [one.container or one.table or "import" for one in asked]


def _failure(one: RecordedFailure) -> BulkDeleteFailure:
    return BulkDeleteFailure(
        row_id=one.row_id, query_index=one.query_index, code=shown_code(one.code),
        message=one.message, at=one.at,
    )  # fmt: skip
