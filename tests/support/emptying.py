"""Databases of a module, emptied before each test: a tenth of what a new one costs."""

from __future__ import annotations

import asyncpg

_EMPTY = """
do $$
declare
  one regclass;
  filled boolean;
begin
  set local session_replication_role = replica;
  for one in
    select c.oid::regclass from pg_class c
    where c.relnamespace = 'relevo'::regnamespace and c.relkind = 'r' and not c.relispartition
      and (c.relname ~ '{tables}'
           or c.relname in ('host', 'lease', 'member', 'unit', 'event_time'))
  loop
    execute format('select exists (select from %s)', one) into filled;
    if filled then execute format('delete from %s', one); end if;
  end loop;
  delete from relevo.event_batch;
  update relevo.clock set shift = '0', mark = '-infinity';
end $$;
"""


def emptying(tables: str, more: str = "") -> str:
    """Return statements that make a database as good as new.

    `tables` is a pattern of the tables that tests fill.
    """
    return _EMPTY.replace("{tables}", tables) + more


async def empty(url: str, statements: str) -> None:
    """Make a database as good as new."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()
