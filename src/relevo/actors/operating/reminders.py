"""`app.actors.reminders`: the reminders of an actor, as operators see them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.actors.core.schedules import ReminderSchedule
from relevo.actors.operating import events
from relevo.actors.operating.administration import ref_of
from relevo.actors.operating.events import ActorData, event_of
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.actors.operating.administration import Named
    from relevo.actors.service import Actors
    from relevo.kernel.pages import Fetched

SQL = catalog.load("relevo.actors")
_schedule: Final = msgspec.msgpack.Decoder(ReminderSchedule).decode


class StoredReminder(Struct, frozen=True, kw_only=True):
    """A reminder of an actor."""

    name: str
    method: str
    """The `@reminder_handler` that it calls."""
    due: datetime
    """The occurrence that fires next."""
    retry_at: datetime | None
    """When it is tried again after a failed attempt, or was made due by an operator."""
    attempt: int
    """Failed attempts at this occurrence."""
    every: float | None
    """Its period in seconds."""
    recurrence: str | None
    timezone: str | None
    until: datetime | None
    attempts: int | None
    """How often an occurrence is tried; None is without limit."""
    dead_at: datetime | None
    """Since when it is a dead letter."""
    error: str | None
    """Of the last failed attempt."""
    payload: bytes
    """MessagePack."""


class StoredReminders:
    """Lists, fires and cancels reminders of an actor."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors

    async def list(
        self, actor: Named, after: str = "", limit: int = limits.PAGE_ROWS_DEFAULT
    ) -> Fetched[StoredReminder]:
        """Return the reminders of an actor with names beyond `after`, by name."""
        page = await self._actors.database.fetch_page(
            SQL.reminders_of, ref_of(actor).canonical, after, limit, rows=limit
        )
        return page.each(_shown)

    async def fire(self, actor: Named, name: str, *, by: str | None = None) -> bool:
        """Let the next occurrence of a reminder fire now; False if there is none.

        A recurring reminder then goes on with the occurrence after it. A dead one is redriven
        instead: see `letters`.
        """
        canonical = ref_of(actor).canonical
        event = event_of(events.REMINDER_FIRED, ActorData(actor=canonical, by=by, name=name))
        return await self._actors.storage.dead_letters.fire_reminder(canonical, name, event)

    async def cancel(self, actor: Named, name: str, *, by: str | None = None) -> bool:
        """Remove a reminder, as a turn of its actor; False if there is none."""
        return await self._actors.administration.cancel_reminder(actor, name, by=by)


def _shown(row: Any) -> StoredReminder:
    fields = dict(row)
    plan = _schedule(fields.pop("schedule"))
    return StoredReminder(
        **fields, every=plan.every, recurrence=plan.recurrence, timezone=plan.timezone,
        until=plan.until, attempts=plan.attempts,
    )  # fmt: skip
