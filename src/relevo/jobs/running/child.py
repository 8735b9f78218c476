"""The process of a handler: `python -m relevo.jobs.running.child`, started and fed by a host.

It imports handlers by module and name, runs one job at a time, and ends when its host does: by a
signal of the system where there is one, by the end of its input everywhere.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import importlib
import inspect
import os
import queue
import runpy
import signal
import sys
import threading
import traceback
import types
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar
from uuid import UUID

import msgspec

from relevo.errors import Conflict, InvalidValue
from relevo.jobs.registry import Handler, JobDefinition, described
from relevo.jobs.running import wire
from relevo.kernel import callables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
MAIN: Final = "__relevo_main__"
"""Under what name the script is imported that the host was started with."""
_PR_SET_PDEATHSIG: Final = 1
_UNSAID: Final = object()
_SHAPES: Final[dict[str, Callable[[Any], Any]]] = {
    "related": lambda found: [tuple(one) for one in found],
    "retrieve_multiple": tuple,
}
"""What operations return that JSON has no word for."""


class Pipe:
    """The way to the host."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._came: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Read as long as there is a host; whatever runs here is for nobody without one."""
        while header := self._source.read(wire.HEADER_BYTES):
            size = int.from_bytes(header, "big")
            body = self._source.read(size)
            if len(body) < size:
                break
            self._came.put(msgspec.json.decode(body))
        os._exit(1)

    def receive(self) -> Any:
        """Return what the host says next."""
        return self._came.get()

    def send(self, message: bytes) -> None:
        """Say what is in the form of the wire already."""
        self._sink.write(message)
        self._sink.flush()


class Run:
    """One order of the host: requests and their answers, one at a time, until it is over."""

    def __init__(self, pipe: Pipe, number: int) -> None:
        self.pipe = pipe
        self._number = number
        self._over = False
        self._asking = threading.Lock()

    def signed(self, kind: str, **told: Any) -> bytes:
        """Return a message of this run."""
        return wire.packed({"kind": kind, **told, "run": self._number})

    def ask(self, kind: str, **told: Any) -> Any:
        """Say something and return what it came to; raises the error that the host answers.

        Raises `Conflict` once the run is over: a thread that is left would speak for the next job.
        """
        with self._asking:
            if self._over:
                raise Conflict(wire.OVER)
            self.pipe.send(self.signed(kind, **told))
            answer = self.pipe.receive()
            while answer["run"] != self._number:  # to a fork of a former run
                answer = self.pipe.receive()
        if "error" in answer:
            raise wire.heard(answer["error"])
        return answer["value"]

    def end(self, message: bytes) -> None:
        """Say the last thing, after the answer that a thread may wait for; refuse all others."""
        self._over = True
        with self._asking:
            self.pipe.send(message)


class ChildService:
    """Data operations of a plain function in its own process: its host does them for it.

    Each commits by itself; arguments and answers travel as JSON.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        """Every data operation, waiting until it is done."""
        if name not in wire.OPERATIONS:
            raise AttributeError(
                f"{name!r} is no data operation of a process; there are"
                f" {', '.join(wire.OPERATIONS)}"
            )
        return lambda *args, **options: self._call(name, args, options)

    def _call(self, method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options.pop("tx", None) is not None:
            raise _elsewhere("tx")
        # Imported late: handlers that use no data start without it.
        from relevo.store import items

        given = {name: _plain(value) for name, value in options.items()}
        _, told = items.encoded({"args": [_plain(one) for one in args], "options": given})
        found = self._run.ask("service", method=method, **told)
        return _SHAPES.get(method, lambda value: value)(found)


class AsyncChildService(ChildService):
    """The same for a coroutine: every operation is awaited."""

    def __getattr__(self, name: str) -> Any:
        """Every data operation."""
        return functools.partial(asyncio.to_thread, super().__getattr__(name))


class ChildContext:
    """A run of a job as a plain function in its own process sees it."""

    def __init__(self, run: Run, job: dict[str, Any]) -> None:
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
    """The same for a coroutine: what waits is awaited."""

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

    def __init__(self, run: Run, job: dict[str, Any]) -> None:
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
    told: dict[str, Any] = {"progress": progress}
    return told if state is _UNSAID else {**told, "state": state}


def _plain(value: Any) -> Any:
    """A model of pydantic as it says itself that it looks; anything else as it is."""
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", by_alias=True)


def _elsewhere(what: str) -> Conflict:
    return Conflict(
        f"{what} is not there in a process of its own, whose host has the connection; use"
        " ctx.service, whose operations commit one by one, or leave out process=True"
    )


def _resolved(path: str, main: str | None) -> Handler:
    """Return the handler that stands at `module:name`."""
    module_name, _, qualname = path.partition(":")
    if module_name == "__main__" and main is not None:
        module_name = MAIN
        if MAIN not in sys.modules:
            module = types.ModuleType(MAIN)
            module.__dict__.update(runpy.run_path(main, run_name=MAIN))
            sys.modules[MAIN] = module
    found: Any = importlib.import_module(module_name)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    if isinstance(found, JobDefinition):
        return found.handler
    if not callable(found):
        raise InvalidValue(f"{path} is not a function in the process of the handler: {found!r}")
    return described(path, found)


def _called(run: Run, job: dict[str, Any]) -> Any:
    handler = _resolved(job["handler"], job["main"])
    arguments = handler.arguments(job["data"])
    if callables.is_async(handler.function):
        context: ChildContext = AsyncChildContext(run, job)
        return asyncio.run(callables.call(handler.function, context, **arguments))
    value = handler.function(EitherContext(run, job), **arguments)
    return asyncio.run(callables.settled(value)) if inspect.isawaitable(value) else value


def _end_with(parent: int) -> None:
    """Ask the system to kill this process when its host ends, however that comes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Run jobs until the host has no more."""
    _end_with(int(sys.argv[1]))
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What handlers print goes to the log of the host, not between its messages.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    pipe = Pipe(source, sink)
    sys.path[:] = pipe.receive()
    while True:
        job = pipe.receive()
        if "handler" not in job:
            continue  # an answer to a fork of a former run
        run = Run(pipe, job["run"])
        try:
            message = run.signed("done", value=_called(run, job))
        except BaseException as error:
            message = run.signed("failed", error=wire.told(error))
        _flush()
        run.end(message)


def _flush() -> None:
    """Let the log have what the handler printed; the next one can print also if it closed that."""
    try:
        sys.stdout.flush()
    except Exception:
        sys.stdout = os.fdopen(os.dup(2), "w")


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # at once: Python would wait for threads that handlers have left
