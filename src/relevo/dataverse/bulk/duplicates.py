"""Duplicates: a rule gives items a code (7), and items with the same code are found (8)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.dataverse.bulk.model import MatchField, Row, RowFailure, RowQuery
from relevo.dataverse.bulk.sources import SQL
from relevo.jobs.core import codes
from relevo.kernel.running.verdicts import Fail
from relevo.store.patch import parse_pointer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.dataverse.bulk.engine import Apply, Walk
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Database, Transaction


def match_code(item: Any, fields: Sequence[MatchField]) -> str | None:
    """Return the code of an item; None if it lacks a field, so that it is nobody's duplicate."""
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


class Matching:
    """One job of duplicate detection."""

    def __init__(self, database: Database, ctx: JobContext) -> None:
        self._database = database
        self._ctx = ctx
        self._rule: str = ctx.data["rule"]

    async def _told(self) -> tuple[str, list[MatchField], bool]:
        row = await self._database.fetchrow(SQL.read_rule, self._rule)
        if row is None:
            raise Fail(codes.NOT_FOUND, f"there is no rule {self._rule!r}; publish it first")
        fields = msgspec.json.decode(row["fields"], type=list[MatchField])
        return row["container"], fields, row["published_at"] is not None

    async def publish(self, walk: Walk) -> dict[str, int]:
        """Give all items their codes (7)."""
        container, fields, _ = await self._told()
        if self._ctx.state is None:
            await self._ctx.write(SQL.forget_codes, self._rule)
        counts = await walk.over([RowQuery(container=container)], self._coding(fields))
        await self._ctx.write(SQL.publish_rule, self._rule)
        return counts

    async def detect(self, walk: Walk) -> dict[str, int]:
        """Write down which items of a query have duplicates (8).

        All items get their codes anew before: what an item is compared with may have changed, too.
        """
        container, fields, published = await self._told()
        if not published:
            raise Fail(
                None, f"rule {self._rule!r} is not published; wait for its job, then try again"
            )
        data = {name: self._ctx.data.get(name) for name in ("where", "criteria", "by_key")}
        chosen = {name: value for name, value in data.items() if value is not None}
        query = msgspec.convert({"container": container, **chosen}, RowQuery)

        async def apply(tx: Transaction, source: Any, rows: Sequence[Row]) -> list[RowFailure]:
            del source
            coded = await self._save(tx, rows, fields)
            await tx.execute(SQL.record_duplicates, self._ctx.id, self._rule, *coded)
            return []

        everything = RowQuery(container=container, by_key=query.by_key)
        return await walk.over([query], apply, first=(everything, self._coding(fields)))

    def _coding(self, fields: Sequence[MatchField]) -> Apply:
        async def apply(tx: Transaction, source: Any, rows: Sequence[Row]) -> list[RowFailure]:
            del source
            await self._save(tx, rows, fields)
            return []

        return apply

    async def _save(
        self, tx: Transaction, rows: Sequence[Row], fields: Sequence[MatchField]
    ) -> tuple[list[str], list[str], list[str]]:
        """Write down the codes of items as they are now; returns keys and codes of those that have
        one."""
        found = [(*row.key, match_code(row.body, fields)) for row in rows]
        none = [(pk, id_) for pk, id_, code in found if code is None]
        await tx.execute(SQL.drop_codes, self._rule, *_columns(none, 2))
        coded = _columns([one for one in found if one[2] is not None], 3)
        await tx.execute(SQL.save_codes, self._rule, *coded)
        return coded[0], coded[1], coded[2]


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[n] for row in rows] for n in range(width)]
