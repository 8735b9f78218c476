"""Codes as they are stored and as they are shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.jobs.core import codes


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (codes.CANNOT_PAUSE, "0x80044167"),
        (codes.CANNOT_DELETE, "0x8004416A"),
        (codes.PLATFORM_CANCEL, "0x80044F00"),
        (codes.BAD_PATTERN, "0x8004E100"),
    ],
)
def test_a_code_is_shown_as_the_documents_write_it(code: int, shown: str) -> None:
    assert codes.shown(code) == shown
    assert code == int(shown, 16) - 2**32


@given(st.integers(0, 2**32 - 1))
def test_storing_loses_nothing(unsigned: int) -> None:
    assert -(2**31) <= codes.stored(unsigned) < 2**31
    assert codes.shown(codes.stored(unsigned)) == codes.shown(unsigned) == f"0x{unsigned:08X}"


@pytest.mark.parametrize("code", [2**32, -(2**31) - 1])
def test_more_than_32_bits_are_no_code(code: int) -> None:
    with pytest.raises(InvalidValue, match="32 bits"):
        codes.shown(code)
    with pytest.raises(InvalidValue, match="32 bits"):
        codes.stored(code)


def test_every_code_has_one_name_and_a_sentence() -> None:
    named = [value for name, value in vars(codes).items() if name.isupper() and type(value) is int]
    assert sorted(named) == sorted(codes.TEXTS)
    assert all(-(2**31) <= one < 0 for one in named)
    assert all(re.fullmatch(r"[A-Z].*\.", text) for text in codes.TEXTS.values())
