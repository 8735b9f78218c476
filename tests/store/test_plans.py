"""Reads and pages touch what they need, however large the table is."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from relevo.store.lifecycle import SQL
from relevo.store.query import ItemPosition, compile_filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.postgres import Database, Transaction

pytestmark = pytest.mark.anyio
FILL = """
insert into relevo.container (name, partition_key)
  select 'c' || i, '{/p}' from generate_series(1, 4) i;
insert into relevo.item (container_id, range_id, ordinal, lsn, ts, expires_at, pk, id, epk, body)
  select 1 + i % 4, 1 + i % 16, 1, i, now(),
         case when i % 10 = 0 then now() + i * interval '1 s' end,
         '["p' || (i / 4) % 100 || '"]', i::text, '00', jsonb_build_object('n', i)
  from generate_series(1, 40000) i;
insert into relevo.item_version (container_id, range_id, ordinal, lsn, ts, operation, pk, id, epk)
  select container_id, range_id, ordinal, lsn, ts, 'delete', pk, id, epk from relevo.item;
"""


@pytest.fixture
async def filled(database: Database) -> Database:
    await database.run(lambda tx: tx.execute(FILL))
    await database.run(lambda tx: tx.execute("analyze relevo.item, relevo.item_version"))
    return database


async def plan(database: Database, sql: str, arguments: Sequence[Any]) -> tuple[str, int]:
    """The generic plan of a statement, as a prepared one ends up with, and the pages it touched."""

    async def explain(tx: Transaction) -> str:
        await tx.execute("set local plan_cache_mode = force_generic_plan")
        for _ in range(2):  # first it is planned, and the catalog read
            rows = await tx.fetch(f"explain (analyze, buffers, timing off) {sql}", *arguments)
        return "\n".join(row[0] for row in rows)

    text = await database.run(explain)
    return text, sum(int(n) for n in re.findall(r"shared hit=(\d+)", text.split("Planning")[0])[:1])


async def test_reading_items_looks_each_up(filled: Database) -> None:
    text, touched = await plan(filled, SQL.read_items, [1, ['["p0"]', '["p1"]'], ["400", "404"]])
    assert "item_pkey" in text
    assert "Seq Scan on item" not in text
    assert touched < 40, text


async def test_a_page_by_key_reads_a_page(filled: Database) -> None:
    middle = ItemPosition("i", "id", '["p7"]', "2", datetime.now(UTC))
    for pk, after in product(['["p7"]', None], [None, middle]):
        sql, *arguments = compile_filter([("n", ">", 5)], "id", pk).page(1, 20, after)
        text, touched = await plan(filled, sql, arguments)
        assert "item_pkey" in text
        assert pk is not None or "Sort" not in text
        assert touched < 110, text


async def test_a_page_by_time_sorts_one_partition_key_only(filled: Database) -> None:
    sql, *arguments = compile_filter([], "ts", '["p7"]').page(1, 20, None)
    text, touched = await plan(filled, sql, arguments)
    assert "Seq Scan on item" not in text
    assert touched < 300, text


async def test_looking_for_expired_items_finds_the_oldest_first(filled: Database) -> None:
    text, touched = await plan(filled, SQL.lock_expired, [50])
    assert "item_expiry" in text
    assert touched < 100, text


async def test_removing_what_is_left_reads_only_that(filled: Database) -> None:
    await filled.write("insert into relevo.dropped_container (id, ranges) values (9, '{99}')")
    removals = [
        (SQL.purge_dropped_items, [50]),
        (SQL.purge_dropped_versions, [50]),
        (SQL.forget_dropped, []),
    ]
    for sql, arguments in removals:
        text, touched = await plan(filled, sql, arguments)
        assert "Seq Scan on item" not in text
        assert touched < 40, text


async def test_a_session_that_began_on_empty_tables_still_looks_up_what_it_puts(
    database: Database,
) -> None:
    """Plans of functions are made once and kept; the tables grow under them."""
    texts: list[str] = []

    async def work(tx: Transaction) -> None:
        put = """select relevo.put_item('c1', jsonb_build_object('id', $1::text, 'p', 'p1'))"""
        stamp = "select * from relevo.stamp_writes()"
        tables, items, versions = FILL.split(";\n")[:3]
        await tx.execute(tables)
        await tx.execute(
            "insert into relevo.feed_range (container_id, epk_min, epk_max)"
            " select id, '', 'FF' from relevo.container"
        )
        for n in range(8):
            await tx.execute(put, f"early{n}")
            await tx.execute(stamp)
        await tx.execute(items)
        await tx.execute(versions)
        for statement, arguments in ((put, ["404"]), (put, ["new"]), (stamp, [])):
            rows = await tx.fetch(f"explain (analyze, buffers, timing off) {statement}", *arguments)
            texts.append("\n".join(row[0] for row in rows))

    await database.run(work)
    for text in texts:
        touched = re.findall(r"shared hit=(\d+)", text.split("Planning")[0])
        assert int(touched[0]) < 100, text
