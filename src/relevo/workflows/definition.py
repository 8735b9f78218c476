"""Defining workflows: `@app.workflow("order")`, versions, and typed submits."""

from __future__ import annotations

import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Unpack,
    overload,
)

import msgspec

from relevo.errors import InvalidValue
from relevo.jobs.arguments import arguments_of
from relevo.jobs.core.operation_types import WORKFLOW
from relevo.jobs.registry import described, forgotten
from relevo.kernel import callables
from relevo.workflows.instance import Instance

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from relevo.jobs.model import SubmitOptions
    from relevo.jobs.registry import Handler
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import JobHandle, Jobs

P = ParamSpec("P")
LANE: Final = "workflow"


class RegisteringWorkflow(Protocol):
    """Decorates an async generator function; its first parameter may be the context."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], AsyncGenerator[Any, Any]], /
    ) -> WorkflowDefinition[P]: ...

    @overload
    def __call__(
        self, function: Callable[P, AsyncGenerator[Any, Any]], /
    ) -> WorkflowDefinition[P]: ...


class WorkflowDefinition(Generic[P]):
    """A registered workflow: `await order.submit(id="a1")` starts an instance."""

    def __init__(
        self, jobs: Jobs, name: str, version: int,
        function: Callable[..., AsyncGenerator[Any, Any]],
        options: SubmitOptions | None = None,
    ) -> None:  # fmt: skip
        if not inspect.isasyncgenfunction(function):
            raise InvalidValue(
                f"workflow {name!r} is not an async generator; write `async def` with `yield`"
            )
        if version < 1:
            raise InvalidValue(
                f"the version of workflow {name!r} must be at least 1, not {version}"
            )
        self._jobs = jobs
        self._options: SubmitOptions = options or {}
        self._declared = (name, version)
        self.name = name if version == 1 else f"{name}@{version}"
        """The handler name of this version's instances."""
        self.function = function
        self._taken = described(self.name, function, generator=True)

    def handler(self) -> Handler:
        """Return the job handler of instances."""
        return msgspec.structs.replace(
            self._taken, function=self._run, kind="async", raw=True, lane=LANE,
            operation_type=WORKFLOW,
        )  # fmt: skip

    async def _run(self, ctx: JobContext) -> Any:
        arguments = self._taken.arguments({} if ctx.data is None else ctx.data)
        return await Instance(self.name, ctx, self._jobs.database).run(
            self._taken.function(ctx, **arguments)
        )

    def using(self, **options: Unpack[SubmitOptions]) -> WorkflowDefinition[P]:
        """Return the workflow with options of `Jobs.submit`: start, token, priority, tx …"""
        name, version = self._declared
        return WorkflowDefinition(
            self._jobs, name, version, self.function, {**self._options, **options}
        )

    @callables.named_if_forgotten(lambda self, *_, **__: forgotten(self.name))
    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """Start an instance; it is stored when this returns."""
        arguments = arguments_of(self._taken.function, args, kwargs)
        given: SubmitOptions = {"lane": LANE, **self._options}
        given["options"] = {"operation_type": WORKFLOW, **(given.get("options") or {})}
        return await self._jobs.submit(self.name, arguments, **given)
