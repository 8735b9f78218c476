"""Many items at once: queries, all-or-nothing batches, and bulk writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from relevo import limits
from relevo.errors import (
    BadContinuation,
    ConditionNotMet,
    ContainerRecreated,
    Forbidden,
    ItemExists,
    NotFound,
    QueryTooCostly,
    RelevoError,
)
from relevo.http import answers
from relevo.http.paging import Limit, Page
from relevo.kernel.operation import Operations
from relevo.store import Create, Delete, Patch, Read, Replace, Upsert
from relevo.store.http.containers import SCOPE, ByContainer
from relevo.store.http.items import (
    Body,
    Changes,
    IfMatch,
    ItemId,
    ItemView,
    KeyValue,
    WrittenItem,
    container_of,
    key_of,
    view,
    written,
)
from relevo.store.query import CONDITIONS_MAX

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.store import Item, Outcome
    from relevo.store.model import Step

BULK_ITEMS_MAX: Final = 10_000
"""Items of one bulk write; a body of the largest size holds about as many small ones."""


operation = Operations(scope=SCOPE)


class ItemCondition(Struct, frozen=True, kw_only=True):
    """A condition on a member of an item; 1 and 1.0 are equal, 1 and "1" are not."""

    path: Annotated[str, Meta(min_length=1, description="A name, or a pointer such as `/a/b`.")]
    op: Literal["=", "!=", "<", "<=", ">", ">=", "in", "exists"] = "="
    value: Any


class QueryItems(ByContainer, frozen=True, kw_only=True):
    """Which items."""

    partition_key: KeyValue | UnsetType = UNSET
    where: Annotated[
        tuple[ItemCondition, ...],
        Meta(max_length=CONDITIONS_MAX, description="Conditions that all have to hold."),
    ] = ()
    order_by: Annotated[
        Literal["id", "ts"],
        Meta(description="By partition key and id, or by the time of the last write."),
    ] = "id"
    cursor: (
        Annotated[
            str,
            Meta(
                max_length=8_000,
                description="`next` of the page before; without it the first page.",
            ),
        ]
        | None
    ) = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation(
    "items.query",
    "POST /v1/containers/{container}/items:query",
    "items:read",
    errors=(NotFound, BadContinuation, ContainerRecreated, QueryTooCostly),
)
async def query_items(services: Services, _: Principal, command: QueryItems) -> Page[ItemView]:
    """Find items.

    Without a partition key all items are looked through.
    """
    key: Any = command.partition_key
    query = container_of(services, command).query(
        partition_key=key if key is UNSET else key_of(key),
        where=[(one.path, one.op, one.value) for one in command.where],
        order_by=command.order_by,
        after=command.cursor,
    )
    found = await query.page(command.limit, limited=True)
    return Page([view(item) for item in found.items], found.token)


class CreateStep(Struct, frozen=True, kw_only=True, tag_field="kind", tag="create"):
    """The item must not exist."""

    item: Body


class UpsertStep(Struct, frozen=True, kw_only=True, tag_field="kind", tag="upsert"):
    """Create the item or replace it."""

    item: Body
    if_match: IfMatch | None = None


class ReplaceStep(Struct, frozen=True, kw_only=True, tag_field="kind", tag="replace"):
    """The item must exist."""

    item: Body
    if_match: IfMatch | None = None


class PatchStep(Struct, frozen=True, kw_only=True, tag_field="kind", tag="patch"):
    """Change parts of an item."""

    id: ItemId
    operations: Changes
    if_match: IfMatch | None = None


class DeleteStep(Struct, frozen=True, kw_only=True, tag_field="kind", tag="delete"):
    """Remove the item."""

    id: ItemId
    if_match: IfMatch | None = None


class ReadStep(Struct, frozen=True, kw_only=True, tag_field="kind", tag="read"):
    """The item as it is at this point of the batch; needs `items:read`, too."""

    id: ItemId


WireStep = CreateStep | UpsertStep | ReplaceStep | PatchStep | DeleteStep | ReadStep
_STEPS: Final[dict[type[Struct], Any]] = {
    CreateStep: Create, UpsertStep: Upsert, ReplaceStep: Replace, PatchStep: Patch,
    DeleteStep: Delete, ReadStep: Read,
}  # fmt: skip


class BatchItems(ByContainer, frozen=True, kw_only=True):
    """Steps on items of one partition key."""

    partition_key: KeyValue
    steps: Annotated[
        tuple[WireStep, ...],
        Meta(
            min_length=1,
            max_length=limits.BATCH_ITEMS_MAX,
            description="Done in order: all of them, or none.",
        ),
    ]


class StepResult(WrittenItem, frozen=True, kw_only=True):
    """The item that a step wrote or read; the body only of a step that reads."""

    body: Any | UnsetType = UNSET


class BatchDone(Struct, frozen=True):
    """The items that the steps wrote or read, in order; null for deletes."""

    results: list[StepResult | None]


@operation(
    "items.batch",
    "POST /v1/containers/{container}/items:batch",
    "items:write",
    errors=(NotFound, ItemExists, ConditionNotMet),
)
async def batch_items(services: Services, principal: Principal, command: BatchItems) -> BatchDone:
    """Do several steps on items of one partition key: all or none.

    The items that steps read or patch may have `page_bytes` together; one alone may have more.
    """
    reads = [isinstance(step, ReadStep) for step in command.steps]
    if any(reads) and "items:read" not in principal.permissions:
        raise Forbidden(
            "a batch with a step that reads needs the permission 'items:read', too; use another"
            " key, or leave out the step"
        )
    steps: list[Step] = [
        _STEPS[type(step)](**msgspec.structs.asdict(step)) for step in command.steps
    ]
    try:
        done = await container_of(services, command).batch(
            key_of(command.partition_key), steps, bytes_max=services.page_bytes
        )
    except RelevoError as error:
        error.pointer = f"/steps{error.pointer}" if error.pointer else None
        raise
    return BatchDone([_result(*each) for each in zip(done, reads, strict=True)])


def _result(item: Item[Any] | None, seen: bool) -> StepResult | None:
    if item is None:
        return None
    body = item.body if seen else UNSET
    return StepResult(**msgspec.structs.asdict(written(item)), body=body)


class BulkItems(ByContainer, frozen=True, kw_only=True):
    """Items, each written separately."""

    items: Annotated[
        tuple[dict[str, Any], ...],
        Meta(
            min_length=1,
            max_length=BULK_ITEMS_MAX,
            description="The items; for deletes, `id` and partition key are enough.",
        ),
    ]
    kind: Annotated[
        Literal["create", "upsert", "replace", "delete"], Meta(description="What is done with all.")
    ] = "upsert"


class ItemRefusal(Struct, frozen=True, kw_only=True):
    """Why an item was not written."""

    code: str
    detail: str
    pointer: str | None


class ItemOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one item: an etag, or an error."""

    id: str | None
    etag: str | None
    lsn: int | None
    created: bool
    error: ItemRefusal | None


class BulkDone(Struct, frozen=True):
    """The outcome of a bulk write."""

    written: int
    refused: int
    items: list[ItemOutcome]
    """In the order in which the items were given."""


@operation(
    "items.bulk", "POST /v1/containers/{container}/items:bulk", "items:write", errors=(NotFound,)
)
async def bulk_items(services: Services, _: Principal, command: BulkItems) -> BulkDone:
    """Write many items, each separately; the answer has the outcome of each."""
    done = await container_of(services, command).bulk(command.items, command.kind)
    shown = [_outcome(outcome) for outcome in done.outcomes]
    return BulkDone(done.written, len(shown) - done.written, shown)


def _outcome(one: Outcome) -> ItemOutcome:
    error = None
    if one.error is not None:
        detail = answers.detail(one.error)
        error = ItemRefusal(code=one.error.code, detail=detail, pointer=one.error.pointer)
    return ItemOutcome(id=one.id, etag=one.etag, lsn=one.lsn, created=one.created, error=error)
