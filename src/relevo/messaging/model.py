"""Messages, classes and policies of order as Python sees them.

    Message(b"…", priority=7, properties={"tier": "paying"}, fairness_key="acme")

Lengths of time are seconds. In `core/`, instants are whole microseconds since 1970, as the database
has them: `core/times.py` converts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict
from uuid import UUID

from msgspec import Struct

if TYPE_CHECKING:
    from relevo.kernel.backoff import Backoff

Value = bool | int | float | str | bytes | UUID | datetime | timedelta | None
"""What an application property holds; whole numbers have 64 bits."""
EntityKind = Literal["queue", "topic", "subscription"]
EntityStatus = Literal["active", "send_disabled", "receive_disabled", "disabled"]
ReceiveMode = Literal["peek_lock", "receive_and_delete"]
Across = Literal["strict", "weighted"]
"""How the sources of consumers compete: by their order in the list, or in turns."""

FLOOR_SHARE: Final = 0.05


class MessageOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything of a message that a sender sets, except its body."""

    message_id: str | None = None
    """What duplicate detection compares; a new UUID if there is none."""
    session_id: str | None = None
    """The session that it belongs to, at entities that require sessions."""
    reply_to_session_id: str | None = None
    """The session for the reply."""
    partition_key: str | None = None
    """Stored and not interpreted; equal to `session_id` where both are given."""
    correlation_id: str | None = None
    """What it belongs to, such as the id of the message that it replies to."""
    subject: str | None = None
    """What it is about; rules see it as `sys.Label`, too."""
    to: str | None = None
    """Whom it is for; stored and not interpreted, as the next two."""
    reply_to: str | None = None
    """The queue or topic for the reply."""
    content_type: str | None = None
    """What its body is, such as `application/json`."""
    properties: Mapping[str, Value] = {}
    """Application properties, which rules and classifiers see."""
    ttl: float | timedelta | None = None
    """For how long after its arrival it may be delivered; the entity may allow less."""
    at: datetime | None = None
    """When it becomes visible; at once if that is past."""
    priority: int | None = None
    """0 to 9, 9 is the most urgent."""
    priority_class: str | None = None
    """The name of its class; else priority, classifier or the property `Priority` decide."""
    fairness_key: str = ""
    """The tenant that it counts for at entities with `fair=True`."""
    envelope: bytes | None = None
    """What a wire protocol carries beyond these fields; delivered as it came."""


class Message(MessageOptions, frozen=True, omit_defaults=True):
    """A message to be sent; `body` is bytes, text, or a value that JSON can hold."""

    body: Any


class Receipt(Struct, frozen=True):
    """The answer to a send: the message is stored, or was already there (`duplicate`).

    A message that was sent in a caller's transaction has no number yet.
    """

    message_id: str
    sequence_number: int | None = None
    duplicate: bool = False


class Fifo(Struct, frozen=True, tag="fifo", tag_field="policy", forbid_unknown_fields=True):
    """Arrival order; priorities are ignored."""


class Strict(Struct, frozen=True, tag="strict", tag_field="policy", forbid_unknown_fields=True):
    """The highest priority first, always: lower work waits as long as there is higher."""


class Aging(
    Struct, frozen=True, kw_only=True, tag="aging", tag_field="policy", forbid_unknown_fields=True
):
    """Priorities that grow while messages wait; express classes come first.

    Every `seconds_per_level` of waiting count as one level of priority. At least `floor_share` of
    the claims go to classes that are not express, as long as these have work; 0 promises none.
    """

    seconds_per_level: float = 60.0
    floor_share: float = FLOOR_SHARE


class Deadline(
    Struct,
    frozen=True,
    kw_only=True,
    tag="deadline",
    tag_field="policy",
    forbid_unknown_fields=True,
):
    """The earliest service target first; classes without a target have `otherwise` seconds."""

    otherwise: float = 3_600.0


class Weighted(Struct, frozen=True, tag="weighted", tag_field="policy", forbid_unknown_fields=True):
    """Each class gets its share by weight; the share of a class without work goes to the others."""


Ordering = Fifo | Strict | Aging | Deadline | Weighted


