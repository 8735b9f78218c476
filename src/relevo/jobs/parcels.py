"""Parcels: many plain jobs in one row of `relevo.job_parcel`.

A job that is a row of its own costs PostgreSQL a wide row and two index entries when it is
submitted, new versions of these when it is claimed, and a delete when it ends. Users who submit
thousands of short jobs at once look at few of them. Relevo stores such jobs in batches instead:

1. *Submitted together.* If one statement stores 100 or more jobs of one handler that differ only in
   key and data, `relevo.submit_parcels` stores them in parcels of up to 250. They wait in their
   lane. A claim gives the parcel to a host (`relevo.claim_jobs_in_order`).
2. *Claimed together.* If a host claims 100 or more plain rows at once, `relevo.pack_jobs` turns
   them into one parcel of that host.

Either way the host gets every job as a `JobClaim`, whose number fences later writes. When jobs of
a parcel succeed, `relevo.end_parcelled_jobs` writes their records. Everything else that can happen
to a job (failure, retry, command, checkpoint, lost host) first turns it into a row again:
*unpacking*. So states, chains, caps and events need no knowledge of parcels.

All SQL that writes parcels is in `sql/functions/parcels`. Three functions outside of it choose
between rows and parcels, each with one call: `submit_jobs`, `claim_job_rows` and `serve_jobs`. All
Python code for parcels is here. `docs/explanation/system-jobs.md` has the lock order, and ADRs 5
and 6 the measurements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.jobs.running.claims import JobClaim
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from uuid import UUID

    import asyncpg

    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.jobs")


def claims_in(notice: asyncpg.Record, taken_at: float) -> list[JobClaim]:
    """Return the claims of a `relevo.job_notice` of the kind `parcel`."""
    _, _, _, number, lane, handler, name, _, attempt, type_, created, _, ids, datas = notice
    return [
        JobClaim(id_, number, lane, handler, name, data, attempt, type_, created, taken_at)
        for id_, data in zip(ids, datas, strict=True)
    ]


async def unpack(tx: Transaction, ids: Sequence[UUID]) -> int:
    """Turn jobs that are in parcels into rows; returns how many were."""
    count: int = await tx.fetchval(SQL.unpack, ids)
    return count


async def unpack_held(database: Database, host: UUID, numbers: Sequence[int] | None) -> None:
    """Turn the jobs that a host holds into rows: all, or those of some claim numbers."""
    await database.write(SQL.unpack_held, host, numbers, idempotent=True)


async def unpack_waiting(database: Database, handler: str, amount: int) -> None:
    """Turn about `amount` waiting jobs of a handler into rows."""
    await database.write(SQL.unpack_ready, handler, amount)


async def unpack_unserved(database: Database, patience: timedelta, amount: int) -> None:
    """Turn about `amount` waiting jobs into rows whose handler no host has had for so long."""
    await database.write(SQL.unpack_unserved, patience, amount)
