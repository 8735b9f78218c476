"""Locks of receivers that are renewed while a block runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from relevo.errors import MessageLockLost, SystemFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.messaging.running.context import Received, Settling

RENEW_SHARE: Final = 1 / 3
"""The share of the time that is left of a lock after which it is renewed."""
PAUSE_SECONDS: Final = 0.1
"""At least so long between two renewals, also of a lock that may not get older."""


@asynccontextmanager
async def renewing(message: Received, settling: Settling) -> AsyncIterator[None]:
    """Renew the lock of a message while the block runs; `message.lost` says if that fails."""
    task = asyncio.ensure_future(_renew(message, settling))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _renew(message: Received, settling: Settling) -> None:
    while not message.is_settled:
        try:
            left = await settling.lock_seconds(message)
            if left is None:  # a host holds it
                return
            await asyncio.sleep(max(PAUSE_SECONDS, left * RENEW_SHARE))
            if not message.is_settled:
                await message.renew()
        except MessageLockLost:
            if not message.is_settled:
                message.lost.set()
            return
        except SystemFault:
            await asyncio.sleep(PAUSE_SECONDS)
