"""Makes a used database of a test as good as new, at a third of the cost of another clone.

PostgreSQL counts what sessions write to each table. Only tables that were written to are emptied,
or filled again as the template has them, and sequences are set back. A database is given up, and
dropped, if a test changed its structure, its settings or its statistics, or stored much. The name
changes, so that whoever is still about to connect finds no database, as after a drop.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Final

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Mapping

USES_MAX: Final = 25
"""Deleted rows stay in the files of a database until it is vacuumed."""
ROWS_MAX: Final = 2_000
_SESSIONS: Final = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = $1 and backend_type in ('client backend', 'autovacuum worker')
"""
_WRITTEN: Final = """
select c.relname::text as name, c.relnamespace = 'pg_catalog'::regnamespace as catalog,
  pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid)
    + pg_stat_get_tuples_deleted(c.oid) as rows
from pg_class c
where c.relkind = 'r' and not c.relisshared and (pg_stat_get_tuples_inserted(c.oid) > 0
  or pg_stat_get_tuples_updated(c.oid) > 0 or pg_stat_get_tuples_deleted(c.oid) > 0)
"""
_SET: Final = """
select exists (select from pg_db_role_setting where setdatabase = d.oid) or datacl is not null
from pg_database d where datname = current_database()
"""
_SEQUENCES: Final = """
select c.relname::text as name, pg_sequence_last_value(c.oid) as last, s.seqstart as first
from pg_class c join pg_sequence s on s.seqrelid = c.oid
where c.relnamespace = $1::text::regnamespace
"""
_TABLES: Final = """
select relname::text from pg_class where relnamespace = $1::text::regnamespace and relkind = 'r'
"""


class Recycler:
    """Empties clones of one template."""

    def __init__(
        self, schema: str, rows: Mapping[str, bytes], sequences: Mapping[str, int | None]
    ) -> None:
        self._schema = schema
        self._rows = rows
        """What tables hold at first, in the format of COPY; nothing of empty ones."""
        self._sequences = sequences
        self._uses: dict[str, int] = {}

    @classmethod
    async def of(cls, clone: str, schema: str) -> Recycler:
        """Read what clones begin with from the one at a URL, which nobody has used."""
        connection = await asyncpg.connect(clone)
        try:
            rows = {
                table: copied
                for (table,) in await connection.fetch(_TABLES, schema)
                if (copied := await _copied(connection, table, schema)) is not None
            }
            sequences = await connection.fetch(_SEQUENCES, schema)
        finally:
            await connection.close()
        return cls(schema, rows, {row["name"]: row["last"] for row in sequences})

    async def recycle(self, admin: asyncpg.Connection, name: str, url: str) -> str | None:
        """Return the new name of a database; None if it cannot be as good as new."""
        uses = self._uses.pop(name, 0) + 1
        if uses > USES_MAX:
            return None
        try:
            async with asyncio.timeout(10):
                while await admin.fetch(_SESSIONS, name):
                    await asyncio.sleep(0.005)
                connection = await asyncpg.connect(url, server_settings={"jit": "off"})
                try:
                    if not await self._empty(connection):
                        return None
                finally:
                    await connection.close()
                fresh = f"relevo_test_{secrets.token_hex(6)}"
                await admin.execute(f'alter database "{name}" rename to "{fresh}"')
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            return None
        self._uses[fresh] = uses
        return fresh

    async def _empty(self, connection: asyncpg.Connection) -> bool:
        written = await connection.fetch(_WRITTEN)
        if any(row["catalog"] for row in written) or await connection.fetchval(_SET):
            return False
        if sum(row["rows"] for row in written) > ROWS_MAX:
            return False
        async with connection.transaction():
            await connection.execute("set local session_replication_role = replica")
            for row in written:
                table = row["name"]
                await connection.execute(f'delete from "{self._schema}"."{table}"')
                if table in self._rows:
                    await connection.copy_to_table(
                        table, schema_name=self._schema, source=_Bytes(self._rows[table]),
                        format="binary",
                    )  # fmt: skip
            await self._set_back(connection)
            await connection.execute("select pg_stat_force_next_flush()")
        await connection.execute("select pg_stat_reset()")
        return True

    async def _set_back(self, connection: asyncpg.Connection) -> None:
        for row in await connection.fetch(_SEQUENCES, self._schema):
            last = self._sequences[row["name"]]
            if row["last"] != last:
                await connection.execute(
                    "select setval(format('%I.%I', $1::text, $2::text)::regclass, $3, $4)",
                    self._schema, row["name"], row["first"] if last is None else last,
                    last is not None,
                )  # fmt: skip


class _Bytes:
    """Bytes as the asynchronous file that the driver copies from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __aiter__(self) -> _Bytes:
        return self

    async def __anext__(self) -> bytes:
        if not self._data:
            raise StopAsyncIteration
        data, self._data = self._data, b""
        return data


async def _copied(connection: asyncpg.Connection, table: str, schema: str) -> bytes | None:
    parts: list[bytes] = []

    async def take(part: Any) -> None:
        parts.append(bytes(part))

    if not await connection.fetchval(f'select exists (select from "{schema}"."{table}")'):
        return None
    await connection.copy_from_table(table, schema_name=schema, output=take, format="binary")
    return b"".join(parts)
