"""The rule language (job-router.md 10.3): what text means, and what is said of faults in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from relevo.errors import ExpressionFailed, InvalidExpression
from relevo.kernel.expressions import powerfx, tree
from relevo.kernel.expressions.powerfx_forms import FORMS
from tests.kernel.expressions import expression_trees as random

JOB = {"Total": 7, "Name": "Ana", "Vip": True, "in": 1, "Or": 2, "x-y": "dash", "it's": 3}


def value(text: str, **job: Any) -> Any:
    return powerfx.compiled(text)({"job": {**JOB, **job}})


def alike(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("9223372036854775807", 2**63 - 1),
        ('"text"', "text"),
        ('"a ""quoted"" word"', 'a "quoted" word'),
        ('""', ""),
        ('"two\nlines"', "two\nlines"),
        ("true", True),
        ("false", False),
        ("TRUE", True),
        ("Blank()", None),
        ("blank ( )", None),
        ("{}", {}),
        ("{a: 1, 'b c': {d: 2}}", {"a": 1, "b c": {"d": 2}}),
        ("{in: 1, or: 2, true: 3}", {"in": 1, "or": 2, "true": 3}),
        ("[]", []),
        ('[1, "a", [true]]', [1, "a", [True]]),
        ("Table()", []),
        ('Table({key: "a"}, {key: "b"})', [{"key": "a"}, {"key": "b"}]),
        ("1 + // the rest\n 2", 3),
        ("1 /* one */ + /* and\ntwo */ 2", 3),
    ],
)
def test_literals(text: str, expected: Any) -> None:
    assert alike(value(text), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job.Total", 7),
        ("job . Total", 7),
        ("job.total", None),  # member names are case-sensitive
        ("job.Missing", None),
        ("job.Missing.Deeper", None),
        ("worker.Anything", None),
        ("job.'x-y'", "dash"),
        ("job.'it''s'", 3),
        ("job.in", 1),
        ("job.Or", 2),
        ("'job'.Total", 7),
        ("{a: {b: 5}}.a.b", 5),
        ("If(true, {a: 1}).a", 1),
    ],
)
def test_names_and_members(text: str, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("true || true && false", "true || (true && false)"),
        ("true Or true And false", "true || (true && false)"),
        ("false && 1 = 1", "false && (1 = 1)"),
        ('"a" & "b" = "ab"', '("a" & "b") = "ab"'),
        ('"a" in "b" & "a"', '"a" in ("b" & "a")'),
        ('1 + 2 & "x"', '(1 + 2) & "x"'),
        ("2 + 3 * 4", "2 + (3 * 4)"),
        ("2 * 3 ^ 2", "2 * (3 ^ 2)"),
        ("-2 ^ 2", "(-2) ^ 2"),
        ("2 ^ -1", "2 ^ (-1)"),
        ("-50%", "-(50%)"),
        ("2 ^ 50%", "2 ^ (50%)"),
        ("Not job.Vip = job.Vip", "(Not job.Vip) = job.Vip"),
        ("!job.Vip || true", "(!job.Vip) || true"),
        ("10 - 3 - 2", "(10 - 3) - 2"),
        ("100 / 10 / 2", "(100 / 10) / 2"),
        ("2 ^ 3 ^ 2", "(2 ^ 3) ^ 2"),
        ("1 < 2 = true", "(1 < 2) = true"),
        ("5 - 4 + 3", "(5 - 4) + 3"),
        ("200%%", "(200%)%"),
        ("--3", "-(-3)"),
        ("job.Total%", "(job.Total)%"),
    ],
)
def test_precedence_and_association(text: str, same: str) -> None:
    assert alike(value(text), value(same))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 = 7.0", True),
        ('"a" = "a"', True),
        ('"a" = "A"', False),
        ('"b" > "a"', True),
        ('"B" < "a"', True),  # ordinally
        ("2 >= 2", True),
        ("2 <= 1.5", False),
        ("true = true", True),
        ("true <> false", True),
        ("false < true", False),  # booleans have no order
        # Types differ: no conversion.
        ('"7" = 7', False),
        ('"7" <> 7', True),
        ("true = 1", False),
        ('5 > "3"', False),
        ('5 < "3"', False),
        ('[1] = "a"', False),
        # Blank equals only Blank, and no order holds with it.
        ("Blank() = Blank()", True),
        ("Blank() <> Blank()", False),
        ("job.X = true", False),
        ("job.X = false", False),
        ("job.X = 0", False),
        ('job.X = ""', False),
        ("job.X <> 1", True),
        ("job.X < 1", False),
        ("job.X >= 0", False),
        ("job.X <= Blank()", False),
        # In arithmetic it is 0, in text empty, in conditions false.
        ("job.X + 5", 5),
        ("-job.X", 0),
        ("job.X * 3", 0),
        ("job.X%", 0),
        ('job.X & "a"', "a"),
        ("!job.X", True),
        ("job.X || true", True),
        ("job.X && true", False),
        ("If(job.X, 1, 2)", 2),
        ('"a" & 1 & true & 1.50', "a1true1.5"),
        ("7 / 2", 3.5),
        ("6 / 2", 3),
        ("50%", 0.5),
        ("1 - 2.5", -1.5),
        ("2 ^ 10", 1024),
        ("4 ^ 0.5", 2.0),
        ("9223372036854775807 + 1", 2.0**63),
    ],
)
def test_operators(text: str, expected: Any) -> None:
    assert alike(value(text), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"AN" in "banana"', True),
        ('"AN" exactin "banana"', False),
        ('"an" exactin "banana"', True),
        ('"" in "banana"', True),
        ('"A" in ["a", "b"]', True),
        ('"A" exactin ["a", "b"]', False),
        ("1 in [1, 2]", True),
        ('1 in ["1"]', False),
        ("1 IN []", False),
        ("job.X in [1]", False),
        ("job.X in [Blank()]", True),
        ('"x" in job.X', False),
        ('1 in "a1"', True),
        ('"É" in "café"', True),
        ('job.Name in ["ana"]', True),
    ],
)
def test_in_ignores_case_and_exactin_does_not(text: str, expected: bool) -> None:
    assert value(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("And(true, true, false)", False),
        ("And(true)", True),
        ("OR(false, true)", True),
        ("Not(false)", True),
        ("not true", False),
        ("true and not false", True),
        ("And(true, true) And Or(false, true)", True),
    ],
)
def test_the_words_are_operators_and_functions(text: str, expected: bool) -> None:
    assert value(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("If(true, 1, 1/0)", 1),
        ("If(false, 1/0, 2)", 2),
        ("If(false, 1)", None),
        ("If(false, 1, true, 2, 1/0)", 2),
        ("If(false, 1/0, false, 1/0)", None),
        ("Switch(2, 1, 1/0, 2, 22, 1/0, 3)", 22),
        ("Switch(3, 1, 1/0, 2)", 2),
        ("Switch(3, 1, 1/0)", None),
        ('Switch("a", "A", 1, "a", 2)', 2),
        ("Switch(Blank(), 0, 1, Blank(), 2)", 2),
        ("true || 1/0 = 1", True),
        ("false && 1/0 = 1", False),
        ("Coalesce(Blank(), 5, 1/0)", 5),
        ('Coalesce("", "x")', "x"),
        ('Coalesce("", Blank())', None),
        ("Coalesce(false, true)", False),
    ],
)
def test_only_what_is_needed_is_evaluated(text: str, expected: Any) -> None:
    assert alike(value(text), expected)


@pytest.mark.parametrize(
    "text",
    [
        "1 / 0",
        "1 / job.X",
        "0 ^ -1",
        "(-8) ^ 0.5",
        "10 ^ 400",
        "1e308 * 10",
        '"5" + 1',
        "true + 1",
        "-true",
        '"a" && true',
        "!1",
        "If(1, 2, 3)",
        '[1] & "a"',
        "{a: 1} = {a: 1}",
        "job.Name.First",
        "1 in {a: 1}",
    ],
)
def test_values_without_a_result_fail(text: str) -> None:
    with pytest.raises(ExpressionFailed):
        value(text)


def test_a_failure_says_what_happened_with_which_value_and_what_to_do() -> None:
    with pytest.raises(ExpressionFailed, match=r'`\+` needs a number and got the text "Ana"; conv'):
        value("1 + job.Name")


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, "the text ends where a value is expected"),
        ("1 +", 1, 4, "the text ends where a value is expected"),
        ("If(true,\n   1", 2, 5, "the text ends where `,` or `)` is expected"),
        ("1 == 1", 1, 4, "Write a single = to compare"),
        ("1 != 1", 1, 3, "Write <> for unequal"),
        ("true | false", 1, 6, "Write || or Or"),
        ("true && || true", 1, 9, "found `||` where a value is expected"),
        ('1 = "open', 1, 5, "Close the text"),
        ("job.'open", 1, 5, "found `'` where a name is expected"),
        ("job.", 1, 5, "where a name is expected"),
        ("1 2", 1, 3, "found `2` where an operator or the end is expected"),
        ("(1\n+ 2))", 2, 5, "found `)` where the end is expected"),
        ("{a 1}", 1, 4, "where `:` is expected"),
        ("[1; 2]", 1, 3, "Separate arguments with commas"),
        ("And", 1, 4, "where `(` is expected"),
        ("Lenn(1)", 1, 1, "there is no function `Lenn`. Write Len"),
        ("1 + Zzzzzz()", 1, 5, "there is no function `Zzzzzz`"),
        ("Job.Total", 1, 1, "there is no name `Job`. Write job."),
        ("\n\n  nobody", 3, 3, "Write job or selectors or worker or workers."),
        ("1 + Left(job.Name)", 1, 5, "Left takes 2 arguments, not 1."),
        ("Abs(1, 2)", 1, 1, "Abs takes 1 argument, not 2."),
        ("Mid()", 1, 1, "Mid takes 2 or 3 arguments, not 0."),
        ("If(true)", 1, 1, "If takes at least 2 arguments, not 1."),
        ("Switch(1, 2)", 1, 1, "Switch takes at least 3 arguments, not 2."),
        ("And()", 1, 1, "And takes at least 1 argument, not 0."),
        ("Blank(1)", 1, 1, "Blank takes 0 arguments, not 1."),
        ("{a: 1, a: 2}", 1, 8, "`a` is given twice"),
        ("1e999", 1, 1, "too large"),
        ("1 + $", 1, 5, "found `$` where a value is expected"),
    ],
)
def test_a_fault_is_placed_and_explained(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        powerfx.parse(text)
    assert said in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"line {line}, column {column}:" in caught.value.message


def test_a_place_says_which_names_it_has() -> None:
    powerfx.parse("worker.Id")
    with pytest.raises(InvalidExpression, match="there is no name `worker`"):
        powerfx.parse("worker.Id", names=frozenset({"job"}))


def test_functions_are_written_in_any_case() -> None:
    assert value('iF(STARTSWITH(lower("AB"), "a"), LEN("abc"))') == 3


def test_every_function_of_the_specification_is_there() -> None:
    listed = """If Switch And Or IsBlank Coalesce Abs Min Max Sum Average Mod Power Sqrt Round
        RoundUp RoundDown Int Len Lower Upper Trim Left Right Mid StartsWith EndsWith Find
        Substitute Text Value Concatenate IsNumeric Table Blank"""
    assert {form.name for form in FORMS.values()} == set(listed.split())


def test_a_tree_carries_the_meaning_of_its_language() -> None:
    rules = tree.Rules(nulls="blank", case="exact", mixed="differ")
    total = tree.Member(tree.Name("job"), ("Total",))
    assert powerfx.parse("job.Total > 5") == tree.Compare(">", total, tree.Constant(5), rules)


def test_a_text_is_compiled_once() -> None:
    assert powerfx.compiled("1 + 1") is powerfx.compiled("1 + 1")


@given(random.trees)
def test_what_is_written_is_read_back(expression: tree.Expression) -> None:
    found = powerfx.parse(random.written(expression), bytes_max=10**6, depth_max=200)
    assert repr(found) == repr(expression)  # also tells 1, 1.0 and true apart
