"""`app.service` and `ctx.service`: data operations, each through the pipeline."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.errors import Conflict, InvalidValue
from relevo.jobs.errors import LoopDetected
from relevo.jobs.submission import new_id
from relevo.kernel.postgres import clock
from relevo.pipeline import depth
from relevo.pipeline.contexts import BlockingService
from relevo.pipeline.model import DATA_MESSAGES, Cause, Operation, Target, bypass_of
from relevo.pipeline.operations import SQL
from relevo.store import items

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from relevo.kernel.postgres import Transaction
    from relevo.pipeline.service import Pipeline

Related = tuple[str, str]
"""A table and the key of a record of it."""


class Standing:
    """How it stands with a service; those that `of` made of it share this."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx
        """The transaction that operations belong to, if there is one."""
        self.turn = asyncio.Lock()
        """Who has it uses the transaction, which does one thing at a time."""
        self.ended = False
        self.loop: LoopDetected | None = None


class DataService:
    """Operations on records of registered tables.

    Each commits by itself, unless `tx` says whose transaction it belongs to; then it is a part of
    that, and is undone alone if it fails. In a synchronous step they belong to its operation.
    `bypass` leaves out steps: `{"sync", "async"}`, for mass loads.

    >>> id = await app.service.create("order", {"status": "new"})  # doctest: +SKIP
    >>> await app.service.update("order", id, {"status": "paid"})  # doctest: +SKIP
    """

    def __init__(
        self, pipeline: Pipeline, cause: Cause, *, tx: Any = None, standing: Standing | None = None
    ) -> None:
        self._pipeline = pipeline
        self._cause = cause
        self._standing = standing or Standing(tx)

    @property
    def loop(self) -> LoopDetected | None:
        """Set once an operation of a job was refused because it was too deep."""
        return self._standing.loop

    def of(self, user: UUID | None, *, rights: Iterable[str] | None = None) -> DataService:
        """Return the same in the name of a user, with these rights or those the user has."""
        cause = msgspec.structs.replace(
            self._cause, user=user, rights=None if rights is None else frozenset(rights)
        )
        return DataService(self._pipeline, cause, standing=self._standing)

    async def create(
        self, table: str, record: Any, *, tx: Any = None, bypass: Iterable[str] = ()
    ) -> str:
        """Create a record and return its key; one is made if it has none."""
        target = _plain(record)
        target.setdefault("id", str(new_id()))
        output = await self._operate("Create", table, None, {"target": target}, tx, bypass)
        key: str = output["id"]
        return key

    async def update(
        self, table: str, id: str, changes: Any, *, partition_key: Any = None,  # noqa: A002
        if_match: str | None = None, tx: Any = None, bypass: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Change columns of a record; the others stay. `NotFound` if there is no such record."""
        target = _plain(changes)
        if target.setdefault("id", id) != id:
            raise InvalidValue(f"the changes name the record {target['id']!r}, the call {id!r}")
        await self._operate(
            "Update", table, id, {"target": target}, tx, bypass, partition_key, if_match
        )

    async def delete(
        self, table: str, id: str, *, partition_key: Any = None, if_match: str | None = None,  # noqa: A002
        tx: Any = None, bypass: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Remove a record; `NotFound` if there is none."""
        target = Target(id=id)
        await self._operate(
            "Delete", table, id, {"target": target}, tx, bypass, partition_key, if_match
        )

    async def retrieve(
        self, table: str, id: str, columns: Sequence[str] | None = None, *,  # noqa: A002
        partition_key: Any = None, tx: Any = None, bypass: Iterable[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Return a record, or some columns of it; `NotFound` if there is none."""
        told = {"target": Target(id=id), "columns": None if columns is None else list(columns)}
        output = await self._operate("Retrieve", table, id, told, tx, bypass, partition_key)
        record: dict[str, Any] = output["record"]
        return record

    async def retrieve_multiple(
        self, table: str, where: Sequence[Any] = (), columns: Sequence[str] | None = None, *,
        partition_key: Any = None, limit: int | None = None, after: str | None = None,
        tx: Any = None, bypass: Iterable[str] = (),
    ) -> tuple[list[dict[str, Any]], str | None]:  # fmt: skip
        """Return a page of records that meet conditions, and the token of the next page.

        Conditions are those of `relevo.store.query`: `[("total", ">", 5)]`.
        """
        told = {
            "where": list(where), "columns": None if columns is None else list(columns),
            "limit": limit, "after": after,
        }  # fmt: skip
        output = await self._operate(
            "RetrieveMultiple", table, None, told, tx, bypass, partition_key
        )
        return output["records"], output["token"]

    async def associate(
        self, table: str, id: str, relationship: str, related: Sequence[Related], *,  # noqa: A002
        partition_key: Any = None, tx: Any = None, bypass: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Relate records to one; those that are related already stay so."""
        told = _relation(id, relationship, related)
        await self._operate("Associate", table, id, told, tx, bypass, partition_key)

    async def disassociate(
        self, table: str, id: str, relationship: str, related: Sequence[Related], *,  # noqa: A002
        partition_key: Any = None, tx: Any = None, bypass: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """End the relation of records to one."""
        told = _relation(id, relationship, related)
        await self._operate("Disassociate", table, id, told, tx, bypass, partition_key)

    async def related(
        self, table: str, id: str, relationship: str, *, tx: Any = None  # noqa: A002
    ) -> list[Related]:  # fmt: skip
        """Return the records that are related to one, as (table, key); no step sees this."""
        async with self._using(tx) as used:
            reader = used or self._pipeline.database
            rows = await reader.fetch(SQL.related, table, id, relationship)
        return [(row["other_table"], row["other_id"]) for row in rows]

    async def execute(
        self, message: str, table: str | None = None, id: str | None = None, *,  # noqa: A002
        input: Mapping[str, Any] | None = None, partition_key: Any = None, tx: Any = None,  # noqa: A002
        bypass: Iterable[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Carry out a custom message and return its outputs."""
        if message in DATA_MESSAGES:
            raise InvalidValue(f"{message} has a method of its own on this service; call that")
        told: dict[str, Any] = dict(_plain(input or {}))
        if id is not None:
            told["target"] = Target(id=id)
        return await self._operate(message, table, id, told, tx, bypass, partition_key)

    async def descent(self, tx: Transaction) -> dict[str, Any]:
        """Return the options of a job that the job of this service has as its part: one deeper.

        Raises `LoopDetected` if that is too deep, as for an operation.
        """
        cause, pipeline = self._cause, self._pipeline
        now = await clock.now(tx)
        deeper = depth.following(
            cause.depth, cause.since, now, most=pipeline.depth_max, window=pipeline.depth_window
        )
        return {
            "depth": deeper, "correlation": str(cause.correlation),
            "correlation_at": now.isoformat(),
        }  # fmt: skip

    def blocking(self, loop: asyncio.AbstractEventLoop) -> BlockingService:
        """Return the same for plain functions in threads, without `await`."""
        return BlockingService(self, loop)

    @contextmanager
    def joined(self, tx: Transaction) -> Iterator[None]:
        """Let all operations belong to a transaction while it lasts."""
        before, self._standing.tx = self._standing.tx, tx
        try:
            yield
        finally:
            self._standing.tx = before

    def end(self) -> None:
        """Refuse further operations: the step is over, and so is its transaction."""
        self._standing.ended = True

    @asynccontextmanager
    async def _using(self, tx: Any) -> AsyncIterator[Any]:
        """Give the transaction that counts; operations made at once take turns with their own."""
        own = self._standing.tx
        if own is None or tx not in (None, own):
            yield tx
            return
        async with self._standing.turn:
            yield own

    async def _operate(
        self, message: str, table: str | None, id: str | None, told: dict[str, Any], tx: Any,  # noqa: A002
        bypass: Iterable[str], partition_key: Any = None, if_match: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        asked = Operation(
            message=message, table=table, id=id, partition_key=partition_key, input=told,
            if_match=if_match, bypass=bypass_of(bypass),
        )  # fmt: skip
        try:
            async with self._using(tx) as used:
                if self._standing.ended:
                    raise Conflict(
                        f"{message} came from a step that is over; await all it does inside it"
                    )
                return await self._pipeline.execution.carry_out(asked, self._cause, used)
        except LoopDetected as error:
            if self._cause.job is not None:
                self._standing.loop = error
            raise


def _plain(record: Any) -> Target:
    """The record as JSON values, so that steps and jobs see the same."""
    dump = getattr(record, "model_dump", None)
    _, plain = items.encoded(record if dump is None else dump(mode="json", by_alias=True))
    if not isinstance(plain, dict):
        raise InvalidValue(f"a record is a JSON object, not {type(record).__name__}")
    return Target(plain)


def _relation(id: str, relationship: str, related: Sequence[Related]) -> dict[str, Any]:  # noqa: A002
    return {
        "target": Target(id=id), "relationship": relationship,
        "related": [{"table": table, "id": key} for table, key in related],
    }  # fmt: skip
