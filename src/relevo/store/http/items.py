"""`/v1/containers/{container}/items`: items, one by one.

Who may only write gets etags back, never a body: seeing what users put into their work has its own
permission, `items:read`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import ConditionNotMet, InvalidValue, ItemExists, NotFound
from relevo.kernel.operation import Operations
from relevo.store import UNDEFINED, Undefined, keys
from relevo.store.http.containers import SCOPE, ByContainer
from relevo.store.patch import OPERATIONS_MAX

if TYPE_CHECKING:
    from relevo.feed import FeedContainer
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.store import Item

_KEY: Final = "the value at the partition key path, an array where there are several paths; `{}`"
Body = Annotated[
    dict[str, Any],
    Meta(description="The item: a JSON object with an `id`, and with its partition key."),
]
KeyValue = Annotated[Any, Meta(description=f"The partition key: {_KEY} stands for no value.")]
KeyText = Annotated[
    str,
    Meta(
        max_length=2 * limits.PARTITION_KEY_BYTES_MAX,
        description=f'The partition key as JSON, such as `"Vigo"`: {_KEY} stands for no value.',
        extra_json_schema={"contentMediaType": "application/json"},
    ),
]
ItemId = Annotated[
    str, Meta(min_length=1, max_length=limits.ITEM_ID_LENGTH_MAX, description="The item's id.")
]
IfMatch = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        description="Only if the item has this etag; `*` is any, but it must exist.",
    ),
]
Changes = Annotated[
    tuple[dict[str, Any], ...],
    Meta(
        min_length=1,
        max_length=OPERATIONS_MAX,
        description='Such as `{"op": "incr", "path": "/visits", "value": 1}`; all apply, or none.',
    ),
]


operation = Operations(scope=SCOPE)


def key_of(value: Any) -> Any:
    """Return the partition key that a value on the wire means."""
    if isinstance(value, list):
        if len(value) > keys.PARTS_MAX:
            return value  # which is refused for its length, whatever is in it
        return [UNDEFINED if one == {} else one for one in value]
    return UNDEFINED if value == {} else value


def key_of_text(text: str) -> Any:
    """Return the partition key of a query parameter, which is JSON."""
    try:
        return key_of(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        raise InvalidValue(
            f'a partition key in a query is JSON, such as "Vigo" with its quotes, not {text[:40]}',
            pointer="/partition_key",
        ) from None


def key_shown(value: Any) -> Any:
    """Return a partition key as the wire has it."""
    if isinstance(value, tuple):
        return [key_shown(one) for one in value]
    return {} if isinstance(value, Undefined) else value


class WrittenItem(Struct, frozen=True, kw_only=True):
    """A version of an item, without its body."""

    id: str
    partition_key: Any
    etag: str
    """Names this version: send it as `if_match`, and a write fails if there is a newer one."""
    ts: datetime
    lsn: int
    """Position of the write in the feed of its range."""


class ItemView(WrittenItem, frozen=True, kw_only=True):
    """A version of an item."""

    body: Any


def written(item: Item[Any]) -> WrittenItem:
    """Return an item as a caller without the right to read sees it."""
    return WrittenItem(
        id=item.id,
        partition_key=key_shown(item.partition_key),
        etag=item.etag,
        ts=item.ts,
        lsn=item.lsn,
    )


def view(item: Item[Any]) -> ItemView:
    """Return an item as a reader gets it."""
    return ItemView(**msgspec.structs.asdict(written(item)), body=item.body)


def container_of(services: Services, command: ByContainer) -> FeedContainer[Any]:
    """Return the handle of the container that a command names, which must exist."""
    return services.app.container(command.container)


class CreateItem(ByContainer, frozen=True, kw_only=True):
    """A new item."""

    item: Body


@operation(
    "items.create",
    "POST /v1/containers/{container}/items",
    "items:write",
    errors=(NotFound, ItemExists),
    status=201,
)
async def create_item(services: Services, _: Principal, command: CreateItem) -> WrittenItem:
    """Store an item that must not exist."""
    return written(await container_of(services, command).create(command.item))


class UpsertItem(CreateItem, frozen=True, kw_only=True):
    """An item, new or not."""

    if_match: IfMatch | None = None


@operation(
    "items.upsert",
    "PUT /v1/containers/{container}/items",
    "items:write",
    errors=(NotFound, ConditionNotMet),
)
async def upsert_item(services: Services, _: Principal, command: UpsertItem) -> WrittenItem:
    """Store an item, whether it exists or not."""
    return written(await container_of(services, command).upsert(command.item, command.if_match))


class ReadItem(ByContainer, frozen=True, kw_only=True):
    """Which item."""

    id: ItemId
    partition_key: KeyText


@operation(
    "items.read", "GET /v1/containers/{container}/items/{id}", "items:read", errors=(NotFound,)
)
async def read_item(services: Services, _: Principal, command: ReadItem) -> ItemView:
    """Read an item."""
    key = key_of_text(command.partition_key)
    return view(await container_of(services, command).read(command.id, key))


class ReplaceItem(UpsertItem, frozen=True, kw_only=True):
    """A new version of an item."""

    id: ItemId


@operation(
    "items.replace",
    "PUT /v1/containers/{container}/items/{id}",
    "items:write",
    errors=(NotFound, ConditionNotMet),
)
async def replace_item(services: Services, _: Principal, command: ReplaceItem) -> WrittenItem:
    """Store a new version of an item that must exist."""
    item = {"id": command.id, **command.item}
    if item["id"] != command.id:
        raise InvalidValue(
            f"the item's id is {str(item['id'])[:40]!r}, and the path names {command.id!r}; an id"
            " cannot be changed",
            pointer="/item/id",
        )
    return written(await container_of(services, command).replace(item, command.if_match))


class PatchItem(ByContainer, frozen=True, kw_only=True):
    """Changes to parts of an item."""

    id: ItemId
    partition_key: KeyValue
    operations: Changes
    if_match: IfMatch | None = None


@operation(
    "items.patch",
    "PATCH /v1/containers/{container}/items/{id}",
    "items:write",
    errors=(NotFound, ConditionNotMet),
)
async def patch_item(services: Services, _: Principal, command: PatchItem) -> WrittenItem:
    """Change parts of an item."""
    key = key_of(command.partition_key)
    container = container_of(services, command)
    return written(await container.patch(command.id, key, command.operations, command.if_match))


class DeleteItem(ReadItem, frozen=True, kw_only=True):
    """Which item, in which version."""

    if_match: IfMatch | None = None


@operation(
    "items.delete",
    "DELETE /v1/containers/{container}/items/{id}",
    "items:write",
    errors=(NotFound, ConditionNotMet),
)
async def delete_item(services: Services, _: Principal, command: DeleteItem) -> None:
    """Remove an item."""
    key = key_of_text(command.partition_key)
    await container_of(services, command).delete(command.id, key, command.if_match)
