"""How a process runs that does nothing but serve: a faster loop, a collector that looks less often.

What a host keeps lives long and lies on few cycles; the default would walk all of it every few
hundred objects. A program that embeds Relevo decides for itself.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
OBJECTS_MORE: Final = 50_000
"""So many objects more than before make the collector look."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


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


async def until_signal(superseded: asyncio.Event) -> None:
    """Return at SIGTERM or SIGINT, or when another host has taken the name of this one."""
    loop, received = asyncio.get_running_loop(), asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, received.set)
    waiting = [loop.create_task(event.wait()) for event in (superseded, received)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
