"""The handle of a container, which users hold and call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, get_args

import msgspec
from msgspec import UNSET

from relevo import limits
from relevo.errors import InvalidValue, RelevoError
from relevo.kernel import callables, cpu
from relevo.kernel.postgres import foreign
from relevo.kernel.postgres.binding import transaction_in
from relevo.store import batch, bulk, items, lifecycle, query
from relevo.store.items import ItemWrite
from relevo.store.model import (
    BulkResult,
    ContainerInfo,
    ContainerOptions,
    Item,
    Kind,
    Outcome,
    Patch,
)
from relevo.store.writes import StepRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence

    from relevo.kernel.postgres import Transaction
    from relevo.store.items import Document, StoredItem
    from relevo.store.model import Step
    from relevo.store.open_container import OpenContainer
    from relevo.store.patch import Operation
    from relevo.store.query import Condition, Query
    from relevo.store.ranges import Range, RangeMap
    from relevo.store.service import Store

T = TypeVar("T")
OTHER_DRIVERS: Final = "; with another driver, run `select relevo.put_item(container, item)`"


class Container(Generic[T]):
    """Items of one kind, spread over ranges by their partition key.

    A handle costs nothing and does no I/O. On first use Relevo looks the container up, or creates
    it if the handle has a partition key.

    A write with `tx` belongs to that transaction of asyncpg, from `ctx.transaction()` or
    `app.database.transaction()`. The commit puts it into the feed and gives it its LSN. Until then
    `lsn` is 0, and the etag is valid only inside the transaction.

    >>> orders = store.container("orders", partition_key="/city")  # doctest: +SKIP
    >>> item = await orders.create({"id": "1", "city": "Vigo"})  # doctest: +SKIP
    >>> await orders.replace({**item.body, "dish": "pizza"}, if_match=item.etag)  # doctest: +SKIP
    """

    def __init__(
        self, store: Store, name: str, options: ContainerOptions, model: type[T] | None = None
    ) -> None:
        self.name = items.checked_name(name)
        self.model = model
        self._store = store
        self._options = options
        self._opened: OpenContainer | None = None

    async def create(self, item: Any, *, tx: Any = None) -> Item[T]:
        """Store a new item; `ItemExists` if there is one with its id and partition key."""
        return await self._write("create", item, None, tx)

    async def upsert(self, item: Any, if_match: str | None = None, *, tx: Any = None) -> Item[T]:
        """Store an item, whether it exists or not; with `if_match` it must, in that version."""
        return await self._write("upsert", item, if_match, tx)

    async def replace(self, item: Any, if_match: str | None = None, *, tx: Any = None) -> Item[T]:
        """Store a new version of an item; `NotFound`, or `ConditionNotMet` if it has moved on."""
        return await self._write("replace", item, if_match, tx)

    async def delete(
        self,
        id: str,  # noqa: A002
        partition_key: Any,
        if_match: str | None = None,
        *,
        tx: Any = None,
    ) -> None:
        """Remove an item; `NotFound` if there is none, `ConditionNotMet` if it has moved on."""
        opened = await self._open()
        key = items.key_of_caller(id, partition_key, opened.info)
        await _written(
            opened, ItemWrite(kind="delete", key=key, condition=items.checked_etag(if_match)), tx
        )

    async def read(self, id: str, partition_key: Any, *, tx: Any = None) -> Item[T]:  # noqa: A002
        """Return an item as it is; `NotFound` if there is none or it has expired.

        With `tx` it is as that transaction sees it.
        """
        opened = await self._open()
        key = items.key_of_caller(id, partition_key, opened.info)
        stored = await opened.read(key, _checked(tx, opened))
        return await cpu.decoded(len(stored.text or ""), self._item, stored)

    async def patch(
        self,
        id: str,  # noqa: A002
        partition_key: Any,
        operations: Sequence[Operation | Mapping[str, Any]],
        if_match: str | None = None,
        *,
        tx: Any = None,
    ) -> Item[T]:
        """Change parts of an item (`relevo.store.patch`); all operations apply, or none."""
        opened = await self._open()
        components = items.components_of_caller(partition_key, opened.info)
        change = batch.ready(Patch(id, operations, if_match), components, opened.info)
        try:
            done = await batch.run(opened, [change], self._check, _checked(tx, opened))
        except StepRefused as refused:
            raise refused.error from refused.__cause__
        return await cpu.decoded(len(done[0].text or ""), self._item, done[0])

    async def batch(
        self,
        partition_key: Any,
        steps: Sequence[Step],
        *,
        tx: Any = None,
        bytes_max: int | None = None,
    ) -> list[Item[T] | None]:
        """Do several steps on items of one partition key: all or none, and with one LSN.

        Returns the item that each step wrote or read, None for deletes. If a step cannot be done,
        the batch raises its error, whose `pointer` begins with the number of the step. The same
        item may occur several times. With `bytes_max` a batch is refused whose steps read or patch
        larger items, all together; in a transaction of the caller it is not counted.
        """
        if not 1 <= len(steps) <= limits.BATCH_ITEMS_MAX:
            raise InvalidValue(
                f"a batch has 1 to {limits.BATCH_ITEMS_MAX} steps, not {len(steps)}; bulk() takes"
                " any number, but not all or none"
            )
        opened = await self._open()
        components = items.components_of_caller(partition_key, opened.info)
        try:
            size = sum(items.size_of(getattr(step, "item", None)) for step in steps)
            ready = await cpu.decoded(size, batch.all_ready, steps, components, opened.info)
            done = await batch.run(opened, ready, self._check, _checked(tx, opened), bytes_max)
        except StepRefused as refused:
            raise _located(refused.error, refused.index) from refused.__cause__
        size = sum(len(one.text or "") for one in done)
        return await cpu.decoded(
            size, lambda: [None if one.text is None else self._item(one) for one in done]
        )

    async def bulk(
        self,
        given: Iterable[Any] | AsyncIterable[Any],
        kind: Kind = "upsert",
        *,
        progress: Callable[[int], object] | None = None,
    ) -> BulkResult:
        """Write many items, each separately; returns their outcomes, in order.

        Nothing is raised for an item that is refused: look at `failures`. Items with the same id
        are written in their order. `progress` is called with the number of items done so far.
        """
        if kind not in get_args(Kind):
            raise InvalidValue(
                f"kind is one of {', '.join(get_args(Kind))}, not {kind!r}", pointer="kind"
            )
        opened = await self._open()
        outcomes: list[Outcome] = []
        async for window in bulk.windows(given, lambda item: self._bulk_row(opened, kind, item)):
            outcomes += await asyncio.gather(*(bulk.write(opened, one) for one in window))
            if progress is not None:
                await callables.call(progress, len(outcomes))
        return BulkResult(tuple(outcomes))

    def query(
        self,
        *,
        partition_key: Any = UNSET,
        where: Sequence[Condition] = (),
        order_by: query.Order = "id",
        limit: int | None = None,
        after: str | None = None,
    ) -> Query[T]:
        """Find items: `async for item in orders.query(where=[("total", ">", 5)])`.

        Without a partition key all items are looked through. Order is that of partition key and
        id, or with `order_by="ts"` of the last write; then each page is sorted when it is read.
        See `relevo.store.query` for the conditions.
        """

        def compiled(info: ContainerInfo) -> query.ItemFilter:
            pk = None
            if partition_key is not UNSET:
                pk = items.pk_of_caller(partition_key, info)
            return query.compile_filter(where, order_by, pk)

        return query.Query(self._open, compiled, self._item, limit=limit, after=after)

    async def describe(self) -> ContainerInfo:
        """Return the container's properties."""
        return (await self._open()).info

    async def ranges(self) -> RangeMap:
        """Return all ranges of the container as they are now, sealed ones too."""
        opened = await self._open()
        await opened.refresh()
        return opened.ranges

    async def split(self, range_id: int, at: str | None = None) -> tuple[Range, Range]:
        """Seal a range and return its two children, cut in the middle or at a hash.

        No item is moved. Writers need not know: a write that reaches the sealed range goes on with
        the child.
        """
        opened = await self._open()
        ids = await lifecycle.split(
            opened.database,
            lifecycle.FoundContainer(opened.info, await self.ranges()),
            range_id,
            at,
        )
        await opened.refresh()
        opened.wake()
        return opened.ranges.by_id[ids[0]], opened.ranges.by_id[ids[1]]

    async def drop(self) -> bool:
        """Remove the container and all its items; False if there is none.

        It is gone at once; Relevo removes its items in the background. If the handle has a
        partition key, its next use creates a new, empty container.
        """
        return await self._store.drop(self.name)

    async def _open(self) -> OpenContainer:
        opened = self._opened
        if opened is None or opened.gone or opened.database is not self._store.database:
            opened = await self._store.open(self.name, self._options)
            self._options.check(opened.info)
            self._opened = opened
        return opened

    async def _write(self, kind: Kind, item: Any, if_match: str | None, tx: Any) -> Item[T]:
        opened = await self._open()
        document = await items.documented(item, opened.info)
        body = self._body_of(document)
        done = await _written(opened, document.row(kind, items.checked_etag(if_match)), tx)
        return _item(done, body)

    async def _bulk_row(self, opened: OpenContainer, kind: Kind, item: Any) -> ItemWrite | Outcome:
        try:
            document = await items.documented(item, opened.info)
            if kind != "delete":
                self._body_of(document)
        except RelevoError as error:
            return Outcome(id=None, error=error)
        return document.row(kind)

    def _body_of(self, document: Document) -> T:
        """Return the body for the caller; decoded first, so that an invalid item is not written."""
        return cast(T, document.plain) if self.model is None else self._decoded(document.text)

    def _check(self, text: str) -> None:
        if self.model is not None:
            self._decoded(text)

    def _item(self, stored: StoredItem) -> Item[T]:
        assert stored.text is not None
        return _item(stored, self._decoded(stored.text))

    def _decoded(self, text: str) -> T:
        validate = getattr(self.model, "model_validate_json", None)
        try:
            body = validate(text) if validate else msgspec.json.decode(text, type=self.model or Any)
        except ValueError as error:  # of msgspec and pydantic alike
            raise InvalidValue(
                f"an item of container {self.name!r} does not fit {self.model!r}: {error}",
                pointer="",
            ) from error
        return cast(T, body)


def _checked(tx: Any, opened: OpenContainer) -> Transaction | None:
    if tx is None:
        return None
    checked = foreign.checked(tx, OTHER_DRIVERS)
    return cast("Transaction", transaction_in(checked, opened.database.schema))


async def _written(opened: OpenContainer, row: ItemWrite, tx: Any) -> StoredItem:
    """Write an item in a group with concurrent writes, or in a transaction."""
    if tx is None:
        return await opened.write(row)
    try:
        return (await batch.run(opened, [row], lambda _: None, _checked(tx, opened)))[0]
    except StepRefused as refused:
        raise refused.error from refused.__cause__


def _item(stored: StoredItem, body: T) -> Item[T]:
    return Item(
        id=stored.key.id,
        partition_key=items.partition_key_of(stored.key.pk),
        body=body,
        etag=stored.etag,
        ts=stored.ts,
        lsn=stored.lsn,
    )


def _located(error: RelevoError, index: int) -> RelevoError:
    inner = (error.pointer or "").lstrip("/")
    error.pointer = f"/{index}/{inner}" if inner else f"/{index}"
    return error
