"""The texts of FetchXML as values of columns: `{GUID}`, `1`, `2026-01-31` by what the column is."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from relevo.kernel.expressions.values import WHOLE_MAX
from relevo.kernel.querying.fetchxml.elements import BOOLEANS

if TYPE_CHECKING:
    from collections.abc import Callable
    from zoneinfo import ZoneInfo

    from relevo.kernel.querying.catalogue import Column, ColumnType


def value(column: Column, text: str, zone: ZoneInfo) -> Any:
    """Return a text in the type of a column; raises `ValueError` or `OverflowError` if it is none.

    A date without an offset is meant in `zone`.
    """
    if column.type == "datetime":
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
    if column.type == "lookup" and column.sql_type == "text":
        return _identity_text(text)
    return _CONVERSIONS[column.type][0](text)


def form(column: Column) -> str:
    """Return how values of a column are written, for messages."""
    return _CONVERSIONS[column.type][1]


def alike(one: Column, other: Column) -> bool:
    """Whether two columns can be compared with each other in a filter, which converts nothing."""
    kind = _kind(one.type)
    return kind == _kind(other.type) and (kind == "number" or one.sql_type == other.sql_type)


def _kind(kind: ColumnType) -> str:
    return "number" if kind in ("int", "bigint", "float", "choice") else _CONVERSIONS[kind][1]


def _whole(text: str) -> int:
    digits = text.strip()
    if not digits.isascii() or len(digits) > 20 or "_" in digits:
        raise ValueError(digits)
    number = int(digits)
    if abs(number) > WHOLE_MAX:
        raise OverflowError(digits)
    return number


def _real(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or "_" in text:
        raise ValueError(text)
    return number


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word not in BOOLEANS:
        raise ValueError(word)
    return BOOLEANS[word]


def _identity(text: str) -> UUID:
    return UUID(text.strip())


def _identity_text(text: str) -> str:
    """As ids are stored; a key that is no GUID stays what it is."""
    try:
        return str(_identity(text))
    except ValueError:
        return text


_NUMBER: Final = (_whole, "a whole number")
_TEXT: Final = (str, "a text")
_GUID: Final = (_identity, "a GUID")
_CONVERSIONS: Final[dict[ColumnType, tuple[Callable[[str], Any], str]]] = {
    "guid": _GUID,
    "lookup": _GUID,
    "text": _TEXT,
    "memo": _TEXT,
    "json": _TEXT,
    "int": _NUMBER,
    "bigint": _NUMBER,
    "choice": _NUMBER,
    "float": (_real, "a number"),
    "bool": (_truth, "true, false, 1 or 0"),
    "datetime": (datetime.fromisoformat, "a date as 2026-01-31 or 2026-01-31T23:59:00Z"),
}
