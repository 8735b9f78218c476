"""What the kit asks about hosts is looked up, however many have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.governance.reach import SQL
from relevo.kernel.leases.directory import SQL as LEASES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio
FILL = """
insert into relevo.host (
  incarnation, name, lease_until, started_at, version, ended_at, end_reason)
select gen_random_uuid(), 'h' || i, relevo.now(), relevo.now(), '1',
       case when i > 5 then relevo.now() end, case when i > 5 then 'lapsed' end
from generate_series(1, 20000) i"""


@pytest.fixture
async def db(relevo_url: str) -> AsyncIterator[asyncpg.Connection]:
    db = await asyncpg.connect(relevo_url)
    await db.execute(FILL)
    await db.execute("vacuum analyze relevo.host")
    yield db
    await db.close()


async def test_hosts_are_looked_up(db: asyncpg.Connection) -> None:
    lives = [row[0] for row in await db.fetch("select incarnation from relevo.host limit 5")]
    asked: list[tuple[str, Any]] = [
        (SQL.kit_hosts, "relevo"), (SQL.host_names, lives), (LEASES.ended_lives, lives),
    ]  # fmt: skip
    for sql, argument in asked:
        plan = "\n".join(row[0] for row in await db.fetch(f"explain {sql}", argument))
        assert "Seq Scan on host" not in plan, plan
