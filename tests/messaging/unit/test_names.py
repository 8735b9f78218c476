"""Names of entities and the addresses made of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.messaging.core import names
from relevo.messaging.core.names import Path

SEGMENTS = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True).filter(
    lambda segment: segment.lower() != "subscriptions"
)
NAMES = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)
PATHS = st.builds(
    Path, NAMES, st.none() | NAMES, st.sampled_from([None, "dead_letters", "transfer_dead_letters"])
)


@given(PATHS)
def test_an_address_is_read_as_it_is_written(path: Path) -> None:
    assert Path.of(str(path)) == path
    assert Path.of(str(path).upper()).key == path.key


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("orders", Path("orders")),
        ("shop/orders", Path("shop/orders")),
        ("orders/Subscriptions/high", Path("orders", "high")),
        ("a/b/subscriptions/c/d", Path("a/b", "c/d")),
        ("orders/$deadletterqueue", Path("orders", None, "dead_letters")),
        (
            "t/subscriptions/s/$Transfer/$DeadLetterQueue",
            Path("t", "s", "transfer_dead_letters"),
        ),
    ],
)
def test_addresses_of_every_kind(text: str, path: Path) -> None:
    assert Path.of(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "orders/", "$DeadLetterQueue", "orders/$Transfer", "orders/subscriptions",
        "subscriptions/high", "a/subscriptions/b/subscriptions/c", "orders/$else", "or ders",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        Path.of(text)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", "queue"), (".a", "queue"), ("a-", "topic"), ("a b", "queue"), ("a\n", "queue"),
        ("né", "queue"), ("a" * 261, "queue"), ("a" * 51, "subscription"), ("a" * 51, "rule"),
        ("x/Subscriptions/y", "topic"), ("x/$y", "queue"), ("$Default", "queue"), (None, "queue"),
        (7, "topic"),
    ],
)  # fmt: skip
def test_names_that_cannot_be_are_refused(name: Any, kind: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        names.check(name, kind)
    assert refused.value.pointer == "name"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a", "queue"), ("a" * 260, "topic"), ("9._-/b", "queue"), ("$Default", "rule")],
)
def test_names_that_can_be_are_taken(name: str, kind: Any) -> None:
    assert names.check(name, kind) == name
