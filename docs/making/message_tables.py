"""Tables of the documentation that are made from `relevo.messaging`; `generate.py` writes them."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.messaging import events, states
from relevo.messaging.core.entities import BOUNDS, FIXED, KINDS, EntityProperties
from relevo.messaging.model import MessageOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Rows = tuple[list[str], list[list[str]]]
ORDER: Final = ("queue", "topic", "subscription")
_ONE: Final = frozenset({"max_delivery_count", "max_size_bytes", "max_message_bytes"})
"""Numbers that are no seconds."""


def transitions() -> Rows:
    """Every transition of a message."""
    rows = [
        [row.number, _state(row.from_), f"`{row.event}`", _state(row.to), row.effect]
        for row in states.TRANSITIONS
    ]
    return ["number", "from", "event", "to", "effect"], rows


def _state(name: str) -> str:
    return "gone" if name == states.GONE else f"`{name}`"


def properties() -> Rows:
    """Every property of queues, topics and subscriptions."""
    rows = [
        [
            f"`{field.name}`",
            ", ".join(
                kind for kind in ("queue", "topic", "subscription") if kind in KINDS[field.name]
            ),
            _value(field.default, field.name),
            " to ".join(_value(bound, field.name) for bound in BOUNDS.get(field.name, ())),
            "no" if field.name in FIXED else "yes",
            typing.get_args(field.type)[1].description,
        ]
        for field in msgspec.structs.fields(EntityProperties)
    ]
    return ["property", "of", "default", "range", "can change", "meaning"], rows


def _value(value: Any, name: str) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case int() | float() if name in BOUNDS:
            return _number(value) if name in _ONE else _time(value)
        case str() if value:
            return f"`{value}`"
        case msgspec.Struct():
            return f"`{type(value).__name__}()`"
        case tuple() if value:
            return ", ".join(f"`{one.name}`" for one in value)
    return ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value < 2**60 else f"2^{int(value).bit_length() - 1}"


def _time(seconds: float) -> str:
    return f"{seconds:,g} s" if seconds < 86_400 else f"{seconds / 86_400:,g} days"


def fields(said: Mapping[str, str]) -> Rows:
    """Every field of a message that its sender sets, except the body."""
    rows = [[f"`{name}`", said[name]] for name in MessageOptions.__struct_fields__]
    return ["field", "meaning"], rows


def event_types() -> Rows:
    """Every event of messages, entities and consumers."""
    return (
        ["event", "data", "written when"],
        [[f"`{one.name}`", f"`{one.payload.__name__}`", one.sentence] for one in events.TYPES],
    )


PAYLOADS: Final = (
    events.EntityData, events.MessageData, events.ConsumersData, events.TargetData,
)  # fmt: skip

TABLES: Final[dict[str, Callable[[], Rows]]] = {
    "entity properties": properties,
    "message transitions": transitions,
    "message events": event_types,
}
