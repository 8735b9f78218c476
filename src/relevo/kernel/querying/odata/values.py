"""Literals of OData as values of columns: only those of the column's own type fit."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from msgspec import Struct

from relevo.kernel.expressions.values import WHOLE_MAX

if TYPE_CHECKING:
    from lark import Token

    from relevo.kernel.querying.catalogue import Column, ColumnType


class WrittenValue(Struct, frozen=True):
    """A literal."""

    kind: Literal["null", "bool", "whole", "real", "guid", "date", "text"]
    value: Any
    text: str


_KINDS: Final[dict[ColumnType, tuple[str, ...]]] = {
    "guid": ("guid",),
    "lookup": ("guid",),
    "text": ("text",),
    "memo": ("text",),
    "json": ("text",),
    "int": ("whole", "real"),
    "bigint": ("whole", "real"),
    "float": ("whole", "real"),
    "choice": ("whole",),
    "bool": ("bool",),
    "datetime": ("date",),
}
FORMS: Final[dict[ColumnType, str]] = {
    "guid": "a GUID without quotes",
    "lookup": "a GUID",
    "text": "a text in single quotes",
    "memo": "a text in single quotes",
    "json": "a text in single quotes",
    "int": "a number",
    "bigint": "a number",
    "float": "a number",
    "choice": "a whole number",
    "bool": "true or false",
    "datetime": "a date as 2026-01-31T23:59:00Z",
}
"""How values of a column are written, for messages."""


def written(token: Token) -> WrittenValue:
    """Return a literal; raises `ValueError` with its fault."""
    text = str(token)
    match token.type:
        case "NULL":
            return WrittenValue("null", None, text)
        case "TRUE" | "FALSE":
            return WrittenValue("bool", token.type == "TRUE", text)
        case "INTEGER":
            return WrittenValue("whole", _whole(text), text)
        case "DECIMAL":
            return WrittenValue("real", _real(text), text)
        case "GUID":
            return WrittenValue("guid", UUID(text), text)
        case "DATETIME" | "DATE":
            return WrittenValue("date", _instant(text), text)
        case "JSON_STRING":
            inside = _json_text(text)
            return WrittenValue("text", inside, inside)
        case _:
            inside = text[1:-1].replace("''", "'")
            return WrittenValue("text", inside, inside)


def fits(column: Column, literal: WrittenValue) -> bool:
    """Whether a literal can be compared with a column."""
    if literal.kind == "text" and column.type in ("guid", "lookup"):
        return column.sql_type == "text" or _is_guid(literal.value)
    return literal.kind == "null" or literal.kind in _KINDS[column.type]


def value(column: Column, literal: WrittenValue) -> Any:
    """Return a literal that fits, as the column's values are stored."""
    if column.type in ("guid", "lookup") and literal.value is not None:
        if column.sql_type != "text":
            return UUID(str(literal.value))
        text = str(literal.value)
        return str(UUID(text)) if _is_guid(text) else text
    return literal.value


def comparable(one: Column, other: Column) -> bool:
    """Whether two columns can be compared with each other."""
    return _KINDS[one.type][0] == _KINDS[other.type][0] and (
        one.sql_type == other.sql_type or "whole" in _KINDS[one.type]
    )


def _whole(text: str) -> int:
    if len(text) > 20 or not -WHOLE_MAX - 1 <= int(text) <= WHOLE_MAX:
        raise ValueError("the number has more than 64 bits. Write a smaller one")
    return int(text)


def _real(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("the number is too large. Write a smaller one")
    return number


def _instant(text: str) -> datetime:
    """A date is its start in UTC; fractions below microseconds are cut off."""
    try:
        found = datetime.fromisoformat(text.upper())
        known = found if found.tzinfo else found.replace(tzinfo=UTC)
        instant = known.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("there is no such date. Write another") from None
    if found.tzinfo is None and "T" in text.upper():
        raise ValueError("a time needs an offset. Write Z behind it, or one as +02:00")
    return instant


def _json_text(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        raise ValueError("it is no JSON text. Write it in single quotes") from None


def _is_guid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
