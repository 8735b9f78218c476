"""Arms the fault points of `relevo.kernel.faults` in the processes of a test."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Final, get_args
from uuid import uuid4

import msgspec

from relevo.errors import InvalidValue
from relevo.kernel.faults import DIRECTORY_VARIABLE, PROCESS_VARIABLE, Action, Arming

if TYPE_CHECKING:
    from pathlib import Path

REACHED_POLL_SECONDS: Final = 0.01

_POINT: Final = re.compile(r"[a-z][a-z0-9_]*")


class FaultBoard:
    """Arms fault points of child processes and reports when they are reached.

    A process takes part if it was started with `env()`:

        board = FaultBoard(tmp_path)
        board.arm("mid_handoff", "kill", process="a")
        child = subprocess.Popen([...], env={**os.environ, **board.env(process="a")})
        await board.reached("mid_handoff")
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory.resolve()
        self._armings: dict[str, Arming] = {}

    def env(self, process: str | None = None) -> dict[str, str]:
        """Return the environment that activates fault points in a child, named `process`."""
        variables = {DIRECTORY_VARIABLE: str(self._directory)}
        if process is not None:
            variables[PROCESS_VARIABLE] = process
        return variables

    def arm(
        self,
        point: str,
        action: Action,
        *,
        skip: int = 0,
        times: int | None = 1,
        seconds: float = 0.0,
        process: str | None = None,
    ) -> None:
        """Run `action` at `point` from now on; replaces an earlier arming.

        `skip` and `times` (None: always) count in each process by itself and from this call on: a
        process that is killed and started again dies again, until the point is disarmed.
        """
        if action not in get_args(Action):
            raise InvalidValue(f"{action!r} is not a fault action; use one of {get_args(Action)}")
        if skip < 0 or seconds < 0 or (times is not None and times < 1):
            raise InvalidValue(
                f"cannot arm {point!r} with skip={skip}, times={times}, seconds={seconds}: skip and"
                " seconds are at least 0, times at least 1 or None"
            )
        arming = Arming(
            action=action,
            skip=skip,
            times=times,
            seconds=seconds,
            process=process,
            serial=uuid4().hex,
        )
        path = self._path(point, "json")
        draft = path.with_name(f"{point}.{arming.serial}.draft")
        draft.write_bytes(msgspec.json.encode(arming))
        self._armings[point] = arming
        os.replace(draft, path)  # a point sees the old arming or the new one, never half of it

    def disarm(self, point: str) -> None:
        """Disarm `point`; processes held there by `wait` continue."""
        self._path(point, "json").unlink(missing_ok=True)

    def hits(self, point: str) -> int:
        """Return how often `point` has fired since it was last armed, in all processes."""
        arming = self._armings.get(point)
        if arming is None:
            return 0
        try:
            lines = self._path(point, "hits").read_text().splitlines()
        except FileNotFoundError:
            return 0
        return sum(line.startswith(arming.serial) for line in lines)

    async def reached(self, point: str, count: int = 1, timeout: float = 30.0) -> None:
        """Wait until `point` has fired `count` times since it was last armed.

        The process has recorded the hit and is at the point: a `kill` or `stop` follows within
        microseconds, which only the operating system (`waitpid`) can confirm. Raises `TimeoutError`
        after `timeout` seconds.
        """
        arming = self._armings.get(point)
        if arming is None:
            raise InvalidValue(
                f"the fault point {point!r} was never armed, so it cannot be reached"
            )
        deadline = asyncio.get_running_loop().time() + timeout
        while (hits := self.hits(point)) < count:
            if asyncio.get_running_loop().time() >= deadline:
                raise TimeoutError(
                    f"the fault point {point!r} was reached {hits} of {count} times in {timeout} s,"
                    f" armed as {arming}; check that the process was started with FaultBoard.env()"
                    f"{'' if arming.process is None else f' as {arming.process!r}'} and gets there"
                )
            await asyncio.sleep(REACHED_POLL_SECONDS)

    def _path(self, point: str, suffix: str) -> Path:
        if not _POINT.fullmatch(point):
            raise InvalidValue(
                f"{point!r} is not a fault point; a name has lower-case letters, digits and _"
            )
        return self._directory / f"{point}.{suffix}"
