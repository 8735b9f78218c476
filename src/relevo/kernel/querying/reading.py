"""Reads and plans queries without holding up the event loop; the one part here that awaits."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from relevo.kernel import cpu
from relevo.kernel.querying.odata import grammar as odata_grammar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def reading(size: int, function: Callable[..., T], *arguments: object) -> T:
    """Return the result of reading a query whose text has `size` characters.

    A long one is read in a thread, and so is the first of all, before which the grammar is built.
    """
    if odata_grammar.is_built():
        return await cpu.parsed(size, function, *arguments)
    return await cpu.off_loop(function, *arguments)
