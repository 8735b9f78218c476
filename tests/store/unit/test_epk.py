from __future__ import annotations

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.store.keys import UNDEFINED, Component, epk, murmur3_128

TABLE: list[tuple[Component, str]] = [
    ("a", "3A5381E1114EB8D3FCC90795045B49B7"),
    (1, "20CD98B339BA78A5D0CF6953B87070B0"),
    ("tenant-1", "1B6E36CBA1839DF91310617831CA7FAC"),
    (1.5, "35C5DDEB6C795D16A9963C73C54E97BC"),
    ("é", "007199F104E04116EE25AF912CA4889B"),
    (True, "0E711127C5B5A8E4726AC6DD306A3E59"),
    ("", "32E9366E637A71B4E710384B2F4970A0"),
    (None, "378867E4430E67857ACE5C908374FE16"),
    (UNDEFINED, "11622DAA78F835834610ABE56EFF5CB5"),
]


@pytest.mark.parametrize(("value", "expected"), TABLE, ids=lambda v: repr(v))
def test_the_hash_is_the_references(value: Component, expected: str) -> None:  # F8
    assert epk((value,)) == expected


def test_hierarchical_keys_are_one_hash_per_component() -> None:  # F8
    assert epk(("a", 1)) == TABLE[0][1] + TABLE[1][1]


def test_equal_in_python_is_not_equal_in_the_store() -> None:  # F8
    assert epk((1,)) == epk((1.0,)) != epk((True,))
    assert epk((0,)) != epk((False,))


@given(st.binary(max_size=80))
def test_the_fallback_equals_the_compiled_hash(data: bytes) -> None:  # F8
    assert murmur3_128(data) == mmh3.hash_bytes(data, 0)


def test_what_cannot_be_a_key_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="not list"):
        epk(([],))  # type: ignore[arg-type]
