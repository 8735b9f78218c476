"""Other people's code is never called: neither from `public` nor from `pg_temp`.

PostgreSQL prefers the function or operator whose types fit best, in whatever schema of the search
path it lies. So a role that may only create objects in `public` could have its code run by Relevo's
role: `nextval(text)` fits a literal better than pg_catalog's `nextval(regclass)`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
import pytest

import relevo
from tests.kernel.postgres.errand import run_errands

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.anyio

ROOT: Final = Path(relevo.__file__).parent
TYPES: Final = [
    "text", "uuid", "bigint", "integer", "smallint", "boolean", "jsonb", "json", "timestamptz",
    "interval", "float8", "bytea", "numeric", "text[]", "uuid[]", "bigint[]", "integer[]",
    "smallint[]", "boolean[]", "timestamptz[]", "jsonb[]", "float8[]",
]  # fmt: skip
OPERATORS: Final = [
    "=", "<>", "<", ">", "<=", ">=", "||", "@>", "<@", "&&", "+", "-", "*", "/", "->", "->>", "#>",
    "#>>", "&", "#", "?", "~",
]  # fmt: skip
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
  loop
    planted := planted + 1;
    execute format(
      'create function %1$I.%2$I(%3$s) returns %4$s language plpgsql as $body$ begin '
      'perform setval(''%1$s.sprung'', %5$s); raise exception ''sprung: %2$s(%3$s)''; end $body$',
      place, trap.name, trap.arguments,
      case when trap.name ~ '^operator ([=<>~?]|@>|&&)' then 'boolean'
           else split_part(trap.arguments, ', ', 1) end,
      planted);
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


def functions_used() -> list[str]:
    """Every name that our SQL calls like a function."""
    texts: Iterable[str] = (path.read_text("utf-8") for path in ROOT.rglob("sql/**/*.sql"))
    return sorted({name for text in texts for name in re.findall(r"(?<!\.)\b([a-z_0-9]+)\(", text)})


async def plant(connection: asyncpg.Connection, place: str) -> int:
    """Plant a trap for each function and operator, with every pair of types that we use."""
    await connection.execute(PLANT)
    planted: int = await connection.fetchval(
        "select pg_temp.plant($1, $2, $3, $4)", place, functions_used(), TYPES, OPERATORS
    )
    return planted


async def test_what_lies_in_public_is_never_called(relevo_url: str) -> None:
    weak = await asyncpg.connect(relevo_url)
    assert await plant(weak, "public") > 5_000
    await run_errands(relevo_url)
    assert not await weak.fetchval("select is_called from public.sprung")
    await weak.close()


async def test_functions_for_callers_trust_neither_public_nor_their_temporary_schema(
    relevo_url: str,
) -> None:
    async with relevo.App(relevo_url) as app:
        await app.store.container("orders", "/city").upsert({"id": "0", "city": "Vigo"})
    caller = await asyncpg.connect(relevo_url)
    await plant(caller, "public")
    await caller.execute("create temporary table now (a int); create temporary table job (a int)")
    for name in ("uuid", "text", "jsonb", "integer", "bigint", "timestamptz"):
        await caller.execute(f"create domain pg_temp.{name} as pg_catalog.bool")
    async with caller.transaction():
        await caller.execute("select relevo.submit_job('receipt', '{}')")
        await caller.execute("""select relevo.put_item('orders', '{"id": "1", "city": "Vigo"}')""")
    assert not await caller.fetchval("select is_called from public.sprung")
    assert await caller.fetchval("select pg_catalog.count(*) from relevo.item") == 2
    await caller.close()
