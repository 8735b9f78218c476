"""The inbox of a host: due reminders and durable messages of its slots, and their failures."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.actors.core.deltas import DueMessage, DueReminder
from relevo.errors import LeaseLost
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from relevo.kernel.leases import Fence
    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.actors")
HAS_DUE: Final = SQL.has_due
_HEADERS = msgspec.json.Decoder(dict[str, str])


class Due(Struct, frozen=True):
    """What is to be done now in some slots."""

    reminders: list[DueReminder]
    messages: list[DueMessage]


class Inbox:
    """Reads what is due and notes failed attempts; successes are part of commits.

    `groups` and `slots` are parallel: slot `slots[i]` of the placement group `groups[i]`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._random = random.Random()  # noqa: S311 - fairness, not a secret

    async def due(
        self,
        groups: Sequence[str],
        slots: Sequence[int],
        limit: int,
        busy: Collection[str] = (),
    ) -> Due:
        """Return what is due in these slots, up to `limit` of each kind.

        Of the messages of a sender to a receiver only the next one is given. Actors in `busy` are
        passed over: those that handle something already. Each call begins at another slot, so that
        none waits for ever behind others that have more than `limit`.
        """
        start = self._random.randrange(len(slots)) if slots else 0
        places = [*groups[start:], *groups[:start]], [*slots[start:], *slots[:start]]
        arguments = (*places, list(busy), limit)
        reminders = await self._database.fetch(SQL.due_reminders, *arguments)
        messages = await self._database.fetch(SQL.due_messages, *arguments)
        return Due(
            sorted((DueReminder(**row) for row in reminders), key=lambda one: one.due),
            [_message(row) for row in messages],
        )

    async def next_due(self, groups: Sequence[str], slots: Sequence[int]) -> float | None:
        """Return in how many seconds something becomes due that is not; None if nothing waits.

        Messages that arrive send a wake-up, and do not show here.
        """
        seconds: float | None = await self._database.fetchval(
            SQL.next_due, list(groups), list(slots)
        )
        return seconds

    async def retry_message(
        self, message: DueMessage, fence: Fence, error: str, delay: float
    ) -> bool:
        """Note a failed attempt; the next one is due after `delay` seconds.

        False if the message is gone, or this attempt was noted before. Raises `LeaseLost`.
        """
        return await self._fail_message(message, fence, error, delay)

    async def bury_message(self, message: DueMessage, fence: Fence, error: str) -> bool:
        """Note the last failed attempt: the message is dead; else as `retry_message`."""
        return await self._fail_message(message, fence, error, None)

    async def retry_reminder(
        self, reminder: DueReminder, fence: Fence, error: str, delay: float
    ) -> bool:
        """Note a failed attempt at an occurrence; the next one is due after `delay` seconds.

        False if the reminder is gone or due at another time, or this attempt was noted before.
        Raises `LeaseLost`.
        """
        return await self._fail_reminder(reminder, fence, error, delay)

    async def bury_reminder(self, reminder: DueReminder, fence: Fence, error: str) -> bool:
        """Note the last failed attempt: the reminder is dead; else as `retry_reminder`."""
        return await self._fail_reminder(reminder, fence, error, None)

    async def begin(
        self, items: Sequence[tuple[DueReminder | DueMessage, Fence]]
    ) -> tuple[list[DueReminder | DueMessage], list[DueReminder | DueMessage]]:
        """Note that work begins which may have ended a host; returns what may run, and the dead.

        What is in neither list is gone, or has another owner. Each owner that was lost after it
        noted this counts, and too many in a row make the work dead.
        """
        error = f"at least {limits.ACTOR_DUE_CRASHES} hosts in a row were lost while it ran"
        messages = [(fence, item) for item, fence in items if isinstance(item, DueMessage)]
        reminders = [(fence, item) for item, fence in items if isinstance(item, DueReminder)]
        is_dead: dict[Any, bool] = {}
        if messages:
            rows = await self._begin(
                SQL.begin_messages, messages, [[one.number for _, one in messages]], error
            )
            is_dead |= {row["number"]: row["is_dead"] for row in rows}
        if reminders:
            columns: list[list[Any]] = [
                [one.actor for _, one in reminders], [one.name for _, one in reminders],
                [one.due for _, one in reminders],
            ]  # fmt: skip
            rows = await self._begin(SQL.begin_reminders, reminders, columns, error)
            is_dead |= {(row["actor"], row["name"]): row["is_dead"] for row in rows}
        noted = [(item, is_dead.get(_row_key(item))) for item, _ in items]
        return [one for one, dead in noted if dead is False], [one for one, dead in noted if dead]

    async def _begin(
        self, sql: str, items: Sequence[tuple[Fence, Any]], columns: Sequence[list[Any]], error: str
    ) -> Sequence[Any]:
        return await self._database.write(
            sql, [fence.lease_id for fence, _ in items], [fence.epoch for fence, _ in items],
            *columns, limits.ACTOR_DUE_CRASHES, error, idempotent=True,
        )  # fmt: skip

    async def _fail_message(
        self, message: DueMessage, fence: Fence, error: str, delay: float | None
    ) -> bool:
        return await self._fail(
            SQL.fail_message, fence, message.number, message.attempt, error, delay
        )

    async def _fail_reminder(
        self, reminder: DueReminder, fence: Fence, error: str, delay: float | None
    ) -> bool:
        return await self._fail(
            SQL.fail_reminder, fence, reminder.actor, reminder.name, reminder.due,
            reminder.attempt, error, delay,
        )  # fmt: skip

    async def _fail(self, sql: str, fence: Fence, *arguments: Any) -> bool:
        rows = await self._database.write(
            sql, fence.lease_id, fence.epoch, *arguments, idempotent=True
        )
        if rows[0][0] == "stale":
            raise LeaseLost(f"slot {fence.name} of {fence.unit} has another owner")
        return bool(rows[0][0] == "noted")


def _row_key(item: DueReminder | DueMessage) -> int | tuple[str, str]:
    return item.number if isinstance(item, DueMessage) else (item.actor, item.name)


def _message(row: Any) -> DueMessage:
    fields = dict(row)
    headers = fields.pop("headers")
    return DueMessage(headers=_HEADERS.decode(headers) if headers != "{}" else {}, **fields)
