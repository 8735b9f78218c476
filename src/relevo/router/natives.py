"""The router's words in Python, in both its vocabularies: today's and that of its beginnings."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

import msgspec

from relevo.errors import InvalidValue
from relevo.router.core.selectors import WorkerSelector
from relevo.router.desk import Desk
from relevo.router.listing import JobFilter, WorkerFilter
from relevo.router.model import (
    CancelJobOptions,
    CloseJobOptions,
    CompleteJobOptions,
    DeclineJobOfferOptions,
    UnassignJobOptions,
)
from relevo.router.resources import MANAGED_CHANNELS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from relevo.router.administration import Administration, Stored
    from relevo.router.core.jobs import Unassigned
    from relevo.router.core.offers import Accepted
    from relevo.router.watching import Watching
    from relevo.router.wire.views import (
        RouterJob,
        RouterJobPositionDetails,
        RouterQueueStatistics,
        RouterWorker,
    )
    from relevo.router.work import Work

OPERATORS: Final[dict[str, str]] = {
    "GreaterThanEqual": "greaterThanOrEqual",
    "LessThanEqual": "lessThanOrEqual",
    "==": "equal",
    "!=": "notEqual",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
}
"""Other names for the operators of selectors; those of the wire are understood in any case."""


def selector(
    key: str,
    operator: str,
    value: str | int | float | bool | None = None,
    *,
    expires_after: float | timedelta | None = None,
    expedite: bool = False,
) -> WorkerSelector:
    """Return what a job asks of a worker.

    >>> selector("English", ">", 5).label_operator
    'greaterThan'
    """
    seconds = (
        expires_after.total_seconds() if isinstance(expires_after, timedelta) else expires_after
    )
    return msgspec.convert(
        {
            "key": key,
            "labelOperator": OPERATORS.get(operator, operator[:1].lower() + operator[1:]),
            "value": value, "expiresAfterSeconds": seconds, "expedite": expedite,
        },
        WorkerSelector,
    )  # fmt: skip


class Natives:
    """What `app.router` understands."""

    @property
    def work(self) -> Work:
        """Jobs, workers and offers as the wire has them."""
        raise NotImplementedError

    @property
    def policies(self) -> Administration:
        """Policies and queues as the wire has them."""
        raise NotImplementedError

    @property
    def watching(self) -> Watching:
        """What is offered to workers."""
        raise NotImplementedError

    async def set_distribution_policy(
        self,
        policy_id: str,
        *,
        mode: Literal["longestIdle", "roundRobin", "bestWorker"]
        | Mapping[str, Any] = "longestIdle",
        offer_ttl: timedelta | float | None = None,
        name: str | None = None,
    ) -> Stored:
        """Say who is offered jobs, and how long an offer lives; `mode` may be the wire's object."""
        seconds = offer_ttl.total_seconds() if isinstance(offer_ttl, timedelta) else offer_ttl
        change = {
            "name": name, "offerExpiresAfterSeconds": seconds,
            "mode": {"kind": mode} if isinstance(mode, str) else dict(mode),
        }  # fmt: skip
        return await self.policies.patch("distributionPolicies", policy_id, change)

    async def set_queue(
        self,
        queue_id: str,
        *,
        distribution_policy: str,
        exception_policy: str | None = None,
        labels: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> Stored:
        """Make or change a queue."""
        change = {
            "distributionPolicyId": distribution_policy, "exceptionPolicyId": exception_policy,
            "name": name, "labels": dict(labels or {}),
        }  # fmt: skip
        return await self.policies.patch("queues", queue_id, change)

    async def define_channel(self, channel_id: str, name: str) -> None:
        """Give a channel a name; in strict mode only defined and managed channels can be used."""
        await self.policies.define_channel(channel_id, name)

    async def channels(self) -> dict[str, str]:
        """Return the channels that are known, with their names."""
        managed = {one: one for one in MANAGED_CHANNELS}
        return managed | await self.policies.channels()

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
        return (await self.work.patch_worker(worker_id, change))[0]

    async def deregister_worker(self, worker_id: str) -> RouterWorker:
        """Make a worker unavailable; what it has been offered goes to others."""
        return (await self.work.patch_worker(worker_id, {"availableForOffers": False}))[0]

    async def update_worker(self, worker_id: str, **change: Any) -> RouterWorker:
        """Change a worker by the wire's fields in Python's spelling, such as `capacity=2`."""
        return (await self.work.patch_worker(worker_id, _wire(change)))[0]

    def worker(self, worker_id: str) -> Desk:
        """Return the desk of a worker: `async for offer in app.router.worker("ana").offers()`."""
        return Desk(self, worker_id)

    async def get_worker(self, worker_id: str) -> RouterWorker:
        """Return a worker with its offers and assignments."""
        return await self.work.get_worker(worker_id)

    async def workers(self, **wanted: Any) -> AsyncIterator[RouterWorker]:
        """Walk workers; conditions are those of `WorkerFilter`."""
        async for one in _walk(self.work.list_workers, WorkerFilter(**wanted)):
            yield one

    async def delete_worker(self, worker_id: str) -> None:
        """Forget a worker."""
        await self.work.delete_worker(worker_id)

    async def create_job(
        self,
        channel: str,
        *,
        job_id: str | None = None,
        queue: str | None = None,
        classification_policy: str | None = None,
        priority: int = 1,
        selectors: Sequence[WorkerSelector] = (),
        labels: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        channel_reference: str | None = None,
        schedule_at: datetime | None = None,
        suspended: bool = False,
    ) -> RouterJob:
        """Submit a job; without an id it gets one."""
        change: dict[str, Any] = {
            "channelId": channel, "queueId": queue, "priority": priority,
            "classificationPolicyId": classification_policy,
            "requestedWorkerSelectors": [msgspec.to_builtins(one) for one in selectors],
            "labels": dict(labels or {}), "tags": dict(tags or {}),
            "channelReference": channel_reference,
        }  # fmt: skip
        if schedule_at is not None:
            change["matchingMode"] = {"kind": "scheduleAndSuspend", "scheduleAt": schedule_at}
        elif suspended:
            change["matchingMode"] = {"kind": "suspend"}
        return (await self.work.patch_job(job_id or str(uuid4()), change))[0]

    async def update_job(self, job_id: str, **change: Any) -> RouterJob:
        """Change a job by the wire's fields in Python's spelling, such as `priority=5`."""
        return (await self.work.patch_job(job_id, _wire(change)))[0]

    async def get_job(self, job_id: str) -> RouterJob:
        """Return a job."""
        return await self.work.get_job(job_id)

    async def jobs(self, **wanted: Any) -> AsyncIterator[RouterJob]:
        """Walk jobs; conditions are those of `JobFilter`."""
        async for one in _walk(self.work.list_jobs, JobFilter(**wanted)):
            yield one

    async def delete_job(self, job_id: str) -> None:
        """Forget a finished job."""
        await self.work.delete_job(job_id)

    async def accept_offer(self, worker_id: str, offer_id: str) -> Accepted:
        """Turn an offer into an assignment."""
        return await self.work.accept_offer(worker_id, offer_id)

    async def decline_offer(
        self, worker_id: str, offer_id: str, *, retry_at: datetime | None = None
    ) -> None:
        """Give an offer back, for good or until `retry_at`."""
        told = DeclineJobOfferOptions(retry_offer_at=retry_at)
        await self.work.decline_offer(worker_id, offer_id, told)

    async def complete_job(
        self, job_id: str, assignment_id: str, *, note: str | None = None
    ) -> None:
        """Say that the work is done."""
        await self.work.complete_job(job_id, assignment_id, CompleteJobOptions(note=note))

    async def close_job(
        self,
        job_id: str,
        assignment_id: str,
        *,
        disposition: str | None = None,
        note: str | None = None,
        at: datetime | None = None,
    ) -> None:
        """Finish a completed job and free its worker, now or `at` a later time."""
        told = CloseJobOptions(disposition_code=disposition, close_at=at, note=note)
        await self.work.close_job(job_id, assignment_id, told)

    async def unassign_job(
        self, job_id: str, assignment_id: str, *, suspend: bool = False
    ) -> Unassigned:
        """Take a job back from its worker."""
        told = UnassignJobOptions(suspend_matching=suspend)
        return await self.work.unassign_job(job_id, assignment_id, told)

    async def cancel_job(
        self, job_id: str, *, note: str | None = None, disposition: str | None = None
    ) -> None:
        """Finish a job without further work."""
        await self.work.cancel_job(
            job_id, CancelJobOptions(note=note, disposition_code=disposition)
        )

    async def reclassify_job(self, job_id: str) -> None:
        """Classify a waiting job again."""
        await self.work.reclassify_job(job_id)

    async def position(self, job_id: str) -> RouterJobPositionDetails:
        """Return where a waiting job stands."""
        return await self.work.position(job_id)

    async def statistics(self, queue_id: str) -> RouterQueueStatistics:
        """Return how a queue stands."""
        return await self.work.statistics(queue_id)


def _channel(channel_id: str, terms: int | tuple[int, int]) -> dict[str, Any]:
    cost, most = terms if isinstance(terms, tuple) else (terms, None)
    return {"channelId": channel_id, "capacityCostPerJob": cost, "maxNumberOfJobs": most}


def _wire(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments under the names that the wire has for them."""
    plain = {name: msgspec.to_builtins(value) for name, value in change.items()}
    return {_camel(name): value for name, value in plain.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


async def _walk(page: Any, wanted: Any) -> AsyncIterator[Any]:
    after: int | None = 0
    while after is not None:
        found = await page(wanted, after)
        for one in found.items:
            yield one
        after = found.after
