"""What evaluations cost: everything that looks into values is charged, and nothing takes long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import ExpressionFailed, InvalidExpression
from relevo.kernel.expressions import powerfx, to_python, tree
from relevo.kernel.expressions.powerfx_forms import FORMS
from relevo.kernel.expressions.values import fold, folding
from tests.kernel.expressions import expression_trees as random
from tests.support.watchdog import HELD_SECONDS_MAX, seconds_of

LENGTH = limits.ROUTER_LABEL_TEXT_LENGTH_MAX
HOSTILE = {
    "a": "a" * LENGTH,
    "h": "a" * 2_499,  # up to here, texts are searched by the simple method
    "p": "a" * 600 + "b" + "a" * 600,  # and this is what it finds hardest
    "s": "Σ" * LENGTH,  # has a lower case that depends on what stands beside it
    "w": " " * LENGTH,
    "n": "1" * (LENGTH - 1),
    "i": int("9" * 4_299),
    "f": 1e308,
}
SCOPE = {"job": HOSTILE, "worker": HOSTILE, "workers": [HOSTILE] * 1_000}
PAIRS = [
    ("job.p", "job.h"),
    ("job.h", "job.p"),
    ("job.s", "job.s"),
    ("job.s", "workers"),
    ("workers", "workers"),
    *((f"job.{name}", f"job.{name}") for name in "wnif"),
]
OPERATORS = ["=", "<", " in ", " exactin ", "&", "+", "*", "/", "^"]
LONG = "ab" * 5_000


def units() -> list[str]:
    """Every form and every operator on hostile values."""
    found = [f"({a}{sign}{b})" for a, b in PAIRS for sign in OPERATORS]
    for form in FORMS.values():
        most = 3 if form.most is None else form.most
        count = min(max(form.least, 2), most)
        found += [f"{form.name}({','.join((*pair, 'job.a')[:count])})" for pair in PAIRS]
    return found


def repeated(unit: str) -> to_python.Evaluate:
    """The rule in which a unit stands as often as there is room for it."""
    node = powerfx.parse(unit)
    count = limits.EXPRESSION_BYTES_MAX // (len(unit) + 1)
    return to_python.function(tree.List((node,) * count))


def test_no_rule_of_one_repeated_part_takes_long() -> None:
    took = {unit: seconds_of(repeated(unit), SCOPE) for unit in units()}
    worst = max(took, key=lambda unit: took[unit])
    assert took[worst] <= HELD_SECONDS_MAX, (worst, took[worst])


@given(random.trees)
def test_no_rule_that_is_found_takes_long(expression: tree.Expression) -> None:
    copies = tree.List((expression,) * 200)
    try:
        evaluate = to_python.function(copies)
    except InvalidExpression:
        return
    assert seconds_of(evaluate, SCOPE) <= HELD_SECONDS_MAX


@pytest.mark.parametrize("text", [
    "StartsWith(job.a, job.b)", "EndsWith(job.a, job.b)", "job.a = job.b", "job.a < job.b",
    "Switch(job.a, job.b, 1)", "job.a in [job.b]", "job.a exactin job.b", "job.a & job.b",
    "Len(job.a)", "Lower(job.a)", "Upper(job.a)", "Trim(job.a)", "Left(job.a, 9000)",
    "Right(job.a, 9000)", "Mid(job.a, 1)", "Find(job.a, job.b)", "Substitute(job.a, job.b, 1)",
    "Text(job.a)", "IsNumeric(job.a)", "Concatenate(job.a)", "IsBlank(job.a)",
])  # fmt: skip
def test_texts_are_charged_wherever_they_are_looked_at(text: str) -> None:
    evaluate = to_python.function(powerfx.parse(text), steps_max=70)
    evaluate({"job": {"a": "x", "b": "x"}})
    with pytest.raises(ExpressionFailed, match="too many steps"):
        evaluate({"job": {"a": LONG, "b": LONG}})


LAZY = {"And", "Or", "Coalesce"}
"""They look at one value after the other, and not into it."""


@pytest.mark.parametrize(
    "name", sorted(one.name for one in FORMS.values() if one.least == 1 and one.name not in LAZY)
)
def test_every_function_is_charged_for_long_lists(name: str) -> None:
    evaluate = to_python.function(powerfx.parse(f"{name}(workers)"), steps_max=100)
    with pytest.raises(ExpressionFailed, match="too many steps"):
        evaluate({"workers": [1] * 10_000})


def test_a_text_of_the_rule_itself_bounds_what_a_comparison_costs() -> None:
    for text in ('job.a = "short"', 'StartsWith(job.a, "ab")', 'Switch(job.a, "short", 1)'):
        to_python.function(powerfx.parse(text), steps_max=10)({"job": {"a": LONG}})


def test_numbers_beyond_64_bits_are_floating() -> None:
    huge = 10**20 + 1
    assert powerfx.compiled("Sqrt(job.a)")({"job": {"a": huge}}) == 1e10
    assert powerfx.compiled('job.a & ""')({"job": {"a": huge}}) == "100000000000000000001"
    for text in ('job.a & ""', "job.a + 1", "Round(job.a, -5)"):
        with pytest.raises(ExpressionFailed):
            powerfx.compiled(text)({"job": {"a": 10**4_000}})


@given(st.text(alphabet=st.sampled_from(list("aΣ\u03c3ςİ\u0131ß Ä\u0307"))))
def test_letter_case_is_folded_by_the_table_that_the_database_has_too(text: str) -> None:
    assert fold(text) == text.translate(folding())


def test_every_character_is_folded_by_that_table() -> None:
    every = " ".join(chr(code) for code in range(0x110000))
    assert fold(every) == every.translate(folding())
