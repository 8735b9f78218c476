"""A shop floor for tests: an app's router, its clock, and waiting for what it comes to."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo import App
    from relevo.router.wire.views import RouterJobOffer
    from relevo.testing.clock import Clock

QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5}
SUMS = """
select count(*) from relevo.router_load l
left join lateral (
  select coalesce(sum(o.cost), 0) as used, count(*) filter (where o.state = 'open') as offers,
         count(*) filter (where o.state <> 'open') as holding
  from relevo.router_offer o where o.worker_id = l.worker_id and o.ended_at is null) s on true
where (l.used, l.offers, l.holding) is distinct from (s.used, s.offers, s.holding)
   or s.offers + s.holding <>
      (select coalesce(sum(value::int), 0) from jsonb_each_text(l.by_channel))
"""
BROKEN = """
select (select count(*) from relevo.router_offer o join relevo.router_job j on j.id = o.job_id
        where o.state = 'open' and j.status <> 'queued')
     + (select count(*) from (select job_id from relevo.router_offer where state in ('assigned', 'completed')
        group by job_id having count(*) > 1) twice)
     + (select count(*) from relevo.router_job j where (j.status in ('assigned', 'completed')) <> exists (
        select from relevo.router_offer o where o.job_id = j.id and o.state in ('assigned', 'completed')))
"""  # noqa: E501
GAPS = """
select count(*) from (
  select version - row_number() over (partition by subject order by version) as off
  from relevo.event where type like 'relevo.router.%' and type <> 'relevo.router.touched') e
where off <> 0
"""


class Floor:
    """One router with one queue `q` of a policy `d`, as tests mostly need it."""

    def __init__(self, app: App, clock: Clock) -> None:
        self.app = app
        self.clock = clock
        self.router = app.router

    async def open(self, mode: Any = "longestIdle", ttl: float | None = 600.0) -> None:
        await self.router.set_distribution_policy("d", mode=mode, offer_ttl=ttl)
        await self.router.set_queue("q", distribution_policy="d")

    async def worker(self, worker_id: str = "w", **told: Any) -> None:
        base: dict[str, Any] = {"queues": ["q"], "channels": {"c": 1}}
        await self.router.register_worker(worker_id, **{**base, **told})

    async def job(self, job_id: str = "j", **told: Any) -> Any:
        channel = told.pop("channel", "c")
        return await self.router.create_job(channel, job_id=job_id, **{"queue": "q", **told})

    async def status(self, job_id: str = "j") -> str:
        return (await self.router.get_job(job_id)).status

    async def offers(self, worker_id: str = "w") -> dict[str, RouterJobOffer]:
        """Return the open offers to a worker by job."""
        return {one.job_id: one for one in (await self.router.get_worker(worker_id)).offers}

    async def offered(self, worker_id: str = "w", job_id: str = "j") -> RouterJobOffer:
        """Wait until a worker is offered a job."""
        await self.until(lambda: self._has(worker_id, job_id), f"{worker_id} is offered {job_id}")
        return (await self.offers(worker_id))[job_id]

    async def _has(self, worker_id: str, job_id: str) -> bool:
        return job_id in await self.offers(worker_id)

    async def accepted(self, worker_id: str = "w", job_id: str = "j") -> str:
        offer = await self.offered(worker_id, job_id)
        return (await self.router.accept_offer(worker_id, offer.offer_id)).assignment_id

    async def finish(self, job_id: str, assignment: str) -> None:
        await self.router.complete_job(job_id, assignment)
        await self.router.close_job(job_id, assignment)

    async def becomes(self, status: str, job_id: str = "j") -> None:
        async def reached() -> bool:
            return await self.status(job_id) == status

        await self.until(reached, f"{job_id} is {status}")

    async def until(
        self, condition: Callable[[], Awaitable[bool]], what: str, timeout: float = 20.0
    ) -> None:
        give_up = time.monotonic() + timeout
        while not await condition():
            if time.monotonic() > give_up:
                jobs = [f"{one.id} {one.status}" async for one in self.router.jobs()]
                raise AssertionError(f"not within {timeout} s: {what}; {jobs}")
            await asyncio.sleep(0.01)

    async def settled(self) -> None:
        """Wait until the matcher has seen everything so far: a last job has come to its worker."""
        mark = f"mark-{time.monotonic_ns()}"
        await self.router.set_distribution_policy("marks")
        await self.router.set_queue("marks", distribution_policy="marks")
        await self.worker(mark, queues=["marks"])
        await self.job(mark, queue="marks")

        async def marked() -> bool:
            return bool((await self.router.get_worker(mark)).offers)

        await self.until(marked, "the matcher has come as far")
        await self.router.cancel_job(mark)
        await self.router.delete_worker(mark)

    async def told(self, subject: str) -> list[str]:
        """Return the names of the events of a job or worker, in their order."""
        rows = await self.app.database.fetch(
            "select type from relevo.event where subject = $1 and type <> 'relevo.router.touched'"
            " order by version",
            subject,
        )
        return [row["type"].removeprefix("relevo.router.") for row in rows]

    async def check(self) -> None:
        """What must hold of the rows at any time."""
        database = self.app.database
        assert await database.fetchval(SUMS) == 0
        assert await database.fetchval(BROKEN) == 0
        assert await database.fetchval(GAPS) == 0  # J12
