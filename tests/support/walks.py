"""Follows a call through the code: which of Relevo's files it runs, in the order it enters them.

    walk = await files_touched(lambda: app.jobs.submit("mail", {"to": "ana"}))
    walk.always

The walk is repeated, and only files of every repetition count. So caches are warm, and a background
loop that happens to tick adds nothing. Loops that every host runs beside its work never count.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import relevo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType

ROOT: Final = Path(relevo.__file__).parent
_REPEATS: Final = 5
BESIDE: Final = (
    "http/server.py", "kernel/leases/", "kernel/machine.py", "kernel/supervision.py",
    "kernel/postgres/pool/array_types.py",
)  # fmt: skip
"""Heartbeat, balancing and sweeps of a host, and a statement that is new to its connection."""


class Walk(NamedTuple):
    """The files below `src/relevo` that a walk runs, in the order it enters them."""

    always: list[str]
    """Files of every repetition."""
    ever: frozenset[str]
    """Files of any repetition."""


async def files_touched(
    walk: Callable[[], Awaitable[Any]],
    *,
    beside: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> Walk:
    """Return the files whose functions a walk calls, in any thread.

    Paths that begin with one of `beside` belong to other work of the same host; those in `also`
    are on the path although loops beside it use them, too.
    """
    await walk()
    runs = [await _once(walk) for _ in range(_REPEATS)]
    ever = {
        file
        for run in runs
        for file in run
        if file in also or not file.startswith((*BESIDE, *beside))
    }
    always = [file for file in runs[0] if file in ever and all(file in run for run in runs)]
    return Walk(always, frozenset(ever))


async def _once(walk: Callable[[], Awaitable[Any]]) -> list[str]:
    names: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            names[frame.f_code.co_filename] = None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        await walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    inside = [Path(name) for name in names if Path(name).is_relative_to(ROOT)]
    return [path.relative_to(ROOT).as_posix() for path in inside]
