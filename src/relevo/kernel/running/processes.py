"""Handlers in processes of their own: the only kind that can be killed.

A host keeps the processes of ended runs for the next ones, so that modules are imported once. One
that is killed (time limit, cancel after its grace, the host stops) is not used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.errors import Conflict, HandlerError
from relevo.kernel.running import wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

IDLE_MAX: Final = 8
"""Processes that wait for a next run; more were needed at once and end after theirs."""


class HandlerProcess:
    """A process that runs one handler after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, process.stdout

    @classmethod
    async def start(cls) -> HandlerProcess:
        """Start a process; it knows the same modules as this one."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "relevo.kernel.running.child", str(os.getpid()),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        worker = cls(process)
        try:
            await worker.send([one or os.getcwd() for one in sys.path])
        except BaseException:
            await asyncio.shield(worker.kill())
            raise
        return worker

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    async def send(self, message: Any) -> None:
        """Send it a message; if it has ended, the next read fails."""
        await self.send_packed(wire.packed(message))

    async def send_packed(self, message: bytes) -> None:
        """Send an encoded message."""
        with contextlib.suppress(ConnectionError):
            self._to.write(message)
            await self._to.drain()

    async def receive(self) -> dict[str, Any]:
        """Return its next message."""
        try:
            size = int.from_bytes(await self._from.readexactly(wire.HEADER_BYTES), "big")
            message: dict[str, Any] = msgspec.json.decode(await self._from.readexactly(size))
        except asyncio.IncompleteReadError:
            code = await self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"code {code}"
            raise HandlerError(
                f"the process of the handler ended with {how} before its run was done; look at the"
                " log of the host"
            ) from None
        return message

    async def kill(self) -> None:
        """Kill it and its children at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._to.close()
        await self._process.wait()


class Processes:
    """The processes of a host."""

    def __init__(self) -> None:
        self._idle: list[HandlerProcess] = []
        self._runs = itertools.count(1)

    async def call(
        self, order: dict[str, Any], answer: Callable[[dict[str, Any]], Awaitable[Any]]
    ) -> Any:
        """Call a handler in a process; `answer` handles its requests meanwhile.

        The order names as `call` the function (`module:name`) that makes the call in the process:
        it gets the `ChildRun` and the order.
        """
        worker = await self._worker()
        run = next(self._runs)
        healthy = False
        try:
            await worker.send({**order, "run": run})
            outcome = await self._converse(worker, answer, run)
            healthy = True
        finally:
            if healthy and len(self._idle) < IDLE_MAX:
                self._idle.append(worker)
            else:
                await asyncio.shield(worker.kill())
        if outcome["kind"] == "failed":
            raise wire.heard(outcome["error"])
        return outcome["value"]

    async def _worker(self) -> HandlerProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            await worker.kill()
        return await HandlerProcess.start()

    async def _converse(
        self, worker: HandlerProcess, answer: Callable[[dict[str, Any]], Awaitable[Any]], run: int
    ) -> dict[str, Any]:
        """Handle the requests of the handler until it ends.

        What a former run left in the process, a fork or a thread, may still speak: it is refused,
        for it would act in the name of this run.
        """
        while True:
            message = await worker.receive()
            asked = message["run"]
            if asked == run and message["kind"] in ("done", "failed"):
                return message
            try:
                if asked != run:
                    raise Conflict(wire.OVER)
                reply = wire.packed({"run": asked, "value": await answer(message)})
            except Exception as error:
                reply = wire.packed({"run": asked, "error": wire.error_fields(error)})
            await worker.send_packed(reply)

    async def close(self) -> None:
        """End the processes that wait for a run."""
        idle, self._idle = self._idle, []
        for worker in idle:
            await worker.kill()
