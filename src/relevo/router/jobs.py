"""Router jobs and their assignments: one call, one commit, shown by every later read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import msgspec

from relevo.errors import Forbidden, InvalidState, NotFound
from relevo.kernel import checking
from relevo.kernel.postgres import catalog
from relevo.router import history
from relevo.router.commands import ANYTHING, RouterCall, camel, each, given, readable, resource_uuid
from relevo.router.core import job_patches, jobs
from relevo.router.core.selectors import WorkerSelector
from relevo.router.listing import JobFilter
from relevo.router.model import CloseJobOptions
from relevo.router.wire import views
from relevo.router.wire.views import Shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from relevo.kernel.part import PerConnection
    from relevo.router.commands import Change, Conditions
    from relevo.router.core.jobs import Unassigned
    from relevo.router.core.world import World
    from relevo.router.listing import RouterListing
    from relevo.router.service import Tools
    from relevo.router.wire.views import (
        RouterJob,
        RouterJobPositionDetails,
        RouterQueueStatistics,
    )

SQL = catalog.load(__package__)
May = Callable[[str], bool]
"""Whether a caller may touch the assignments of a worker, by its id."""
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
    """Return a selector: a condition of a job on a worker's labels.

    >>> selector("English", ">", 5).label_operator
    'greaterThan'
    """
    seconds = None if expires_after is None else checking.seconds(expires_after)
    return msgspec.convert(
        {
            "key": key,
            "labelOperator": OPERATORS.get(operator, operator[:1].lower() + operator[1:]),
            "value": value, "expiresAfterSeconds": seconds, "expedite": expedite,
        },
        WorkerSelector,
    )  # fmt: skip


class JobOperations:
    """The methods of `app.router` for jobs."""

    _tools: PerConnection[Tools]

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
        """Submit a job; Relevo generates the id if none is given."""
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
        return (await self.put_job(job_id or str(uuid4()), change)).view

    async def update_job(self, job_id: str, **change: Any) -> RouterJob:
        """Change a job by the wire's fields in Python's spelling, such as `priority=5`."""
        return (await self.put_job(job_id, camel(change))).view

    async def put_job(
        self, job_id: str, change: Change, conditions: Conditions = ANYTHING
    ) -> Shown[RouterJob]:
        """Create a job or merge a change into it; the conditions are checked first."""
        merged = await given(job_id, change, conditions)

        def decide(world: World) -> Shown[RouterJob]:
            job = world.jobs.get(job_id)
            conditions.check(
                None if job is None else job.etag, None if job is None else job.modified_at
            )
            done = job_patches.patch(world, job_id, readable(merged))
            view = views.job(done.job, world.assignments(done.job), done.reported)
            return Shown(view, done.job.modified_at, done.created)

        found: Shown[RouterJob] = await self._on_job(job_id, decide)
        return found

    async def get_job(self, job_id: str) -> RouterJob:
        """Return a job; raises `NotFound`."""
        return (await self.show_job(job_id)).view

    async def show_job(self, job_id: str) -> Shown[RouterJob]:
        """Return a job, and when it was modified; raises `NotFound`."""
        rows = await self._tools().database.fetch(SQL.show_jobs, [job_id])
        if not rows:
            raise NotFound(f"there is no job {job_id!r}")
        return Shown(views.job_in(rows[0]), rows[0]["modified_at"])

    async def list_jobs(
        self, wanted: JobFilter, after: int = 0, limit: int = 100
    ) -> RouterListing[RouterJob]:
        """Return a page of jobs in the order they were made."""
        return await wanted.page(self._tools().database, after, limit)

    async def jobs(self, **wanted: Any) -> AsyncIterator[RouterJob]:
        """Yield all jobs that fit; conditions are those of `JobFilter`."""
        async for job in each(self.list_jobs, JobFilter(**wanted)):
            yield job

    async def delete_job(self, job_id: str) -> None:
        """Delete a finished job; a missing one is no error."""
        await self._on_job(job_id, lambda world: jobs.delete(world, job_id))

    async def cancel_job(
        self, job_id: str, *, note: str | None = None, disposition: str | None = None
    ) -> None:
        """Finish a job without further work."""
        await self._on_job(job_id, lambda world: jobs.cancel(world, job_id, note, disposition))

    async def reclassify_job(self, job_id: str) -> None:
        """Classify a waiting job again."""
        await self._on_job(job_id, lambda world: jobs.reclassify(world, job_id))

    async def complete_job(
        self, job_id: str, assignment_id: str, *, note: str | None = None, may: May | None = None
    ) -> None:
        """Say that the work of an assignment is done; `may` limits whose it can be."""
        which = resource_uuid(assignment_id, "assignment")
        await self._on_assignment(
            job_id, which, lambda world: jobs.complete(world, job_id, which, note), may
        )

    async def close_job(
        self,
        job_id: str,
        assignment_id: str,
        *,
        disposition: str | None = None,
        note: str | None = None,
        at: datetime | None = None,
        may: May | None = None,
    ) -> None:
        """Finish a completed job and free its worker, now or `at` a later time."""
        which = resource_uuid(assignment_id, "assignment")
        options = CloseJobOptions(disposition_code=disposition, close_at=at, note=note)
        await self._on_assignment(
            job_id, which, lambda world: jobs.close(world, job_id, which, options), may
        )

    async def unassign_job(
        self, job_id: str, assignment_id: str, *, suspend: bool = False, may: May | None = None
    ) -> Unassigned:
        """Take a job back from its worker; `suspend` keeps it from being matched again."""
        which = resource_uuid(assignment_id, "assignment")

        def decide(world: World) -> Unassigned:
            return jobs.unassign(world, job_id, which, suspend=suspend)

        unassigned: Unassigned = await self._on_assignment(job_id, which, decide, may)
        return unassigned

    async def position(self, job_id: str) -> RouterJobPositionDetails:
        """Return where a waiting job stands in its queue, and how long it may still take."""
        job, database = await self.get_job(job_id), self._tools().database
        if job.status != "queued" or job.queue_id is None:
            raise InvalidState(f"job {job_id!r} is {job.status}; only a waiting job has a position")
        place = await database.fetchval(SQL.place, job_id) + 1
        length = sum(row["jobs"] for row in await database.fetch(SQL.standing, job.queue_id))
        past = await history.read(database, job.queue_id)
        return views.RouterJobPositionDetails(
            job_id=job_id,
            position=place,
            queue_id=job.queue_id,
            queue_length=max(length, place),
            estimated_wait_time_minutes=past.minutes(place),
        )

    async def statistics(self, queue_id: str) -> RouterQueueStatistics:
        """Return the length of a queue and its estimated wait."""
        database = self._tools().database
        rows = await database.fetch(SQL.standing, queue_id)
        return views.statistics(queue_id, rows, await history.read(database, queue_id))

    async def _on_job(self, job_id: str, decide: Callable[[World], Any]) -> Any:
        return await self._tools().commands.call(RouterCall(decide, jobs=(job_id,), lane=job_id))

    async def _on_assignment(
        self, job_id: str, which: UUID, decide: Callable[[World], Any], may: May | None
    ) -> Any:
        def checked(world: World) -> Any:
            if may is not None:
                _require_own(world, job_id, which, may)
            return decide(world)

        return await self._on_job(job_id, checked)


def _require_own(world: World, job_id: str, which: UUID, may: May) -> None:
    """Refuse an assignment of others, with the same error whether it exists or not."""
    job = world.jobs.get(job_id)
    found = world.assignments(job) if job is not None else []
    if not any(one.assignment_id == which and may(one.worker_id) for one in found):
        raise Forbidden(f"assignment {which} of job {job_id!r} is outside of this key's scopes")
