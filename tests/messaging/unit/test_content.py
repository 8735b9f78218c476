"""Messages that can be stored, and those that are refused before anything is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from relevo import limits
from relevo.errors import InvalidValue, TooLarge
from relevo.messaging.core.content import (
    Body,
    check_batch,
    check_dead_letter,
    check_message,
    check_saved,
)
from relevo.messaging.model import Message, Value


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        (b"\x00\xff", Body("bytes", b"\x00\xff")),
        (bytearray(b"a"), Body("bytes", b"a")),
        ("ñ", Body("text", "ñ".encode())),
        ({"a": [1]}, Body("json", b'{"a":[1]}')),
        (None, Body("json", b"null")),
    ],
)
def test_bodies_are_bytes_text_or_json(body: Any, stored: Body) -> None:
    assert check_message(Message(body)) == stored


def test_properties_of_every_type_are_taken() -> None:
    values: list[Value] = [
        True,
        -(2**63),
        2**63 - 1,
        1.5,
        "text",
        b"bytes",
        uuid4(),
        timedelta(1),
        None,
    ]
    values.append(datetime(2026, 1, 1, tzinfo=UTC))
    check_message(Message(b"", properties={f"p{n}": value for n, value in enumerate(values)}))


@pytest.mark.parametrize(
    ("message", "error", "pointer"),
    [
        (Message("\ud800"), InvalidValue, "body"),
        (Message(object()), InvalidValue, "body"),
        (Message(b"", message_id="x" * 129), InvalidValue, "message_id"),
        (Message(b"", session_id="\0"), InvalidValue, "session_id"),
        (Message(b"", fairness_key="k" * 129), InvalidValue, "fairness_key"),
        (Message(b"", subject="s" * 65_537), InvalidValue, "subject"),
        (Message(b"", subject=7), InvalidValue, "subject"),  # type: ignore[arg-type]
        (Message(b"", ttl=0.5), InvalidValue, "ttl"),
        (Message(b"", at=datetime(2026, 1, 1)), InvalidValue, "at"),
        (Message(b"", session_id="a", partition_key="b"), InvalidValue, "partition_key"),
        (Message(b"", properties={"a": 2**63}), InvalidValue, "properties/a"),
        (Message(b"", properties={"a": float("inf")}), InvalidValue, "properties/a"),
        (Message(b"", properties={"a": [1]}), InvalidValue, "properties/a"),  # type: ignore[dict-item]
        (Message(b"", properties={"a": datetime(2026, 1, 1)}), InvalidValue, "properties/a"),
        (Message(b"", properties={"": 1}), InvalidValue, "properties"),
        (Message(b"", properties={1: 1}), InvalidValue, "properties"),  # type: ignore[dict-item]
        (Message(b"", properties=[1]), InvalidValue, "properties"),  # type: ignore[arg-type]
        (Message(b"", properties={"a": b"x" * 32_769}), TooLarge, "properties/a"),
        (Message(b"", properties={f"p{n}": "x" * 30_000 for n in range(3)}), TooLarge, None),
        (Message(b"x" * (limits.MESSAGE_BYTES_DEFAULT + 1)), TooLarge, None),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(
    message: Message, error: type[InvalidValue | TooLarge], pointer: str | None
) -> None:
    with pytest.raises(error) as refused:
        check_message(message)
    assert refused.value.pointer == pointer


def test_what_receivers_store_has_bounds_too() -> None:
    check_dead_letter("too old", None)
    with pytest.raises(InvalidValue, match="reason of a dead-lettered message"):
        check_dead_letter("x" * 4_097, "")
    assert check_saved("checkpoint", bytearray(b"7"), 10) == b"7"
    with pytest.raises(InvalidValue, match="checkpoint is bytes"):
        check_saved("checkpoint", "7", 10)
    with pytest.raises(TooLarge, match="at most 10"):
        check_saved("checkpoint", b"x" * 11, 10)


def test_a_session_is_required_where_the_entity_says_so() -> None:
    check_message(Message(b"", session_id="a", partition_key="a"), requires_session=True)
    with pytest.raises(InvalidValue, match="requires sessions"):
        check_message(Message(b""), requires_session=True)


def test_one_bad_message_refuses_the_batch_and_is_named() -> None:  # M18
    batch = [Message(b"")] * 99 + [Message(b"", message_id="x" * 129)]
    with pytest.raises(InvalidValue, match="message 99: ") as refused:
        check_batch(batch)
    assert refused.value.pointer == "messages/99/message_id"
    assert len(check_batch(batch[:99])) == 99


def test_a_batch_has_a_bound_of_its_own() -> None:
    with pytest.raises(TooLarge, match="in parts"):
        check_batch([Message(b"x" * 200_000)] * 6)
