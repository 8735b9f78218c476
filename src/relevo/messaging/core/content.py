"""Messages to be sent, checked: fields, sizes, the body as it is stored.

One bad message refuses a whole batch, before anything is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidValue, TooLarge
from relevo.kernel import checking
from relevo.messaging.core import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.messaging.model import Message, Value

BodyKind = Literal["bytes", "text", "json"]
BODY_KINDS: Final[tuple[BodyKind, ...]] = ("bytes", "text", "json")
"""By the number that is stored."""
SHORT: Final = (
    "message_id", "session_id", "reply_to_session_id", "partition_key", "fairness_key",
)  # fmt: skip
TEXTS: Final = ("correlation_id", "subject", "to", "reply_to", "content_type", "priority_class")
_FIELDS: Final = (*SHORT, *TEXTS)
_values: Final = attrgetter(*_FIELDS)
_UNSAID: Final = tuple("" if name == "fairness_key" else None for name in _FIELDS)
"""Of a message that sets none of them."""
_WHOLE: Final = range(-(2**63), 2**63)
_FIXED_BYTES: Final = 16
"""What a value of fixed size counts."""


class Body(Struct, frozen=True):
    """A body as it is stored; `kind` says what a receiver gets back."""

    kind: BodyKind
    data: bytes


def encoded_body(value: Any) -> Body:
    """Return a body as bytes: bytes as they are, text as UTF-8, everything else as JSON."""
    match value:
        case bytes() | bytearray() | memoryview():
            return Body("bytes", bytes(value))
        case str():
            try:
                return Body("text", value.encode())
            except UnicodeEncodeError as error:
                raise InvalidValue(
                    f"the body is text that is no Unicode: {error}; send it as bytes",
                    pointer="body",
                ) from error
        case _:
            found = checking.json("body", value, limits.MESSAGE_BYTES_MAX, of="a message")
            return Body("json", found.encode())


def decoded_body(kind: int, data: bytes) -> Any:
    """Return a body as its sender gave it; `kind` is the number that is stored."""
    match BODY_KINDS[kind]:
        case "bytes":
            return data
        case "text":
            return data.decode()
        case "json":
            return msgspec.json.decode(data)


def check_message(
    message: Message, *, requires_session: bool = False, max_bytes: int | None = None
) -> Body:
    """Refuse a message that cannot be stored; return its body."""
    values = _values(message)
    if values != _UNSAID:
        _check_texts(values)
    _check_session(message, requires_session=requires_session)
    times.checked_ttl(message.ttl)
    if message.at is not None:
        checking.aware(message.at, "at")
    headers = header_bytes(message)
    if headers > limits.MESSAGE_HEADERS_BYTES_MAX:
        raise TooLarge(
            f"the properties and texts of a message have {headers} bytes; at most"
            f" {limits.MESSAGE_HEADERS_BYTES_MAX} are taken, so put them into the body"
        )
    body = encoded_body(message.body)
    most = limits.MESSAGE_BYTES_DEFAULT if max_bytes is None else max_bytes
    size = headers + len(body.data) + len(message.envelope or b"")
    if size > most:
        raise TooLarge(
            f"the message has {size} bytes; at most {most} are taken: raise max_message_bytes of"
            " the entity, or store the body elsewhere and send its key"
        )
    return body


def check_batch(
    messages: Sequence[Message], *, requires_session: bool = False, max_bytes: int | None = None
) -> list[Body]:
    """Refuse a batch with a bad message in it, or one that is too large; return the bodies."""
    bodies, size = [], 0
    for index, message in enumerate(messages):
        try:
            body = check_message(message, requires_session=requires_session, max_bytes=max_bytes)
        except (InvalidValue, TooLarge) as error:
            if len(messages) == 1:
                raise
            where = f"messages/{index}" + (f"/{error.pointer}" if error.pointer else "")
            raise type(error)(f"message {index}: {error.message}", pointer=where) from error
        bodies.append(body)
        size += header_bytes(message) + len(body.data)
    if len(messages) > 1 and size > limits.MESSAGE_BATCH_BYTES_MAX:
        raise TooLarge(
            f"the batch has {size} bytes; at most {limits.MESSAGE_BATCH_BYTES_MAX} are taken, so"
            " send it in parts"
        )
    return bodies


def check_dead_letter(reason: str | None, description: str | None) -> None:
    """Refuse a reason or a description of a dead-lettered message that cannot be stored."""
    most = limits.MESSAGE_REASON_LENGTH_MAX
    checking.text("reason", reason, most, of="a dead-lettered message")
    checking.text("description", description, most, of="a dead-lettered message")


def check_saved(what: str, data: Any, most: int) -> bytes:
    """Return a checkpoint of a message or the state of a session, or refuse it by name."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidValue(f"the {what} is bytes, not {type(data).__name__}", pointer=what)
    if len(found := bytes(data)) > most:
        raise TooLarge(f"the {what} has {len(found)} bytes; at most {most} are taken", pointer=what)
    return found


