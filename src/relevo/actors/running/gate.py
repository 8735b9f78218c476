"""The output gate: nothing leaves an activation before the commits queued before it are durable.

Turns run on while their changes are on the way. What leaves waits for the last delta that was
queued when it was made: since each delta builds on the revision before it, that one being durable
means that all before it are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.actors.core.deltas import Delta

Mark = asyncio.Future[None] | None


class Gate:
    """The commits of one activation, in order; the first that fails ends it."""

    def __init__(
        self,
        commit: Callable[[Delta], asyncio.Future[None]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._commit = commit
        self._failed = failed
        self._last: Mark = None
        self.error: BaseException | None = None

    @property
    def mark(self) -> Mark:
        """The last delta on its way, or None if all are durable."""
        return self._last

    def put(self, delta: Delta) -> Mark:
        """Queue a delta; the order of calls is the order of commits."""
        mark = self._commit(delta)
        mark.add_done_callback(self._ended)
        self._last = mark
        return mark

    async def passed(self, mark: Mark) -> None:
        """Wait until what was queued up to a mark is durable; raises the error of its commit."""
        if mark is not None and not mark.done():
            await asyncio.wait((mark,))
        if self.error is not None and (mark is None or mark.exception() is not None):
            raise self.error
        if mark is not None:
            mark.result()

    def _ended(self, mark: asyncio.Future[None]) -> None:
        if self._last is mark:
            self._last = None
        error = asyncio.CancelledError() if mark.cancelled() else mark.exception()
        if error is not None and self.error is None:
            self.error = error
            self._failed(error)
