"""Runs a workflow instance: replays the stored results, then takes the next step."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Literal, assert_never
from uuid import uuid5

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.jobs import states, waits
from relevo.jobs.errors import JobFailed
from relevo.jobs.submitting import submission
from relevo.kernel import callables
from relevo.kernel.running.verdicts import Suspend
from relevo.workflows.steps import Call, Return, Stage, Step, Wait, WaitTimedOut

if TYPE_CHECKING:
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Database, Transaction

Workflow = AsyncGenerator[Any, Any]


class Entry(Struct, frozen=True, array_like=True):
    """The result of a step."""

    signature: str
    kind: Literal["value", "timed out", "failed"] = "value"
    value: Any = None
    code: int | None = None


class WorkflowJournal(Struct, frozen=True, kw_only=True):
    """The stored state of an instance: `workflowstate`."""

    stage: str | None = None
    entries: tuple[Entry, ...] = ()

    def plus(self, entry: Entry, stage: str | None = None) -> WorkflowJournal:
        """Return a journal with one more entry."""
        return WorkflowJournal(stage=stage or self.stage, entries=(*self.entries, entry))


class Suspended(Exception):
    """The instance waits; this run has ended."""


class Instance:
    """A run of an instance, from the start of its generator to its next wait."""

    def __init__(self, name: str, ctx: JobContext, database: Database) -> None:
        self._name = name
        self._ctx = ctx
        self._database = database
        self._journal = (
            WorkflowJournal() if ctx.state is None else msgspec.convert(ctx.state, WorkflowJournal)
        )

    async def run(self, generator: Workflow) -> Any:
        """Run to the end or to the next wait; return the workflow's result."""
        try:
            return await self._follow(generator)
        except Suspended:
            self._ctx.settled = True
            return None
        finally:
            await generator.aclose()

    async def _follow(self, generator: Workflow) -> Any:
        done: Entry | None = None
        number = 0
        while True:
            try:
                step = await _advance(generator, done)
            except StopAsyncIteration:
                self._expect_end(number)
                return None
            if number < len(self._journal.entries):
                done = self._written(number, step)
            elif isinstance(step, Return):
                return step.value
            else:
                self._ctx.check()
                done = await self._take(number, step)
            number += 1

    def _written(self, number: int, step: Step) -> Entry:
        entry = self._journal.entries[number]
        if entry.signature != _checked(step).signature:
            raise self._changed(number, step.signature)
        return entry

    def _expect_end(self, number: int) -> None:
        if number < len(self._journal.entries):
            raise self._changed(number, "the end")

    def _changed(self, number: int, found: str) -> Suspend:
        return Suspend(
            f"workflow {self._name!r} was changed while this instance ran: step {number + 1}"
            f" was {self._journal.entries[number].signature}, now it is {found}. Restore the old"
            " function, register the changed one under a new version, and resume"
        )

    async def _take(self, number: int, step: Step) -> Entry:
        match _checked(step):
            case Stage() as stage:
                return await self._stage(stage)
            case Wait() as wait:
                return await self._decide(number, lambda tx: self._wait(tx, number, wait))
            case Call() as call:
                return await self._decide(number, lambda tx: self._call(tx, number, call))
            case Return():
                raise AssertionError("Return is handled before")
            case other:
                assert_never(other)

    async def _stage(self, stage: Stage) -> Entry:
        value: Any = None
        if stage.function is not None:
            value = await callables.run(stage.function, *stage.args, **stage.kwargs)
        # As JSON, so that the first run sees the same value as every replay.
        entry = Entry(stage.signature, "value", msgspec.json.decode(msgspec.json.encode(value)))
        self._journal = self._journal.plus(entry, stage.name)
        await self._ctx.checkpoint(state=msgspec.to_builtins(self._journal))
        return entry

    async def _decide(self, number: int, look: Callable[[Transaction], Any]) -> Entry:
        """Store the result of a step if it is available; otherwise wait for it."""
        async with self._database.transaction(own=True) as tx:
            entry: Entry | None = await look(tx)
            if entry is not None:
                journal = self._journal.plus(entry)
                await self._ctx.checkpoint_in(tx, state=msgspec.to_builtins(journal))
                await waits.end(tx, self._ctx.id, number)
        if entry is None:
            raise Suspended
        self._journal = journal
        return entry

    async def _wait(self, tx: Transaction, number: int, step: Wait) -> Entry | None:
        if step.event is not None:
            await waits.lock_event(tx, step.event, step.key)
        rows = await waits.read(tx, self._ctx, number)
        row = rows[0] if rows else None
        if row is not None and row["came_at"] is not None:
            return Entry(step.signature, "value", msgspec.json.decode(row["data"]))
        if step.event is not None:
            data = await waits.take_event(tx, step.event, step.key)
            if data is not None:
                return Entry(step.signature, "value", msgspec.json.decode(data))
        if row is not None and row["deadline"] is not None and row["deadline"] <= row["now"]:
            return Entry(step.signature, "value" if step.event is None else "timed out")
        await waits.wait(
            tx, self._ctx, number, event=step.event, key=step.key, until=step.until,
            timeout=step.timeout,
        )  # fmt: skip
        return None

    async def _call(self, tx: Transaction, number: int, step: Call) -> Entry | None:
        rows = await waits.read(tx, self._ctx, number)
        if not rows:
            child = submission.checked(
                step.child, step.data, id=uuid5(self._ctx.id, str(number)),
                **{"owner": self._ctx.owner, **step.options, "options": {
                    "retain": True, **await self._ctx.service.descent(tx),
                    **step.options.get("options", {}),
                }},
            )  # fmt: skip
            await waits.call(tx, self._ctx, number, [child])
            return None
        row = rows[0]
        if not row["over"]:
            await waits.wait_again(tx, self._ctx, number, rows)
            return None
        if row["status"] in (None, states.SUCCEEDED):
            value = None if row["result"] is None else msgspec.json.decode(row["result"])
            return Entry(step.signature, "value", value)
        text = f"{states.LABELS[row['status']]}: {row['text'] or ''}"[-500:]
        return Entry(step.signature, "failed", text, row["error_code"])


async def _advance(generator: Workflow, done: Entry | None) -> Any:
    """Send the result of a step to the generator; return the next step."""
    if done is None:
        return await anext(generator)
    match done.kind:
        case "value":
            return await generator.asend(done.value)
        case "timed out":
            return await generator.athrow(WaitTimedOut(f"{done.signature} took too long"))
        case "failed":
            return await generator.athrow(
                JobFailed(f"{done.signature} ended as {done.value}", error_code=done.code)
            )
        case other:
            assert_never(other)


def _checked(step: Any) -> Step:
    if not isinstance(step, Stage | Wait | Call | Return):
        raise InvalidValue(f"a workflow yields Stage, Wait, Call or Return, not {step!r}")
    return step
