"""Reminders: turns at stored times, which fire though every host be restarted in between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from relevo.actors.core.deltas import ReminderChange
from relevo.actors.core.schedules import ReminderSchedule, checked, first_due
from relevo.actors.running.turn import turn_of
from relevo.errors import InvalidValue, ReadOnlyTurn
from relevo.limits import ACTOR_KEY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.actors.core.deltas import Missed
    from relevo.actors.definitions import ActorDefinition
    from relevo.actors.running.activation import Activation
    from relevo.kernel.backoff import Backoff

P = TypeVar("P")


class Tick(Struct, Generic[P], frozen=True):
    """An occurrence of a reminder, as its handler gets it."""

    name: str
    scheduled_at: datetime
    fired_at: datetime
    missed: int
    """Occurrences that were missed and are folded into this one."""
    attempt: int
    """1 at the first try of this occurrence."""
    payload: P


class Reminders:
    """The reminders of one actor; what a turn sets or cancels is stored with the turn."""

    def __init__(self, activation: Activation) -> None:
        self._activation = activation

    async def set(
        self,
        name: str,
        handler: Callable[..., Any],
        *,
        at: datetime | None = None,
        after: float | None = None,
        every: float | None = None,
        recurrence: str | None = None,
        timezone: str | None = None,
        payload: Any = None,
        missed: Missed = "coalesce",
        attempts: int | None = None,
        backoff: Backoff | None = None,
        until: datetime | None = None,
    ) -> None:
        """Call a method marked with `@reminder_handler` at a time, or again and again.

        `at` is a time with a zone, `after` are seconds from now; with neither, the first time is
        one period, or the first instant of the recurrence, from now. A reminder of the same name
        is replaced. Periods keep to the grid that begins at the first time.
        """
        turn = turn_of(self._activation, "a reminder")
        if not turn.may_write:
            raise ReadOnlyTurn(f"{turn.work.name} only reads, and cannot set a reminder")
        definition = self._activation.definition
        if not definition.is_durable:
            raise InvalidValue(
                f"{definition.name!r} is {definition.options.persist} and has no reminders; use"
                " self.timers"
            )
        method = _method_of(handler, definition)
        if not 1 <= len(name.encode()) <= ACTOR_KEY_BYTES_MAX or "\0" in name:
            raise InvalidValue(f"{name!r:.80} is no name of a reminder", pointer="name")
        start = await self._start(at, after, every, recurrence)
        schedule = ReminderSchedule(
            start=start, every=every, recurrence=recurrence, timezone=timezone, missed=missed,
            attempts=attempts, until=until,
        )  # fmt: skip
        if backoff is not None:
            schedule = msgspec.structs.replace(schedule, backoff=backoff)
        due = first_due(checked(schedule))
        turn.journal.reminders[name] = ReminderChange(
            name, due, method=method, schedule=msgspec.msgpack.encode(schedule),
            payload=definition.codecs.encoder.encode(payload),
        )  # fmt: skip

    async def cancel(self, name: str) -> None:
        """Remove a reminder when the turn ends; one that is not there is no error."""
        turn = turn_of(self._activation, "a reminder")
        if not turn.may_write:
            raise ReadOnlyTurn(f"{turn.work.name} only reads, and cannot cancel a reminder")
        turn.journal.reminders[name] = ReminderChange(name, None)

    async def _start(
        self, at: datetime | None, after: float | None, every: float | None, recurrence: str | None
    ) -> datetime:
        if at is not None and after is not None:
            raise InvalidValue("a reminder has at= or after=, not both", pointer="at")
        if at is not None:
            if at.tzinfo is None:
                raise InvalidValue("at= needs a time zone, such as UTC", pointer="at")
            return at.astimezone(UTC)
        if after is not None and not after >= 0:
            raise InvalidValue(f"after= is {after!r}; give seconds of at least 0", pointer="after")
        if after is None and every is None and recurrence is None:
            raise InvalidValue("a reminder needs at=, after=, every= or recurrence=", pointer="at")
        now = await self._activation.home.now()
        if after is None and every is not None:
            after = every
        return now + timedelta(seconds=after or 0.0)


def _method_of(handler: Callable[..., Any], definition: ActorDefinition) -> str:
    method = getattr(handler, "__name__", str(handler))
    if method not in definition.reminder_handlers:
        raise InvalidValue(
            f"{method} of {definition.name!r} is no @reminder_handler, and cannot be called"
            " after a restart",
            pointer="handler",
        )
    return method
