"""Durable messages and reminders that were tried as often as they allow: list, redrive, discard."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo import limits
from relevo.actors.operating import events
from relevo.actors.storing.commits import TOPIC
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.kernel.events import Event
    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.actors")


class DeadMessage(Struct, frozen=True):
    """A durable message that is not tried any more."""

    number: int
    receiver: str
    sender: str
    """Empty if it was sent from outside of actors."""
    method: str
    digest: str
    headers: str
    """As JSON."""
    attempt: int
    sent_at: datetime
    dead_at: datetime
    error: str
    body: bytes


class DeadReminder(Struct, frozen=True):
    """A reminder whose occurrence is not tried any more."""

    actor: str
    name: str
    method: str
    due: datetime
    attempt: int
    dead_at: datetime
    error: str
    schedule: bytes
    payload: bytes


class DeadLetters:
    """The dead messages and reminders of all actors; only dead ones are touched."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups

    async def messages(
        self, after: int = 0, limit: int = limits.PAGE_ROWS_DEFAULT, *, receiver: str | None = None
    ) -> Fetched[DeadMessage]:
        """Return dead messages with numbers beyond `after`: a page of them."""
        page = await self._database.fetch_page(
            SQL.dead_messages, after, receiver, limit, rows=limit
        )
        return page.each(lambda row: DeadMessage(**row))

    async def redrive_message(self, number: int, event: Event | None = None) -> bool:
        """Try a dead message again, from its first attempt; False if there is none."""
        rows = await events.change(self._database, SQL.redrive_message, number, event=event)
        return self._woken(rows)

    async def discard_message(self, number: int, event: Event | None = None) -> bool:
        """Remove a dead message; False if there is none."""
        return bool(await events.change(self._database, SQL.discard_message, number, event=event))

    async def reminders(
        self,
        after: tuple[str, str] = ("", ""),
        limit: int = limits.PAGE_ROWS_DEFAULT,
        *,
        actor: str | None = None,
    ) -> Fetched[DeadReminder]:
        """Return dead reminders beyond an actor and a name: a page of them."""
        page = await self._database.fetch_page(SQL.dead_reminders, *after, actor, limit, rows=limit)
        return page.each(lambda row: DeadReminder(**row))

    async def redrive_reminder(self, actor: str, name: str, event: Event | None = None) -> bool:
        """Try the occurrence of a dead reminder again; False if there is none."""
        rows = await events.change(self._database, SQL.redrive_reminder, actor, name, event=event)
        return self._woken(rows)

    async def discard_reminder(self, actor: str, name: str, event: Event | None = None) -> bool:
        """Remove a dead reminder; False if there is none."""
        return bool(
            await events.change(self._database, SQL.discard_reminder, actor, name, event=event)
        )

    async def fire_reminder(self, actor: str, name: str, event: Event | None = None) -> bool:
        """Make the next occurrence of a reminder due now; False if there is none."""
        rows = await events.change(self._database, SQL.fire_reminder, actor, name, event=event)
        return self._woken(rows)

    def _woken(self, rows: list[Any]) -> bool:
        self._wakeups.send(*(TOPIC.format(row["placement_group"]) for row in rows))
        return bool(rows)
