"""Messages as requests and answers have them.

    {"body": {"order": 7}, "properties": {"tier": "paying", "id": {"$uuid": "6fa…"}}, "priority": 7}

Bodies are text or JSON (`body`), or bytes (`body_base64`). Properties that JSON has no form for are
objects of one member: `$bytes` (base64), `$uuid`, `$time` and `$span` (microseconds).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from relevo import limits
from relevo.errors import InvalidValue
from relevo.messaging.core.heads import decoded_values, encoded_values
from relevo.messaging.http.places import Addressed
from relevo.messaging.model import Message
from relevo.messaging.operating.peeking import PeekedMessage
from relevo.messaging.running.context import Received

if TYPE_CHECKING:
    from collections.abc import Sequence

Short = Annotated[str, Meta(max_length=limits.MESSAGE_ID_LENGTH_MAX)]
Instant = Annotated[datetime, Meta(tz=True)]
Priority = Annotated[
    int, Meta(ge=0, le=limits.MESSAGE_PRIORITY_MAX, description="0 to 9, 9 is the most urgent.")
]
SequenceNumber = Annotated[
    int, Meta(ge=0, le=2**63 - 1, description="The sequence number of the message.")
]


class ByMessage(Addressed, Struct, frozen=True, kw_only=True):
    """Which message."""

    sequence: SequenceNumber


def _short(description: str) -> Any:
    return Meta(max_length=limits.MESSAGE_ID_LENGTH_MAX, description=description)


class NewMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to be sent."""

    body: Annotated[Any, Meta(description="Text or JSON.")] | UnsetType = UNSET
    body_base64: Annotated[bytes, Meta(description="Bytes, instead of `body`.")] | UnsetType = UNSET
    properties: Annotated[
        dict[str, Any],
        Meta(
            description="What filters and receivers see beside the body; values that JSON has no"
            " form for are `$bytes`, `$uuid`, `$time` or `$span`."
        ),
    ] = {}
    priority: Priority | None = None
    priority_class: Annotated[Short, Meta(description="The class, by its name.")] | None = None
    message_id: (
        Annotated[str, _short("What duplicate detection compares. Without it, a new UUID.")] | None
    ) = None
    session_id: Annotated[str, _short("The session that it belongs to.")] | None = None
    reply_to_session_id: Annotated[str, _short("Where an answer is awaited.")] | None = None
    partition_key: Annotated[str, _short("Stored, and not interpreted.")] | None = None
    correlation_id: Annotated[str, Meta(description="What it belongs to.")] | None = None
    subject: Annotated[str, Meta(description="What it is about.")] | None = None
    to: Annotated[str, Meta(description="Whom it is for.")] | None = None
    reply_to: Annotated[str, Meta(description="Where an answer goes.")] | None = None
    content_type: Annotated[str, Meta(description="The media type of the body.")] | None = None
    fairness_key: Annotated[str, _short("The tenant that it counts for.")] = ""
    ttl: (
        Annotated[float, Meta(gt=0, description="Seconds for which it may be delivered.")] | None
    ) = None
    at: Annotated[Instant, Meta(description="When it becomes visible.")] | None = None


_SAME: Final = tuple(
    name
    for name in NewMessage.__struct_fields__
    if name not in ("body", "body_base64", "properties")
)


def message_of(given: NewMessage, pointer: str = "") -> Message:
    """Return the message that a request describes; `pointer` is where in the request it stands."""
    if (given.body is UNSET) == (given.body_base64 is UNSET):
        raise InvalidValue(
            "a message has a body: `body` with text or JSON, or `body_base64` with bytes, and not"
            " both",
            pointer=f"{pointer}/body",
        )
    return Message(
        body=given.body if given.body_base64 is UNSET else given.body_base64,
        properties=properties_of(given.properties, pointer),
        **{name: getattr(given, name) for name in _SAME},
    )


def messages_of(given: Sequence[NewMessage]) -> list[Message]:
    """Return the messages of a batch."""
    return [message_of(one, f"/messages/{index}") for index, one in enumerate(given)]


def properties_of(given: dict[str, Any], pointer: str = "") -> dict[str, Any]:
    """Return application properties from their form in JSON."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        try:
            found |= decoded_values({name: value})
        except (ValueError, OverflowError) as error:
            raise InvalidValue(
                f"the property {name[:100]!r} is {str(value)[:100]}, which cannot be read: {error};"
                ' write {"$bytes": base64}, {"$uuid": text}, {"$time": ISO 8601} or'
                ' {"$span": microseconds}',
                pointer=f"{pointer}/properties/{name}",
            ) from None
    return found


class MessageView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message; what it does not have is left out."""

    sequence_number: int | None = None
    """Unique, and never used again; absent while it is `arriving`."""
    message_id: str
    state: str | None = None
    """Of a message that was not received but looked at."""
    lock_token: UUID | None = None
    """The key to its lock: whoever has it may settle the message."""
    locked_until: datetime | None = None
    source: str | None = None
    """The address of the queue or subscription that it was received from."""
    body: Any | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET
    properties: dict[str, Any] = {}
    priority: int | None = None
    priority_class: str | None = None
    delivery_count: int
    """Failed deliveries so far."""
    preempt_count: int = 0
    checkpoint: bytes | None = None
    """What the last suspended delivery has left, in base64."""
    enqueued_at: datetime | None = None
    enqueued_sequence_number: int | None = None
    expires_at: datetime | None = None
    visible_at: datetime | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    partition_key: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    to: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    fairness_key: str = ""
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_letter_source: str | None = None


_OWN: Final = frozenset({"body", "body_base64", "properties", "lock_token"})
_SHOWN: Final = tuple(name for name in MessageView.__struct_fields__ if name not in _OWN)


def view_of(message: Received | PeekedMessage, *, locked: bool = False) -> MessageView:
    """Return a message as answers have it; `locked` says whether it can be settled."""
    fields = {name: value for name in _SHOWN if (value := getattr(message, name, None)) is not None}
    body = message.body
    fields["body_base64" if isinstance(body, bytes) else "body"] = body
    if locked and isinstance(message, Received):
        fields["lock_token"] = message.lock_token
    return MessageView(properties=encoded_values(message.properties), **fields)


class ReceiptView(Struct, frozen=True, kw_only=True):
    """The answer to a send."""

    message_id: str
    sequence_number: int | None
    """None if no subscription of the topic wanted it."""
    duplicate: bool
    """Whether a message of this id was already there; then nothing was stored."""


class SentBatch(Struct, frozen=True):
    """The answer to a batch; all messages are stored."""

    items: list[ReceiptView]


class ReceivedBatch(Struct, frozen=True):
    """Received messages; none if there was none in time."""

    items: list[MessageView]


class ChangedCount(Struct, frozen=True):
    """How many messages a request has changed."""

    count: int


class NewMessages(Struct, frozen=True, kw_only=True):
    """Messages to be sent together."""

    messages: Annotated[
        tuple[NewMessage, ...],
        Meta(
            min_length=1,
            max_length=limits.MESSAGE_RECEIVED_MAX,
            description="At most 1 MiB in all; all are stored, or none.",
        ),
    ]
