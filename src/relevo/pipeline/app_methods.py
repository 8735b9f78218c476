"""`app.table`, `app.step`, `app.message` and `app.service`: the pipeline's methods of `App`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from relevo.jobs.core.retry import RetryPolicy, time_limit_of
from relevo.jobs.registry import Handler
from relevo.kernel import callables
from relevo.pipeline import tables
from relevo.pipeline.model import Image, Step, StepMode, StepStage, message_handler

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import Jobs
    from relevo.kernel.backoff import Backoff
    from relevo.pipeline.data_service import DataService
    from relevo.pipeline.service import Pipeline
    from relevo.pipeline.tables import Table
    from relevo.store import Container, Store

F = TypeVar("F", bound=Callable[..., Any])


class PipelineMethods:
    """Registers tables, steps and messages with the parts of the app that inherits it."""

    store: Store
    jobs: Jobs
    pipeline: Pipeline

    @property
    def service(self) -> DataService:
        """Data operations without a user, with all rights."""
        return self.pipeline.service

    def table(
        self,
        name: str,
        container: Container[Any] | None = None,
        *,
        key: str | None = None,
        primary_name: str | None = None,
        schema_name: str | None = None,
        set_name: str | None = None,
        lookups: dict[str, str] | None = None,
        model: Any = None,
    ) -> Table:
        """Register a container as a table for operations and steps; its model gives the columns.

        The default container has the name of the table and is partitioned by id. `key` is the
        column that shows the id in queries, by default `<name>id`. `lookups` maps columns to the
        tables whose ids they hold.
        """
        if container is None:
            container = self.store.container(name, partition_key="/id", model=model)
        table = tables.described(
            name, container, key=key, primary_name=primary_name, schema_name=schema_name,
            set_name=set_name, lookups=lookups,
        )  # fmt: skip
        return self.pipeline.registry.add_table(table)

    def step(
        self,
        message: str,
        table: str | None = None,
        *,
        stage: int = StepStage.POST,
        mode: int = StepMode.SYNC,
        rank: int = 1,
        filtering: Iterable[str] = (),
        images: Sequence[Image] = (),
        auto_delete: bool = False,
        configuration: str | None = None,
        secure: str | None = None,
        run_as: UUID | None = None,
        serialize: Literal["record"] | None = None,
        name: str | None = None,
        enabled: bool = True,
        timeout: float | timedelta | None = None,
        retries: int | None = None,
        backoff: Backoff | float | None = None,
        retry_on: type[BaseException] | Sequence[type[BaseException]] = (),
        crashes_max: int | None = None,
    ) -> Callable[[F], F]:
        """Run a function when a message is executed on a table, or on any table without `table`.

        Synchronous steps run inside the operation and its transaction; an exception undoes the
        operation. Asynchronous steps become jobs, submitted in the same transaction. With
        `filtering`, an Update runs the step only if the request has one of these columns.
        As with plug-ins, an ordinary exception fails the job of an asynchronous step, except those
        in `retry_on`; `retries`, `backoff` and `timeout` are those of `app.job`.
        `serialize="record"` runs the jobs of one record one after the other. The function takes the
        context of the step, or nothing. A class is created with `configuration` and `secure`, and
        its `execute(ctx)` is called.
        """

        callables.check_name(message, "app.step")

        def register(function: F) -> F:
            title = name or str(getattr(function, "__name__", ""))
            what = f"step {title!r}"
            step = Step(
                name=title, message=message, table=table,
                function=function, stage=StepStage(stage), mode=StepMode(mode), rank=rank,
                filtering=tuple(filtering), images=tuple(images), configuration=configuration,
                secure=secure, run_as=run_as, auto_delete=auto_delete, serialize=serialize,
                enabled=enabled, time_limit=time_limit_of(what, timeout),
                retry=RetryPolicy.of(what, retries, backoff, retry_on), crashes_max=crashes_max,
            )  # fmt: skip
            self.pipeline.registry.add_step(step)
            if step.mode == StepMode.ASYNC:
                self.jobs.registry.add(self.pipeline.handler(step))
            return function

        return register

    def message(self, name: str) -> Callable[[F], F]:
        """Register the body of a custom message, which returns a dict of outputs or None."""
        callables.check_name(name, "app.message")

        async def run(job: JobContext) -> Any:
            return await job.service.execute(name, input=job.data)

        def register(function: F) -> F:
            self.pipeline.registry.add_body(name, function)
            handler = Handler(name=message_handler(name), function=run, raw=True)
            self.jobs.registry.add(handler)  # to run it in the background
            return function

        return register