class PriorityClass(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named band of priorities, with what it is promised."""

    name: str
    priorities: tuple[int, int]
    """The lowest and the highest priority of the band, both included."""
    base: int
    """The priority of its messages that name none."""
    slo: float | None = None
    """The service target: seconds from arrival to first delivery."""
    slo_percentile: float = 0.99
    express: bool = False
    weight: int = 1
    reserved: int = 0
    """Slots of every set of consumers that lower classes may not use."""
    preempts: bool = False
    preemptible: bool = False
    on_breach: str = "none"
    """What happens to a message that missed the target: `none`, `escalate`, `dead_letter` or
    `forward:<entity>`."""


class SqlRule(Struct, frozen=True, tag="sql"):
    """A rule of a subscription: messages that `filter` selects; `action` changes their copy."""

    filter: str
    action: str | None = None


class CorrelationRule(Struct, frozen=True, kw_only=True, tag="correlation", omit_defaults=True):
    """A rule of a subscription: messages that equal every field that is given."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Value] = {}
    action: str | None = None


class Preemption(Struct, frozen=True, kw_only=True):
    """When consumers ask a handler of a lower class to suspend for a waiting message."""

    gap: int = 3
    """Levels between the base priorities of the two classes, at least."""
    min_run: float = 1.0
    """Seconds that a handler is left alone first."""
    max_preemptions: int = 3
    """How often one message is suspended."""
    grace: float = 10.0
    """Seconds that the handler has to save its state."""
    mode: Literal["cooperative", "kill"] = "cooperative"
    """What follows the grace: the handler goes on, or its process ends (`process=True`)."""


class Scaling(Struct, frozen=True, kw_only=True):
    """How many replicas of consumers there should be."""

    min_replicas: int = 1
    max_replicas: int = 10
    by: tuple[Literal["backlog", "rate", "slo"], ...] = ("backlog", "rate", "slo")
    target_per_replica: float = 10.0
    """Messages that one replica should have to do with."""
    utilization: float = 0.8
    """The share of its slots that a replica should have busy."""
    cooldown: float = 300.0
    """Seconds without work before the last replica stops, and for which fewer must do before any
    stops."""


class EntityOptions(TypedDict, total=False):
    """Properties that queues, topics and subscriptions have."""

    ttl: float | timedelta | None
    """The longest time to live of its messages; None is no limit."""
    auto_delete_on_idle: float | timedelta | None
    status: EntityStatus
    classes: Sequence[PriorityClass] | None
    classifier: Sequence[tuple[str, str]]
    """Filters with the class that each gives; the first that selects a message decides."""
    events: Literal["none", "dead", "all"]
    user_metadata: str


class DestinationOptions(EntityOptions, total=False):
    """Properties of what messages are sent to."""

    duplicate_window: float | timedelta | None
    """For how long a message id is accepted only once; None does not look at ids."""
    max_size_bytes: int
    max_message_bytes: int


class SourceOptions(EntityOptions, total=False):
    """Properties of what messages are received from."""

    ordering: Ordering | None
    fair: bool
    lock_duration: float | timedelta
    max_delivery_count: int
    max_lock_age: float | timedelta | None
    requires_session: bool
    dead_letter_on_expiration: bool
    dlq_ttl: float | timedelta | None
    abandon_backoff: Backoff | None
    forward_to: str | None
    forward_dead_lettered_to: str | None


class QueueOptions(DestinationOptions, SourceOptions, total=False):
    """Properties of a queue; `core/entities.py` explains each."""


class TopicOptions(DestinationOptions, total=False):
    """Properties of a topic."""


class SubscriptionOptions(SourceOptions, total=False):
    """Properties of a subscription."""

    dead_letter_on_filter_error: bool


class ConsumersOptions(TypedDict, total=False):
    """Options of consumers."""

    across: Across
    concurrency: int
    """Slots on every host that serves them; 1 by default."""
    reserved: Mapping[str, int] | None
    """By class: slots that lower classes may not use."""
    max_per_class: Mapping[str, int] | None
    """By class: slots that its messages use at most, on a host."""
    max_per_fairness_key: int | None
    """Slots that messages of one tenant use at most, on a host."""
    prefetch: Literal["auto", 0]
    """Whether messages are claimed before a slot is free; those begin within 100 ms."""
    batch: int
    """More than 1: the handler gets a list of so many messages at most."""
    time_limit: float | None
    """Seconds after which a handler is cut off; 120 by default."""
    process: bool
    """Whether the handler runs in a process of its own."""
    hours: str | None
    """When anything is claimed, such as `22:00-06:00 Europe/Madrid`."""
    preempt: Preemption | None
    """When a handler of a lower class is asked to make room."""
    pool: str | None
    """A governed pool: no more messages are claimed than it has permits for."""
    limit: str | None
    """A governed rate limit, in the same way."""
    scaling: Scaling
