"""Queries as JSON, as jobs store them: each object with the name of its class.

    decoded(encoded(query)) == query

Decoding creates only the classes of queries and expressions, and only with values of the types of
their fields, because operators become SQL unchanged.
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
"""Types without a JSON form; `datetime` comes first, because it is also a `date`."""


def encoded(part: Any) -> Any:
    """Return a query, or a part of one, as JSON values; raises `InvalidQuery`."""
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
        raise InvalidQuery(f"a stored query cannot contain a {type(part).__qualname__!r}")
    fields = {field.name: getattr(part, field.name) for field in msgspec.structs.fields(part)}
    return {_KIND: name, **{field: encoded(value) for field, value in fields.items()}}


def decoded(data: Any) -> Any:
    """Return the decoded query or part; raises `InvalidQuery`."""
    if isinstance(data, list):
        return tuple(decoded(one) for one in data)
    if not isinstance(data, dict):
        return data
    kind = data.get(_KIND)
    try:
        if kind in _VALUES:
            return _VALUES[kind][1](data["value"])
        made = _PARTS[kind]  # type: ignore[index]  # a KeyError is handled below
        part = made(**{name: decoded(value) for name, value in data.items() if name != _KIND})
    except (KeyError, TypeError, ValueError):
        raise InvalidQuery(f"stored query: unknown part {str(kind)[:64]!r}") from None
    for name, type_ in _types(made).items():
        if not _fits(getattr(part, name), type_):
            raise InvalidQuery(f"stored query: {kind!r} has an invalid {name}")
    return part


def query(data: Any) -> Query:
    """Return the decoded query; raises `InvalidQuery` if the data is something else."""
    part = decoded(data)
    if not isinstance(part, Query):
        raise InvalidQuery(f"stored query: expected a query, found {type(part).__name__!r}")
    return part


@cache
def _types(part: type[Struct]) -> dict[str, Any]:
    return get_type_hints(part)


def _fits(value: Any, type_: Any) -> bool:
    """Whether a value has the type of a field; nested parts were checked before."""
    arguments = get_args(type_)
    match get_origin(type_):
        case None:
            return type_ is Any or isinstance(value, NoneType if type_ is None else type_)
        case origin if origin is Literal:
            return any(
                type(value) is type(argument) and value == argument for argument in arguments
            )
        case origin if origin in (Union, UnionType):
            return any(_fits(value, argument) for argument in arguments)
        case origin if origin is tuple and isinstance(value, tuple):
            if arguments[-1] is Ellipsis:
                return all(_fits(one, arguments[0]) for one in value)
            return len(value) == len(arguments) and all(map(_fits, value, arguments))
        case _:
            return False
