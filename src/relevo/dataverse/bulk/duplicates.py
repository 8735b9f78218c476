"""Duplicate detection: a rule computes a code for each item (job type 7); equal codes match (8)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.dataverse.bulk.model import BulkRow, MatchField, RowFailure, RowQuery
from relevo.dataverse.bulk.sources import SQL
from relevo.jobs.core import codes
from relevo.kernel.running.verdicts import Fail
from relevo.store.patch import parse_pointer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.dataverse.bulk.engine import Apply, BulkRun
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Database, Transaction


def match_code(item: Any, fields: Sequence[MatchField]) -> str | None:
    """Return the match code of an item; None if it lacks a field and so has no duplicates."""
    parts = []
    for field in fields:
        value = item
        path = field.path if field.path.startswith("/") else f"/{field.path}"
        for name in parse_pointer(path):
            value = value.get(name) if isinstance(value, dict) else None
        if value is None or value == "":
            return None
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        text = " ".join(text.split()) if field.fold else text
        parts.append((text.casefold() if field.fold else text)[: field.first])
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class DuplicateDetection:
    """One job of duplicate detection: publishing a rule, or applying it."""

    def __init__(self, database: Database, ctx: JobContext) -> None:
        self._database = database
        self._ctx = ctx
        self._rule: str = ctx.data["rule"]

    async def _load_rule(self) -> tuple[str, list[MatchField], bool]:
        row = await self._database.fetchrow(SQL.read_rule, self._rule)
        if row is None:
            raise Fail(codes.NOT_FOUND, f"there is no rule {self._rule!r}; publish it first")
        fields = msgspec.json.decode(row["fields"], type=list[MatchField])
        return row["container"], fields, row["published_at"] is not None

    async def publish(self, walk: BulkRun) -> dict[str, int]:
        """Compute the codes of all items (job type 7)."""
        container, fields, _ = await self._load_rule()
        if self._ctx.state is None:
            await self._ctx.write(SQL.forget_codes, self._rule)
        counts = await walk.over([RowQuery(container=container)], self._coding(fields))
        await self._ctx.write(SQL.publish_rule, self._rule)
        return counts

    async def detect(self, walk: BulkRun) -> dict[str, int]:
        """Record which items of a query have duplicates (job type 8).

        The codes of all items are computed again first, because any of them may have changed.
        """
        container, fields, published = await self._load_rule()
        if not published:
            raise Fail(
                None, f"rule {self._rule!r} is not published; wait for its job, then try again"
            )
        data = {name: self._ctx.data.get(name) for name in ("where", "criteria", "by_key")}
        chosen = {name: value for name, value in data.items() if value is not None}
        query = msgspec.convert({"container": container, **chosen}, RowQuery)

        async def apply(tx: Transaction, source: Any, rows: Sequence[BulkRow]) -> list[RowFailure]:
            del source
            coded = await self._save(tx, rows, fields)
            await tx.execute(SQL.record_duplicates, self._ctx.id, self._rule, *coded)
            return []

        everything = RowQuery(container=container, by_key=query.by_key)
        return await walk.over([query], apply, first=(everything, self._coding(fields)))

    def _coding(self, fields: Sequence[MatchField]) -> Apply:
        async def apply(tx: Transaction, source: Any, rows: Sequence[BulkRow]) -> list[RowFailure]:
            del source
            await self._save(tx, rows, fields)
            return []

        return apply

    async def _save(
        self, tx: Transaction, rows: Sequence[BulkRow], fields: Sequence[MatchField]
    ) -> tuple[list[str], list[str], list[str]]:
        """Store the current codes of items; return partition keys, ids and codes."""
        codes_of = [(*row.key, match_code(row.body, fields)) for row in rows]
        without = [(pk, id_) for pk, id_, code in codes_of if code is None]
        await tx.execute(SQL.drop_codes, self._rule, *_columns(without, 2))
        coded = _columns([entry for entry in codes_of if entry[2] is not None], 3)
        await tx.execute(SQL.save_codes, self._rule, *coded)
        return coded[0], coded[1], coded[2]


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[n] for row in rows] for n in range(width)]
