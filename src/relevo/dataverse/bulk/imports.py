"""Import: jobs that parse (type 3), transform (4) and write (5) run in order because they share a
token. Children (17) write 5,000 rows each, one after the other. If a step fails, the later ones
fail too. The items that an import created can be deleted by its id."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct

from relevo.dataverse.bulk import engine, import_files, item_writes
from relevo.dataverse.bulk.children import ParentJob, ParentProgress
from relevo.dataverse.bulk.model import BulkRow, ChildTask, RowFailure, RowQuery
from relevo.dataverse.bulk.sources import SQL, table_of
from relevo.errors import InvalidValue
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.core.operation_types import IMPORT_PARSE, IMPORT_SUBPROCESS, IMPORT_TRANSFORM
from relevo.kernel.decoding import has_nul
from relevo.kernel.running.verdicts import Fail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.dataverse.bulk.engine import BulkRun
    from relevo.dataverse.bulk.sources import ImportSource
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import Jobs
    from relevo.kernel.postgres import Database, Transaction
    from relevo.pipeline.registry import PipelineRegistry

PART_ROWS: Final = 5_000
PART: Final = "relevo.import.part"
LANE: Final = "bulk"
PARSE_ROWS: Final = 1_000
_NO_DELIMITERS: Final = frozenset('"\r\n\0')


class Lookup(Struct, frozen=True, kw_only=True):
    """A field whose value identifies an item of another container by one of its fields."""

    container: str
    field: str


class ImportOptions(Struct, frozen=True, kw_only=True):
    """How a file becomes items. `columns` maps columns to fields (None: all columns, under their
    own names); `defaults` fill fields that are missing or empty."""

    format: import_files.Format = "csv"
    encoding: str = "utf-8"
    delimiter: str = ","
    columns: dict[str, str] | None = None
    defaults: dict[str, Any] = {}
    lookups: dict[str, Lookup] = {}
    kind: str = "create"


def checked(given: Mapping[str, Any], lookups: Mapping[str, tuple[str, str]]) -> ImportOptions:
    """Return the options of an import; raises `InvalidValue` for options no job could use."""
    named = ImportOptions(**given)
    fields = {name: {"container": where, "field": by} for name, (where, by) in lookups.items()}
    try:
        plain = msgspec.to_builtins({**msgspec.structs.asdict(named), "lookups": fields})
        options = msgspec.convert(plain, ImportOptions)
    except (msgspec.MsgspecError, TypeError) as error:
        raise InvalidValue(f"invalid import options: {error}") from error
    if options.kind not in ("create", "upsert"):
        raise InvalidValue(f"kind is create or upsert, not {options.kind!r}", pointer="kind")
    if len(options.delimiter) != 1 or options.delimiter in _NO_DELIMITERS:
        raise InvalidValue(
            f"a delimiter is one character, no quote or line end, not {options.delimiter!r}",
            pointer="delimiter",
        )
    try:
        " ".encode(options.encoding)
    except (LookupError, ValueError) as error:
        raise InvalidValue(
            f"unknown encoding {options.encoding[:64]!r}; use one such as utf-8 or cp1252",
            pointer="encoding",
        ) from error
    if has_nul(msgspec.json.encode(options)):
        raise InvalidValue(
            "the options contain a null character, which cannot be stored; remove it"
        )
    return options


class ImportSteps:
    """One job of an import."""

    def __init__(
        self, database: Database, registry: PipelineRegistry | None, ctx: JobContext
    ) -> None:
        self._database = database
        self._registry = registry
        self._ctx = ctx
        self._id = UUID(ctx.data["import"])

    async def _load(self) -> tuple[str, ImportOptions]:
        row = await self._database.fetchrow(SQL.read_import, self._id)
        if row is None:
            raise Fail(codes.NOT_FOUND, f"there is no import {self._id}")
        return row["container"], msgspec.json.decode(row["options"], type=ImportOptions)

    async def _need(self, step: int) -> None:
        """Raise `Fail` if a step was not finished, with the error of its job if that is known."""
        after = self._ctx.data.get("after")
        row = await self._database.fetchrow(SQL.import_step, self._id, after)
        if row is None or row["step"] >= step:
            return  # a missing import is reported where it is read
        what = "was canceled" if row["status"] == states.CANCELED else "was not finished"
        raise Fail(
            row["error_code"], row["friendly"] or f"{row['name'] or 'an earlier step'} {what}"
        )

    async def _done(self, step: int) -> None:
        await self._ctx.write(SQL.end_import_step, self._id, step)

    async def parse(self) -> dict[str, int]:
        """Store the rows of the file (job type 3)."""
        _, options = await self._load()
        content = await self._database.fetchval(SQL.import_content, self._id)
        parsed = import_files.rows(content, options.format, options.encoding, options.delimiter)
        counts = dict(self._ctx.state or {"success": 0, "failure": 0})
        rest = itertools.islice(parsed, counts["success"] + counts["failure"], None)
        while chunk := list(itertools.islice(rest, PARSE_ROWS)):
            errors = sum(one.error is not None for one in chunk)
            counts["success"] += len(chunk) - errors
            counts["failure"] += errors
            async with self._database.transaction(own=True) as tx:
                await tx.execute(
                    SQL.add_import_rows, self._id, [one.number for one in chunk],
                    [None if one.raw is None else _text(one.raw) for one in chunk],
                    [one.error for one in chunk],
                )  # fmt: skip
                await self._ctx.checkpoint_in(tx, state=counts)
            self._ctx.check()
        await self._done(IMPORT_PARSE)
        return counts

    async def transform(self, walk: BulkRun) -> dict[str, int]:
        """Turn rows into items (job type 4)."""
        await self._need(IMPORT_PARSE)
        _, options = await self._load()

        async def apply(tx: Transaction, source: Any, rows: Sequence[BulkRow]) -> list[RowFailure]:
            del source
            made: list[tuple[int, str | None, str | None]] = []
            failures = []
            for row in rows:
                try:
                    item = await self._item(tx, options, row)
                    made.append((row.key[0], _text(item), None))
                except InvalidValue as error:
                    failures.append(engine.failure_of(row, error))
                    made.append((row.key[0], None, error.message))
            await tx.execute(SQL.set_import_items, self._id, *map(list, zip(*made, strict=True)))
            return failures

        counts = await walk.over([self._rows(0, 2**62)], apply)
        await self._done(IMPORT_TRANSFORM)
        return counts

    def _rows(self, low: int, high: int) -> RowQuery:
        return RowQuery(imported=self._id, low=low, high=high)

    async def _item(self, tx: Transaction, options: ImportOptions, row: BulkRow) -> dict[str, Any]:
        raw, columns = row.body["raw"], options.columns
        item = dict(raw) if columns is None else {
            field: raw[column] for column, field in columns.items() if column in raw
        }  # fmt: skip
        for field, value in options.defaults.items():
            if item.get(field) in (None, ""):
                item[field] = value
        for field, lookup in options.lookups.items():
            if item.get(field) not in (None, ""):
                item[field] = await self._resolved(tx, field, lookup, item[field])
        if item.get("id") in (None, ""):
            item["id"] = str(uuid5(self._id, str(row.key[0])))
        return item

    async def _resolved(self, tx: Transaction, field: str, lookup: Lookup, value: Any) -> str:
        path = lookup.field.strip("/").split("/")
        matches = await tx.fetch(
            SQL.find_by_field, lookup.container, path, msgspec.json.encode(value).decode()
        )
        if len(matches) != 1:
            many = "several items" if matches else "no item"
            raise InvalidValue(
                f"{field}: {many} of {lookup.container!r} with {lookup.field} {value!r}"
            )
        return str(matches[0]["id"])

    async def write(self, jobs: Jobs) -> dict[str, int] | None:
        """Write the items through child jobs (type 5); None if the job has to wait."""
        await self._need(IMPORT_TRANSFORM)
        bounds = await self._database.fetchrow(SQL.import_rows_bounds, self._id, 0, 2**62, False)
        if bounds is None or bounds["number"] is None:
            return {"success": 0, "failure": 0}
        rows = self._rows(1, bounds["number"])
        return await ImportWriteJob(jobs, self._ctx, rows).run()

    async def part(self, walk: BulkRun) -> dict[str, int]:
        """Write the items of one child's rows (type 17)."""
        container, options = await self._load()
        table = table_of(self._registry, RowQuery(container=container))
        place = (container, None if table is None else table.name)

        async def act(tx: Transaction, source: ImportSource, row: BulkRow) -> None:
            made = await item_writes.put(tx, self._ctx, place, row.body["item"], options.kind)
            await tx.execute(SQL.mark_import_row, source.id, row.key[0], made, not made)

        async def apply(tx: Transaction, source: Any, rows: Sequence[BulkRow]) -> list[RowFailure]:
            failures = await engine.each(act)(tx, source, rows)
            for failure in failures:
                await tx.execute(
                    SQL.fail_import_row, self._id, [int(failure.row_id)], failure.message
                )
            return failures

        return await walk.over([part_of(self._ctx).query], apply)


def part_of(ctx: JobContext) -> ChildTask:
    """Return the parameters of a child: which rows it writes."""
    return msgspec.convert(ctx.data, ChildTask)


class ImportWriteJob(ParentJob):
    """The last step of an import, which writes rows through children of `PART_ROWS` rows each."""

    handler = PART
    operation_type = IMPORT_SUBPROCESS
    word = "part"

    def __init__(self, jobs: Jobs, ctx: JobContext, rows: RowQuery) -> None:
        assert rows.high is not None
        super().__init__(jobs, ctx, [rows], -(-rows.high // PART_ROWS))
        self._rows = rows

    def parameters_of(self, at: ParentProgress) -> Mapping[str, Any]:
        """Return the parameters of a child."""
        low = at.query * PART_ROWS + 1
        rows = msgspec.structs.replace(self._rows, low=low, high=low + PART_ROWS - 1)
        part = ChildTask(parent=self._ctx.id, index=at.query, query=rows)
        return {"import": str(rows.imported), **msgspec.to_builtins(part)}


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
