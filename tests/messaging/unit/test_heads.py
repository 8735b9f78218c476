"""The stored form of the rarer fields: it gives back what was put in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from relevo.messaging.core.heads import Asked, decoded_head, encoded_head, message_of
from relevo.messaging.core.rules import encoded_rule, stored_rule
from relevo.messaging.model import CorrelationRule, Message

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(),
    st.uuids(),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(),
)
PROPERTIES = st.dictionaries(st.text(min_size=1), VALUES, max_size=5)


def typed(values: Any) -> list[tuple[str, type, Any]]:
    return [(name, type(value), value) for name, value in values.items()]


@given(PROPERTIES, st.none() | st.binary(), st.none() | st.text())
def test_what_is_stored_comes_back_with_its_types(
    properties: dict[str, Any], envelope: bytes | None, subject: str | None
) -> None:
    message = Message(b"", properties=properties, envelope=envelope, subject=subject)
    head = decoded_head(encoded_head(message))
    assert typed(head.properties) == typed(properties)
    assert (head.envelope, head.subject) == (envelope, subject)
    assert message_of(encoded_head(message)) == message


@given(PROPERTIES.filter(bool))
def test_a_correlation_rule_is_stored_with_the_types_of_its_values(
    properties: dict[str, Any],
) -> None:
    rule = CorrelationRule(properties=properties, subject="order")
    stored = stored_rule(encoded_rule(rule))
    assert isinstance(stored, CorrelationRule)
    assert typed(stored.properties) == typed(properties)
    assert stored.subject == "order"


def test_an_ordinary_message_has_no_head() -> None:
    assert encoded_head(Message(b"body", priority=3, ttl=5, message_id="m")) is None
    assert decoded_head(None).properties == {}


def test_only_fields_that_are_set_are_stored() -> None:
    text = encoded_head(
        Message(
            b"",
            session_id="s",
            properties={
                "bytes": b"\x00\xff",
                "time": datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))),
                "span": timedelta(seconds=1.5),
                "id": UUID(int=1),
                "whole": 1,
                "number": 1.0,
            },
        ),
        Asked(7),
    )
    assert text is not None
    assert msgspec.json.decode(text) == {
        "session_id": "s",
        "properties": {
            "bytes": {"$bytes": "AP8="},
            "time": {"$time": "2026-01-02T01:00:00+00:00"},
            "span": {"$span": 1_500_000},
            "id": {"$uuid": "00000000-0000-0000-0000-000000000001"},
            "whole": 1,
            "number": 1.0,
        },
        "asked": {"priority": 7},
    }
    assert '"whole":1,' in text
    assert '"number":1.0' in text


class Tier(str, Enum):  # noqa: UP042 - as older programs write it
    PAYING = "paying"


class Level(IntEnum):
    TOP = 9


def test_values_of_subclasses_are_stored_as_what_they_are() -> None:
    head = decoded_head(encoded_head(Message(b"", properties={"a": Tier.PAYING, "b": Level.TOP})))
    assert typed(head.properties) == [("a", str, "paying"), ("b", int, 9)]


def test_a_fraction_that_postgresql_wrote_without_a_point_stays_one() -> None:
    head = decoded_head('{"properties":{"a":100000000000000000000,"b":9223372036854775807}}')
    assert typed(head.properties) == [("a", float, 1e20), ("b", int, 2**63 - 1)]
