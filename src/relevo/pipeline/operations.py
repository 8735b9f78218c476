"""Stage 30: what each message does to the store, inside the transaction of its operation."""

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
    from relevo.pipeline.frames import Frame

SQL = catalog.load("relevo.pipeline")
Main = Callable[["Frame"], Awaitable[None]]


class Reader(Protocol):
    """What statements are run on: a transaction, or the database."""

    async def fetchrow(self, sql: str, *args: Any) -> Any:
        """Return the first row, or None."""


class Message(Struct, frozen=True):
    """How a message is carried out; `loads` if it needs the record as it was, locked."""

    main: Main
    loads: bool = False
    writes: bool = True


async def load(frame: Frame, reader: Reader, *, lock: bool) -> dict[str, Any]:
    """Return the record that an operation names, as it is; `NotFound` if there is none."""
    key = frame.key
    sql = SQL.lock_record if lock else SQL.read_record
    row = await reader.fetchrow(sql, frame.info.id, key.pk, key.id)
    if row is None:
        raise NotFound(f"there is no {frame.table.name} {key.id!r}")
    record: dict[str, Any] = msgspec.json.decode(row["body"])
    return record


async def _current(frame: Frame) -> dict[str, Any]:
    """The record, locked by now, as steps may have left it."""
    if frame.before is not None and not frame.touched:
        return frame.before
    return await load(frame, frame.running, lock=True)


async def _put(frame: Frame, record: dict[str, Any], kind: str) -> dict[str, Any]:
    table, info = frame.home
    if kind == "delete":
        text, plain = items.encoded(record)
        written = text.decode()
    else:
        document = table.document(record, info)
        if kind == "replace" and document.key != frame.key:
            raise InvalidValue(
                "an update cannot change a record's id or partition key; create a new record and"
                " delete the old one",
                pointer="target",
            )
        written, plain = document.text, document.plain
    try:
        await frame.running.execute(
            SQL.put_record, info.name, written, kind, items.checked_etag(frame.asked.if_match)
        )
    except asyncpg.PostgresError as error:
        found = _REFUSALS.get(error.sqlstate or "")
        if found is None:
            raise
        raise found(f"{table.name} {record.get('id')!r}: {error}") from error
    return dict(plain)


_REFUSALS: Final[dict[str, type[ItemExists | NotFound | ConditionNotMet]]] = {
    "23505": ItemExists,
    "P0002": NotFound,
    "42704": NotFound,
    "RV412": ConditionNotMet,
}


async def create(frame: Frame) -> None:
    """Store a new record."""
    frame.after = await _put(frame, frame.target, "create")
    frame.output["id"] = frame.after["id"]


async def update(frame: Frame) -> None:
    """Change the columns that the request brings; what steps did meanwhile is kept."""
    now = await _current(frame)
    frame.after = await _put(frame, {**now, **frame.target}, "replace")


async def delete(frame: Frame) -> None:
    """Remove a record, and what relates it to others."""
    now = await _current(frame)
    await _put(frame, now, "delete")
    await frame.running.execute(SQL.forget_associations, frame.table.name, frame.asked.id)


async def retrieve(frame: Frame) -> None:
    """Read a record."""
    record = await load(frame, frame.running, lock=False)
    columns = frame.input.get("columns")
    frame.output["record"] = record if columns is None else _picked(record, columns)


async def retrieve_multiple(frame: Frame) -> None:
    """Read a page of records that meet conditions."""
    asked, info = frame.input, frame.info
    rows = asked.get("limit") or limits.PAGE_ROWS_DEFAULT
    if not isinstance(rows, int) or not 1 <= rows <= limits.PAGE_ROWS_MAX:
        raise InvalidValue(f"limit is 1 to {limits.PAGE_ROWS_MAX}, not {rows}", pointer="limit")
    pk = frame.asked.partition_key
    wanted = query.compile_filter(
        asked.get("where") or (), "id", None if pk is None else items.pk_of_caller(pk, info)
    )
    token = asked.get("after")
    after = None if token is None else query.decode_token(token, "id", info)
    statement = wanted.page(info.id, rows, after)
    found = await pages.read(frame.running, statement, rows=rows, bytes_max=limits.PAGE_BYTES_MAX)
    columns = asked.get("columns")
    records = [msgspec.json.decode(row["body"]) for row in found.items]
    frame.output["records"] = [one if columns is None else _picked(one, columns) for one in records]
    frame.output["token"] = _token(frame, found)


def _token(frame: Frame, found: Fetched[Any]) -> str | None:
    if not found.more:
        return None
    last = found.items[-1]
    return query.encode_token(
        query.ItemPosition(frame.info.incarnation, "id", last["pk"], last["id"], last["ts"])
    )


def _picked(record: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {"id": record["id"], **{name: record.get(name) for name in columns}}


async def associate(frame: Frame) -> None:
    """Relate records to one."""
    await frame.running.execute(SQL.associate, *_relation(frame))


async def disassociate(frame: Frame) -> None:
    """End the relation of records to one."""
    await frame.running.execute(SQL.disassociate, *_relation(frame))


def _relation(frame: Frame) -> tuple[Any, ...]:
    related = frame.input["related"]
    return (
        frame.input["relationship"], frame.table.name, frame.asked.id,
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
