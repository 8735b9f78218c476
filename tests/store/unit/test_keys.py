from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import InvalidValue
from relevo.store import keys
from relevo.store.keys import UNDEFINED, Undefined, epk

component = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
    | st.just(UNDEFINED)
)


@pytest.mark.parametrize("path", ["/city", "/address/zip", "/a b/ü"])
def test_a_path_names_members_from_the_top(path: str) -> None:
    assert keys.checked_paths(path) == (path,)


@pytest.mark.parametrize(
    "paths", ["", "city", "/", "/a//b", "/a/", '/a"b', [], ["/a", "/a"], ["/a", "/b", "/c", "/d"]]
)
def test_what_is_no_path_is_refused(paths: Any) -> None:
    with pytest.raises(InvalidValue, match="partition key path"):
        keys.checked_paths(paths)


def test_an_items_key_is_what_its_paths_lead_to() -> None:
    item = {"city": "Vigo", "address": {"zip": 36}, "tags": ["a"]}
    assert keys.of_item(item, ["/city", "/address/zip"]) == ("Vigo", 36)
    assert keys.of_item(item, ["/address/street"]) == (UNDEFINED,)
    assert keys.of_item(item, ["/tags/0"]) == (UNDEFINED,)
    assert keys.of_item(item, ["/city/zip"]) == (UNDEFINED,)


@pytest.mark.parametrize("value", [{"a": 1}, ["a"], "a\x00b"])
def test_what_cannot_be_a_key_is_refused_with_its_path(value: Any) -> None:
    with pytest.raises(InvalidValue, match="/city"):
        keys.of_item({"city": value}, ["/city"])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_key_is_a_finite_number(value: float) -> None:
    with pytest.raises(InvalidValue, match="finite"):
        keys.of_caller(value, ["/n"])


def test_a_caller_gives_as_many_parts_as_there_are_paths() -> None:
    assert keys.of_caller("a", ["/x"]) == keys.of_caller(["a"], ["/x"]) == ("a",)
    assert keys.of_caller(("a", 1), ["/x", "/y"]) == ("a", 1)
    with pytest.raises(InvalidValue, match="2 parts"):
        keys.of_caller("a", ["/x", "/y"])


@given(st.tuples(component))
def test_the_canonical_form_can_be_read_back(given_key: tuple[Any, ...]) -> None:
    key = keys.of_caller(given_key, ["/x"])
    read = keys.parse(keys.text(key))
    assert read == key
    assert [type(one) for one in read] == [type(one) for one in key]


@given(component, component)
def test_keys_have_one_form_exactly_if_they_have_one_hash(left: Any, right: Any) -> None:  # F8
    a, b = keys.of_caller([left], ["/x"]), keys.of_caller([right], ["/x"])
    assert (keys.text(a) == keys.text(b)) == (epk(a) == epk(b))


def test_numbers_are_doubles_and_types_are_kept_apart() -> None:  # F8
    def text(value: Any) -> str:
        return keys.text(keys.of_caller(value, ["/x"]))

    assert text(1) == text(1.0)
    assert len({text(one) for one in (0, False, None, "0", "", UNDEFINED)}) == 6


def test_a_long_key_is_refused_by_its_size() -> None:
    with pytest.raises(InvalidValue, match=str(limits.PARTITION_KEY_BYTES_MAX)):
        keys.text(("x" * (limits.PARTITION_KEY_BYTES_MAX + 1),))


def test_undefined_shows_its_name() -> None:
    assert repr(Undefined()) == "UNDEFINED"
