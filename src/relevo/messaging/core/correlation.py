"""Correlation filters: messages whose fields and properties equal given values. Pure.

    index = CorrelationIndex()
    index.add("eu", CorrelationFilter({"subject": "order"}, {"region": "eu"}))
    index.matches({"subject": "order"}, {"region": "eu"})    ["eu"]

Equality is typed, ordinal and case-sensitive: 5 is neither 5.0 nor "5". The index finds the filters
of a message without testing the others, so that 100,000 rules cost no more than a few.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from relevo.messaging.model import CorrelationRule

Id = TypeVar("Id", bound=Hashable)

FIELDS: Final = (
    "correlation_id",
    "message_id",
    "to",
    "reply_to",
    "subject",
    "session_id",
    "reply_to_session_id",
    "content_type",
)

_VALUES: Final = (bool, int, float, str, bytes, UUID, datetime, timedelta, type(None))

_Key = tuple[bool, str]
"""A name, and whether it is that of a property; fields have names of their own."""
_Values = tuple[tuple[type, Any], ...]
_Shape = tuple[_Key, ...]
"""The keys of a filter, sorted: filters of one shape differ only in values."""


class CorrelationFilter(Struct, frozen=True):
    """The fields and application properties that a message must equal; at least one."""

    fields: Mapping[str, str] = {}
    properties: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        unknown = sorted(set(self.fields) - set(FIELDS))
        if unknown:
            raise InvalidValue(
                f"there is no correlation field `{unknown[0][:64]}`; use {', '.join(FIELDS)}",
                pointer=f"/{unknown[0][:64]}",
            )
        for name, value in (*self.fields.items(), *self.properties.items()):
            kinds = (str,) if name in self.fields else _VALUES
            if type(value) not in kinds or value != value:
                raise InvalidValue(
                    f"a correlation filter cannot compare `{name[:64]}` with "
                    f"{'NaN' if value != value else f'a {type(value).__name__}'}; use a "
                    f"{'text' if kinds == (str,) else 'scalar value'}",
                    pointer=f"/{name[:64]}",
                )
        if not self.fields and not self.properties:
            raise InvalidValue(
                "a correlation filter needs at least one field or property; "
                "use the SQL filter TRUE to select every message"
            )

    @classmethod
    def of(cls, rule: CorrelationRule) -> CorrelationFilter:
        """Return the filter of a rule."""
        fields = {name: getattr(rule, name) for name in FIELDS}
        given = {name: value for name, value in fields.items() if value is not None}
        return cls(given, rule.properties)

    def matches(self, fields: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
        """Whether a message with these fields and application properties is selected."""
        return all(_equal(fields, *item) for item in self.fields.items()) and all(
            _equal(properties, *item) for item in self.properties.items()
        )


class CorrelationIndex(Generic[Id]):
    """Filters by id, found by the values of a message.

    Filters of one shape share a table from values to ids. A message looks up only the shapes that
    are filed under one of its keys; each shape is filed under the key with the fewest others.
    """

    def __init__(self) -> None:
        self._filters: dict[Id, CorrelationFilter] = {}
        self._tables: dict[_Shape, dict[_Values, dict[Id, None]]] = {}
        self._filed: dict[_Key, dict[_Shape, None]] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, id_: Id, filter_: CorrelationFilter) -> None:
        """Add a filter, or replace the one with this id."""
        self.remove(id_)
        shape, values = _entry(filter_)
        if shape not in self._tables:
            self._tables[shape] = {}
            rarest = min(shape, key=lambda key: len(self._filed.get(key, ())))
            self._filed.setdefault(rarest, {})[shape] = None
        self._tables[shape].setdefault(values, {})[id_] = None
        self._filters[id_] = filter_

    def remove(self, id_: Id) -> None:
        """Remove a filter; does nothing if there is none with this id."""
        filter_ = self._filters.pop(id_, None)
        if filter_ is None:
            return
        shape, values = _entry(filter_)
        table = self._tables[shape]
        del table[values][id_]
        if not table[values]:
            del table[values]
        if not table:
            del self._tables[shape]
            for key in shape:
                self._filed.get(key, {}).pop(shape, None)

    def matches(self, fields: Mapping[str, Any], properties: Mapping[str, Any]) -> list[Id]:
        """Return the ids of the filters that select a message, in no particular order."""
        message: dict[_Key, tuple[type, Any]] = {}
        for name in FIELDS:
            value = fields.get(name)
            if value is not None:
                message[False, name] = type(value), value
        for name, value in properties.items():
            message[True, name] = type(value), value
        return [id_ for values in self._candidates(message) for id_ in values]

    def _candidates(self, message: Mapping[_Key, tuple[type, Any]]) -> Iterator[dict[Id, None]]:
        for key in message:
            for shape in self._filed.get(key, ()):
                if all(part in message for part in shape):
                    values = tuple(message[part] for part in shape)
                    yield self._tables[shape].get(values, {})


def _entry(filter_: CorrelationFilter) -> tuple[_Shape, _Values]:
    values = {(False, name): value for name, value in filter_.fields.items()}
    values |= {(True, name): value for name, value in filter_.properties.items()}
    shape = tuple(sorted(values))
    return shape, tuple((type(values[key]), values[key]) for key in shape)


def _equal(values: Mapping[str, Any], name: str, wanted: Any) -> bool:
    if name not in values:
        return False
    value = values[name]
    return type(value) is type(wanted) and bool(value == wanted)
