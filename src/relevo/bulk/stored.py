"""Queries as JSON, the way jobs keep them: every part by the name of its class.

    decoded(encoded(query)) == query

Only the classes of a query and of its expressions are made again, whatever the data says.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, get_args
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.core.expressions.tree import Expression, Rules
from relevo.errors import InvalidQuery
from relevo.querying.model import Expand, Item, Link, Order, Query

if TYPE_CHECKING:
    from collections.abc import Callable

_KIND: Final = "is"
_PARTS: Final[dict[str, type[Struct]]] = {
    one.__name__: one for one in (Query, Item, Order, Link, Expand, Rules, *get_args(Expression))
}
_VALUES: Final[dict[str, tuple[type, Callable[[str], Any]]]] = {
    "datetime": (datetime, datetime.fromisoformat),
    "date": (date, date.fromisoformat),
    "uuid": (UUID, UUID),
    "decimal": (Decimal, Decimal),
}
"""What JSON has no form for; an instant before a date, which it is as well."""


def encoded(part: Any) -> Any:
    """Return a query, or a part of one, in values of JSON; raises `InvalidQuery`."""
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if isinstance(part, tuple | list):
        return [encoded(one) for one in part]
    for kind, (type_, _) in _VALUES.items():
        if isinstance(part, type_):
            text = part.isoformat() if isinstance(part, date) else str(part)
            return {_KIND: kind, "value": text}
    name = type(part).__name__
    if _PARTS.get(name) is not type(part):
        raise InvalidQuery(f"a query that is stored has no {type(part).__qualname__!r} in it")
    fields = {field.name: getattr(part, field.name) for field in msgspec.structs.fields(part)}
    return {_KIND: name, **{field: encoded(value) for field, value in fields.items()}}


def decoded(data: Any) -> Any:
    """Return what was encoded; raises `InvalidQuery` if it is nothing of that."""
    if isinstance(data, list):
        return tuple(decoded(one) for one in data)
    if not isinstance(data, dict):
        return data
    kind = data.get(_KIND)
    try:
        if kind in _VALUES:
            return _VALUES[kind][1](data["value"])
        made = _PARTS[kind]  # type: ignore[index]  # what is not there is refused below
        return made(**{name: decoded(value) for name, value in data.items() if name != _KIND})
    except (KeyError, TypeError, ValueError):
        raise InvalidQuery(f"what is stored is no part of a query: {str(kind)[:64]!r}") from None
