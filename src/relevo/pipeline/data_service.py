"""`app.service` and `ctx.service`: data operations, which all run through the pipeline."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.errors import Conflict, InvalidValue
from relevo.jobs.errors import LoopDetected
from relevo.jobs.submitting.submission import new_id
from relevo.kernel.postgres import clock
from relevo.pipeline import depth
from relevo.pipeline.contexts import BlockingService
from relevo.pipeline.messages import SQL
from relevo.pipeline.model import DATA_MESSAGES, OperationCause, OperationRequest, Target, bypass_of
from relevo.store import items

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from relevo.kernel.postgres import Transaction
    from relevo.pipeline.service import Pipeline

Related = tuple[str, str]
"""A table and the id of one of its records."""


class ServiceState:
    """The state of a service, shared by the services that `of` derives from it."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx
        """The transaction of its operations, if there is one."""
        self.turn = asyncio.Lock()
        """Held while the transaction is in use, because it runs one statement at a time."""
        self.ended = False
        self.loop: LoopDetected | None = None


class DataService:
    """Operations on records of registered tables.

    Each operation commits by itself. With `tx` it is part of that transaction, and a failure undoes
    the operation alone. In a synchronous step, operations are part of the step's operation.
    `bypass` skips steps, for bulk loads: `{"sync", "async"}`.

    >>> id = await app.service.create("order", {"status": "new"})  # doctest: +SKIP
    >>> await app.service.update("order", id, {"status": "paid"})  # doctest: +SKIP
    """

    def __init__(
        self,
        pipeline: Pipeline,
        cause: OperationCause,
        *,
        tx: Any = None,
        state: ServiceState | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._cause = cause
        self._state = state or ServiceState(tx)

    @property
    def loop(self) -> LoopDetected | None:
        """The error of an operation of this job that was refused because it was too deep."""
        return self._state.loop

    def of(self, user: UUID | None, *, rights: Iterable[str] | None = None) -> DataService:
        """Return a service in the name of a user, with the given rights or the user's own."""
        cause = msgspec.structs.replace(
            self._cause, user=user, rights=None if rights is None else frozenset(rights)
        )
        return DataService(self._pipeline, cause, state=self._state)

    async def create(
        self, table: str, record: Any, *, tx: Any = None, bypass: Iterable[str] = ()
    ) -> str:
        """Create a record and return its id, which is generated if missing."""
        target = _plain(record)
        target.setdefault("id", str(new_id()))
        output = await self._operate("Create", table, None, {"target": target}, tx, bypass)
        key: str = output["id"]
        return key

    async def update(
        self, table: str, id: str, changes: Any, *, partition_key: Any = None,  # noqa: A002
        if_match: str | None = None, tx: Any = None, bypass: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Change columns of a record; the others stay. Raises `NotFound`."""
        target = _plain(changes)
        if target.setdefault("id", id) != id:
            raise InvalidValue(
                f"the changes have the id {target['id']!r}, but the call is for {id!r}"
            )
        await self._operate(
            "Update", table, id, {"target": target}, tx, bypass, partition_key, if_match
        )

    async def delete(
        self, table: str, id: str, *, partition_key: Any = None, if_match: str | None = None,  # noqa: A002
        tx: Any = None, bypass: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Delete a record; raises `NotFound`."""
        target = Target(id=id)
        await self._operate(
            "Delete", table, id, {"target": target}, tx, bypass, partition_key, if_match
        )

    async def retrieve(
        self, table: str, id: str, columns: Sequence[str] | None = None, *,  # noqa: A002
        partition_key: Any = None, tx: Any = None, bypass: Iterable[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Return a record, or some of its columns; raises `NotFound`."""
        inputs = {"target": Target(id=id), "columns": None if columns is None else list(columns)}
        output = await self._operate("Retrieve", table, id, inputs, tx, bypass, partition_key)
        record: dict[str, Any] = output["record"]
        return record

    async def retrieve_multiple(
        self, table: str, where: Sequence[Any] = (), columns: Sequence[str] | None = None, *,
        partition_key: Any = None, limit: int | None = None, after: str | None = None,
        tx: Any = None, bypass: Iterable[str] = (),
    ) -> tuple[list[dict[str, Any]], str | None]:  # fmt: skip
        """Return a page of records that meet the conditions, and the token of the next page.

        Conditions are those of `relevo.store.query`: `[("total", ">", 5)]`.
        """
        inputs = {
            "where": list(where), "columns": None if columns is None else list(columns),
            "limit": limit, "after": after,
        }  # fmt: skip
        output = await self._operate(
            "RetrieveMultiple", table, None, inputs, tx, bypass, partition_key
        )
        return output["records"], output["token"]

    async def associate(
        self, table: str, id: str, relationship: str, related: Sequence[Related], *,  # noqa: A002
        partition_key: Any = None, tx: Any = None, bypass: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Relate records to a record; existing relations stay."""
        inputs = _relation(id, relationship, related)
        await self._operate("Associate", table, id, inputs, tx, bypass, partition_key)

    async def disassociate(
        self, table: str, id: str, relationship: str, related: Sequence[Related], *,  # noqa: A002
        partition_key: Any = None, tx: Any = None, bypass: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Remove the relations of records to a record."""
        inputs = _relation(id, relationship, related)
        await self._operate("Disassociate", table, id, inputs, tx, bypass, partition_key)

    async def related(
        self, table: str, id: str, relationship: str, *, tx: Any = None  # noqa: A002
    ) -> list[Related]:  # fmt: skip
        """Return the records related to a record, as (table, id); runs no steps."""
        async with self._using(tx) as used:
            reader = used or self._pipeline.database
            rows = await reader.fetch(SQL.related, table, id, relationship)
        return [(row["other_table"], row["other_id"]) for row in rows]

    async def execute(
        self, message: str, table: str | None = None, id: str | None = None, *,  # noqa: A002
        input: Mapping[str, Any] | None = None, partition_key: Any = None, tx: Any = None,  # noqa: A002
        bypass: Iterable[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Execute a custom message and return its outputs."""
        if message in DATA_MESSAGES:
            raise InvalidValue(f"{message} is not a custom message; call the method of the service")
        inputs: dict[str, Any] = dict(_plain(input or {}))
        if id is not None:
            inputs["target"] = Target(id=id)
        return await self._operate(message, table, id, inputs, tx, bypass, partition_key)

    async def descent(self, tx: Transaction) -> dict[str, Any]:
        """Return the submit options of a child of this service's job, one level deeper.

        Raises `LoopDetected` if that is too deep.
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
        """Return the service for plain functions in threads, without `await`."""
        return BlockingService(self, loop)

    @contextmanager
    def joined(self, tx: Transaction) -> Iterator[None]:
        """Make all operations part of a transaction during the block."""
        before, self._state.tx = self._state.tx, tx
        try:
            yield
        finally:
            self._state.tx = before

    def end(self) -> None:
        """Refuse further operations, because the step has ended."""
        self._state.ended = True

    @asynccontextmanager
    async def _using(self, tx: Any) -> AsyncIterator[Any]:
        """Yield the transaction to use; concurrent operations take turns with it."""
        own = self._state.tx
        if own is None or tx not in (None, own):
            yield tx
            return
        async with self._state.turn:
            yield own

    async def _operate(
        self, message: str, table: str | None, id: str | None, inputs: dict[str, Any], tx: Any,  # noqa: A002
        bypass: Iterable[str], partition_key: Any = None, if_match: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        request = OperationRequest(
            message=message, table=table, id=id, partition_key=partition_key, input=inputs,
            if_match=if_match, bypass=bypass_of(bypass),
        )  # fmt: skip
        try:
            async with self._using(tx) as used:
                if self._state.ended:
                    raise Conflict(
                        f"{message} was called after its step had ended; await it inside the step"
                    )
                return await self._pipeline.execution.carry_out(request, self._cause, used)
        except LoopDetected as error:
            if self._cause.job is not None:
                self._state.loop = error
            raise


def _plain(record: Any) -> Target:
    """Return a record as JSON values, so that steps and jobs see the same."""
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
