"""`app.table`, `app.step`, `app.message` and `app.service`: what `App` has of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from relevo.jobs.core.outcomes import Attempts
from relevo.jobs.registry import Handler
from relevo.pipeline import tables
from relevo.pipeline.model import Image, Mode, Stage, Step, message_handler

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import Jobs
    from relevo.pipeline.data import DataService
    from relevo.pipeline.service import Pipeline
    from relevo.pipeline.tables import Table
    from relevo.store import Container, Store

F = TypeVar("F", bound=Callable[..., Any])


class PipelineDefinitions:
    """Registers tables, steps and messages with the parts of the app that inherits it."""

    store: Store
    jobs: Jobs
    pipeline: Pipeline

    @property
    def service(self) -> DataService:
        """Data operations in nobody's name, by code that may do everything."""
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
        """Make a container a table that operations and steps can name; columns are its model's.

        Without a container, one of that name is used, partitioned by id. `key` is the column under
        which query surfaces show the id, `<name>id` if left out; `lookups` says which columns hold
        keys of which table.
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
        stage: int = Stage.POST,
        mode: int = Mode.SYNC,
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
        time_limit: float | None = None,
        attempts: Attempts | None = None,
        crashes_max: int | None = None,
    ) -> Callable[[F], F]:
        """Run a function when a message is carried out on a table, or on any if none is named.

        Synchronous steps run inside the operation and its transaction: what they raise undoes it.
        Asynchronous ones become jobs, in the same transaction. `filtering` lets an Update pass only
        if it brings one of these columns; `serialize="record"` runs jobs of one record one after
        the other. The function takes the context of the step, or nothing. A class is made with
        `configuration` and `secure`; its `execute(ctx)` is called.
        """

        def register(function: F) -> F:
            step = Step(
                name=name or str(getattr(function, "__name__", "")), message=message, table=table,
                function=function, stage=Stage(stage), mode=Mode(mode), rank=rank,
                filtering=tuple(filtering), images=tuple(images), configuration=configuration,
                secure=secure, run_as=run_as, auto_delete=auto_delete, serialize=serialize,
                enabled=enabled, time_limit=time_limit, attempts=attempts or Attempts(),
                crashes_max=crashes_max,
            )  # fmt: skip
            self.pipeline.registry.add_step(step)
            if step.mode == Mode.ASYNC:
                self.jobs.registry.add(self.pipeline.handler(step))
            return function

        return register

    def message(self, name: str) -> Callable[[F], F]:
        """Make a function the body of a custom message; it returns a dict of outputs, or None."""

        async def run(job: JobContext) -> Any:
            return await job.service.execute(name, input=job.data)

        def register(function: F) -> F:
            self.pipeline.registry.add_body(name, function)
            handler = Handler(name=message_handler(name), function=run, raw=True)
            self.jobs.registry.add(handler)  # to run it in the background
            return function

        return register
