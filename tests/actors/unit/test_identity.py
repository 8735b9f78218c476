"""The identity of actors: canonical text, and slots that stay the same for ever."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.actors.core.identity import ActorRef, Key, slot_of
from relevo.errors import InvalidValue

KNOWN: list[tuple[str, Key, str, int, int, int]] = [
    ("account", "alice", "account/s:alice", 54, 6, 942),
    ("account", "42", "account/s:42", 248, 8, 368),
    ("account", 42, "account/i:42", 7, 7, 655),
    ("account", -(2**63), "account/i:-9223372036854775808", 122, 10, 786),
    ("account", 2**63 - 1, "account/i:9223372036854775807", 25, 9, 105),
    ("spool.disk-a", "Zürich", "spool.disk-a/s:Zürich", 111, 15, 871),
    ("spool.disk-a", "東京/1:2", "spool.disk-a/s:東京/1:2", 146, 2, 146),
    ("a", "🍕", "a/s:🍕", 61, 13, 789),
    ("account", " ", "account/s: ", 3, 3, 659),
    (
        "order_line",
        UUID("8a1cf3d4-0c55-4a5b-9d53-0f6d0b0a9c11"),
        "order_line/u:8a1cf3d4-0c55-4a5b-9d53-0f6d0b0a9c11",
        208, 0, 816,
    ),
]  # fmt: skip

KEYS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.uuids(),
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=60),
)


@pytest.mark.parametrize(("type_name", "key", "canonical", "of_256", "of_16", "of_1000"), KNOWN)
def test_slots_of_known_actors_never_change(
    type_name: str, key: Key, canonical: str, of_256: int, of_16: int, of_1000: int
) -> None:  # I1
    assert ActorRef.of(type_name, key).canonical == canonical
    assert [slot_of(canonical, n) for n in (256, 16, 1000)] == [of_256, of_16, of_1000]


@given(KEYS)
def test_a_canonical_text_is_read_as_the_same_actor(key: Key) -> None:
    ref = ActorRef.of("t", key)
    assert ActorRef.read(ref.canonical) == ref
    assert type(ActorRef.read(ref.canonical).key) is type(key)


@pytest.mark.parametrize("key", ["", "a\0b", "a\nb", "x" * 257, "é" * 129, 2**63, True, "\ud800"])
def test_bad_keys_are_refused(key: Key) -> None:
    with pytest.raises(InvalidValue):
        ActorRef.of("t", key)


@pytest.mark.parametrize("name", ["", "A", "1a", "a b", "a/b", "x" * 65, "é"])
def test_bad_types_are_refused(name: str) -> None:
    with pytest.raises(InvalidValue):
        ActorRef.of(name, "k")
