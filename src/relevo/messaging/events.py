"""Events of messages, of queues, topics and subscriptions, and of consumers."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from relevo.kernel.events import Catalogue, EventType
from relevo.messaging.model import EntityKind


class _EventData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class MessageData(_EventData, frozen=True, kw_only=True):
    """A message, without its body and properties."""

    entity: str
    """The path of its queue or subscription."""
    sequence_number: int
    message_id: str
    sub_queue: int | None = None
    """1 in the dead-letter queue, 2 in that of transfers."""
    reason: str | None = None
    description: str | None = None
    source: str | None = None
    """The path of the entity that dead-lettered it."""


class EntityData(_EventData, frozen=True, kw_only=True):
    """A queue, a topic or a subscription."""

    entity: str
    """Its path."""
    kind: EntityKind


class ConsumersData(_EventData, frozen=True, kw_only=True):
    """Consumers, and why they were paused."""

    consumers: str
    reason: str | None = None
    until: datetime | None = None


class TargetData(_EventData, frozen=True, kw_only=True):
    """A message that waits longer than the service target of its class."""

    entity: str
    sequence_number: int
    message_id: str
    priority_class: str
    target_seconds: float


CREATED: Final = "relevo.queue.created"
CHANGED: Final = "relevo.queue.changed"
DELETED: Final = "relevo.queue.deleted"


def _type(name: str, payload: type[Struct], sentence: str) -> EventType:
    return EventType(name=name, payload=payload, sentence=sentence)


TYPES: Final = (
    _type(CREATED, EntityData, "A queue, topic or subscription was created."),
    _type(CHANGED, EntityData, "A queue, topic or subscription was changed, or a rule of it."),
    _type(DELETED, EntityData, "A queue, topic or subscription was deleted."),
    _type("relevo.message.sent", MessageData, "A message was accepted."),
    _type("relevo.message.delivered", MessageData, "A message was given to a consumer."),
    _type("relevo.message.completed", MessageData, "A message was completed."),
    _type("relevo.message.dead_lettered", MessageData, "A message was dead-lettered."),
    _type("relevo.consumers.paused", ConsumersData, "Consumers were paused."),
    _type("relevo.consumers.resumed", ConsumersData, "Consumers were resumed."),
    _type("relevo.slo.breached", TargetData, "A message missed the target of its class."),
)
CATALOGUE: Final = Catalogue(TYPES)
