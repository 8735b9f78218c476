"""Reminders of an actor: seen, fired and canceled."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from relevo import limits
from relevo.actors.http.models import ONE, SCOPE, ByActor
from relevo.actors.operating.reminders import StoredReminder
from relevo.errors import NoHost, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations(scope=SCOPE)


class ReminderView(Struct, frozen=True, kw_only=True):
    """A reminder of an actor, without its payload."""

    name: str
    method: str
    """The handler that it calls."""
    due: datetime
    """When it fires next."""
    every: float | None
    """Its period in seconds."""
    recurrence: str | None
    timezone: str | None
    attempt: int
    """Failed attempts at this occurrence."""
    retry_at: datetime | None
    dead_at: datetime | None
    """Since when it is not tried any more."""
    error: str | None
    """Of the last failed attempt."""


class ListReminders(ByActor, frozen=True, kw_only=True):
    """Which page of an actor's reminders."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("actors.reminders.list", f"GET {ONE}/reminders", "actors:read")
async def list_reminders(
    services: Services, _: Principal, command: ListReminders
) -> Page[ReminderView]:
    """List the reminders of an actor."""
    after = paging.decode(command.cursor, str) or ""
    found = await services.app.actors.reminders.list(command.ref, after, command.limit)
    return paging.page(services.page_bytes, found.each(_view), lambda one: one.name)


def _view(one: StoredReminder) -> ReminderView:
    return ReminderView(
        name=one.name, method=one.method, due=one.due, every=one.every,
        recurrence=one.recurrence, timezone=one.timezone, attempt=one.attempt,
        retry_at=one.retry_at,
        dead_at=one.dead_at, error=one.error,
    )  # fmt: skip


class ByReminder(ByActor, frozen=True, kw_only=True):
    """Which reminder."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=limits.ACTOR_KEY_BYTES_MAX,
            description="The reminder's name.",
        ),
    ]


@operation(
    "actors.reminders.fire", f"POST {ONE}/reminders/{{name}}:fire", "actors:manage",
    errors=(NotFound,),
)  # fmt: skip
async def fire_reminder(services: Services, principal: Principal, command: ByReminder) -> None:
    """Let the next occurrence of a reminder fire now."""
    reminders = services.app.actors.reminders
    if not await reminders.fire(command.ref, command.name, by=principal.name):
        raise _missing(command)


@operation(
    "actors.reminders.cancel", f"DELETE {ONE}/reminders/{{name}}", "actors:manage",
    errors=(NotFound, NoHost),
)  # fmt: skip
async def cancel_reminder(services: Services, principal: Principal, command: ByReminder) -> None:
    """Remove a reminder, as a turn of its actor."""
    reminders = services.app.actors.reminders
    if not await reminders.cancel(command.ref, command.name, by=principal.name):
        raise _missing(command)


def _missing(command: ByReminder) -> NotFound:
    return NotFound(
        f"{command.ref} has no reminder {command.name[:80]!r} that waits;"
        " `relevo actor reminder list` shows them"
    )
