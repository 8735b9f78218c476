"""The rarer fields of a message, as they are stored: one JSON text, with the keys that are set."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.messaging.model import Value


class Head(Struct, frozen=True, kw_only=True):
    """The fields of a message that only some senders set."""

    session_id: str | None = None
    reply_to_session_id: str | None = None
    partition_key: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    to: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Value] = {}
    envelope: bytes | None = None


_EMPTY: Final = Head()


def decoded_head(text: str | None) -> Head:
    """Return the fields that a stored text holds."""
    if text is None:
        return _EMPTY
    fields: dict[str, Any] = msgspec.json.decode(text)
    if "properties" in fields:
        fields["properties"] = {k: _decoded(v) for k, v in fields["properties"].items()}
    if "envelope" in fields:
        fields["envelope"] = b64decode(fields["envelope"])
    return Head(**fields)


def _decoded(value: Any) -> Any:
    match value:
        case {"$bytes": text}:
            return b64decode(text)
        case {"$uuid": text}:
            return UUID(text)
        case {"$time": text}:
            return datetime.fromisoformat(text)
        case {"$span": micros}:
            return timedelta(microseconds=micros)
    return value