def header_bytes(message: Message) -> int:
    """Return what the properties and texts of a message take; refuse values of other types."""
    size = 0
    values = _values(message)
    if values != _UNSAID:
        size = sum(_bytes_of(text) for text in values if text)
    if message.properties:
        size += sum(_property(name, value) for name, value in _pairs(message.properties))
    return size


def _check_texts(values: tuple[Any, ...]) -> None:
    for name, value in zip(_FIELDS, values, strict=True):
        if value is None or value == "":
            continue
        most = limits.MESSAGE_ID_LENGTH_MAX if name in SHORT else limits.MESSAGE_HEADERS_BYTES_MAX
        checking.text(name, value, most, of="a message")


def _pairs(properties: object) -> list[tuple[object, Value]]:
    if not isinstance(properties, Mapping):
        raise InvalidValue(
            f"properties is {properties!r}; it must map names to values", pointer="properties"
        )
    return list(properties.items())


def _property(name: object, value: Value) -> int:
    if not isinstance(name, str) or not name:
        raise InvalidValue(
            f"a property has the name {name!r}; it must be text that is not empty",
            pointer="properties",
        )
    where = f"properties/{name[:100]}"
    checking.text(where, name, limits.MESSAGE_PROPERTY_BYTES_MAX, of="a message")
    match value:
        case str() | bytes():
            if isinstance(value, str):
                checking.text(where, value, limits.MESSAGE_PROPERTY_BYTES_MAX, of="a message")
            size = _bytes_of(value)
        case bool() | None | UUID() | timedelta():
            size = _FIXED_BYTES
        case datetime():
            checking.aware(value, where)
            size = _FIXED_BYTES
        case int() if value in _WHOLE:
            size = _FIXED_BYTES
        case float() if math.isfinite(value):
            size = _FIXED_BYTES
        case _:
            raise InvalidValue(
                f"{where} is {repr(value)[:100]}; a property is a boolean, a whole number of 64"
                " bits, a finite number, text, bytes, a UUID, a datetime, a timedelta or None",
                pointer=where,
            )
    if size > limits.MESSAGE_PROPERTY_BYTES_MAX:
        raise TooLarge(
            f"{where} has {size} bytes; at most {limits.MESSAGE_PROPERTY_BYTES_MAX} are taken",
            pointer=where,
        )
    return _bytes_of(name) + size


def _bytes_of(value: str | bytes) -> int:
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode())


def _check_session(message: Message, *, requires_session: bool) -> None:
    if requires_session and message.session_id is None:
        raise InvalidValue(
            "the entity requires sessions and the message has no session_id; give it one",
            pointer="session_id",
        )
    key = message.partition_key
    if key is not None and message.session_id is not None and key != message.session_id:
        raise InvalidValue(
            f"partition_key is {key!r} and session_id is {message.session_id!r}; leave out the"
            " partition_key, or make it equal",
            pointer="partition_key",
        )
