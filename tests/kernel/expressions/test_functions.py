"""Each function of the rule language, as Power Fx defines it."""

from __future__ import annotations

from typing import Any

import pytest

from relevo.errors import ExpressionFailed
from relevo.kernel.expressions import powerfx

SCOPE = {"job": {"List": [3, None, 1], "Empty": [], "Words": ["a"], "Big": 10**30, "Huge": 10**400}}


def value(text: str) -> Any:
    return powerfx.compiled(text)(SCOPE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Abs(-3)", 3),
        ("Abs(-1.5)", 1.5),
        ("Abs(Blank())", 0),
        ("Sum(1, 2, 3.5)", 6.5),
        ("Sum([1, 2], 3)", 6),
        ("Sum(job.List)", 4),
        ("Sum(job.Empty)", 0),
        ("Average(1, 0, 5)", 2),
        ("Average(1, Blank(), 5)", 3),
        ("Average(job.List)", 2),
        ("Average(1, 2)", 1.5),
        ("Min(3, 1, 2)", 1),
        ("Min(job.List)", 1),
        ("Min(1, Blank(), 2)", 1),
        ("Min(Blank())", 0),
        ("Max(3, 1.5)", 3),
        ("Max([1, 9], 4)", 9),
        ("Mod(7, 3)", 1),
        ("Mod(-7, 3)", 2),
        ("Mod(7, -3)", -2),
        ("Mod(5.5, 2)", 1.5),
        ("Power(2, 3)", 8),
        ("Power(2, -1)", 0.5),
        ("Power(0, 0)", 1),
        ("Power(10, 20)", 1e20),
        ("Sqrt(16)", 4),
        ("Sqrt(2.25)", 1.5),
        ("Int(4.7)", 4),
        ("Int(-4.3)", -5),
        ("Int(7)", 7),
    ],
)
def test_numbers(text: str, expected: Any) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Half away from zero, by the digits that people see.
        ("Round(2.5, 0)", 3),
        ("Round(-2.5, 0)", -3),
        ("Round(2.4)", 2),
        ("Round(2.345, 2)", 2.35),
        ("Round(1.005, 2)", 1.01),
        ("Round(-1.005, 2)", -1.01),
        ("Round(1250, -2)", 1300),
        ("Round(1249, -2)", 1200),
        ("Round(7, 3)", 7),
        ("Round(1.5, 1.9)", 1.5),
        ("Round(1.5, 5000)", 1.5),
        ("Round(1.5, -5000)", 0),
        ("RoundUp(2.1, 0)", 3),
        ("RoundUp(-2.1, 0)", -3),
        ("RoundUp(2.121, 2)", 2.13),
        ("RoundUp(101, -2)", 200),
        ("RoundDown(2.9, 0)", 2),
        ("RoundDown(-2.9, 0)", -2),
        ("RoundDown(2.129, 2)", 2.12),
        ("RoundDown(199, -2)", 100),
        ("RoundUp(5e-324, 400)", 5e-324),
    ],
)
def test_rounding(text: str, expected: Any) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Len("abc")', 3),
        ("Len(Blank())", 0),
        ("Len(12.5)", 4),
        ('Lower("ÀB")', "àb"),
        ('Upper("àb")', "ÀB"),
        ('Trim("  a   b ")', "a b"),
        ('Left("abcd", 2)', "ab"),
        ('Left("abcd", 9)', "abcd"),
        ('Left("abcd", 0)', ""),
        ('Right("abcd", 3)', "bcd"),
        ('Right("abcd", 9)', "abcd"),
        ('Right("abcd", 0)', ""),
        ('Mid("abcd", 2, 2)', "bc"),
        ('Mid("abcd", 2)', "bcd"),
        ('Mid("abcd", 1, 9)', "abcd"),
        ('Mid("abcd", 5, 1)', ""),
        ('Mid("abcdef", 3.1, 1.9)', "c"),
        ('Mid("asdf", 1e28, 2)', ""),
        ("Mid(12345, 2)", "2345"),
        ('StartsWith("Hello", "hE")', True),
        ('StartsWith("Hello", "el")', False),
        ('StartsWith("Hello", "")', True),
        ('EndsWith("Hello", "LO")', True),
        ('EndsWith("Hello", "he")', False),
        ('EndsWith(Blank(), "a")', False),
        ('Find(",", "Last,First")', 5),
        ('Find("b", "aBb")', 3),
        ('Find("#", "abc")', None),
        ('Find("a", "aba", 2)', 3),
        ('Find("", "abc")', 1),
        ('Find("a", "abc", 4)', None),
        ('Substitute("Hello Hello", "He", "Je")', "Jello Jello"),
        ('Substitute("HelloHello", "He", "Je", 2)', "HelloJello"),
        ('Substitute("Hello", "He", "Je", 5e100)', "Hello"),
        ('Substitute("Hello", "", "x")', "Hello"),
        ('Substitute("Hello", "l", Blank())', "Heo"),
        ('Concatenate("a", 1, true, Blank())', "a1true"),
    ],
)
def test_texts(text: str, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Text(12)", "12"),
        ("Text(1.50)", "1.5"),
        ("Text(3.0)", "3"),
        ("Text(-0.0)", "0"),
        ("Text(1e21)", "1" + "0" * 21),
        ("Text(1e-7)", "0.0000001"),
        ("Text(job.Big)", "1" + "0" * 30),
        ("Text(true)", "true"),
        ("Text(Blank())", ""),
        ('Text("a")', "a"),
        ('Value("12")', 12),
        ('Value(" -1.5 ")', -1.5),
        ('Value(".5")', 0.5),
        ('Value("1,234,567.5")', 1234567.5),
        ('Value("2e3")', 2000.0),
        ('Value("12.5%")', 0.125),
        ("Value(7)", 7),
        ("Value(true)", 1),
        ('Value("")', None),
        ("Value(Blank())", None),
        ("IsNumeric(1)", True),
        ('IsNumeric("1")', True),
        ('IsNumeric("A")', False),
        ('IsNumeric("1+1")', False),
        ('IsNumeric("")', False),
        ("IsNumeric(true)", False),
        ("IsNumeric(Blank())", False),
        ("IsNumeric([1])", False),
        ("IsBlank(job.Missing)", True),
        ('IsBlank("")', True),
        ('IsBlank(" ")', False),
        ("IsBlank(0)", False),
        ("IsBlank(false)", False),
    ],
)
def test_conversions(text: str, expected: Any) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "Average(Blank())",
        "Average(job.Empty)",
        "Sum(job.Words)",
        'Min("1")',
        "Sum([[1]])",
        "Mod(1, 0)",
        "Sqrt(-1)",
        "Power(-8, 0.5)",
        "Power(10, 400)",
        "Abs(true)",
        'Left("a", -1)',
        'Mid("a", 0)',
        'Mid("a", 1, -1)',
        'Find("a", "a", 0)',
        'Find("a", "a", 3)',
        'Substitute("a", "a", "b", 0)',
        'Value("abc")',
        'Value("%")',
        'Value("1e9999")',
        'Value("1_000")',
        'Value("١٢")',
        "Value([1])",
        "Text({a: 1})",
        "Len([1])",
        "job.Huge * 2.5",
        "Round(job.Huge, 1) / 2.5",
    ],
)
def test_what_has_no_result_fails(text: str) -> None:
    with pytest.raises(ExpressionFailed):
        value(text)
