"""The plans of the router's hot queries stay flat as its tables grow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from relevo.router.storage import SQL

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio
JOBS, WORKERS = 40_000, 2_000
"""Of three jobs one waits, one is assigned and one has ended; each has had three offers."""
FILL = """
insert into relevo.router_worker (id, version, created_at, modified_at, available, registration, registered_at,
  seen_at, capacity, queues, channels, labels, tags)
select 'w' || n, 1, now(), now(), true, 1, now(), now(), 1000, array['q' || n % 100],
  '[{{"channelId": "c", "capacityCostPerJob": 1}}]', '{{"skill": 1}}', '{{}}' from generate_series(1, {workers}) n;
insert into relevo.router_load (worker_id, idle_since, acted_at) select 'w' || n, now(), now()
from generate_series(1, {workers}) n;
insert into relevo.router_job (id, version, created_at, modified_at, status, channel_id, queue_id, priority, mode,
  enqueued_at, arrival, entered, due_at, ended_at)
select 'j' || n, 1, now(), now(), (array['queued', 'assigned', 'closed'])[1 + n % 3], 'c', 'q' || n % 100, n % 5,
  'queueAndMatch', now() - n * interval '1 second', n, true,
  case when n % 30 = 0 then now() + n * interval '1 second' end, case when n % 3 = 2 then now() end
from generate_series(1, {jobs}) n;
insert into relevo.router_offer (id, job_id, worker_id, queue_id, channel_id, cost, state, offered_at, expires_at,
  job_round, registration, assignment_id, assigned_at, ended_at)
select gen_random_uuid(), 'j' || n, 'w' || 1 + (n + k) % {workers}, 'q' || n % 100, 'c', 1,
  case when k < 2 then 'declined' when n % 3 = 0 then 'open' when n % 3 = 1 then 'assigned' else 'closed' end,
  now(), case when k = 2 and n % 3 = 0 then now() + n * interval '1 second' end, 0, 1,
  case when k = 2 and n % 3 > 0 then gen_random_uuid() end,
  case when k = 2 and n % 3 > 0 then now() - n * interval '1 second' end,
  case when k < 2 or n % 3 = 2 then now() end
from generate_series(1, {jobs}) n, generate_series(0, 2) k;
"""  # noqa: E501
TABLES = ["router_worker", "router_load", "router_job", "router_offer"]
JOB_IDS, WORKER_IDS = ["j3", "j6", "j7", "j8"], ["w7", "w8"]
NOBODY = uuid4()
HOT: dict[str, list[Any]] = {
    "lock": [WORKER_IDS, JOB_IDS, [NOBODY], ["w9"]],
    "jobs_by_id": [JOB_IDS],
    "workers_by_id": [WORKER_IDS],
    "offers_touched": [JOB_IDS, [NOBODY], WORKER_IDS],
    "show_jobs": [JOB_IDS],
    "show_workers": [WORKER_IDS],
    "matching_jobs": [JOB_IDS],
    "unsettled_jobs": [2, 100],
    "worker_ids": ["w2", 100],
    "due": [2000],
    "place": ["j3"],
    "standing": ["q3"],
    "idle_workers": [604_800.0],
    "forget_offers": [86_400.0, 2000],
    "forget_jobs": [86_400.0, 2000],
    "list_jobs": [500, 101, *[None] * 6],
    "list_unfinished_jobs": [500, 101, ["queued"], "q3", *[None] * 4],
    "list_workers": [500, 101, "active", None, "c", True],
}


async def fill(database: Database, jobs: int, workers: int) -> None:
    text = FILL.format(jobs=jobs, workers=workers)
    await database.run(lambda tx: tx.execute(text))
    named = ", ".join(f"relevo.{one}" for one in TABLES)
    await database.run(lambda tx: tx.execute(f"analyze {named}"))


async def plan_of(database: Database, query: str) -> str:
    """Return what a hot query does with its arguments."""

    async def explain(tx: Any) -> str:
        told = f"explain (analyze, buffers, timing off, summary off) {getattr(SQL, query)}"
        return "\n".join(row[0] for row in await tx.fetch(told, *HOT[query]))

    return await database.run(explain)


def buffers(plan: str) -> int:
    return sum(int(n) for n in re.findall(r"shared hit=(\d+)", plan.split("\n")[1]))


async def test_no_hot_query_goes_through_a_table(database: Database) -> None:
    await fill(database, JOBS, WORKERS)
    for query in HOT:
        plan = await plan_of(database, query)
        for table in TABLES if query != "list_workers" else ():  # for people, and workers are few
            assert f"Seq Scan on {table}" not in plan, f"{query}\n{plan}"
        assert buffers(plan) < 6_000, f"{query}\n{plan}"  # a table has far more pages
