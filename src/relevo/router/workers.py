"""Workers and their offers: one call, one commit, shown by every later read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.errors import InvalidValue, NotFound
from relevo.kernel.postgres import catalog
from relevo.router import storage
from relevo.router.commands import ANYTHING, RouterCall, camel, each, given, readable, resource_uuid
from relevo.router.core import offers, workers
from relevo.router.core.world import SEEN_EVERY
from relevo.router.listing import WorkerFilter
from relevo.router.model import DeclineJobOfferOptions
from relevo.router.wire import views
from relevo.router.wire.views import Shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from datetime import datetime
    from uuid import UUID

    from relevo.kernel.part import PerConnection
    from relevo.router.commands import Change, Conditions
    from relevo.router.core.offers import Accepted
    from relevo.router.core.world import World
    from relevo.router.listing import RouterListing
    from relevo.router.service import Tools
    from relevo.router.wire.views import RouterWorker

SQL = catalog.load(__package__)


class WorkerOperations:
    """The methods of `app.router` for workers and their offers."""

    _tools: PerConnection[Tools]

    async def register_worker(
        self,
        worker_id: str,
        *,
        queues: Iterable[str],
        channels: Mapping[str, int | tuple[int, int]],
        capacity: int | None = None,
        total_capacity: int | None = None,
        labels: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        max_concurrent_offers: int | None = None,
        name: str | None = None,
    ) -> RouterWorker:
        """Make a worker available: `channels` say what a job costs, and how many it takes at most.

        >>> await app.router.register_worker(
        ...     "PizzaCook", queues=["kitchen"], total_capacity=100, channels={"MakePizza": 50}
        ... )  # doctest: +SKIP
        """
        if capacity is not None and total_capacity is not None:
            raise InvalidValue("capacity and total_capacity are one thing; give one of them")
        tagged = dict(tags or {}) | ({"Name": name} if name is not None else {})
        change = {
            "queues": list(queues), "capacity": capacity or total_capacity or 1,
            "labels": dict(labels or {}), "tags": tagged,
            "channels": [_channel(one, terms) for one, terms in channels.items()],
            "maxConcurrentOffers": max_concurrent_offers, "availableForOffers": True,
        }  # fmt: skip
        return (await self.put_worker(worker_id, change)).view

    async def deregister_worker(self, worker_id: str) -> RouterWorker:
        """Make a worker unavailable; its open offers go to others."""
        return (await self.put_worker(worker_id, {"availableForOffers": False})).view

    async def update_worker(self, worker_id: str, **change: Any) -> RouterWorker:
        """Change a worker by the wire's fields in Python's spelling, such as `capacity=2`."""
        return (await self.put_worker(worker_id, camel(change))).view

    async def put_worker(
        self, worker_id: str, change: Change, conditions: Conditions = ANYTHING
    ) -> Shown[RouterWorker]:
        """Create a worker or merge a change into it; the conditions are checked first."""
        merged = await given(worker_id, change, conditions)

        def decide(world: World) -> Shown[RouterWorker]:
            worker = world.workers.get(worker_id)
            conditions.check(
                None if worker is None else worker.etag,
                None if worker is None else worker.changed_at,
            )
            done = workers.patch(world, worker_id, readable(merged))
            view = views.worker(done.worker, world.held_by(done.worker))
            return Shown(view, done.worker.changed_at, done.created)

        found: Shown[RouterWorker] = await self._tools().commands.call(
            RouterCall(decide, whole=(worker_id,), lane=worker_id)
        )
        return found

    async def get_worker(self, worker_id: str) -> RouterWorker:
        """Return a worker with its offers and assignments; raises `NotFound`."""
        return (await self.show_worker(worker_id)).view

    async def show_worker(self, worker_id: str) -> Shown[RouterWorker]:
        """Return a worker, and when it or its offers were modified; raises `NotFound`."""
        database = self._tools().database
        rows = await database.fetch(SQL.show_workers, [worker_id])
        if not rows:
            raise NotFound(f"there is no worker {worker_id!r}")
        if rows[0]["seen_at"] < rows[0]["now"] - SEEN_EVERY:
            await database.write(SQL.see_worker, worker_id, idempotent=True)
        return Shown(views.worker_in(rows[0]), storage.worker_of(rows[0]).changed_at)

    async def list_workers(
        self, wanted: WorkerFilter, after: int = 0, limit: int = 100
    ) -> RouterListing[RouterWorker]:
        """Return a page of workers in the order they were made."""
        return await wanted.page(self._tools().database, after, limit)

    async def workers(self, **wanted: Any) -> AsyncIterator[RouterWorker]:
        """Yield all workers that fit; conditions are those of `WorkerFilter`."""
        async for worker in each(self.list_workers, WorkerFilter(**wanted)):
            yield worker

    async def delete_worker(self, worker_id: str) -> None:
        """Delete a worker; its open offers are revoked."""
        await self._tools().commands.call(
            RouterCall(lambda world: workers.delete(world, worker_id), whole=(worker_id,))
        )

    async def accept_offer(self, worker_id: str, offer_id: str) -> Accepted:
        """Turn an offer into an assignment; of several workers, the first wins."""
        which = resource_uuid(offer_id, "offer")
        found: Accepted = await self._on_offer(
            worker_id, which, lambda world: offers.accept(world, worker_id, which)
        )
        return found

    async def decline_offer(
        self, worker_id: str, offer_id: str, *, retry_at: datetime | None = None
    ) -> None:
        """Give an offer back, for good or until `retry_at`."""
        which = resource_uuid(offer_id, "offer")
        again_at = DeclineJobOfferOptions(retry_offer_at=retry_at).retry_offer_at
        await self._on_offer(
            worker_id, which, lambda world: offers.decline(world, worker_id, which, again_at)
        )

    async def _on_offer(
        self, worker_id: str, offer_id: UUID, decide: Callable[[World], Any]
    ) -> Any:
        return await self._tools().commands.call(
            RouterCall(decide, workers=(worker_id,), offers=(offer_id,), lane=worker_id)
        )


def _channel(channel_id: str, terms: int | tuple[int, int]) -> dict[str, Any]:
    cost, most = terms if isinstance(terms, tuple) else (terms, None)
    return {"channelId": channel_id, "capacityCostPerJob": cost, "maxNumberOfJobs": most}
