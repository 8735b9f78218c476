"""The context of a handler with `process=True` in its process; the host carries out its calls."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from relevo.errors import Conflict, InvalidValue
from relevo.jobs.registry import Handler, JobDefinition, described
from relevo.kernel import callables
from relevo.kernel.running.places import found_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from relevo.kernel.running.child import ChildRun

T = TypeVar("T")
OPERATIONS: Final = (
    "associate", "create", "delete", "disassociate", "execute", "related", "retrieve",
    "retrieve_multiple", "update",
)  # fmt: skip
"""Operations of `ctx.service` that a handler may call from its process, with JSON values."""
_UNSAID: Final = object()
_SHAPES: Final[dict[str, Callable[[Any], Any]]] = {
    "related": lambda found: [tuple(one) for one in found],
    "retrieve_multiple": tuple,
}
"""Converts results that JSON cannot represent."""


class ChildService:
    """Data operations of a plain function in its own process: its host does them for it.

    Each commits separately; arguments and results travel as JSON.
    """

    def __init__(self, run: ChildRun) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        """Every data operation, waiting until it is done."""
        if name not in OPERATIONS:
            raise AttributeError(
                f"{name!r} is not a data operation for handlers with process=True; use one of"
                f" {', '.join(OPERATIONS)}"
            )
        return lambda *args, **options: self._call(name, args, options)

    def _call(self, method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options.pop("tx", None) is not None:
            raise _elsewhere("tx")
        # Imported late: handlers that use no data start without it.
        from relevo.store import items

        given = {name: _plain(value) for name, value in options.items()}
        _, encoded = items.encoded({"args": [_plain(arg) for arg in args], "options": given})
        found = self._run.ask("service", method=method, **encoded)
        return _SHAPES.get(method, lambda value: value)(found)


class AsyncChildService(ChildService):
    """The same for a coroutine: every operation is awaited."""

    def __getattr__(self, name: str) -> Any:
        """Every data operation."""
        return functools.partial(asyncio.to_thread, super().__getattr__(name))


class ChildContext:
    """A run of a job as a plain function in its own process sees it."""

    def __init__(self, run: ChildRun, job: dict[str, Any]) -> None:
        self._run = run
        self.id = UUID(job["id"])
        self.name: str = job["name"]
        self.attempt: int = job["attempt"]
        self.data: Any = job["data"]
        self.details: dict[str, Any] = job["details"]
        self.owner = None if job["owner"] is None else UUID(job["owner"])
        self.state: Any = job["state"]

    def check(self) -> None:
        """Raise `JobCanceled` or `JobPaused` if that was asked for."""
        self._run.ask("check")

    def checkpoint(self, *, progress: float | None = None, state: Any = _UNSAID) -> None:
        """Store how far the work is; then raise if the job was paused or canceled."""
        self._run.ask("checkpoint", **_checkpoint(progress, state))
        if state is not _UNSAID:
            self.state = state

    def save(self, state: Any) -> None:
        """Store state to resume from."""
        self.checkpoint(state=state)

    def progress(self, done: float) -> None:
        """Report how much is done, 0 to 1."""
        self.checkpoint(progress=done)

    def resume(self, parts: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        """Return numbered parts after the one whose number `ctx.state` holds, or all."""
        last = self.state if isinstance(self.state, int) else None
        return ((n, part) for n, part in parts if last is None or n > last)

    @property
    def service(self) -> ChildService:
        """Data operations through the event pipeline, in the name of the job's owner."""
        return ChildService(self._run)

    def transaction(self, **_: Any) -> Any:
        """Refused: the connection belongs to the host's process."""
        raise _elsewhere("ctx.transaction")


class AsyncChildContext(ChildContext):
    """The same for a coroutine: waiting calls are awaited."""

    @property
    def service(self) -> AsyncChildService:
        """As `ChildContext.service`."""
        return AsyncChildService(self._run)

    async def checkpoint(self, *, progress: float | None = None, state: Any = _UNSAID) -> None:  # type: ignore[override]
        """As `ChildContext.checkpoint`."""
        await asyncio.to_thread(self._run.ask, "checkpoint", **_checkpoint(progress, state))
        if state is not _UNSAID:
            self.state = state

    async def save(self, state: Any) -> None:  # type: ignore[override]
        """As `ChildContext.save`."""
        await self.checkpoint(state=state)

    async def progress(self, done: float) -> None:  # type: ignore[override]
        """As `ChildContext.progress`."""
        await self.checkpoint(progress=done)


class EitherContext(ChildContext):
    """The same for a plain function, which may return a coroutine: that one awaits."""

    def __init__(self, run: ChildRun, job: dict[str, Any]) -> None:
        super().__init__(run, job)
        self._awaited = AsyncChildContext(run, job)

    @property
    def service(self) -> ChildService:
        """As `ChildContext.service`."""
        return self._awaited.service if _loop_runs() else super().service

    def checkpoint(self, *, progress: float | None = None, state: Any = _UNSAID) -> Any:
        """As `ChildContext.checkpoint`."""
        if not _loop_runs():
            return super().checkpoint(progress=progress, state=state)
        if state is not _UNSAID:
            self.state = state
        return self._awaited.checkpoint(progress=progress, state=state)

    def save(self, state: Any) -> Any:
        """As `ChildContext.save`."""
        return self.checkpoint(state=state)

    def progress(self, done: float) -> Any:
        """As `ChildContext.progress`."""
        return self.checkpoint(progress=done)


def _loop_runs() -> bool:
    try:
        return asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


def _checkpoint(progress: float | None, state: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"progress": progress}
    return fields if state is _UNSAID else {**fields, "state": state}


def _plain(value: Any) -> Any:
    """Return a pydantic model as plain values; anything else unchanged."""
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", by_alias=True)


def _elsewhere(what: str) -> Conflict:
    return Conflict(
        f"{what} is not available with process=True, because the host has the connection; use"
        " ctx.service, whose operations commit separately, or leave out process=True"
    )


def _resolved(path: str, main: str | None) -> Handler:
    """Return the handler that stands at `module:name`."""
    found = found_at(path, main)
    if isinstance(found, JobDefinition):
        return found.handler
    if not callable(found):
        raise InvalidValue(f"{path} is not a function in the process of the handler: {found!r}")
    return described(path, found)


def called(run: ChildRun, job: dict[str, Any]) -> Any:
    """Call the handler that an order names, and return its result."""
    handler = _resolved(job["handler"], job["main"])
    arguments = handler.arguments(job["data"])
    if callables.is_async(handler.function):
        context: ChildContext = AsyncChildContext(run, job)
        return asyncio.run(callables.call(handler.function, context, **arguments))
    value = handler.function(EitherContext(run, job), **arguments)
    return asyncio.run(callables.settled(value)) if inspect.isawaitable(value) else value
