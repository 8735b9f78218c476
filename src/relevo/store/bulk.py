"""Bulk writes: any number of items, each written separately, in windows of bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from relevo import limits
from relevo.errors import RelevoError
from relevo.store.items import ItemWrite
from relevo.store.model import Outcome

if TYPE_CHECKING:
    from relevo.store.open_container import OpenContainer

BULK_ITEMS: Final = 4 * limits.GROUP_CALLS_MAX
BULK_BYTES: Final = 16 * limits.MIB
"""Items of a bulk write that are under way at once."""


async def write(opened: OpenContainer, row: ItemWrite | Outcome) -> Outcome:
    """Write an item and return its outcome; an item that was refused before passes through."""
    if isinstance(row, Outcome):
        return row
    try:
        done = await opened.write(row)
    except RelevoError as error:
        return Outcome(id=row.key.id, error=error)
    return Outcome(id=row.key.id, etag=done.etag, lsn=done.lsn, created=done.created)


async def windows(
    given: Iterable[Any] | AsyncIterable[Any],
    row_of: Callable[[Any], Awaitable[ItemWrite | Outcome]],
) -> AsyncIterator[list[ItemWrite | Outcome]]:
    """Yield rows in windows, so that memory stays bounded for any number of items.

    Many short items take as long as a long one, so other tasks get a turn now and then.
    """
    window: list[ItemWrite | Outcome] = []
    size = paused = 0
    async for one in given if isinstance(given, AsyncIterable) else _each(given):
        window.append(row := await row_of(one))
        size += len(row.text or "") if isinstance(row, ItemWrite) else 0
        if size - paused > limits.DECODED_ON_LOOP_BYTES_MAX:
            paused = size
            await asyncio.sleep(0)
        if len(window) >= BULK_ITEMS or size >= BULK_BYTES:
            yield window
            window, size, paused = [], 0, 0
    if window:
        yield window


async def _each(given: Iterable[Any]) -> AsyncIterator[Any]:
    for one in given:
        yield one
