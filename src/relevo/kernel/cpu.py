"""CPU time: keeps long computations off the event loop.

Long computations are bounded in steps and run by `off_loop`, in one of few threads. A
short one stays on the loop, since the way to a thread and back costs more than the work.
"""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

from relevo import limits

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def off_loop(function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a CPU-bound function; the event loop goes on meanwhile.

    The function must be pure, or the only user of what it changes. It is not interrupted when
    its caller is canceled, so it has to have an end of its own.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), copy_context().run, function, *arguments)


async def parsed(size: int, function: Callable[..., T], *arguments: object) -> T:
    """Parse a text of `size` bytes: on the loop if it is short."""
    if size <= limits.PARSED_ON_LOOP_BYTES_MAX:
        return function(*arguments)
    return await off_loop(function, *arguments)


async def decoded(size: int, function: Callable[..., T], *arguments: object) -> T:
    """Decode a JSON document of `size` bytes: on the loop if it is short."""
    if size <= limits.DECODED_ON_LOOP_BYTES_MAX:
        return function(*arguments)
    return await off_loop(function, *arguments)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    # Few, because they share the interpreter lock with the loop.
    return ThreadPoolExecutor(limits.CPU_THREADS_MAX, thread_name_prefix="relevo-cpu")
