"""A worker's side of the router: receive offers, answer them, do the work.

async for offer in app.router.worker("ana").offers():
    async with offer.accepted() as job:
        ...                      # the work; leaving the block completes and closes the job
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from relevo.router.watching import OpenOffer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from relevo.router.core.offers import Accepted
    from relevo.router.service import Router
    from relevo.router.wire.views import RouterJob


class Offer:
    """An open offer; its job, worker and times are in `about`."""

    def __init__(self, router: Router, about: OpenOffer) -> None:
        self._router = router
        self.about = about
        self.id = str(about.offer_id)
        self.job_id = about.job_id

    async def accept(self) -> Accepted:
        """Take the job; raises `OfferGone` if another worker was faster, or it expired."""
        return await self._router.accept_offer(self.about.worker_id, self.id)

    async def decline(self, *, retry_at: datetime | None = None) -> None:
        """Give the job back, for good or until a time."""
        await self._router.decline_offer(self.about.worker_id, self.id, retry_at=retry_at)

    @asynccontextmanager
    async def accepted(self) -> AsyncIterator[RouterJob]:
        """Take the job for the length of a block: completed and closed if it ends well.

        If the block raises, the job is unassigned, to be offered again.
        """
        taken = await self.accept()
        try:
            yield await self._router.get_job(self.job_id)
        except BaseException:
            await self._router.unassign_job(self.job_id, taken.assignment_id)
            raise
        await self._router.complete_job(self.job_id, taken.assignment_id)
        await self._router.close_job(self.job_id, taken.assignment_id)


class Desk:
    """Receives the offers of a worker."""

    def __init__(self, router: Router, worker_id: str) -> None:
        self._router = router
        self.worker_id = worker_id

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield every open and every new offer, each once, until the caller stops."""
        async for one in self._router.watching.follow(self.worker_id, None):
            if one is not None and isinstance(one[0], OpenOffer):
                yield Offer(self._router, one[0])
