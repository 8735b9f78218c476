"""The rarer fields of a message as they are stored: one JSON text, or nothing.

    encoded_head(Message(b"", subject="order"))  # '{"subject":"order"}'

Values that JSON does not know are objects with one member: `$bytes` (base64), `$uuid`, `$time` (ISO
8601) and `$span` (microseconds). All other values are themselves.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.messaging.model import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.messaging.model import Value

FIELDS: Final = (
    "session_id", "reply_to_session_id", "partition_key", "correlation_id", "subject", "to",
    "reply_to", "content_type",
)  # fmt: skip
_values: Final = attrgetter(*FIELDS)
_NONE: Final = (None,) * len(FIELDS)
_MICROSECOND: Final = timedelta(microseconds=1)
_WHOLE: Final = range(-(2**63), 2**63)
_AS_THEY_ARE: Final = frozenset({bool, int, float, str, type(None)})
_EXACT: Final = _AS_THEY_ARE | {bytes, UUID, datetime, timedelta}


class Asked(Struct, frozen=True, omit_defaults=True):
    """The priority and the class that the sender asked for.

    Kept with messages that another entity is still going to classify: those that are forwarded, and
    those of topics that wait for their time.
    """

    priority: int | None = None
    priority_class: str | None = None


class Head(Struct, frozen=True, kw_only=True):
    """The fields of a message that have no column of their own."""

    session_id: str | None = None
    reply_to_session_id: str | None = None
    partition_key: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    to: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    properties: dict[str, Any] = {}
    envelope: bytes | None = None
    asked: Asked | None = None


_EMPTY: Final = Head()
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Head).decode


def encoded_head(message: Message, asked: Asked | None = None) -> str | None:
    """Return the rarer fields of a message as JSON; None if it has none of them."""
    values = _values(message)
    head: dict[str, Any] = {}
    if values != _NONE:
        head = {name: one for name, one in zip(FIELDS, values, strict=True) if one is not None}
    if message.properties:
        head["properties"] = encoded_values(message.properties)
    if message.envelope is not None:
        head["envelope"] = message.envelope
    if asked is not None:
        head["asked"] = asked
    return _encode(head).decode() if head else None


def decoded_head(text: str | None) -> Head:
    """Return the fields that a stored head has."""
    if text is None:
        return _EMPTY
    head = _decode(text)
    if not head.properties:
        return head
    return msgspec.structs.replace(head, properties=decoded_values(head.properties))


def message_of(text: str | None, *, body: Any = b"", **columns: Any) -> Message:
    """Return a message from its stored head, with the fields that have columns of their own."""
    head = decoded_head(text)
    fields = {name: getattr(head, name) for name in (*FIELDS, "properties", "envelope")}
    return Message(body=body, **{**fields, **columns})


def encoded_values(values: Mapping[str, Value]) -> dict[str, Any]:
    """Return application properties as values that JSON knows."""
    return {
        name: value if type(value) in _AS_THEY_ARE else _encoded(plain(value))
        for name, value in values.items()
    }


def decoded_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return application properties from values that JSON knows."""
    return {name: _decoded(value) for name, value in values.items()}


def plain(value: Any) -> Any:
    """Return a value of a property with exactly its type, if it has that of a subclass."""
    if type(value) in _EXACT:
        return value
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes():
            return bytes(value)
        case UUID():
            return UUID(int=value.int)
        case timedelta():
            return timedelta(value.days, value.seconds, value.microseconds)
        case datetime():
            return datetime.fromisoformat(value.isoformat())
    return value


def _encoded(value: Any) -> Any:
    match value:
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case UUID():
            return {"$uuid": str(value)}
        case datetime():
            return {"$time": _in_utc(value).isoformat()}
        case timedelta():
            return {"$span": value // _MICROSECOND}
    return value


def _decoded(value: Any) -> Any:
    match value:
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case {"$uuid": str(text)}:
            return UUID(text)
        case {"$time": str(text)}:
            return datetime.fromisoformat(text)
        case {"$span": int(microseconds)}:
            return microseconds * _MICROSECOND
        case int() if value not in _WHOLE:
            return float(value)  # PostgreSQL writes large fractions without a point
    return value


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:  # the first and the last hours of the calendar
        return value
