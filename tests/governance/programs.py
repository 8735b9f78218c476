"""What the processes of these tests run: hosts whose callers use one pool."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from relevo.errors import RelevoError

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing.recorder import Recorder

SIZE = 4
CALLERS = 6
TABLES = (
    """
    create table public.uses (
      id bigserial primary key, host uuid not null, began timestamptz not null, ended timestamptz
    )
    """,
    "create table public.ends (host uuid primary key, at timestamptz not null)",
    """
    create function public.note_end() returns trigger language plpgsql as $$
    begin
      insert into public.ends values (new.incarnation, relevo.now());
      return null;
    end $$
    """,
    """
    create trigger note_end after update of ended_at on relevo.host
      for each row when (old.ended_at is null and new.ended_at is not null)
      execute function public.note_end()
    """,
)
BEGIN = """
    insert into public.uses (host, began) values ($1, relevo.now()) returning id
"""
END = "update public.uses set ended = relevo.now() where id = $1"


async def borrowers(app: App, record: Recorder) -> None:
    """Callers that use a pool in chunks, and note when they do."""
    pool = app.governance.pool("erp", size=SIZE, coordination="client")

    async def use() -> None:
        while True:
            try:
                async with pool.lease():
                    number = await app.database.fetchval(BEGIN, app.leases.life.incarnation)
                    await asyncio.sleep(random.random() * 0.01)
                    await app.database.write(END, number)
            except (RelevoError, TimeoutError):
                await asyncio.sleep(0.05)

    for number in range(CALLERS):
        app.supervisor.run(f"caller {number}", use)
