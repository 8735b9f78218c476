"""Stage 30: the effect of each message on the store, in the transaction of its operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import asyncpg
import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import ConditionNotMet, InvalidValue, ItemExists, NotFound
from relevo.kernel.postgres import catalog, pages
from relevo.store import items, query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.pages import Fetched
    from relevo.pipeline.operation_run import OperationRun

SQL = catalog.load("relevo.pipeline")
Main = Callable[["OperationRun"], Awaitable[None]]


class RowReader(Protocol):
    """A transaction, or the database."""

    async def fetchrow(self, sql: str, *args: Any) -> Any:
        """Return the first row, or None."""


class Message(Struct, frozen=True):
    """The main stage of a message; `loads` if it needs the record, locked, before it."""

    main: Main
    loads: bool = False
    writes: bool = True


async def load(run: OperationRun, reader: RowReader, *, lock: bool) -> dict[str, Any]:
    """Return the record of an operation; raises `NotFound`."""
    key = run.key
    sql = SQL.lock_record if lock else SQL.read_record
    row = await reader.fetchrow(sql, run.info.id, key.pk, key.id)
    if row is None:
        raise NotFound(f"there is no {run.table.name} {key.id!r}")
    record: dict[str, Any] = msgspec.json.decode(row["body"])
    return record


async def _current(run: OperationRun) -> dict[str, Any]:
    """Return the record, which is locked by now, with changes that steps made."""
    if run.before is not None and not run.touched:
        return run.before
    return await load(run, run.transaction, lock=True)


async def _put(run: OperationRun, record: dict[str, Any], kind: str) -> dict[str, Any]:
    table, info = run.home
    if kind == "delete":
        text, plain = items.encoded(record)
        written = text.decode()
    else:
        document = table.document(record, info)
        if kind == "replace" and document.key != run.key:
            raise InvalidValue(
                "an update cannot change a record's id or partition key; create a new record and"
                " delete the old one",
                pointer="target",
            )
        written, plain = document.text, document.plain
    try:
        await run.transaction.execute(
            SQL.put_record, info.name, written, kind, items.checked_etag(run.request.if_match)
        )
    except asyncpg.PostgresError as error:
        refusal = _REFUSALS.get(error.sqlstate or "")
        if refusal is None:
            raise
        raise refusal(f"{table.name} {record.get('id')!r}: {error}") from error
    return dict(plain)


_REFUSALS: Final[dict[str, type[ItemExists | NotFound | ConditionNotMet]]] = {
    "23505": ItemExists,
    "P0002": NotFound,
    "42704": NotFound,
    "RV412": ConditionNotMet,
}


async def create(run: OperationRun) -> None:
    """Store a new record."""
    run.after = await _put(run, run.target, "create")
    run.output["id"] = run.after["id"]


async def update(run: OperationRun) -> None:
    """Change the columns of the request; changes that steps made are kept."""
    now = await _current(run)
    run.after = await _put(run, {**now, **run.target}, "replace")


async def delete(run: OperationRun) -> None:
    """Delete a record and its relations."""
    now = await _current(run)
    await _put(run, now, "delete")
    await run.transaction.execute(SQL.forget_associations, run.table.name, run.request.id)


async def retrieve(run: OperationRun) -> None:
    """Read a record."""
    record = await load(run, run.transaction, lock=False)
    columns = run.input.get("columns")
    run.output["record"] = record if columns is None else _picked(record, columns)


async def retrieve_multiple(run: OperationRun) -> None:
    """Read a page of records."""
    request, info = run.input, run.info
    rows = request.get("limit") or limits.PAGE_ROWS_DEFAULT
    if not isinstance(rows, int) or not 1 <= rows <= limits.PAGE_ROWS_MAX:
        raise InvalidValue(f"limit is 1 to {limits.PAGE_ROWS_MAX}, not {rows}", pointer="limit")
    pk = run.request.partition_key
    wanted = query.compile_filter(
        request.get("where") or (), "id", None if pk is None else items.pk_of_caller(pk, info)
    )
    token = request.get("after")
    after = None if token is None else query.decode_token(token, "id", info)
    statement = wanted.page(info.id, rows, after)
    page = await pages.read(run.transaction, statement, rows=rows, bytes_max=limits.PAGE_BYTES_MAX)
    columns = request.get("columns")
    records = [msgspec.json.decode(row["body"]) for row in page.items]
    run.output["records"] = [
        record if columns is None else _picked(record, columns) for record in records
    ]
    run.output["token"] = _token(run, page)


def _token(run: OperationRun, found: Fetched[Any]) -> str | None:
    if not found.more:
        return None
    last = found.items[-1]
    return query.encode_token(
        query.ItemPosition(run.info.incarnation, "id", last["pk"], last["id"], last["ts"])
    )


def _picked(record: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {"id": record["id"], **{name: record.get(name) for name in columns}}


async def associate(run: OperationRun) -> None:
    """Relate records to a record."""
    await run.transaction.execute(SQL.associate, *_relation(run))


async def disassociate(run: OperationRun) -> None:
    """Remove the relations of records to a record."""
    await run.transaction.execute(SQL.disassociate, *_relation(run))


def _relation(run: OperationRun) -> tuple[Any, ...]:
    related = run.input["related"]
    return (
        run.input["relationship"], run.table.name, run.request.id,
        [one["table"] for one in related], [one["id"] for one in related],
    )  # fmt: skip


MESSAGES: Final[dict[str, Message]] = {
    "Create": Message(create),
    "Update": Message(update, loads=True),
    "Delete": Message(delete, loads=True),
    "Retrieve": Message(retrieve, writes=False),
    "RetrieveMultiple": Message(retrieve_multiple, writes=False),
    "Associate": Message(associate, loads=True),
    "Disassociate": Message(disassociate, loads=True),
}
