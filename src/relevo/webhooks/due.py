"""Looks for webhooks with something to do: one statement for all idle senders of a host."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from relevo.kernel.postgres import catalog
from relevo.webhooks.service import DELIVERIES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load(__package__)
POLL_SECONDS: Final = 1.0


class IdleSender:
    """What wakes a sender."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        """Set when its webhook has something to do, or was changed."""
        self.revision: int | None = None
        """That of the webhook at the last look."""


class DueWebhooks:
    """Wakes the senders of a host."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._senders: dict[UUID, IdleSender] = {}

    @contextmanager
    def waiting(self, webhook_id: UUID) -> Iterator[IdleSender]:
        """Wake a sender as long as it works."""
        sender = self._senders[webhook_id] = IdleSender()
        try:
            yield sender
        finally:
            if self._senders.get(webhook_id) is sender:
                del self._senders[webhook_id]

    async def run(self) -> None:
        """Look at every wake-up, and once a second; busy senders are not looked for."""
        with self._wakeups.signal(DELIVERIES) as told:
            while True:
                await self._look()
                await told.wait(POLL_SECONDS)

    async def _look(self) -> None:
        asked = {one: idle for one, idle in self._senders.items() if not idle.woken.is_set()}
        if not asked:
            return
        revisions = [idle.revision or 0 for idle in asked.values()]
        for row in await self._database.fetch(SQL.due_webhooks, list(asked), revisions):
            asked[row["id"]].revision = row["revision"]
            asked[row["id"]].woken.set()
