"""`app.pipeline`: what is registered, what is on, and operations through it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from relevo.errors import NotFound
from relevo.jobs.registry import Handler
from relevo.kernel import callables
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, Service
from relevo.pipeline import contexts, depth
from relevo.pipeline.data import DataService
from relevo.pipeline.execution import SYSTEM_EVENT, Execution
from relevo.pipeline.model import Cause, Parent, Step, step_id
from relevo.pipeline.operations import SQL
from relevo.pipeline.registry import Registry

if TYPE_CHECKING:
    import asyncpg

    from relevo.dataverse.users.service import Users
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import Jobs
    from relevo.kernel.sealing import Vault

F = TypeVar("F", bound=Callable[..., Any])
SWEEP_SECONDS: Final = 15.0
SWEEP_WINDOW: Final = timedelta(hours=1)
"""How long after it was disabled an operation begun before may still queue a job for a step."""


class Pipeline(Service):
    """The event pipeline of an app: tables, steps, messages.

    >>> @app.step("Update", "order", stage=POST, mode=ASYNC)  # doctest: +SKIP
    ... async def notify(ctx): ...
    """

    def __init__(self, jobs: Jobs, vault: Vault, users: Users) -> None:
        super().__init__(jobs.connection)
        self.registry = Registry()
        self.execution = Execution(self)
        self.service = DataService(self, Cause())
        """Operations in nobody's name, by code that may do everything."""
        self.depth_max = depth.DEPTH_MAX
        self.depth_window = depth.DEPTH_WINDOW
        self.rights_of = users.rights_of
        """Which rights a user has at this moment; code that acts in nobody's name has all."""
        self._jobs = jobs
        self._vault = vault
        jobs.service_for = self._service_for

    # In jobs.

    def handler(self, step: Step) -> Handler:
        """Return what runs an asynchronous step as a job."""
        called = getattr(step.function, "execute", step.function)

        async def run(job: JobContext) -> Any:
            service, ctx = self._restored(step, job, job)
            return await awaited(service, self.execution.function_of(step)[0](ctx))

        async def awaited(service: DataService, found: Any) -> Any:
            return finished(service, await callables.settled(found))

        def finished(service: DataService, found: Any) -> Any:
            if service.loop is not None:  # caught or not, the job has failed
                raise service.loop
            return found

        def run_in_thread(given: Any) -> Any:
            service, ctx = self._restored(step, given._ctx, given)
            found = self.execution.function_of(step)[0](ctx)
            if inspect.isawaitable(found):
                return awaited(service, found)
            return finished(service, found)

        is_async = callables.is_async(called)
        return Handler(
            name=step.handler, function=run if is_async else run_in_thread, raw=True,
            kind="async" if is_async else "thread", operation_type=SYSTEM_EVENT,
            auto_delete=step.auto_delete, time_limit=step.time_limit, attempts=step.attempts,
            crashes_max=step.crashes_max,
        )  # fmt: skip

    def _restored(
        self, step: Step, job: JobContext, given: Any
    ) -> tuple[DataService, contexts.StepContext]:
        facts = contexts.opened(job.claim.data)
        service = DataService(self, _cause(job, facts))
        job.service = service
        return service, contexts.for_job(step, job, facts, service, given)

    def _service_for(self, job: JobContext) -> DataService:
        return DataService(self, _cause(job))

    # What operators switch.

    async def steps(self) -> list[asyncpg.Record]:
        """Return the steps that hosts have written, as rows; never their secure configuration."""
        return await self.database.fetch(SQL.list_steps)

    async def enable(self, name: str) -> None:
        """Let a step run again."""
        await self._switch(name, enabled=True)

    async def disable(self, name: str) -> int:
        """Deactivate a step: no operation runs it, and its waiting jobs are canceled.

        Returns how many jobs were. Jobs that run are left to end.
        """
        await self._switch(name, enabled=False)
        return await self._jobs.brakes.deactivate(str(step_id(name)))

    async def _switch(self, name: str, *, enabled: bool) -> None:
        if not await self.database.write(SQL.switch_step, step_id(name), enabled, idempotent=True):
            raise NotFound(f"there is no step {name!r}, or no host has written it yet")


class PipelinePart(Part[Pipeline]):
    """Writes down which steps a host has, and sees to those that were disabled."""

    async def declare(self) -> None:
        """Write which steps there are; refuses steps of tables and messages that are not."""
        registry = self.service.registry
        registry.check()
        for table in registry.tables.values():
            await table.container.describe()  # made here, not in the middle of an operation
        steps = list(registry.steps.values())
        if not steps:
            return
        secrets = [await self._sealed(one) for one in steps]
        columns = ("id", "name", "message", "table", "stage", "mode", "rank")
        await self.service.database.write(
            SQL.declare_steps,
            *([getattr(one, name) for one in steps] for name in columns),
            list(range(len(steps))),
            [msgspec.json.encode(one.filtering).decode() for one in steps],
            [msgspec.json.encode(_images(one)).decode() for one in steps],
            [one.configuration for one in steps],
            secrets,
            [one.run_as for one in steps],
            [one.auto_delete for one in steps],
            [one.serialize for one in steps],
            [one.enabled for one in steps],
            idempotent=True,
        )

    async def _sealed(self, step: Step) -> bytes | None:
        if step.secure is None:
            return None
        key = await self.service._vault.key()
        return key.seal(step.secure.encode(), f"pipeline_step:{step.id}")

    def duties(self) -> list[Duty]:
        """What one host does for all."""
        return [Duty("pipeline.deactivate", SWEEP_SECONDS, self.sweep)]

    async def sweep(self) -> None:
        """Cancel what operations queued that had begun before their step was disabled."""
        for row in await self.service.database.fetch(SQL.lately_disabled, SWEEP_WINDOW):
            await self.service._jobs.brakes.deactivate(str(row["id"]))


def _cause(job: JobContext, facts: contexts.Envelope | None = None) -> Cause:
    claim = job.claim
    told: dict[str, Any] = {}
    if facts is not None:
        told = {
            "message": facts.message, "table": facts.table, "id": facts.id, "stage": facts.stage,
            "parent": facts.parent,
        }  # fmt: skip
    return Cause(
        user=claim.owner, initiating_user=facts.initiating_user if facts else claim.owner,
        depth=claim.depth, correlation=claim.correlation, since=claim.correlation_at, job=job,
        parent=Parent(depth=claim.depth, step=claim.handler, job=claim.id, **told),
    )  # fmt: skip


def _images(step: Step) -> list[dict[str, Any]]:
    return [{"when": one.when, "columns": one.columns} for one in step.images]
