"""Executes operations: the stages in order, in one transaction, which also submits the jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import Conflict, Forbidden, InvalidValue
from relevo.jobs import states
from relevo.jobs.errors import JobCanceled
from relevo.jobs.submitting import submission
from relevo.kernel import callables, faults
from relevo.kernel.postgres import catalog, foreign
from relevo.kernel.postgres.binding import transaction_in
from relevo.pipeline import depth, messages
from relevo.pipeline.contexts import BlockingService, StepContext, checked_json, kept_as_json
from relevo.pipeline.data_service import DataService
from relevo.pipeline.messages import MESSAGES, SQL
from relevo.pipeline.model import (
    BYPASS_RIGHT,
    OperationCause,
    OperationRequest,
    Step,
    StepMode,
    StepStage,
)
from relevo.pipeline.operation_run import OperationRun
from relevo.pipeline.registry import PipelineRegistry, at, callable_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Container as Holding
    from uuid import UUID

    from relevo.kernel.postgres import Transaction
    from relevo.pipeline.service import Pipeline

JOBS = catalog.load("relevo.jobs")
SYSTEM_EVENT: Final = 1
"""The operation type of the jobs of steps."""


class Execution:
    """Runs operations of an app through its steps."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._made: dict[str, tuple[Callable[..., Any], bool]] = {}

    @property
    def _registry(self) -> PipelineRegistry:
        return self._pipeline.registry

    async def carry_out(
        self, request: OperationRequest, cause: OperationCause, tx: Any = None
    ) -> dict[str, Any]:
        """Execute an operation, in its own transaction or inside `tx`; return its output."""
        if tx is not None:
            tx = transaction_in(foreign.checked(tx), self._pipeline.database.schema)
        run = await self._opened(request, cause, tx)
        await self._begin(run, tx)
        if tx is None:
            await self._stage(run, StepStage.PRE_VALIDATION)
            await faults.point("before_operation")
            async with self._pipeline.database.transaction(own=True) as own:
                await self._run_fenced(run, own, StepStage.PRE_OPERATION)
                await faults.point("before_operation_commit")
            self._wake(run)
        else:
            async with tx.transaction():  # a savepoint, so that a caught error undoes only this
                await self._run_fenced(run, tx, StepStage.PRE_VALIDATION)
        return run.output

    async def _run_fenced(self, run: OperationRun, tx: Transaction, first: StepStage) -> None:
        """Run the stages inside the transaction, from `first` on, and submit the jobs.

        The operation of a job commits only if the job still belongs to this host: while a process
        was frozen, another host may have run the job. This is checked as late as possible, with a
        lock, unless the owner of the transaction does so later.
        """
        run.tx, job = tx, run.cause.job
        if job is None or job.is_fenced(tx):
            await self._in_transaction(run, first)
        else:
            with job.fenced_at_end(tx):
                await self._in_transaction(run, first)
            if run.writes:
                await job.hold(tx)
        await self._queue(run)

    async def _opened(
        self, request: OperationRequest, cause: OperationCause, tx: Any
    ) -> OperationRun:
        if request.message not in MESSAGES and request.message not in self._registry.bodies:
            raise InvalidValue(
                f"there is no message {request.message!r}; register its body with app.message",
                pointer="message",
            )
        run = OperationRun(
            request=request, cause=cause, input=request.input,
            steps=self._registry.matching(request.message, request.table),
        )  # fmt: skip
        if request.table is not None:
            run.table = self._registry.table(request.table)
            run.info = await run.table.container.describe()
        if request.bypass:
            await self._check_bypass(cause, tx)
        return run

    async def _check_bypass(self, cause: OperationCause, tx: Transaction | None) -> None:
        rights: Holding[str] | None = cause.rights
        if rights is None:
            rights = await self._pipeline.rights_of(cause.user, tx)
        if BYPASS_RIGHT not in rights:
            raise Forbidden(
                f"bypass needs the right {BYPASS_RIGHT}, which user {cause.user} does not have"
            )

    async def _begin(self, run: OperationRun, tx: Transaction | None) -> None:
        """Check whether the operation is allowed, and find its depth, before any stage."""
        cause, job = run.cause, run.cause.job
        _refuse_if_stopped(job)
        # If the caller passed rights, it has already checked the user.
        user = cause.user if cause.rights is None else None
        if cause.depth == 0 and not run.steps and user is None:
            return
        row = await (self._pipeline.database if tx is None else tx).fetchrow(
            SQL.begin_operation, [step.id for step in run.steps],
            *((None, None, None) if job is None else (job.id, job.host, job.claim.number)), user,
        )  # fmt: skip
        assert row is not None
        if job is not None:
            _learn(job, row["status"])
            _refuse_if_stopped(job)
        if row["kept_out"]:
            raise Forbidden(
                f"user {user} is disabled, so its data operations are refused; enable the user, or"
                " use another one"
            )
        run.at = row["now"]
        run.disabled = frozenset(row["disabled"])
        if cause.depth:
            run.correlation = cause.correlation or run.correlation
            run.depth = depth.following(
                cause.depth, cause.since, row["now"], most=self._pipeline.depth_max,
                window=self._pipeline.depth_window,
            )  # fmt: skip

    async def _in_transaction(self, run: OperationRun, first: StepStage) -> None:
        """Run the stages in the transaction."""
        if first == StepStage.PRE_VALIDATION:
            await self._stage(run, first)
        message = MESSAGES.get(run.request.message)
        if message is not None and message.loads:
            run.before = await messages.load(run, run.transaction, lock=True)
        await self._stage(run, StepStage.PRE_OPERATION)
        if message is not None:
            await message.main(run)
        else:
            await self._body(run)
        await self._stage(run, StepStage.POST)
        run.writes = run.touched or message is None or message.writes or bool(_queued(run))

    async def _stage(self, run: OperationRun, stage: StepStage) -> None:
        for step in at(run.steps, stage, StepMode.SYNC):
            if run.runs(step):
                await self._run(run, step)

    async def _run(self, run: OperationRun, step: Step) -> None:
        if run.before is None and any(image.when == "pre" for image in step.images):
            reader = self._pipeline.database if run.tx is None else run.tx
            run.before = await messages.load(run, reader, lock=False)
        run.touched = run.touched or run.tx is not None
        await self._call(run, step, step.stage, self.function_of(step))
        kept_as_json(run.shared, f"step {step.name!r}: shared_variables")
        checked_json(run.input, f"step {step.name!r}: input")
        if step.stage == StepStage.POST:
            kept_as_json(run.output, f"step {step.name!r}: output")

    async def _body(self, run: OperationRun) -> None:
        """Run stage 30 of a custom message; the body returns the output."""
        name = run.request.message
        function = callable_of(self._registry.bodies[name], None, None)
        output = await self._call(run, None, StepStage.MAIN, function)
        if output is not None and not isinstance(output, dict):
            raise InvalidValue(
                f"the body of {name!r} must return a dict of outputs, not {type(output).__name__}"
            )
        run.output.update(output or {})
        for values, what in ((run.output, "output"), (run.shared, "shared_variables")):
            kept_as_json(values, f"the body of {name!r}: {what}")
        checked_json(run.input, f"the body of {name!r}: input")

    async def _call(
        self, run: OperationRun, step: Step | None, stage: StepStage,
        function: tuple[Callable[..., Any], bool],
    ) -> Any:  # fmt: skip
        service = DataService(self._pipeline, run.cause_of(step, stage), tx=run.tx)
        called, is_async = function
        given: Any = service
        if not is_async:
            given = BlockingService(service, asyncio.get_running_loop())
        ctx = StepContext(run.envelope(step, stage), step, given, tx=run.tx)
        try:
            return await callables.run(called, ctx)
        finally:
            service.end()

    def function_of(self, step: Step) -> tuple[Callable[..., Any], bool]:
        """Return the function of a step, and whether it is async; classes are created once."""
        function = self._made.get(step.name)
        if function is None:
            function = callable_of(step.function, step.configuration, step.secure)
            self._made[step.name] = function
        return function

    async def _queue(self, run: OperationRun) -> None:
        """Submit one job per asynchronous step, in order, in the same transaction."""
        jobs = [self._job(run, step) for step in _queued(run)]
        if jobs:
            await run.transaction.execute(JOBS.submit, *submission.columns(jobs))

    def _job(self, run: OperationRun, step: Step) -> Any:
        envelope, user = run.envelope(step, step.stage), run.user_of(step)
        options = {
            "operation_type": SYSTEM_EVENT, "extension": str(step.id), "depth": run.depth,
            "message_name": run.request.message, "correlation": str(run.correlation),
            "auto_delete": step.auto_delete, "regarding_type": run.request.table,
            "regarding_id": envelope.id, "request": str(run.id),
            "created_by": _text(envelope.initiating_user),
            "correlation_at": None if run.at is None else run.at.isoformat(),
            "chain": f"r{envelope.table}/{envelope.id}" if step.serialize and envelope.id else None,
        }  # fmt: skip
        given = {name: value for name, value in options.items() if value is not None}
        return submission.checked(
            step.handler, envelope, name=step.name, lane="default", owner=user, options=given
        )

    def _wake(self, run: OperationRun) -> None:
        """Wake the readers of the feed and the hosts, after the commit."""
        if run.after is not None or run.request.message == "Delete":
            self._pipeline.wakeups.send(f"feed:{run.info.id}")
        if at(run.steps, StepStage.POST, StepMode.ASYNC):
            self._pipeline.wakeups.send(submission.TOPIC)


def _queued(run: OperationRun) -> list[Step]:
    """Return the steps that become jobs."""
    return [step for step in at(run.steps, StepStage.POST, StepMode.ASYNC) if run.runs(step)]


def _text(user: UUID | None) -> str | None:
    return None if user is None else str(user)


def _learn(job: Any, status: int | None) -> None:
    """Update the run of the job from its row, because its host may not know the change yet."""
    if status is None and not job.settled:
        job.gone = True
    elif status == states.CANCELING:
        job.asked = states.CANCELING


def _refuse_if_stopped(job: Any) -> None:
    """Refuse operations of a job that was completed or canceled."""
    if job is None:
        return
    if job.settled:
        raise Conflict(f"job {job.id} was already completed by ctx.transaction()")
    if job.gone or job.asked == states.CANCELING:
        raise JobCanceled(f"job {job.id} was canceled; further data operations are refused")
