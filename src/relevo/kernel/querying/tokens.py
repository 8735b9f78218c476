"""Positions as clients carry them: `$skiptoken`, signed and bound to the query it came from.

A token holds the last row's sort values with their types. It is signed, so what comes back is what
was given out; its fingerprint ties it to one query of one caller.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from relevo.errors import InvalidQuery
from relevo.kernel.querying.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable

_MARK_BYTES: Final = 32
_PRINT_BYTES: Final = 16
_LENGTH_MAX: Final = 24_000
_PURPOSE: Final = b"relevo: position in a query"

_TYPES: Final[dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "t": (datetime, datetime.isoformat, datetime.fromisoformat),
    "u": (UUID, str, UUID),
    "n": (Decimal, str, Decimal),
}
"""Values that JSON does not have, by the letter that stands before them."""


def fingerprint(*parts: object) -> bytes:
    """Return the fingerprint of a query and its caller."""
    text = msgspec.json.encode([str(part) for part in parts])
    return hashlib.sha256(text).digest()[:_PRINT_BYTES]


def seal(key: bytes, query: bytes, position: Position) -> str:
    """Return a position of the query with this fingerprint as a token for a URL."""
    body = query + msgspec.json.encode([position.taken, *map(_plain, position.values)])
    return base64.urlsafe_b64encode(_mark(key, body) + body).rstrip(b"=").decode()


def unseal(key: bytes, query: bytes, token: str) -> Position:
    """Return the position in a token that was given out for this query.

    Raises `InvalidQuery` for one that was changed, or belongs to another query or caller.
    """
    try:
        if len(token) > _LENGTH_MAX:
            raise ValueError("too long")
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
        mark, body = data[:_MARK_BYTES], data[_MARK_BYTES:]
        if not hmac.compare_digest(mark, _mark(key, body)) or not body.startswith(query):
            raise ValueError("foreign")
        taken, *values = msgspec.json.decode(body[_PRINT_BYTES:], type=list[Any])
    except (ValueError, binascii.Error):
        raise InvalidQuery(
            "$skiptoken is damaged or belongs to another query; follow @odata.nextLink unchanged, "
            "or start again without it.",
            pointer="$skiptoken",
        ) from None
    return Position(tuple(map(_typed, values)), taken)


def _mark(key: bytes, body: bytes) -> bytes:
    return hmac.digest(hmac.digest(key, _PURPOSE, hashlib.sha256), body, hashlib.sha256)


def _plain(value: Any) -> Any:
    for letter, (kind, write, _) in _TYPES.items():
        if isinstance(value, kind):
            return [letter, write(value)]
    return value


def _typed(value: Any) -> Any:
    if isinstance(value, list):
        letter, text = value
        return _TYPES[letter][2](text)
    return value
