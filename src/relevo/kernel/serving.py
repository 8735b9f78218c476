"""How a process runs that does nothing but serve: a faster loop, a collector that looks less often.

What a host keeps lives long and lies on few cycles; the default would walk all of it every few
hundred objects. A program that embeds Relevo decides for itself.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
OBJECTS_MORE: Final = 50_000
"""So many objects more than before make the collector look."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run what a process is there for, until it is done."""
    import uvloop  # only here: short commands gain nothing from it

    spare_the_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def spare_the_collector() -> None:
    """Let the garbage collector leave alone what is there, and look for new garbage less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_MORE, 20, 50)
