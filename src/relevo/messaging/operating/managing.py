"""What operators do with messages: cancel, redrive, purge, reprioritise, ask why one waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import ExpressionFailed, InvalidValue, MessageNotFound
from relevo.kernel import checking
from relevo.kernel.expressions import sqlfilter
from relevo.kernel.postgres import catalog
from relevo.messaging.core import classes, tokens
from relevo.messaging.core.rules import SqlFilter
from relevo.messaging.operating import situation
from relevo.messaging.operating.peeking import PeekedMessage, peeked
from relevo.messaging.sending import ARRIVED, TOPIC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.running.budgets import Budgets
    from relevo.messaging.core.explaining import MessageExplanation
    from relevo.messaging.entities import EntityRecord

SQL = catalog.load("relevo.messaging")
ROWS: Final = 1_000
"""Messages of one statement: long work goes in parts, each a transaction."""


class Managing:
    """Commands on the messages of an entity; each part of a long one is a transaction."""

    def __init__(self, database: Database, wakeups: Wakeups, budgets: Budgets) -> None:
        self._database = database
        self._budgets = budgets
        self._wakeups = wakeups

    async def cancel_scheduled(self, entity: int, numbers: Sequence[int]) -> list[int]:
        """Cancel scheduled messages; returns which were."""
        found: list[int] = await self._value(SQL.cancel_scheduled, entity, list(numbers))
        return found

    async def receive_deferred(
        self, entity: int, sub_queue: int, numbers: Sequence[int]
    ) -> list[Any]:
        """Lock deferred messages by their numbers; returns the rows of those that are."""
        return await self._database.write(
            SQL.receive_deferred, entity, sub_queue, list(numbers), tokens.new_number()
        )

    async def redrive(
        self,
        record: EntityRecord,
        sub_queue: int,
        *,
        filter: str | None = None,  # noqa: A002 - the word of the API
        limit: int | None = None,
        rate: float | None = None,
        reset_count: bool = True,
    ) -> int:
        """Return dead-lettered messages to their entity; returns how many.

        Messages that fail again meanwhile have higher numbers, and wait for the next redrive.
        """
        if rate is not None and not rate > 0:
            raise InvalidValue(f"rate is {rate:g} messages a second; it must be more than 0")
        moved = 0
        async for numbers in self._chosen(record, sub_queue, filter, limit, rate):
            moved += await self._value(SQL.redrive, record.id, sub_queue, numbers, reset_count)
            self._wakeups.send(ARRIVED if record.properties.forward_to else TOPIC.format(record.id))
            if rate is not None:
                await asyncio.sleep(len(numbers) / rate)
        return moved

    async def purge(self, entity: int, sub_queue: int, *, before: datetime | None = None) -> int:
        """Delete messages that nobody holds; returns how many."""
        purged = 0
        while gone := await self.delete(entity, sub_queue, ROWS, before=before):
            purged += gone
        return purged

    async def delete(
        self, entity: int, sub_queue: int, limit: int, *, before: datetime | None = None
    ) -> int:
        """Delete so many messages that nobody holds, the oldest first; returns how many."""
        if before is not None:
            checking.aware(before, "before")
        deleted: int = await self._value(SQL.purge, entity, sub_queue, before, limit)
        return deleted

    async def reprioritize(
        self,
        record: EntityRecord,
        numbers: Sequence[int],
        *,
        filter: str | None = None,  # noqa: A002 - the word of the API
        priority: int | None = None,
        priority_class: str | None = None,
    ) -> int:
        """Give waiting messages another class and priority; returns how many."""
        if bool(numbers) == (filter is not None):
            raise InvalidValue("say either sequence numbers or a filter, not both or neither")
        of, wanted = target(record, priority, priority_class)
        if numbers:
            return await self._reprioritize(record, list(numbers), of, wanted)
        changed = 0
        async for found in self._chosen(record, 0, filter, None, None):
            changed += await self._reprioritize(record, found, of, wanted)
        return changed

    async def _reprioritize(
        self, record: EntityRecord, numbers: list[int], of: str, priority: int
    ) -> int:
        changed: int = await self._value(SQL.reprioritize, record.id, numbers, of.lower(), priority)
        return changed

    async def _chosen(
        self,
        record: EntityRecord,
        sub_queue: int,
        text: str | None,
        limit: int | None,
        rate: float | None,
    ) -> AsyncIterator[list[int]]:
        """Yield the numbers of messages that a filter selects, in parts."""
        predicate = None if text is None else SqlFilter(text).predicate
        size = ROWS if rate is None else max(1, min(ROWS, round(rate)))
        last = await self._database.fetchval(SQL.last_message, record.id, sub_queue)
        after, left = 0, limit
        while after < (last or 0) and (left is None or left > 0):
            page = await peeked(
                self._database, record, sub_queue, after=after, limit=size, order="arrival"
            )
            stored = [
                (number, message)
                for message in page
                if (number := message.sequence_number) is not None and number <= last
            ]
            if not stored:
                return
            after = stored[-1][0]
            numbers = [
                number
                for number, message in stored
                if predicate is None or selects(predicate, message)
            ][:left]
            if numbers:
                left = None if left is None else left - len(numbers)
                yield numbers

    async def explain(
        self, record: EntityRecord, sub_queue: int, number: int
    ) -> MessageExplanation:
        """Return why a message waits; raises `MessageNotFound` if it does not any more."""
        rows = await self._database.fetch(SQL.peek_numbers, record.id, sub_queue, [number])
        if not rows:
            raise missing(number, record.path)
        return await situation.explained(self._database, self._budgets, record, sub_queue, rows[0])

    async def _value(self, sql: str, *args: Any) -> Any:
        rows = await self._database.write(sql, *args)
        return rows[0][0]


def target(
    record: EntityRecord, priority: int | None, priority_class: str | None
) -> tuple[str, int]:
    """Return the class and priority that messages are to get."""
    ordered = record.properties.classes
    if priority is None and priority_class is None:
        raise InvalidValue("say the new priority, or the class", pointer="priority")
    if priority_class is not None:
        of = classes.named(ordered, priority_class, "priority_class")
    else:
        of = classes.band_of(ordered, classes.checked_priority(priority))
    low, high = of.priorities
    return of.name, min(high, max(low, of.base if priority is None else priority))


def missing(number: int, path: str) -> MessageNotFound:
    """Return the error for a number that no message of an entity has."""
    return MessageNotFound(f"there is no message {number} in {path!r}; it was settled or moved")


def selects(predicate: Any, message: PeekedMessage) -> bool:
    """Whether a filter selects a stored message; one for which it has no result it does not."""
    fields = {known.field for known in sqlfilter.SYSTEM_PROPERTIES} - {"at", "ttl"}
    system = {name: getattr(message, name, None) for name in fields}
    try:
        return predicate(sqlfilter.scope(system, message.properties)) is True
    except ExpressionFailed:
        return False
