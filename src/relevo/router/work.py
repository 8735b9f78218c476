"""What is done with jobs, workers and offers: one call, one commit, shown by every later read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from relevo.errors import CallerError, Forbidden, InvalidState, NotFound
from relevo.kernel import cpu
from relevo.kernel.decoding import json_object
from relevo.kernel.postgres import catalog
from relevo.router import history, storage
from relevo.router.commands import Call, Commands
from relevo.router.core import jobs, offers, workers
from relevo.router.core.world import SEEN_EVERY
from relevo.router.model import (
    CancelJobOptions,
    CloseJobOptions,
    CompleteJobOptions,
    DeclineJobOfferOptions,
    UnassignJobOptions,
)
from relevo.router.wire import documents, views
from relevo.router.wire.checks import check_id
from relevo.router.wire.conditions import Conditions
from relevo.router.wire.views import Shown

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.router.core.jobs import Unassigned
    from relevo.router.core.offers import Accepted
    from relevo.router.core.world import World
    from relevo.router.listing import JobFilter, Listing, WorkerFilter
    from relevo.router.wire.views import (
        RouterJob,
        RouterJobPositionDetails,
        RouterQueueStatistics,
        RouterWorker,
    )

SQL = catalog.load(__package__)
Change = bytes | Mapping[str, Any]
"""A merge patch, or the JSON of one."""
May = Callable[[str], bool]
"""Whether a caller may touch what the worker of this id has."""
ANYTHING = Conditions()


class Work:
    """Jobs, workers and offers on one database."""

    def __init__(self, database: Database, commands: Commands) -> None:
        self._database = database
        self._commands = commands

    async def patch_job(
        self, job_id: str, change: Mapping[str, Any], conditions: Conditions = ANYTHING
    ) -> tuple[RouterJob, bool]:
        """Create a job or merge a change into it; return it, and whether it is new."""
        done = await self.put_job(job_id, change, conditions)
        return done.view, done.created

    async def put_job(
        self, job_id: str, change: Change, conditions: Conditions = ANYTHING
    ) -> Shown[RouterJob]:
        """Create a job or merge a change into it; the conditions are looked at before all else."""
        given = await _given(job_id, change, conditions)

        def decide(world: World) -> Shown[RouterJob]:
            job = world.jobs.get(job_id)
            conditions.check(
                None if job is None else job.etag, None if job is None else job.modified_at
            )
            done = jobs.patch(world, job_id, _readable(given))
            view = views.job(done.job, world.assignments(done.job), done.reported)
            return Shown(view, done.job.modified_at, done.created)

        found: Shown[RouterJob] = await self._on_job(job_id, decide)
        return found

    async def get_job(self, job_id: str) -> RouterJob:
        """Return a job; raises `NotFound`."""
        return (await self.show_job(job_id)).view

    async def show_job(self, job_id: str) -> Shown[RouterJob]:
        """Return a job, and when it was modified; raises `NotFound`."""
        rows = await self._database.fetch(SQL.show_jobs, [job_id])
        if not rows:
            raise NotFound(f"there is no job {job_id!r}")
        return Shown(views.job_in(rows[0]), rows[0]["modified_at"])

    async def list_jobs(
        self, wanted: JobFilter, after: int = 0, limit: int = 100
    ) -> Listing[RouterJob]:
        """Return a page of jobs in the order they were made."""
        return await wanted.page(self._database, after, limit)

    async def delete_job(self, job_id: str) -> None:
        """Forget a finished job; one that is not there stays so."""
        await self._on_job(job_id, lambda world: jobs.delete(world, job_id))

    async def cancel_job(self, job_id: str, told: CancelJobOptions | None = None) -> None:
        """Finish a job without further work."""
        given = told or CancelJobOptions()
        await self._on_job(
            job_id, lambda world: jobs.cancel(world, job_id, given.note, given.disposition_code)
        )

    async def reclassify_job(self, job_id: str) -> None:
        """Classify a waiting job again."""
        await self._on_job(job_id, lambda world: jobs.reclassify(world, job_id))

    async def complete_job(
        self,
        job_id: str,
        assignment_id: str,
        told: CompleteJobOptions | None = None,
        may: May | None = None,
    ) -> None:
        """Say that the work of an assignment is done."""
        which, given = _uuid(assignment_id, "assignment"), told or CompleteJobOptions()
        await self._on_assignment(
            job_id, which, lambda world: jobs.complete(world, job_id, which, given.note), may
        )

    async def close_job(
        self,
        job_id: str,
        assignment_id: str,
        told: CloseJobOptions | None = None,
        may: May | None = None,
    ) -> None:
        """Finish a completed job and free its worker, now or at `close_at`."""
        which, given = _uuid(assignment_id, "assignment"), told or CloseJobOptions()
        await self._on_assignment(
            job_id, which, lambda world: jobs.close(world, job_id, which, given), may
        )

    async def unassign_job(
        self,
        job_id: str,
        assignment_id: str,
        told: UnassignJobOptions | None = None,
        may: May | None = None,
    ) -> Unassigned:
        """Take a job back from its worker."""
        which, given = _uuid(assignment_id, "assignment"), told or UnassignJobOptions()

        def decide(world: World) -> Unassigned:
            return jobs.unassign(world, job_id, which, suspend=given.suspend_matching)

        found: Unassigned = await self._on_assignment(job_id, which, decide, may)
        return found

    async def position(self, job_id: str) -> RouterJobPositionDetails:
        """Return where a waiting job stands in its queue, and how long it may still take."""
        job = await self.get_job(job_id)
        if job.status != "queued" or job.queue_id is None:
            raise InvalidState(f"job {job_id!r} is {job.status}; only one that waits has a place")
        place = await self._database.fetchval(SQL.place, job_id) + 1
        length = sum(row["jobs"] for row in await self._database.fetch(SQL.standing, job.queue_id))
        past = await history.read(self._database, job.queue_id)
        return views.RouterJobPositionDetails(
            job_id=job_id,
            position=place,
            queue_id=job.queue_id,
            queue_length=max(length, place),
            estimated_wait_time_minutes=past.minutes(place),
        )

    async def patch_worker(
        self, worker_id: str, change: Mapping[str, Any], conditions: Conditions = ANYTHING
    ) -> tuple[RouterWorker, bool]:
        """Create a worker or merge a change into it; return it, and whether it is new."""
        done = await self.put_worker(worker_id, change, conditions)
        return done.view, done.created

    async def put_worker(
        self, worker_id: str, change: Change, conditions: Conditions = ANYTHING
    ) -> Shown[RouterWorker]:
        """Create a worker or merge a change into it; the conditions are looked at before all."""
        given = await _given(worker_id, change, conditions)

        def decide(world: World) -> Shown[RouterWorker]:
            worker = world.workers.get(worker_id)
            conditions.check(
                None if worker is None else worker.etag,
                None if worker is None else worker.changed_at,
            )
            done = workers.patch(world, worker_id, _readable(given))
            view = views.worker(done.worker, world.held_by(done.worker))
            return Shown(view, done.worker.changed_at, done.created)

        found: Shown[RouterWorker] = await self._commands.call(
            Call(decide, whole=(worker_id,), lane=worker_id)
        )
        return found

    async def get_worker(self, worker_id: str) -> RouterWorker:
        """Return a worker with its offers and assignments; raises `NotFound`."""
        return (await self.show_worker(worker_id)).view

    async def show_worker(self, worker_id: str) -> Shown[RouterWorker]:
        """Return a worker, and when it or what it holds was modified; raises `NotFound`."""
        rows = await self._database.fetch(SQL.show_workers, [worker_id])
        if not rows:
            raise NotFound(f"there is no worker {worker_id!r}")
        if rows[0]["seen_at"] < rows[0]["now"] - SEEN_EVERY:
            await self._database.write(SQL.see_worker, worker_id, idempotent=True)
        return Shown(views.worker_in(rows[0]), storage.worker_of(rows[0]).changed_at)

    async def list_workers(
        self, wanted: WorkerFilter, after: int = 0, limit: int = 100
    ) -> Listing[RouterWorker]:
        """Return a page of workers in the order they were made."""
        return await wanted.page(self._database, after, limit)

    async def delete_worker(self, worker_id: str) -> None:
        """Forget a worker; its open offers are taken back."""
        await self._commands.call(
            Call(lambda world: workers.delete(world, worker_id), whole=(worker_id,))
        )

    async def accept_offer(self, worker_id: str, offer_id: str) -> Accepted:
        """Turn an offer into an assignment; of several workers one wins."""
        which = _uuid(offer_id, "offer")
        found: Accepted = await self._on_offer(
            worker_id, which, lambda world: offers.accept(world, worker_id, which)
        )
        return found

    async def decline_offer(
        self, worker_id: str, offer_id: str, told: DeclineJobOfferOptions | None = None
    ) -> None:
        """Give an offer back."""
        which, given = _uuid(offer_id, "offer"), told or DeclineJobOfferOptions()
        await self._on_offer(
            worker_id,
            which,
            lambda world: offers.decline(world, worker_id, which, given.retry_offer_at),
        )

    async def statistics(self, queue_id: str) -> RouterQueueStatistics:
        """Return how long a queue is, and how long one waits in it."""
        rows = await self._database.fetch(SQL.standing, queue_id)
        return views.statistics(queue_id, rows, await history.read(self._database, queue_id))

    async def _on_job(self, job_id: str, decide: Callable[[World], Any]) -> Any:
        return await self._commands.call(Call(decide, jobs=(job_id,), lane=job_id))

    async def _on_assignment(
        self, job_id: str, which: UUID, decide: Callable[[World], Any], may: May | None
    ) -> Any:
        def checked(world: World) -> Any:
            if may is not None:
                _require_own(world, job_id, which, may)
            return decide(world)

        return await self._on_job(job_id, checked)

    async def _on_offer(
        self, worker_id: str, offer_id: UUID, decide: Callable[[World], Any]
    ) -> Any:
        return await self._commands.call(
            Call(decide, workers=(worker_id,), offers=(offer_id,), lane=worker_id)
        )


async def _given(
    resource_id: str, change: Change, conditions: Conditions
) -> Mapping[str, Any] | CallerError:
    """Return the change, or why it cannot be read: that is told after the conditions were met."""
    check_id(resource_id, "/id")
    if not isinstance(change, bytes):
        return change
    try:
        given = await cpu.decoded(len(change), json_object, change)
        documents.check_size(given)
        return given
    except CallerError as error:
        if conditions == ANYTHING:
            raise
        return error


def _readable(given: Mapping[str, Any] | CallerError) -> Mapping[str, Any]:
    if isinstance(given, CallerError):
        raise given
    return given


def _require_own(world: World, job_id: str, which: UUID, may: May) -> None:
    """Refuse what is not the caller's; one answer for all that is not, so that nothing is told."""
    job = world.jobs.get(job_id)
    found = world.assignments(job) if job is not None else []
    if not any(one.assignment_id == which and may(one.worker_id) for one in found):
        raise Forbidden(
            f"assignment {which} of job {job_id!r} is not one of those that this key is for"
        )


def _uuid(text: str, what: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"there is no {what} {text!r}") from None
