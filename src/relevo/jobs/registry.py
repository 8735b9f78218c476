"""Handlers of an app: names, lanes, arguments, and typed submits."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    get_type_hints,
    overload,
)

from msgspec import Struct

from relevo.errors import Conflict, Forbidden, InvalidValue
from relevo.jobs.arguments import arguments_of, check, converted, named, signature_of
from relevo.jobs.core.retry import NOT_ORDINARY, RetryPolicy
from relevo.jobs.core.uniqueness import Unique
from relevo.jobs.model import LANES, NAME_LENGTH_MAX, Lane, Recurrence
from relevo.kernel import callables
from relevo.kernel.running.budgets import Budgets
from relevo.kernel.running.places import place_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.jobs.model import SubmitOptions
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import JobHandle, Jobs

P = ParamSpec("P")
R = TypeVar("R")

OWN_PREFIXES: Final = ("relevo.", "step:", "message:")
"""Names of handlers that are not submitted by name from outside."""
EXECUTE: Final = 54
"""The operation type of submitted jobs: Execute Async Request."""


class Handler(Struct, frozen=True, kw_only=True):
    """A handler and its options."""

    name: str
    function: Callable[..., Any]
    lane: str = "default"
    kind: str = "async"
    """`async`, `thread` or `process`."""
    raw: bool = False
    """Whether it takes only the context, and reads its data there."""
    operation_type: int = EXECUTE
    auto_delete: bool = False
    time_limit: float | None = None
    priority: int | None = None
    """Of its jobs, where their submit names none; None is the usual 4."""
    retry: RetryPolicy = NOT_ORDINARY
    schedule: Recurrence | None = None
    """When its jobs are submitted without anybody's doing."""
    crashes_max: int | None = None
    """How many hosts a job may lose before it fails; None uses `jobs_crashes_max`."""
    token: Callable[..., Awaitable[str | None] | str | None] | None = None
    unique: Unique | None = None
    """Of its jobs, where their submit does not say."""
    types: dict[str, Any] = {}
    required: frozenset[str] = frozenset()
    taken: frozenset[str] | None = None
    """Names of its parameters; None accepts any."""

    def arguments(self, data: Any) -> dict[str, Any]:
        """Return decoded data as arguments of the function, converted to its annotations.

        Raises `UnknownArguments` for names that the function does not have.
        """
        return converted(self, data)

    async def token_of(self, arguments: dict[str, Any]) -> str | None:
        """Return the token from the handler's token function, which gets the arguments it names."""
        if self.token is None:
            return None
        token = await self.asked(self.token, arguments)
        if token is not None and not isinstance(token, str):
            raise InvalidValue(
                f"the token function of {self.name!r} returned a {type(token).__name__}; a token is"
                " text, or None for a job that waits for no other"
            )
        return token

    async def asked(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Return what a function of the handler's arguments says; it gets those that it names."""
        try:
            bound = signature_of(self.function).bind(None, **arguments)
        except TypeError as error:
            raise InvalidValue(
                f"data of {self.name!r} does not fit its function: {error}"
            ) from error
        bound.apply_defaults()
        given, taken = named(bound), signature_of(function).parameters
        if not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
            given = {name: value for name, value in given.items() if name in taken}
        return await callables.call(function, **given)


def check_open(name: str) -> None:
    """Refuse handlers that only Relevo submits; outside callers use the matching operation.

    Bulk operations and steps act on behalf of a user, whose rights the operation checks.
    """
    if name.startswith(OWN_PREFIXES):
        raise Forbidden(
            f"handler {name[:100]!r} is Relevo's own; use the operation that submits its jobs"
        )


def forgotten(name: str) -> str:
    """Return how Python's warning names a submit that was not awaited."""
    return f"submit of job {name!r} (nothing is stored: write `await` before it)"


class HandlerRegistry:
    """The handlers and lanes of an app; filled before it serves."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.lanes: dict[str, Lane] = {one.name: one for one in LANES}
        self._configured: set[str] = set()
        self.budgets = Budgets()
        """Opens the pools and limits that lanes name."""

    def add(self, handler: Handler) -> None:
        """Add a handler; refuses a second one with the same name."""
        if not 1 <= len(handler.name) <= NAME_LENGTH_MAX:
            raise InvalidValue(f"a handler's name has 1 to {NAME_LENGTH_MAX} characters")
        if handler.crashes_max is not None and handler.crashes_max < 1:
            raise InvalidValue(
                f"handler {handler.name!r} has crashes_max={handler.crashes_max}; give 1 or more"
            )
        if handler.name in self.handlers:
            first = self.handlers[handler.name].function
            raise Conflict(
                f"there is a handler {handler.name!r} already: {callables.place(first)}, and now"
                f" {callables.place(handler.function)}; give each its own name"
            )
        if handler.lane not in self.lanes:
            raise InvalidValue(
                f"handler {handler.name!r} names the lane {handler.lane!r}, which is not"
                f" configured; there are {', '.join(sorted(self.lanes))}"
            )
        if handler.schedule is not None and handler.required:
            raise InvalidValue(
                f"handler {handler.name!r} needs {', '.join(sorted(handler.required))}, but its"
                " schedule gives no arguments; give each a default"
            )
        if handler.priority is not None:
            self._check_priority(handler, handler.priority)
        self.handlers[handler.name] = handler

    def check_data(self, handler: str, data: Any, text: str) -> None:
        """Refuse data that the handler cannot take, if it is registered here.

        `text` is the data as it is stored.
        """
        known = self.handlers.get(handler)
        if known is not None:
            check(known, data, text)

    def check_each(self, handler: str, data: Sequence[Any], texts: Sequence[str]) -> None:
        """Refuse the first element of a bulk submit that the handler cannot take."""
        known = self.handlers.get(handler)
        if known is not None:
            for number, (one, text) in enumerate(zip(data, texts, strict=True)):
                check(known, one, text, f"data[{number}]: ")

    def _check_priority(self, handler: Handler, priority: int) -> None:
        if type(priority) is not int or not 0 <= priority <= 9:
            raise InvalidValue(
                f"handler {handler.name!r} has priority={priority!r}; give a number from 0 to 9,"
                " the most urgent"
            )
        if not self.lanes[handler.lane].priority:
            raise InvalidValue(
                f"handler {handler.name!r} has priority={priority}, but its lane {handler.lane!r}"
                " runs jobs in the order of submission; configure the lane first:"
                f" app.jobs.configure(relevo.Lane(name={handler.lane!r}, priority=True))"
            )

    def configure(self, lane: Lane) -> None:
        """Add a lane, or change one."""
        if lane.slots < 1:
            raise InvalidValue(f"lane {lane.name!r} has {lane.slots} slots; it needs at least one")
        if not 1 <= len(lane.name) <= 64 or " " in lane.name:
            raise InvalidValue("a lane's name has 1 to 64 characters other than spaces")
        if lane.preempt and not lane.priority:
            raise InvalidValue(
                f"lane {lane.name!r} has preempt=True, but its jobs run in the order of submission;"
                " set priority=True as well"
            )
        self.lanes[lane.name] = lane
        self._configured.add(lane.name)

    def lane_of(self, name: str, lane: str | None, pool: str | None) -> str:
        """Return the lane of a handler that names a lane, a pool, or neither."""
        if lane is not None and pool is not None:
            raise InvalidValue(
                f"job {name!r} names the lane {lane!r} and the pool {pool!r}; name the pool in the"
                " lane: Lane(name=..., pool=...)"
            )
        if lane is not None:
            return lane
        return "default" if pool is None else self.pool_lane(pool)

    def pool_lane(self, pool: str) -> str:
        """Return the lane of the handlers of a pool that name no lane; makes it if need be."""
        name = f"pool:{pool}"
        if name not in self.lanes:
            self.configure(Lane(name=name, pool=pool))
        return name

    def declared(self) -> list[Lane]:
        """Return the lanes that this app serves or configures."""
        served = {handler.lane for handler in self.handlers.values()}
        return [one for name, one in self.lanes.items() if name in served | self._configured]


def described(
    name: str, function: Callable[..., Any], *, process: bool = False, generator: bool = False,
    **options: Any,
) -> Handler:  # fmt: skip
    """Return the handler of a function, whose first parameter may be the context.

    `generator` allows one that yields: a workflow is run as one.
    """
    what = f"handler {name!r}"
    if not generator:
        callables.check(function, what)
    if (token := options.get("token")) is not None:
        callables.check(token, f"the token function of {what}")
    if not callables.takes_context(function, what):
        function = callables.ignoring_context(function)
    taken = callables.parameters(function, what)[1:]
    callables.check_parameters(taken, what)
    for one in taken:
        if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL):
            raise InvalidValue(
                f"handler {name!r} has the parameter {str(one)!r}, which cannot be passed by"
                " name, as the data of a job requires; declare it without `/` and `*`"
            )
    hints = _hints(name, function, {one.name for one in taken})
    kind = "process" if process else "async" if callables.is_async(function) else "thread"
    if process:
        place_of(function)  # refuses a function that no other process can import
    return Handler(
        name=name, function=function, kind=kind,
        types={one.name: hints[one.name] for one in taken if one.name in hints},
        taken=None if any(one.kind is one.VAR_KEYWORD for one in taken)
        else frozenset(one.name for one in taken),
        required=frozenset(
            one.name for one in taken
            if one.default is one.empty
            and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        ), **options,
    )  # fmt: skip


def _hints(name: str, function: Callable[..., Any], taken: set[str]) -> dict[str, Any]:
    """Return the types of parameters; those of the context and result need not be importable."""
    function = inspect.unwrap(function)
    annotations = getattr(function, "__annotations__", {})
    holder = SimpleNamespace(
        __annotations__={key: annotations[key] for key in taken if key in annotations}
    )
    try:
        return get_type_hints(holder, getattr(function, "__globals__", {}))
    except NameError as error:
        raise InvalidValue(
            f"handler {name!r} has an annotation that cannot be resolved at run time:"
            f" {error}; import it outside of `if TYPE_CHECKING`"
        ) from error


class Registering(Protocol):
    """Decorates a handler, async or plain; its return value is the job's result."""

    @overload  # under a second name
    def __call__(self, function: JobDefinition[P, R], /) -> JobDefinition[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Awaitable[R]], /
    ) -> JobDefinition[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], R], /
    ) -> JobDefinition[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> JobDefinition[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> JobDefinition[P, R]: ...


def registering(jobs: Jobs, name: str, **options: Any) -> Registering:
    """Return the decorator that makes a function the handler of a name."""

    def register(function: Any) -> Any:
        if isinstance(function, JobDefinition):  # the same function under a second name
            function = function.function
        handler = described(name, function, **options)
        jobs.registry.add(handler)
        return JobDefinition(jobs, handler, function)

    return register


class JobDefinition(Generic[P, R]):
    """A handler that knows how to submit itself: `await receipt.submit(customer="ana")`.

    `using(start=…, token=…)` sets options of the submit; the arguments of `submit` are those of
    the function.
    """

    def __init__(
        self,
        jobs: Jobs,
        handler: Handler,
        function: Callable[..., Awaitable[R] | R],
        options: SubmitOptions | None = None,
    ) -> None:
        self._jobs = jobs
        self._handler = handler
        self._options: SubmitOptions = options or {}
        self.function = function
        """The function itself, for tests that call it."""

    @property
    def handler(self) -> Handler:
        """How it runs."""
        return self._handler

    @property
    def options(self) -> SubmitOptions:
        """What `using` has set."""
        return self._options

    @property
    def name(self) -> str:
        """The name under which its jobs are submitted."""
        return self._handler.name

    def using(self, **options: Unpack[SubmitOptions]) -> JobDefinition[P, R]:
        """Return the same with options of `Jobs.submit`: start, token, priority, tx, retain …"""
        return JobDefinition(self._jobs, self._handler, self.function, {**self._options, **options})

    @callables.named_if_forgotten(lambda self, *_, **__: forgotten(self.name))
    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit a job; it is stored when this returns, or when `tx` commits."""
        arguments = arguments_of(self._handler.function, args, kwargs)
        options: SubmitOptions = {**self._options}
        if options.get("token") is None:  # from the Python values, before they become JSON
            token = await self._handler.token_of(arguments)
            options["token"] = "" if token is None else token
        return await self._jobs.submit(self.name, arguments, **options)
