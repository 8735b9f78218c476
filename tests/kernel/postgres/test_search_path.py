"""Other people's code is never called: neither from `public` nor from `pg_temp`.

PostgreSQL prefers the function or operator whose types fit best, in whatever schema of the search
path it lies. So a role that may only create objects in `public` could have its code run by Relevo's
role: `nextval(text)` fits a literal better than pg_catalog's `nextval(regclass)`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import asyncpg
import pytest

import relevo
from tests.kernel.postgres.errand import run_errands

pytestmark = pytest.mark.anyio

ROOT: Final = Path(relevo.__file__).parent
PLANT: Final = """
create or replace function pg_temp.plant(place text, names text[], types text[], operators text[])
returns integer language plpgsql as $plant$
declare
  trap record;
  planted integer := 0;
begin
  execute format('create sequence if not exists %1$I.sprung minvalue 0 start 0', place);
  for trap in
    with known as (
      select p.proname as name, p.pronargs as arity, p.provariadic <> 0 as open
      from pg_proc p
      where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any (names)
        and p.prokind = 'f'
    ), pair as (  -- of one type, an array with its elements, or with a text or a number
      select distinct t.type as a, u.type as b
      from unnest(types) as t (type) cross join unnest(types) as u (type)
      where u.type in (t.type, t.type || '[]', 'text', 'integer')
        or t.type in (u.type || '[]', 'text')
    ), sized as (
      select distinct name, a as arity from known cross join generate_series(1, 2) as a
      where arity = a or open
    )
    select name, t as arguments from sized cross join unnest(types) as t where arity = 1
    union all
    select name, a || ', ' || b from sized cross join pair where arity = 2
    union all
    select 'operator ' || o, a || ', ' || b from unnest(operators) as o cross join pair
    where exists (select from pg_operator where oprname = o and oprkind = 'b')
  loop
    planted := planted + 1;
    execute format(
      'create function %1$I.%2$I(%3$s) returns %4$s language plpgsql as $body$ begin '
      'perform setval(''%1$s.sprung'', %5$s); raise exception using message = %6$L; end $body$',
      place, trap.name, trap.arguments,
      case when trap.name ~ '^operator ([=<>~?]|@>|&&)' then 'boolean'
           else split_part(trap.arguments, ', ', 1) end,
      planted, format('sprung: %s(%s)', trap.name, trap.arguments));
    if trap.name like 'operator %' then
      execute format(
        'create operator %1$I.%2$s (leftarg = %3$s, rightarg = %4$s, function = %1$I.%5$I)',
        place, substr(trap.name, 10), split_part(trap.arguments, ', ', 1),
        split_part(trap.arguments, ', ', 2), trap.name);
    end if;
  end loop;
  return planted;
end $plant$;
"""


TYPES_USED: Final = """
with used as (
  select a.atttypid as type from pg_attribute a join pg_class c on c.oid = a.attrelid
  where c.relnamespace = 'relevo'::regnamespace and a.attnum > 0 and not a.attisdropped
  union select unnest(p.proargtypes) from pg_proc p where p.pronamespace = 'relevo'::regnamespace
  union select p.prorettype from pg_proc p where p.pronamespace = 'relevo'::regnamespace
  union select unnest(p.proallargtypes) from pg_proc p
    where p.pronamespace = 'relevo'::regnamespace
  union select to_regtype(name) from unnest($1::text[]) as cast_to (name)
)
select array_agg(distinct format_type(t.oid, null)) from used join pg_type t on t.oid = used.type
where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype in ('b', 'm', 'r')
"""
UNPINNED: Final = """
select p.oid::regprocedure::text from pg_proc p
where p.pronamespace = 'relevo'::regnamespace and p.prosqlbody is null
  and p.prolang <> (select oid from pg_language where lanname = 'internal')
  and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)
"""


def functions_used() -> list[str]:
    """Every name that our SQL calls like a function."""
    return _all_of(r"(?<!\.)\b([a-z_0-9]+)\(")


def operators_used() -> list[str]:
    """Every operator of our SQL; `like` is one by another name."""
    return [*_all_of(r"(?<![-+*/<>=~!@#%^&|`?])([-+*/<>=~!@#%^&|`?]+)"), "~~"]


def _all_of(pattern: str) -> list[str]:
    texts = (path.read_text("utf-8") for path in ROOT.rglob("sql/**/*.sql"))
    return sorted({name for text in texts for name in re.findall(pattern, text)})


async def plant(connection: asyncpg.Connection, place: str) -> int:
    """Plant a trap for each function and operator, with every pair of types that we use."""
    await connection.execute(PLANT)
    types = await connection.fetchval(TYPES_USED, _all_of(r"::\s*([a-z_0-9]+(?:\[\])?)"))
    planted: int = await connection.fetchval(
        "select pg_temp.plant($1, $2, $3, $4)", place, functions_used(), types, operators_used()
    )
    return planted


async def test_what_lies_in_public_is_never_called(relevo_url: str) -> None:
    weak = await asyncpg.connect(relevo_url)
    assert await plant(weak, "public") > 5_000
    for name in ("uuid", "jsonb", "int4", "int8", "timestamptz", "regclass"):  # for casts
        await weak.execute(f"create domain public.{name} as pg_catalog.bool")
    await run_errands(relevo_url)
    assert not await weak.fetchval("select is_called from public.sprung")
    await weak.close()


async def test_every_function_has_a_search_path_of_its_own(relevo_url: str) -> None:
    """Those with a body of SQL need none: PostgreSQL looked up its names when they were made.

    One takes arrays of any type, which such a body cannot, and qualifies every name instead.
    """
    admin = await asyncpg.connect(relevo_url)
    assert [row[0] for row in await admin.fetch(UNPINNED)] == ["event_column(text,anyarray)"]
    await admin.close()


async def test_functions_for_callers_trust_neither_public_nor_their_temporary_schema(
    relevo_url: str,
) -> None:
    caller = await asyncpg.connect(relevo_url, statement_cache_size=0)
    await plant(caller, "public")
    async with relevo.App(relevo_url) as app:
        orders, mail = app.store.container("orders", "/city"), app.queue("mail")
        await orders.upsert({"id": "0", "city": "Vigo"})
        await mail.ensure()

        async def write() -> None:
            await caller.execute("select relevo.submit_job('receipt', '{}')")
            put = """select relevo.put_item('orders', '{"id": "1", "city": "Vigo"}')"""
            await caller.execute(put)
            await caller.execute("select relevo.send_message('mail', 'first')")
            await app.jobs.submit("receipt", tx=caller)
            await orders.upsert({"id": "2", "city": "Vigo"}, tx=caller)
            await mail.send(b"second", tx=caller)

        learning = caller.transaction()  # about types, by statements of the driver's that trust all
        await learning.start()
        await write()
        await learning.rollback()
        await caller.execute("create temporary table now (a int); create temporary table job ()")
        for name in ("uuid", "text", "jsonb", "int2", "integer", "bigint", "timestamptz"):
            await caller.execute(f"create domain pg_temp.{name} as pg_catalog.bool")
        async with caller.transaction():
            await write()
    assert not await caller.fetchval("select is_called from public.sprung")
    for table, rows in {"item": 3, "job": 2, "message_arrival": 2}.items():
        assert await caller.fetchval(f"select pg_catalog.count(*) from relevo.{table}") == rows
    await caller.close()
