"""Queries as JSON, the way jobs keep them: every part by the name of its class.

    decoded(encoded(query)) == query

Only the classes of a query and of its expressions are made again, whatever the data says, and only
with values of the types of their fields: operators become SQL as they are.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.errors import InvalidQuery
from relevo.kernel.expressions.tree import Expression, Rules
from relevo.kernel.querying.model import Expand, Item, Link, Order, Query

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
        part = made(**{name: decoded(value) for name, value in data.items() if name != _KIND})
    except (KeyError, TypeError, ValueError):
        raise InvalidQuery(f"what is stored is no part of a query: {str(kind)[:64]!r}") from None
    for name, type_ in _types(made).items():
        if not _fits(getattr(part, name), type_):
            raise InvalidQuery(f"what is stored has no such {name} in a part {kind!r} of a query")
    return part


def query(data: Any) -> Query:
    """Return the query that was encoded; raises `InvalidQuery` if it was something else."""
    found = decoded(data)
    if not isinstance(found, Query):
        raise InvalidQuery(f"what is stored is no query but {type(found).__name__!r}")
    return found


@cache
def _types(part: type[Struct]) -> dict[str, Any]:
    return get_type_hints(part)


def _fits(value: Any, type_: Any) -> bool:
    """Whether a value is of the type of a field; its own parts were looked at before it."""
    arguments = get_args(type_)
    match get_origin(type_):
        case None:
            return type_ is Any or isinstance(value, NoneType if type_ is None else type_)
        case origin if origin is Literal:
            return any(type(value) is type(one) and value == one for one in arguments)
        case origin if origin in (Union, UnionType):
            return any(_fits(value, one) for one in arguments)
        case origin if origin is tuple and isinstance(value, tuple):
            if arguments[-1] is Ellipsis:
                return all(_fits(one, arguments[0]) for one in value)
            return len(value) == len(arguments) and all(map(_fits, value, arguments))
        case _:
            return False
