from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import InvalidValue, TooLarge
from relevo.kernel.part import Connection
from relevo.store import Store, items
from relevo.store.model import ContainerInfo

INFO = ContainerInfo(
    id=1,
    name="orders",
    incarnation="i",
    partition_key=("/city",),
    ttl=None,
    versions=None,
    previous_images=False,
    created_at=datetime(2030, 1, 1, tzinfo=UTC),
)
EXPIRING = msgspec.structs.replace(INFO, ttl=-1)


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("item", "pointer"),
    [
        ({"city": "Vigo"}, "/id"),
        ({"id": None, "city": "Vigo"}, "/id"),
        ({"id": 7, "city": "Vigo"}, "/id"),
        ({"id": "", "city": "Vigo"}, "/id"),
        ({"id": "a/b", "city": "Vigo"}, "/id"),
        ({"id": "a\nb", "city": "Vigo"}, "/id"),
        ({"id": "x" * 256, "city": "Vigo"}, "/id"),
        ({"id": "1", "city": "Vigo", "a": {"b~/": ["x", "a\x00"]}}, "/a/b~0~1/1"),
        ({"id": "1", "city": "Vigo", "a\x00": 1}, "/a\x00"),
        ({"id": "1", "city": "Vigo", "x": [1, math.nan]}, "/x/1"),
        ({"id": "1", "city": "Vigo", "x": {"y": math.inf}}, "/x/y"),
        ({"id": "1", "city": "Vigo", "x": "\ud800"}, ""),
        ({"id": "1", "city": "Vigo", "x": object()}, ""),
        ({"id": "1", "city": "Vigo", "x": deep(5_000)}, ""),
        ({"id": "1", "city": "Vigo", "x": deep(limits.ITEM_DEPTH_MAX)}, ""),
        ({"id": "1", "city": "Vigo", "x": 10**5_000}, ""),
        ({"id": "1", "city": ["Vigo"]}, "/city"),
        ({"id": "1", "city": {"name": "Vigo"}}, "/city"),
        ({"id": "1", "city": 10**400}, "/city"),
        ({"id": "1", "city": "x" * 2_049}, "/city"),
        (["id", "city"], ""),
        ("text", ""),
        (None, ""),
    ],
)
def test_what_is_no_item_is_refused_with_its_place(item: Any, pointer: str | None) -> None:
    with pytest.raises(InvalidValue) as caught:
        items.document(item, INFO)
    assert caught.value.pointer == pointer


def test_an_item_that_is_too_large_says_how_large_it_is() -> None:
    with pytest.raises(TooLarge, match=str(limits.ITEM_BYTES_MAX)):
        items.document({"id": "1", "x": "x" * limits.ITEM_BYTES_MAX}, INFO)


@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        (("", "Vigo"), "id"),
        ((1, "Vigo"), "id"),
        (("1", ["Vigo", "Lugo"]), "partition_key"),
        (("1", []), "partition_key"),
        (("1", {"city": "Vigo"}), "partition_key"),
        (("1", math.nan), "partition_key"),
        (("1", 10**400), "partition_key"),
    ],
)
def test_a_key_that_cannot_be_is_refused_with_its_name(
    arguments: tuple[Any, Any], pointer: str
) -> None:
    with pytest.raises(InvalidValue) as caught:
        items.key_of_caller(*arguments, INFO)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("etag", ["", 7, "a\x00"])
def test_an_etag_is_text(etag: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        items.checked_etag(etag)
    assert caught.value.pointer == "if_match"


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"ttl": 0}, "ttl"),
        ({"ttl": 1.5}, "ttl"),
        ({"ttl": math.nan}, "ttl"),
        ({"previous_images": True}, "previous_images"),
        ({"ranges": 0}, "ranges"),
        ({"ranges": limits.RANGES_PER_CONTAINER_MAX + 1}, "ranges"),
    ],
)
def test_options_that_cannot_be_are_refused_at_once(options: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Store(Connection()).container("orders", "/city", **options)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("name", ["", "a/b", "a\x00", "x" * 201])
def test_a_containers_name_fits_into_a_path(name: str) -> None:
    with pytest.raises(InvalidValue, match="container's name"):
        Store(Connection()).container(name, "/city")


@pytest.mark.parametrize("ttl", [0, -2, 1.5, "1", True, 2**31])
def test_an_items_time_to_live_is_checked_where_it_counts(ttl: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        items.document({"id": "1", "ttl": ttl}, EXPIRING)
    assert caught.value.pointer == "/ttl"
    assert items.document({"id": "1", "ttl": ttl}, INFO).ttl is None


@pytest.mark.parametrize("ttl", [None, -1, 1, 2**31 - 1])
def test_an_items_time_to_live_is_taken_from_it(ttl: int | None) -> None:
    assert items.document({"id": "1", "ttl": ttl}, EXPIRING).ttl == ttl


def test_an_item_may_be_so_deep_and_no_deeper() -> None:
    item = {"id": "1", "x": deep(limits.ITEM_DEPTH_MAX - 2), "y": [{}] * 200}
    assert items.document(item, INFO).plain == item
    with pytest.raises(InvalidValue, match="128 levels"):
        items.document({**item, "x": [item["x"]]}, INFO)


@pytest.mark.parametrize("text", ["\\u0000", "u0000", "null", "\\\\u0000", "\\"])
def test_text_that_only_looks_like_a_fault_is_none(text: str) -> None:
    item = {"id": "1", "x": text, "y": None}
    assert items.document(item, INFO).plain == item


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(json)
def test_an_item_is_refused_exactly_if_the_database_cannot_hold_it(value: Any) -> None:
    item = {"id": "1", "value": value}
    if _holdable(value):
        assert items.document(item, INFO).plain == item
    else:
        with pytest.raises(InvalidValue):
            items.document(item, INFO)


def _holdable(value: Any) -> bool:
    match value:
        case str():
            return "\x00" not in value and value.encode(errors="replace").decode() == value
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_holdable, value))
        case dict():
            return all(_holdable(key) and _holdable(one) for key, one in value.items())
        case _:
            return True
