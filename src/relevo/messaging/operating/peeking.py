"""Peeking: messages as they are, in any state, without locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidValue
from relevo.kernel.pages import Fetched
from relevo.kernel.postgres import catalog
from relevo.messaging.core.content import decoded_body
from relevo.messaging.core.heads import decoded_head
from relevo.messaging.model import Value
from relevo.messaging.operating import situation
from relevo.messaging.states import STORED

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.messaging.entities import EntityRecord

SQL = catalog.load("relevo.messaging")
PeekOrder = Literal["arrival", "service"]


class PeekedMessage(Struct, frozen=True, kw_only=True):
    """A message as it is now."""

    sequence_number: int | None
    """None for one that has arrived in a transaction and is not accepted yet."""
    message_id: str
    state: str
    priority: int | None
    priority_class: str | None
    enqueued_at: datetime
    delivery_count: int = 0
    preempt_count: int = 0
    visible_at: datetime | None = None
    """When it is due or visible again."""
    locked_until: datetime | None = None
    expires_at: datetime | None = None
    session_id: str | None = None
    subject: str | None = None
    correlation_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    fairness_key: str = ""
    properties: Mapping[str, Value] = {}
    body: Any = None
    checkpoint: bytes | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_letter_source: str | None = None


async def peeked(
    database: Database,
    record: EntityRecord,
    sub_queue: int,
    *,
    after: int,
    limit: int,
    order: PeekOrder,
) -> list[PeekedMessage]:
    """Return messages of an entity or sub-queue."""
    if not 1 <= limit <= limits.MESSAGE_RECEIVED_MAX:
        raise InvalidValue(
            f"limit is {limit}; it must be from 1 to {limits.MESSAGE_RECEIVED_MAX}", pointer="limit"
        )
    if order == "service":
        numbers = await situation.service_order(database, record, sub_queue, limit)
        return await by_number(database, record, sub_queue, numbers)
    rows = await database.fetch(SQL.peek, record.id, sub_queue, after, limit)
    found = [_peeked(row) for row in rows]
    if sub_queue == 0 and len(found) < limit:
        arrivals = await database.fetch(SQL.peek_arrivals, record.id, limit - len(found))
        found += [_arriving(row) for row in arrivals]
    return found


async def peeked_page(
    database: Database,
    record: EntityRecord,
    sub_queue: int,
    *,
    after: int,
    limit: int,
    bytes_max: int,
) -> Fetched[PeekedMessage]:
    """Return messages in the order of their arrival, as many as a page has room for."""
    rows = await database.fetch_page(
        SQL.peek, record.id, sub_queue, after, limit + 1, rows=limit, bytes_max=bytes_max
    )
    found = rows.each(_peeked)
    left = limit - len(found.items)
    if sub_queue or found.more or not left:
        return found
    arrivals = await database.fetch_page(
        SQL.peek_arrivals, record.id, left + 1, rows=left, bytes_max=bytes_max
    )
    return Fetched(found.items + arrivals.each(_arriving).items, more=False)


async def by_number(
    database: Database, record: EntityRecord, sub_queue: int, numbers: Sequence[int]
) -> list[PeekedMessage]:
    """Return messages by their numbers, in that order; those that are gone are left out."""
    rows = await database.fetch(SQL.peek_numbers, record.id, sub_queue, list(numbers))
    found = {row["sequence"]: _peeked(row) for row in rows}
    return [found[number] for number in numbers if number in found]


def _peeked(row: Any) -> PeekedMessage:
    dead = msgspec.json.decode(row["dead"]) if row["dead"] else {}
    return PeekedMessage(
        sequence_number=row["sequence"], state=STORED[row["state"]],
        priority_class=row["class_name"], enqueued_at=row["enqueued_at"],
        delivery_count=row["delivery_count"], preempt_count=row["preempt_count"],
        visible_at=row["visible_at"], locked_until=row["locked_until"],
        expires_at=row["expires_at"], checkpoint=row["checkpoint"],
        dead_letter_reason=dead.get("reason"), dead_letter_description=dead.get("description"),
        dead_letter_source=dead.get("source"), **_common(row),
    )  # fmt: skip


def _arriving(row: Any) -> PeekedMessage:
    return PeekedMessage(
        sequence_number=None, state="arriving", priority_class=row["priority_class"],
        enqueued_at=row["at"], visible_at=row["due_at"], **_common(row),
    )  # fmt: skip


def _common(row: Any) -> dict[str, Any]:
    head = decoded_head(row["head"])
    return {
        "message_id": row["message_id"], "priority": row["priority"],
        "session_id": head.session_id, "subject": head.subject,
        "correlation_id": head.correlation_id, "to": head.to, "reply_to": head.reply_to,
        "content_type": head.content_type, "properties": head.properties,
        "fairness_key": row["fairness_key"] or "",
        "body": decoded_body(row["body_kind"], row["body"]),
    }  # fmt: skip
