"""Patterns of LIKE: they match what their definition says, in a number of steps that is linear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import ExpressionFailed
from relevo.kernel.expressions import patterns, to_python
from relevo.kernel.expressions.patterns import LikePattern
from relevo.kernel.expressions.tree import Constant, Like, Name, Rules
from relevo.kernel.expressions.values import fold
from tests.kernel.expressions.filter_reference import Failed, matched, split

letters = st.text(st.sampled_from("aab"), max_size=12)
written = st.text(st.sampled_from("aab%_!"), max_size=8)
UNKNOWN = Rules(nulls="unknown", mixed="unknown")
HOSTILE = ["%a%a%a%a%a%b", "%" + "a_" * 20 + "b%", "%" + "a" * 40 + "b%", "%" + "_" * 99 + "b%"]


@given(written, letters, st.sampled_from(["", "!", "a", "%", "_"]))
def test_a_pattern_matches_what_its_definition_says(text: str, value: str, escape: str) -> None:
    try:
        expected = matched(split(text, escape), value)
    except Failed:
        with pytest.raises(ExpressionFailed):
            LikePattern(text, escape or None)
    else:
        assert LikePattern(text, escape or None).matches(value) is expected


@given(st.lists(letters | st.sampled_from(["_", "%", "a_b", "%_%"])), letters)
def test_a_text_matches_the_patterns_made_from_it(parts: list[str], value: str) -> None:
    pattern = LikePattern("%".join(["", *parts, ""]))
    assert pattern.matches(f"x{'x'.join(part.replace('%', value) for part in parts)}x")


@given(st.text(st.sampled_from("aAÉéΣ%_"), max_size=6), st.text(st.sampled_from("aAÉéΣ\u03c3")))
def test_letter_case_can_be_ignored(text: str, value: str) -> None:
    expected = matched(split(fold(text), ""), fold(value))
    assert LikePattern(text, folded=True).matches(fold(value)) is expected


@pytest.mark.parametrize("text", HOSTILE)
def test_the_steps_are_linear_in_the_length_of_the_text(text: str) -> None:
    pattern = LikePattern(text)
    base = pattern.cost("a" * 4_000)
    for times in (2, 4, 8):
        assert pattern.cost("a" * 4_000 * times) <= (base + 2) * times
        assert patterns.cost("a" * 4_000 * times, text) <= patterns.cost("a" * 4_000, text) * times


class Counted(str):
    """A text that counts how often a character of it is asked for."""

    __slots__ = ("asked",)
    asked: int

    def __getitem__(self, position: object) -> str:
        self.asked = getattr(self, "asked", 0) + 1
        return super().__getitem__(position)  # type: ignore[index]


@pytest.mark.parametrize("text", ["%" + "a_" * 20 + "b%", "%a_%a_%a_%a_b%", "%_b_b_b%"])
def test_no_character_is_looked_at_twice_for_a_part(text: str) -> None:
    value = Counted("a" * 10_000)
    assert not LikePattern(text).matches(value)
    assert value.asked <= len(value) + len(text)


def test_the_longest_property_can_be_searched() -> None:
    node = Like(Name("a"), Constant("%a_c%"), UNKNOWN)
    evaluate = to_python.function(node)
    assert evaluate({"a": "a" * 32_000 + "abc"}) is True
    assert evaluate({"a": "a" * 32_000}) is False


def test_a_pattern_that_is_computed_is_charged_for_its_length() -> None:
    evaluate = to_python.function(Like(Name("a"), Name("b"), UNKNOWN))
    assert evaluate({"a": "abc", "b": "a%"}) is True
    with pytest.raises(ExpressionFailed, match="too many steps"):
        evaluate({"a": "a" * 32_000, "b": "%_" + "a" * 16_000})


@pytest.mark.parametrize(
    ("value", "pattern", "rules", "expected"),
    [
        (None, "%", UNKNOWN, None),
        (None, "%", Rules(nulls="blank"), True),
        (None, "_", Rules(nulls="blank"), False),
        (5, "5", UNKNOWN, None),
        (5, "5", Rules(nulls="unknown"), True),
        ("A", "a", Rules(nulls="unknown", case="folded"), True),
        ("a", None, UNKNOWN, None),
        ("", None, Rules(nulls="blank", mixed="unknown"), True),
        ("a", 5, UNKNOWN, None),
    ],
)
def test_like_obeys_the_rules_of_its_node(
    value: object, pattern: object, rules: Rules, expected: bool | None
) -> None:
    for written in (Constant(pattern), Name("p")):
        node = Like(Name("v"), written, rules)
        assert to_python.function(node)({"v": value, "p": pattern}) is expected
