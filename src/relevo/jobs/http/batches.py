"""`/v1/batches`: many jobs under one id, and a job that runs when all have ended."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from relevo import limits
from relevo.dataverse.http.requester import requester_of
from relevo.errors import InvalidValue
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.jobs.batches.model import BatchState, Condition, JobBatch
from relevo.jobs.errors import BatchMissing
from relevo.jobs.http.models import WAIT_SECONDS_MAX
from relevo.jobs.model import NAME_LENGTH_MAX, SYSTEM
from relevo.jobs.registry import check_open
from relevo.kernel.operation import Operations
from relevo.kernel.pages import Fetched

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations(errors=(BatchMissing,))


class CreateBatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch to be filled, and what runs at its end."""

    name: (
        Annotated[str, Meta(max_length=NAME_LENGTH_MAX, description="What people call it.")] | None
    ) = None
    then: (
        Annotated[
            str,
            Meta(
                min_length=1, max_length=NAME_LENGTH_MAX,
                description="The handler of a job that runs once when all have ended.",
            ),
        ]
        | None
    ) = None  # fmt: skip
    data: (
        Annotated[
            dict[str, Any],
            Meta(description="Arguments of that job; the counts are added as `batch`."),
        ]
        | None
    ) = None
    condition: Annotated[
        Condition, Meta(description="`succeeded`: it runs only if all jobs have succeeded.")
    ] = "ended"


class BatchMade(Struct, frozen=True):
    """A batch that was made."""

    id: UUID


class ListBatches(Struct, frozen=True, kw_only=True):
    """Which page of batches."""

    ended: Annotated[bool, Meta(description="Only those that have ended, or have not.")] | None = (
        None
    )
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


class ByBatch(Struct, frozen=True, kw_only=True):
    """Which batch."""

    id: Annotated[UUID, Meta(description="The batch's id.")]


class WaitForBatch(ByBatch, frozen=True, kw_only=True):
    """Whose end is waited for, and how long."""

    wait_seconds: Annotated[
        float,
        Meta(ge=0.0, le=WAIT_SECONDS_MAX, description="The answer comes then at the latest."),
    ] = 20.0


class BatchView(Struct, frozen=True, kw_only=True):
    """A batch with its counts, all of one moment."""

    id: UUID
    name: str | None
    state: BatchState
    progress: float
    """How much of it has ended, 0 to 1."""
    total: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    canceled: int
    then: str | None
    condition: Condition
    callback: UUID | None
    """The job that runs at its end, once it is submitted."""
    created_at: datetime
    closed_at: datetime | None
    canceled_at: datetime | None
    ended_at: datetime | None


@operation(
    "batches.create", "POST /v1/batches", "jobs:submit", errors=(InvalidValue,), status=201
)  # fmt: skip
async def create_batch(services: Services, principal: Principal, command: CreateBatch) -> BatchMade:
    """Make a batch, to which jobs are submitted until it is closed."""
    if command.then is not None:
        check_open(command.then)
    who = await requester_of(services, principal)
    batch = await services.app.jobs.batch(
        command.name, then=command.then, data=command.data, condition=command.condition,
        owner=None if who.user.id == SYSTEM else who.user.id,
    )  # fmt: skip
    return BatchMade(batch.id)


@operation("batches.list", "GET /v1/batches", "jobs:read", errors=())
async def list_batches(services: Services, _: Principal, command: ListBatches) -> Page[BatchView]:
    """List batches, the newest first."""
    after = paging.decode(command.cursor, _Place)
    found = await services.app.jobs.batches.list(
        after=None if after is None else (after.created_at, after.id),
        limit=command.limit + 1, ended=command.ended,
    )  # fmt: skip
    rows = Fetched(found[: command.limit], len(found) > command.limit)
    return paging.page(
        services.page_bytes, rows, lambda batch: _Place(batch.created_at, batch.id), show=_view
    )


@operation("batches.get", "GET /v1/batches/{id}", "jobs:read")
async def get_batch(services: Services, _: Principal, command: ByBatch) -> BatchView:
    """Show a batch: what waits and runs, and how the others ended."""
    return _view(await services.app.jobs.batches.get(command.id))


@operation("batches.wait", "GET /v1/batches/{id}/end", "jobs:read", wait="wait_seconds")
async def wait_for_batch(services: Services, _: Principal, command: WaitForBatch) -> BatchView:
    """Wait until a batch has ended; returns it as it is then, or when the time is up."""
    batches = services.app.jobs.batches
    try:
        return _view(await batches.wait(command.id, command.wait_seconds))
    except TimeoutError:
        return _view(await batches.get(command.id))


@operation("batches.close", "POST /v1/batches/{id}:close", "jobs:submit")
async def close_batch(services: Services, _: Principal, command: ByBatch) -> None:
    """Take no more jobs into a batch: it ends when those that it has end."""
    await services.app.jobs.batches.close(command.id)


@operation("batches.cancel", "POST /v1/batches/{id}:cancel", "jobs:write")
async def cancel_batch(services: Services, _: Principal, command: ByBatch) -> None:
    """Close a batch and cancel its jobs; running handlers are asked to stop."""
    await services.app.jobs.batches.cancel(command.id)


class _Place(Struct, frozen=True, array_like=True):
    created_at: Annotated[datetime, Meta(tz=True)]
    id: UUID


_FIELDS = tuple(name for name in BatchView.__struct_fields__)


def _view(batch: JobBatch) -> BatchView:
    return BatchView(**{name: getattr(batch, name) for name in _FIELDS})
