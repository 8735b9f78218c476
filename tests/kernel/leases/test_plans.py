"""The plans of the hot queries stay flat as tables grow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from relevo.kernel.leases.service import SQL

if TYPE_CHECKING:
    import uuid

    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio
HOSTS, LEASES = 400, 40_000

FILL = """
insert into relevo.host (incarnation, name, lease_until, started_at, version)
  select gen_random_uuid(), 'h' || i, now() + interval '1 day', now(), 'test'
  from generate_series(1, {hosts}) i;
insert into relevo.unit (kind, name, strict, handoff_timeout, rest)
  select 'feed', 'u' || i, false, '30 s', '30 s' from generate_series(1, 100) i;
insert into relevo.lease (unit_id, name, owner, epoch, free_since)
  select 1 + i % 100, i::text, h.incarnation, 1, null
  from generate_series(1, {leases}) i
  join (select incarnation, row_number() over () as n from relevo.host) h on h.n = 1 + i % {hosts};
insert into relevo.member (unit_id, host)
  select u.id, h.incarnation from relevo.unit u
  join (select incarnation from relevo.host limit 4) h on true;
"""


@pytest.fixture
async def filled(database: Database) -> Database:
    await database.run(lambda tx: tx.execute(FILL.format(hosts=HOSTS, leases=LEASES)))
    await database.run(lambda tx: tx.execute("analyze relevo.host, relevo.lease, relevo.member"))
    return database


@pytest.mark.parametrize(
    ("query", "arguments"),
    [
        ("heartbeat", ["$host", "10.0"]),
        ("holdings", ["$host"]),
        ("save_positions", ["$host", "array[1,2,3]", "array[1,1,1]::bigint[]",
                            "array['{}','{}','{}']"]),
        ("stale_fences", ["array[1,2,3]", "array[1,1,1]::bigint[]"]),
        ("read_leases", ["array[1,2,3]", "$host"]),
        ("read_units", ["$host", "1"]),
    ],
)  # fmt: skip
async def test_a_hot_query_reads_only_what_it_needs(
    filled: Database, query: str, arguments: list[str]
) -> None:
    host: uuid.UUID = await filled.fetchval("select host from relevo.member limit 1")
    values = [argument.replace("$host", f"'{host}'::uuid") for argument in arguments]
    text: str = getattr(SQL, query)
    types = {"heartbeat": "(uuid, float8)", "read_units": "(uuid, integer)"}.get(query, "")

    async def explain(tx: Any) -> str:
        await tx.execute(f"prepare hot{types} as {text}")
        rows = await tx.fetch(
            f"explain (analyze, buffers, timing off, summary off) execute hot({', '.join(values)})"
        )
        return "\n".join(row[0] for row in rows)

    plan = await filled.run(explain)
    assert "Seq Scan on lease" not in plan, plan
    touched = sum(int(n) for n in re.findall(r"shared hit=(\d+)", plan.split("\n")[1]))
    assert touched < 3_000, plan  # a scan of all leases touches far more
