"""CPU time: what keeps one request from holding up the event loop, and so everybody else.

Whatever may take long is bounded in steps and done by `off_loop`, in one of few threads. What is
short stays on the loop, since the way to a thread and back costs more than the work.
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
    """Return what a function returns that takes CPU time; the event loop goes on meanwhile.

    The function must be pure, or the only one that uses what it changes. It is not interrupted when
    its caller is cancelled, so it has to have an end of its own.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), copy_context().run, function, *arguments)


async def parsed(size: int, function: Callable[..., T], *arguments: object) -> T:
    """Return what a parser makes of a text of `size` bytes: at once if it is short."""
    if size <= limits.PARSED_ON_LOOP_BYTES_MAX:
        return function(*arguments)
    return await off_loop(function, *arguments)


async def decoded(size: int, function: Callable[..., T], *arguments: object) -> T:
    """Return what is made of a JSON document of `size` bytes: at once if it is short."""
    if size <= limits.DECODED_ON_LOOP_BYTES_MAX:
        return function(*arguments)
    return await off_loop(function, *arguments)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    # Few, for they share one interpreter lock with the loop, which waits its turn among them.
    return ThreadPoolExecutor(limits.CPU_THREADS_MAX, thread_name_prefix="relevo-cpu")
