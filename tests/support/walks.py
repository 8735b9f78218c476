"""Follows a call through the code: which of Relevo's files it runs, in the order it enters them.

    files = await files_touched(lambda: app.jobs.submit("mail", {"to": "ana"}))

The walk is repeated, and only files of every repetition count. So caches are warm, and a background
loop that happens to tick adds nothing.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import relevo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType

ROOT: Final = Path(relevo.__file__).parent
_REPEATS: Final = 3


async def files_touched(walk: Callable[[], Awaitable[Any]]) -> list[str]:
    """Return the files below `src/relevo` whose functions a walk calls, in any thread."""
    await walk()
    first, *others = [await _once(walk) for _ in range(_REPEATS)]
    return [file for file in first if all(file in other for other in others)]


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
