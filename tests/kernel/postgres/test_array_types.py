"""What is known of array types is what the server's catalog says, and spares asking it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.kernel.postgres.pool import array_types

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio

CATALOG = """
select t.oid::bigint as number, e.oid::bigint as element, e.typname::text as name, t.typname::text,
  t.typnamespace::regnamespace::text as schema, t.typdelim::text as delimiter
from pg_type t join pg_type e on e.oid = t.typelem where t.oid = any ($1::oid[]) order by t.oid
"""
ARRAYS = """
select array[true, null] as bool, array['a'::bytea] as bytea, array[1::int2] as int2,
  array[[1, 2], [3, null]] as int4, array['{"x",NULL}', 'é'] as text,
  array['v'::varchar] as varchar, array[9007199254740993] as int8, array[0.5::float4] as float4,
  array['NaN'::float8, 1] as float8, array['2026-01-01'::timestamp] as timestamp,
  array['2026-01-01'::date] as date, array['2026-01-01Z'::timestamptz, 'infinity'] as timestamptz,
  array['1 day 2 hours'::interval] as interval, array['{"a": 1}'::json] as json,
  array[1.10::numeric] as numeric, array[(1, 'x'::text), (2, null)] as record,
  array['00000000-0000-0000-0000-000000000001'::uuid] as uuid, array['{"a": [1]}'::jsonb] as jsonb
"""


async def test_the_numbers_are_those_of_the_catalog(database: Database) -> None:
    rows = await database.fetch(CATALOG, list(array_types.ELEMENTS))
    assert {row["number"]: (row["element"], row["name"]) for row in rows} == array_types.ELEMENTS
    for row in rows:
        assert (row["schema"], row["typname"]) == ("pg_catalog", f"_{row['name']}")
        assert row["delimiter"] == ","


async def test_arrays_are_read_as_by_a_session_that_asks(
    database: Database, relevo_url: str
) -> None:
    [ours] = await database.fetch(ARRAYS)
    plain = await asyncpg.connect(relevo_url)
    try:
        [theirs] = await plain.fetch(ARRAYS)
        assert repr(dict(ours)) == repr(dict(theirs))
        same = ", ".join(f"${n}::{name}[]" for n, name in enumerate(_sendable(ours), 1))
        sent = list(_sendable(ours).values())
        [back] = await database.fetch(f"select {same}", *sent)
        assert repr(list(back)) == repr(sent)
    finally:
        await plain.close()


def _sendable(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "record"}


async def test_a_new_session_does_not_ask_for_them(database: Database) -> None:
    connection = await database.endpoint.connect()
    said: list[str] = []
    connection.add_query_logger(lambda record: said.append(record.query))
    try:
        await connection.fetch(ARRAYS)
        await connection.execute("create type dish as (name text, prices int[])")
        assert not [query for query in said if "pg_type" in query]
        await connection.fetch("select array[row('pizza', '{1, 2}')::dish]")
        await connection.execute("select 'the query before was noted'")
        assert [query for query in said if "pg_type" in query], "those of users are asked for"
    finally:
        await connection.close()
