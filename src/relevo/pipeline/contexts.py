"""The context of a step, and its stored form in jobs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.errors import Conflict, InvalidValue
from relevo.kernel.running.threads import BlockingTransaction, is_here, waited
from relevo.kernel.running.verdicts import Suspend
from relevo.pipeline.model import ParentOperation, Step, Target
from relevo.store import items

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Transaction

VERSION: Final = 1
"""The version of stored contexts; hosts read this version and all earlier ones."""


class Envelope(Struct, frozen=True, kw_only=True):
    """The context of an asynchronous step as its job stores it."""

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
    parent: ParentOperation | None = None
    stage: int
    step: UUID


class _FormatVersion(Struct, frozen=True):
    """The version of a stored context, read before the rest."""

    version: int = 0


def opened(data: str | None) -> Envelope:
    """Return the context of a job; raises `Suspend` if a newer version of Relevo wrote it."""
    text = data or "{}"
    version = msgspec.json.decode(text, type=_FormatVersion).version
    if version > VERSION:
        raise Suspend(
            f"the context of this job has version {version}, but this host reads {VERSION}; update"
            " the hosts, then resume the job"
        )
    try:
        return msgspec.json.decode(text, type=Envelope)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"the data of this job is not the context of a step: {error}") from error


class StepContext:
    """An operation as a step sees it.

    `target` is the record with the columns of the request. Before the operation, steps may change
    it; afterwards they may change `output`. `pre` and `post` are the step's images.

    >>> async def notify(ctx: StepContext) -> None:
    ...     if ctx.pre["status"] != ctx.target["status"]:
    ...         await ctx.service.create("mail", {"order": ctx.target.id})
    """

    def __init__(
        self, envelope: Envelope, step: Step | None, service: Any, *, tx: Transaction | None = None,
        job: Any = None,
    ) -> None:  # fmt: skip
        self._envelope = envelope
        self.input = envelope.input
        """The parameters of the request, including `target`."""
        self.output = envelope.output
        """The result for the caller, after the operation."""
        self.pre: dict[str, Any] = {} if envelope.pre is None else envelope.pre
        self.post: dict[str, Any] = {} if envelope.post is None else envelope.post
        self.shared_variables = envelope.shared_variables
        """JSON values for later stages and jobs of the same operation."""
        self.service = service
        """Data operations of this step: one level deeper, in its user's name."""
        self.tx = tx
        """The transaction of the operation; None before it begins, and in jobs."""
        self.job: Any = job
        """The run of the job (`JobContext`); None in synchronous steps."""
        self.configuration = None if step is None else step.configuration
        self.secure = None if step is None else step.secure
        self.step = None if step is None else step.name

    @property
    def target(self) -> Target:
        """The record of the operation."""
        target = self.input.get("target")
        if not isinstance(target, Target):
            raise Conflict(f"{self.message} has no single target record; use ctx.input")
        return target

    @property
    def message(self) -> str:
        """The message: Create, Update, Delete, …"""
        return self._envelope.message

    @property
    def table(self) -> str | None:
        """The logical name of the table."""
        return self._envelope.table

    @property
    def stage(self) -> int:
        """10, 20, 30 or 40."""
        return self._envelope.stage

    @property
    def depth(self) -> int:
        """The depth in the chain of operations that caused each other; 1 for a client's request."""
        return self._envelope.depth

    @property
    def correlation(self) -> UUID:
        """The id that all operations and jobs caused by one client request share."""
        return self._envelope.correlation

    @property
    def operation(self) -> UUID:
        """The id of this operation."""
        return self._envelope.operation

    @property
    def parent(self) -> ParentOperation | None:
        """The step or job that caused the operation; None if a client did."""
        return self._envelope.parent

    @property
    def user(self) -> UUID | None:
        """The user in whose name the step acts."""
        return self._envelope.user

    @property
    def initiating_user(self) -> UUID | None:
        """The user who requested the operation."""
        return self._envelope.initiating_user

    @property
    def id(self) -> UUID:
        """The id of the job."""
        id_: UUID = self._run.id
        return id_

    @property
    def attempt(self) -> int:
        """How often the job was started, including this time."""
        attempt: int = self._run.attempt
        return attempt

    @property
    def state(self) -> Any:
        """The state of the last `checkpoint(state=…)`."""
        return self._run.state

    def transaction(self, *, result: Any = None) -> Any:
        """Open a transaction whose commit completes the job: `async with`, in plain functions
        `with`."""
        return self._run.transaction(result=result)

    def checkpoint(self, **progress: Any) -> Any:
        """Store the progress of the job; raises if it was paused or canceled."""
        return self._run.checkpoint(**progress)

    @property
    def _run(self) -> Any:
        if self.job is None:
            raise Conflict(
                f"step {self.step!r} is synchronous, so it has no job; use its transaction, ctx.tx"
            )
        return self.job


class BlockingService:
    """The data service for plain functions in threads, without `await`.

    Its `tx` arguments take the transaction of a plain `with ctx.transaction()`.
    """

    def __init__(self, service: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._loop = loop

    def of(self, user: UUID | None, **options: Any) -> BlockingService:
        """As `DataService.of`."""
        return BlockingService(self._service.of(user, **options), self._loop)

    def __getattr__(self, name: str) -> Any:
        """Return an operation of the service that blocks until it is done."""
        method = getattr(self._service, name)
        if not inspect.iscoroutinefunction(method):
            raise AttributeError(f"{name!r} is not a data operation")

        def call(*args: Any, **options: Any) -> Any:
            if isinstance(tx := options.get("tx"), BlockingTransaction):
                options["tx"] = tx.running
            work = method(*args, **options)
            return work if is_here(self._loop) else waited(work, self._loop)

        return call


def for_job(
    step: Step, job: JobContext, envelope: Envelope, service: Any, given: Any
) -> StepContext:
    """Return the context of a step in its job; `given` is the context the host passed."""
    inputs = dict(envelope.input)
    if isinstance(inputs.get("target"), dict):
        inputs["target"] = Target(inputs["target"])
    envelope = msgspec.structs.replace(envelope, input=inputs)
    blocking = given is not job
    return StepContext(
        envelope, step, BlockingService(service, job.loop) if blocking else service, job=given
    )


def kept_as_json(values: dict[str, Any], what: str) -> None:
    """Replace a step's values by their JSON form; raises `InvalidValue`."""
    plain = checked_json(values, what)
    values.clear()
    values.update(plain)


def checked_json(values: dict[str, Any], what: str) -> dict[str, Any]:
    """Return a step's values in their JSON form; raises `InvalidValue`."""
    try:
        _, plain = items.encoded(values)
    except InvalidValue as error:
        bad, why = next(_refused(values), ("", error))
        raise InvalidValue(
            f"{what} has a value{f' {bad!r}' if bad else ''} that is not JSON: {why}; use text,"
            " numbers, booleans, lists and objects",
            pointer=f"/{bad}" if bad else why.pointer,
        ) from error
    decoded: dict[str, Any] = plain
    return decoded


def _refused(values: dict[str, Any]) -> Iterator[tuple[str, InvalidValue]]:
    """Yield the names of values that have no JSON form, with the errors."""
    for name, value in values.items():
        try:
            items.encoded({name: value})
        except InvalidValue as error:
            yield str(name), error
