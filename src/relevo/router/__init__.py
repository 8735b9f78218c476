"""The job router: which worker, of those able and free, gets this job?

await app.router.set_distribution_policy("fair", mode="longestIdle", offer_ttl=30)
await app.router.set_queue("kitchen", distribution_policy="fair")
await app.router.register_worker("ana", queues=["kitchen"], channels={"pizza": 50})
await app.router.create_job("pizza", queue="kitchen", selectors=[selector("English", ">", 5)])

async for offer in app.router.worker("ana").offers():
    async with offer.accepted() as job: ...
"""

from relevo.router.core.jobs import Unassigned
from relevo.router.core.offers import Accepted
from relevo.router.core.selectors import WorkerSelector
from relevo.router.jobs import selector
from relevo.router.listing import JobFilter, WorkerFilter
from relevo.router.offers import Desk, Offer
from relevo.router.service import Router
from relevo.router.wire.views import (
    RouterJob,
    RouterJobPositionDetails,
    RouterQueueStatistics,
    RouterWorker,
)

__all__ = [
    "Accepted",
    "Desk",
    "JobFilter",
    "Offer",
    "Router",
    "RouterJob",
    "RouterJobPositionDetails",
    "RouterQueueStatistics",
    "RouterWorker",
    "Unassigned",
    "WorkerFilter",
    "WorkerSelector",
    "selector",
]
