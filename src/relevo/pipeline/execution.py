"""Carries out operations: stages in order, one transaction, jobs queued in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import Conflict, Forbidden, InvalidValue
from relevo.jobs import states, submission
from relevo.jobs.errors import JobCanceled
from relevo.kernel import callables, faults
from relevo.kernel.postgres import catalog, foreign
from relevo.kernel.postgres.binding import transaction_in
from relevo.pipeline import depth, operations
from relevo.pipeline.contexts import BlockingService, StepContext, checked_json, kept_as_json
from relevo.pipeline.data import DataService
from relevo.pipeline.frames import Frame
from relevo.pipeline.model import BYPASS_RIGHT, Cause, Mode, Operation, Stage, Step
from relevo.pipeline.operations import MESSAGES, SQL
from relevo.pipeline.registry import Registry, at, callable_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Container as Holding
    from uuid import UUID

    from relevo.kernel.postgres import Transaction
    from relevo.pipeline.service import Pipeline

JOBS = catalog.load("relevo.jobs")
SYSTEM_EVENT: Final = 1
"""The operation type of jobs of steps."""


class Execution:
    """Runs operations of an app through its steps."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._made: dict[str, tuple[Callable[..., Any], bool]] = {}

    @property
    def _registry(self) -> Registry:
        return self._pipeline.registry

    async def carry_out(self, asked: Operation, cause: Cause, tx: Any = None) -> dict[str, Any]:
        """Carry out an operation, in its own transaction or inside of `tx`; returns its output."""
        if tx is not None:
            tx = transaction_in(foreign.checked(tx), self._pipeline.database.schema)
        frame = await self._frame(asked, cause, tx)
        await self._begin(frame, tx)
        if tx is None:
            await self._stage(frame, Stage.PRE_VALIDATION)
            await faults.point("before_operation")
            async with self._pipeline.database.transaction(own=True) as own:
                await self._fenced(frame, own, Stage.PRE_OPERATION)
                await faults.point("before_operation_commit")
            self._wake(frame)
        else:
            async with tx.transaction():  # a savepoint: who catches the error may go on
                await self._fenced(frame, tx, Stage.PRE_VALIDATION)
        return frame.output

    async def _fenced(self, frame: Frame, tx: Transaction, first: Stage) -> None:
        """Do all that is done in the transaction, from a stage on.

        What a job does commits only if the job is still its host's: a process that slept for long
        may find that another host has run the job meanwhile. So that is looked at as late as can
        be, in the transaction and with a lock, unless whoever has the transaction does so later.
        """
        frame.tx, job = tx, frame.cause.job
        if job is None or job.is_fenced(tx):
            await self._inside(frame, first)
        else:
            with job.fenced_at_end(tx):
                await self._inside(frame, first)
            if frame.writes:
                await job.hold(tx)
        await self._queue(frame)

    async def _frame(self, asked: Operation, cause: Cause, tx: Any) -> Frame:
        if asked.message not in MESSAGES and asked.message not in self._registry.bodies:
            raise InvalidValue(
                f"there is no message {asked.message!r}; give it a body with app.message",
                pointer="message",
            )
        frame = Frame(
            asked=asked, cause=cause, input=asked.input,
            steps=self._registry.matching(asked.message, asked.table),
        )  # fmt: skip
        if asked.table is not None:
            frame.table = self._registry.table(asked.table)
            frame.info = await frame.table.container.describe()
        if asked.bypass:
            await self._check_bypass(cause, tx)
        return frame

    async def _check_bypass(self, cause: Cause, tx: Transaction | None) -> None:
        rights: Holding[str] | None = cause.rights
        if rights is None:
            rights = await self._pipeline.rights_of(cause.user, tx)
        if BYPASS_RIGHT not in rights:
            raise Forbidden(
                f"leaving out steps needs the right {BYPASS_RIGHT}, which user {cause.user} lacks"
            )

    async def _begin(self, frame: Frame, tx: Transaction | None) -> None:
        """Look whether the operation may be made at all, and how deep it is; before any stage."""
        cause, job = frame.cause, frame.cause.job
        _refuse_if_stopped(job)
        # Rights that were given with the operation were looked up by who gave them.
        user = cause.user if cause.rights is None else None
        if cause.depth == 0 and not frame.steps and user is None:
            return
        row = await (self._pipeline.database if tx is None else tx).fetchrow(
            SQL.begin_operation, [one.id for one in frame.steps],
            *((None, None, None) if job is None else (job.id, job.host, job.claim.number)), user,
        )  # fmt: skip
        assert row is not None
        if job is not None:
            _learn(job, row["status"])
            _refuse_if_stopped(job)
        if row["kept_out"]:
            raise Forbidden(
                f"user {user} is disabled, and nothing is done with data in its name; enable it, or"
                " have another user do it"
            )
        frame.at = row["now"]
        frame.disabled = frozenset(row["disabled"])
        if cause.depth:
            frame.correlation = cause.correlation or frame.correlation
            frame.depth = depth.following(
                cause.depth, cause.since, row["now"], most=self._pipeline.depth_max,
                window=self._pipeline.depth_window,
            )  # fmt: skip

    async def _inside(self, frame: Frame, first: Stage) -> None:
        """The stages that run in the transaction."""
        if first == Stage.PRE_VALIDATION:
            await self._stage(frame, first)
        message = MESSAGES.get(frame.asked.message)
        if message is not None and message.loads:
            frame.before = await operations.load(frame, frame.running, lock=True)
        await self._stage(frame, Stage.PRE_OPERATION)
        if message is not None:
            await message.main(frame)
        else:
            await self._body(frame)
        await self._stage(frame, Stage.POST)
        frame.writes = frame.touched or message is None or message.writes or bool(_queued(frame))

    async def _stage(self, frame: Frame, stage: Stage) -> None:
        for step in at(frame.steps, stage, Mode.SYNC):
            if frame.runs(step):
                await self._run(frame, step)

    async def _run(self, frame: Frame, step: Step) -> None:
        if frame.before is None and any(one.when == "pre" for one in step.images):
            reader = self._pipeline.database if frame.tx is None else frame.tx
            frame.before = await operations.load(frame, reader, lock=False)
        frame.touched = frame.touched or frame.tx is not None
        await self._call(frame, step, step.stage, self.function_of(step))
        kept_as_json(frame.shared, f"step {step.name!r}: shared_variables")
        checked_json(frame.input, f"step {step.name!r}: input")
        if step.stage == Stage.POST:
            kept_as_json(frame.output, f"step {step.name!r}: output")

    async def _body(self, frame: Frame) -> None:
        """Stage 30 of a custom message; what the body returns is the output."""
        name = frame.asked.message
        function = callable_of(self._registry.bodies[name], None, None)
        found = await self._call(frame, None, Stage.MAIN, function)
        if found is not None and not isinstance(found, dict):
            raise InvalidValue(
                f"the body of {name!r} returns a dict of outputs, not a {type(found).__name__}"
            )
        frame.output.update(found or {})
        for values, what in ((frame.output, "output"), (frame.shared, "shared_variables")):
            kept_as_json(values, f"the body of {name!r}: {what}")
        checked_json(frame.input, f"the body of {name!r}: input")

    async def _call(
        self, frame: Frame, step: Step | None, stage: Stage,
        function: tuple[Callable[..., Any], bool],
    ) -> Any:  # fmt: skip
        service = DataService(self._pipeline, frame.cause_of(step, stage), tx=frame.tx)
        called, is_async = function
        given: Any = service
        if not is_async:
            given = BlockingService(service, asyncio.get_running_loop())
        ctx = StepContext(frame.facts(step, stage), step, given, tx=frame.tx)
        try:
            return await callables.run(called, ctx)
        finally:
            service.end()

    def function_of(self, step: Step) -> tuple[Callable[..., Any], bool]:
        """Return what is called for a step; classes are made once."""
        found = self._made.get(step.name)
        if found is None:
            found = callable_of(step.function, step.configuration, step.secure)
            self._made[step.name] = found
        return found

    async def _queue(self, frame: Frame) -> None:
        """One job per asynchronous step, in order, in the same transaction."""
        jobs = [self._job(frame, step) for step in _queued(frame)]
        if jobs:
            await frame.running.execute(JOBS.submit, *submission.columns(jobs))

    def _job(self, frame: Frame, step: Step) -> Any:
        facts, user = frame.facts(step, step.stage), frame.user_of(step)
        options = {
            "operation_type": SYSTEM_EVENT, "extension": str(step.id), "depth": frame.depth,
            "message_name": frame.asked.message, "correlation": str(frame.correlation),
            "auto_delete": step.auto_delete, "regarding_type": frame.asked.table,
            "regarding_id": facts.id, "request": str(frame.id),
            "created_by": _text(facts.initiating_user),
            "correlation_at": None if frame.at is None else frame.at.isoformat(),
            "chain": f"r{facts.table}/{facts.id}" if step.serialize and facts.id else None,
        }  # fmt: skip
        told = {name: value for name, value in options.items() if value is not None}
        return submission.checked(
            step.handler, facts, name=step.name, lane="default", owner=user, options=told
        )

    def _wake(self, frame: Frame) -> None:
        """Hints after the commit: to readers of the feed, and to hosts."""
        if frame.after is not None or frame.asked.message == "Delete":
            self._pipeline.wakeups.send(f"feed:{frame.info.id}")
        if at(frame.steps, Stage.POST, Mode.ASYNC):
            self._pipeline.wakeups.send(submission.TOPIC)


def _queued(frame: Frame) -> list[Step]:
    """The steps that become jobs."""
    return [step for step in at(frame.steps, Stage.POST, Mode.ASYNC) if frame.runs(step)]


def _text(user: UUID | None) -> str | None:
    return None if user is None else str(user)


def _learn(job: Any, status: int | None) -> None:
    """Note what became of the job that makes an operation: its host may not have been told yet."""
    if status is None and not job.settled:
        job.gone = True
    elif status == states.CANCELING:
        job.asked = states.CANCELING


def _refuse_if_stopped(job: Any) -> None:
    """After a cancel request no operation of that attempt is made."""
    if job is None:
        return
    if job.settled:
        raise Conflict(f"job {job.id} was completed by ctx.transaction(); it does nothing after")
    if job.gone or job.asked == states.CANCELING:
        raise JobCanceled(f"job {job.id} was canceled; it makes no further data operations")
