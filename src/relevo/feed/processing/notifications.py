"""Callbacks of a processor: what is told to whom, within which time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from relevo.kernel import callables, uses

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger(__name__)
Notification = Literal[
    "acquired", "released", "error", "stalled", "dead_lettered", "completed"
]  # fmt: skip
DETAILS: Final[dict[Notification, str]] = {
    "acquired": "epoch", "released": "reason", "error": "error", "stalled": "stall",
    "dead_lettered": "letter", "completed": "positions",
}  # fmt: skip
"""What a callback gets beside the token of the lease."""
NOTIFY_SECONDS_MAX: Final = 30.0


class Notifications:
    """The callbacks that listen to one processor."""

    def __init__(self, processor: str) -> None:
        self._processor = processor
        self._callbacks: dict[Notification, list[Callable[..., Any]]] = {}

    def listen(self, event: Notification, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Take a callback, and return it; refuses one that cannot be called."""
        what = f"the callback of {self._processor!r} for {event!r}"
        callables.check(callback, what, "token", DETAILS[event])
        self._callbacks.setdefault(event, []).append(callback)
        return callback

    async def tell(self, event: Notification, *details: Any) -> None:
        """Notify; a callback that fails is logged and never stops processing."""
        for callback in self._callbacks.get(event, ()):
            try:
                async with asyncio.timeout(NOTIFY_SECONDS_MAX):
                    with uses.used_for("handlers"):
                        await callables.call(callback, *details)
            except Exception:
                log.exception(
                    "feed.notification_failed", processor=self._processor, notification=event
                )
