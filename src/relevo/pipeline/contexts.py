"""What a step sees, and how that travels from an operation to a job."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.errors import Conflict, InvalidValue
from relevo.kernel.running.threads import BlockingTransaction, is_here, waited
from relevo.kernel.running.verdicts import Suspend
from relevo.pipeline.model import Parent, Step, Target
from relevo.store import items

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Transaction

VERSION: Final = 1
"""Of the form in which contexts are stored; readers know it and all before."""


class Envelope(Struct, frozen=True, kw_only=True):
    """The context of an asynchronous step as its job carries it: data, no live objects."""

    version: int = VERSION
    operation: UUID
    message: str
    table: str | None
    id: str | None
    partition_key: Any = None
    input: dict[str, Any]
    output: dict[str, Any]
    pre: dict[str, Any] | None = None
    post: dict[str, Any] | None = None
    shared_variables: dict[str, Any]
    user: UUID | None = None
    initiating_user: UUID | None = None
    correlation: UUID
    depth: int
    parent: Parent | None = None
    stage: int
    step: UUID


class Look(Struct, frozen=True):
    """As much of a stored context as says whether the rest can be read."""

    version: int = 0


def opened(data: str | None) -> Envelope:
    """Return the context that a job carries; one of a newer form waits for a newer host."""
    text = data or "{}"
    version = msgspec.json.decode(text, type=Look).version
    if version > VERSION:
        raise Suspend(
            f"the context of this job has the form {version} and this host reads {VERSION}; update"
            " the hosts, then resume the job"
        )
    try:
        return msgspec.json.decode(text, type=Envelope)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"the job does not carry the context of a step: {error}") from error


class StepContext:
    """An operation as a step sees it.

    `target` is the record with the columns that the request brings; before the operation steps may
    change it, after it they may change `output`. `pre` and `post` are the step's images.

    >>> async def notify(ctx: StepContext) -> None:
    ...     if ctx.pre["status"] != ctx.target["status"]:
    ...         await ctx.service.create("mail", {"order": ctx.target.id})
    """

    def __init__(
        self, facts: Envelope, step: Step | None, service: Any, *, tx: Transaction | None = None,
        job: Any = None,
    ) -> None:  # fmt: skip
        self._facts = facts
        self.input = facts.input
        """What the request brings, `target` among it."""
        self.output = facts.output
        """What the caller gets, after the operation."""
        self.pre: dict[str, Any] = {} if facts.pre is None else facts.pre
        self.post: dict[str, Any] = {} if facts.post is None else facts.post
        self.shared_variables = facts.shared_variables
        """JSON values for later stages and jobs of the same operation."""
        self.service = service
        """Data operations, made by this step: one deeper, in its user's name."""
        self.tx = tx
        """The transaction of the operation; None before it begins, and in jobs."""
        self.job: Any = job
        """The run of the job (`JobContext`); None in synchronous steps."""
        self.configuration = None if step is None else step.configuration
        self.secure = None if step is None else step.secure
        self.step = None if step is None else step.name

    @property
    def target(self) -> Target:
        """The record that the operation is about."""
        found = self.input.get("target")
        if not isinstance(found, Target):
            raise Conflict(f"{self.message} is not about one record; look at ctx.input")
        return found

    @property
    def message(self) -> str:
        """What is done: Create, Update, Delete, …"""
        return self._facts.message

    @property
    def table(self) -> str | None:
        """The logical name of the table."""
        return self._facts.table

    @property
    def stage(self) -> int:
        """10, 20, 30 or 40."""
        return self._facts.stage

    @property
    def depth(self) -> int:
        """How many operations caused each other down to this one; 1 for what a client asked for."""
        return self._facts.depth

    @property
    def correlation(self) -> UUID:
        """The same in all that one request of a client caused."""
        return self._facts.correlation

    @property
    def operation(self) -> UUID:
        """The key of this operation."""
        return self._facts.operation

    @property
    def parent(self) -> Parent | None:
        """What caused the operation; None if a client did."""
        return self._facts.parent

    @property
    def user(self) -> UUID | None:
        """In whose name the step acts."""
        return self._facts.user

    @property
    def initiating_user(self) -> UUID | None:
        """Who asked for the operation."""
        return self._facts.initiating_user

    @property
    def id(self) -> UUID:
        """The key of the job."""
        found: UUID = self._run.id
        return found

    @property
    def attempt(self) -> int:
        """How often the job was started, this time included."""
        found: int = self._run.attempt
        return found

    @property
    def state(self) -> Any:
        """What the last `checkpoint(state=…)` stored."""
        return self._run.state

    def transaction(self, *, result: Any = None) -> Any:
        """Give a transaction whose commit completes the job, for `async with`; in a plain function
        for `with`."""
        return self._run.transaction(result=result)

    def checkpoint(self, **told: Any) -> Any:
        """Store how far the job is; raises if it was paused or canceled."""
        return self._run.checkpoint(**told)

    @property
    def _run(self) -> Any:
        if self.job is None:
            raise Conflict(
                f"step {self.step!r} is synchronous: it has no job; its transaction is ctx.tx"
            )
        return self.job


class BlockingService:
    """The service of a plain function, in a thread: the same, without `await`.

    Where the service takes a `tx`, this takes what a plain `ctx.transaction()` gave.
    """

    def __init__(self, service: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._loop = loop

    def of(self, user: UUID | None, **options: Any) -> BlockingService:
        """As `DataService.of`."""
        return BlockingService(self._service.of(user, **options), self._loop)

    def __getattr__(self, name: str) -> Any:
        """Every operation of the service, waiting until it is done."""
        method = getattr(self._service, name)
        if not inspect.iscoroutinefunction(method):
            raise AttributeError(f"{name!r} is no data operation")

        def call(*args: Any, **options: Any) -> Any:
            if isinstance(tx := options.get("tx"), BlockingTransaction):
                options["tx"] = tx.running
            work = method(*args, **options)
            return work if is_here(self._loop) else waited(work, self._loop)

        return call


def for_job(step: Step, job: JobContext, facts: Envelope, service: Any, given: Any) -> StepContext:
    """Return the context of a step in its job; `given` is what the host hands to the handler."""
    inputs = dict(facts.input)
    if isinstance(inputs.get("target"), dict):
        inputs["target"] = Target(inputs["target"])
    facts = msgspec.structs.replace(facts, input=inputs)
    blocking = given is not job
    return StepContext(
        facts, step, BlockingService(service, job.loop) if blocking else service, job=given
    )


def kept_as_json(values: dict[str, Any], what: str) -> None:
    """Make a step's values what they are as JSON, or say that the step left something else."""
    plain = checked_json(values, what)
    values.clear()
    values.update(plain)


def checked_json(values: dict[str, Any], what: str) -> dict[str, Any]:
    """Return a step's values as they are as JSON, or say that the step left something else."""
    try:
        _, plain = items.encoded(values)
    except InvalidValue as error:
        bad, why = next(_refused(values), ("", error))
        raise InvalidValue(
            f"{what} left a value{f' {bad!r}' if bad else ''} that is not JSON: {why}; leave text,"
            " numbers, booleans, lists and objects",
            pointer=f"/{bad}" if bad else why.pointer,
        ) from error
    found: dict[str, Any] = plain
    return found


def _refused(values: dict[str, Any]) -> Iterator[tuple[str, InvalidValue]]:
    """Which values cannot be kept as JSON, by name, and why; encoding all at once tells no name."""
    for name, value in values.items():
        try:
            items.encoded({name: value})
        except InvalidValue as error:
            yield str(name), error
