"""`app.pipeline`: registered tables and steps, and switching steps on and off."""

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
from relevo.pipeline.data_service import DataService
from relevo.pipeline.execution import SYSTEM_EVENT, Execution
from relevo.pipeline.messages import SQL
from relevo.pipeline.model import OperationCause, ParentOperation, Step, step_id
from relevo.pipeline.registry import PipelineRegistry

if TYPE_CHECKING:
    import asyncpg

    from relevo.dataverse.users.service import Users
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import Jobs
    from relevo.kernel.sealing import Vault

F = TypeVar("F", bound=Callable[..., Any])
SWEEP_SECONDS: Final = 15.0
SWEEP_WINDOW: Final = timedelta(hours=1)
"""How long after a step was disabled an earlier operation may still submit a job for it."""


class Pipeline(Service):
    """The event pipeline of an app: tables, steps, messages.

    >>> @app.step("Update", "order", stage=POST, mode=ASYNC)  # doctest: +SKIP
    ... async def notify(ctx): ...
    """

    def __init__(self, jobs: Jobs, vault: Vault, users: Users) -> None:
        super().__init__(jobs.connection)
        self.registry = PipelineRegistry()
        self.execution = Execution(self)
        self.service = DataService(self, OperationCause())
        """Data operations without a user, with all rights."""
        self.depth_max = depth.DEPTH_MAX
        self.depth_window = depth.DEPTH_WINDOW
        self.rights_of = users.rights_of
        """Returns the current rights of a user; code without a user has all rights."""
        self._jobs = jobs
        self._vault = vault
        jobs.service_for = self._service_for

    # In jobs.

    def handler(self, step: Step) -> Handler:
        """Return the job handler of an asynchronous step."""
        called = getattr(step.function, "execute", step.function)

        async def run(job: JobContext) -> Any:
            service, ctx = self._restored(step, job, job)
            return await awaited(service, self.execution.function_of(step)[0](ctx))

        async def awaited(service: DataService, result: Any) -> Any:
            return finished(service, await callables.settled(result))

        def finished(service: DataService, result: Any) -> Any:
            if service.loop is not None:  # even if the step caught it, the job fails
                raise service.loop
            return result

        def run_in_thread(given: Any) -> Any:
            service, ctx = self._restored(step, given._ctx, given)
            result = self.execution.function_of(step)[0](ctx)
            if inspect.isawaitable(result):
                return awaited(service, result)
            return finished(service, result)

        is_async = callables.is_async(called)
        return Handler(
            name=step.handler, function=run if is_async else run_in_thread, raw=True,
            kind="async" if is_async else "thread", operation_type=SYSTEM_EVENT,
            auto_delete=step.auto_delete, time_limit=step.time_limit, retry=step.retry,
            crashes_max=step.crashes_max,
        )  # fmt: skip

    def _restored(
        self, step: Step, job: JobContext, given: Any
    ) -> tuple[DataService, contexts.StepContext]:
        envelope = contexts.opened(job.claim.data)
        service = DataService(self, _cause(job, envelope))
        job.service = service
        return service, contexts.for_job(step, job, envelope, service, given)

    def _service_for(self, job: JobContext) -> DataService:
        return DataService(self, _cause(job))

    # For operators.

    async def steps(self) -> list[asyncpg.Record]:
        """Return the steps that hosts have registered, without their secure configuration."""
        return await self.database.fetch(SQL.list_steps)

    async def enable(self, name: str) -> None:
        """Enable a step again."""
        await self._switch(name, enabled=True)

    async def disable(self, name: str) -> int:
        """Disable a step: no operation runs it, and its waiting jobs are canceled.

        Returns the number of canceled jobs. Running jobs continue to their end.
        """
        await self._switch(name, enabled=False)
        return await self._jobs.brakes.deactivate(str(step_id(name)))

    async def _switch(self, name: str, *, enabled: bool) -> None:
        if not await self.database.write(SQL.switch_step, step_id(name), enabled, idempotent=True):
            raise NotFound(f"there is no step {name!r}, or no host has registered it yet")


class PipelinePart(Part[Pipeline]):
    """Records the steps of a host, and cancels jobs of disabled ones."""

    async def declare(self) -> None:
        """Record the steps; raises if one names an unregistered table or message."""
        registry = self.service.registry
        registry.check()
        for table in registry.tables.values():
            await table.container.describe()  # created here, not during an operation
        steps = list(registry.steps.values())
        if not steps:
            return
        secrets = [await self._sealed(step) for step in steps]
        columns = ("id", "name", "message", "table", "stage", "mode", "rank")
        await self.service.database.write(
            SQL.declare_steps,
            *([getattr(step, name) for step in steps] for name in columns),
            list(range(len(steps))),
            [msgspec.json.encode(step.filtering).decode() for step in steps],
            [msgspec.json.encode(_images(step)).decode() for step in steps],
            [step.configuration for step in steps],
            secrets,
            [step.run_as for step in steps],
            [step.auto_delete for step in steps],
            [step.serialize for step in steps],
            [step.enabled for step in steps],
            idempotent=True,
        )

    async def _sealed(self, step: Step) -> bytes | None:
        if step.secure is None:
            return None
        key = await self.service._vault.key()
        return key.seal(step.secure.encode(), f"pipeline_step:{step.id}")

    def duties(self) -> list[Duty]:
        """Return the periodic duties of the leader."""
        return [Duty("pipeline.deactivate", SWEEP_SECONDS, self.sweep)]

    async def sweep(self) -> None:
        """Cancel jobs of operations that began before their step was disabled."""
        for row in await self.service.database.fetch(SQL.lately_disabled, SWEEP_WINDOW):
            await self.service._jobs.brakes.deactivate(str(row["id"]))


def _cause(job: JobContext, envelope: contexts.Envelope | None = None) -> OperationCause:
    claim = job.claim
    origin: dict[str, Any] = {}
    if envelope is not None:
        names = ("message", "table", "id", "stage", "parent")
        origin = {name: getattr(envelope, name) for name in names}
    return OperationCause(
        user=claim.owner, initiating_user=envelope.initiating_user if envelope else claim.owner,
        depth=claim.depth, correlation=claim.correlation, since=claim.correlation_at, job=job,
        parent=ParentOperation(depth=claim.depth, step=claim.handler, job=claim.id, **origin),
    )  # fmt: skip


def _images(step: Step) -> list[dict[str, Any]]:
    return [{"when": image.when, "columns": image.columns} for image in step.images]
