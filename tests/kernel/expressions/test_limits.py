"""Whatever is written and whatever it meets: bounded work, and only the two errors."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import ExpressionFailed, InvalidExpression
from relevo.kernel.expressions import powerfx, to_python, tree
from relevo.kernel.expressions.powerfx_forms import RULES
from tests.kernel.expressions import expression_trees as random

DEPTH = limits.EXPRESSION_DEPTH_MAX
BYTES = limits.EXPRESSION_BYTES_MAX

pieces = st.sampled_from(
    [
        "If(",
        "Switch(",
        "Left(",
        "And(",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        ".",
        "job",
        "worker",
        ".",
        "'a",
        "b'",
        "'",
        '"',
        '"a"',
        "1",
        "2.5",
        "1e9",
        "true",
        "Blank()",
        "+",
        "-",
        "*",
        "/",
        "^",
        "%",
        "&",
        "&&",
        "||",
        "!",
        "And",
        "Or",
        "Not",
        "=",
        "<>",
        "<",
        ">=",
        "in",
        "exactin",
        "//",
        "/*",
        "*/",
        ";",
        "@",
        "ñ",
        "0x",
    ]
)


@given(st.lists(pieces, max_size=20).map(" ".join) | st.text(max_size=30))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with suppress(InvalidExpression):
        powerfx.parse(text)


@given(random.trees, random.scopes)
def test_any_expression_has_a_value_or_fails(
    expression: tree.Expression, scope: dict[str, Any]
) -> None:
    with suppress(ExpressionFailed):
        found = to_python.function(expression)(scope)
        assert not isinstance(found, float) or math.isfinite(found)


@given(random.trees, random.scopes)
def test_evaluation_changes_nothing_and_repeats(
    expression: tree.Expression, scope: dict[str, Any]
) -> None:
    before, evaluate = repr(scope), to_python.function(expression)

    def outcome() -> str:
        try:
            return repr(evaluate(scope))
        except ExpressionFailed as error:
            return error.message

    assert outcome() == outcome()
    assert repr(scope) == before


@pytest.mark.parametrize(
    "text",
    [
        "(" * DEPTH + "1" + ")" * DEPTH,
        "[" * DEPTH + "]" * DEPTH,
        "!" * DEPTH + "true",
        "Max(" * DEPTH + "1" + ")" * DEPTH,
        "1" + "%" * DEPTH,
        "1" + "=1" * DEPTH,
        "If(true," * DEPTH + "1" + ")" * DEPTH,
    ],
)
def test_nesting_is_allowed_up_to_its_limit(text: str) -> None:
    powerfx.compiled(text)({})


@pytest.mark.parametrize(
    "text",
    [
        "(" * (DEPTH + 1) + "1" + ")" * (DEPTH + 1),
        "(" * 4_000 + "1" + ")" * 4_000,
        "[" * 4_000 + "]" * 4_000,
        "{a:" * 2_000 + "1" + "}" * 2_000,
        "If(true," * 900 + "1" + ")" * 900,
        "!" * 8_000 + "true",
        "-" * 8_000 + "1",
        "1" + "%" * 8_000,
        "1" + "=1" * 4_000,
    ],
)
def test_deeper_nesting_is_refused_where_it_gets_too_deep(text: str) -> None:
    with pytest.raises(InvalidExpression, match="nests deeper than 64 levels"):
        powerfx.parse(text)


@pytest.mark.parametrize(
    "text",
    ["(" * BYTES, "If(" * 2_730, "||" * 4_000, '"' * (BYTES - 1), "/*" * 4_096, "'" * (BYTES - 1)],
)
def test_long_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression, match="line 1, column"):
        powerfx.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("||".join(["false"] * 1_100 + ["true"]), True),
        (" and ".join(["true"] * 900), True),
        ("+".join(["1"] * 4_000), 4_000),
        ("*".join(["1"] * 4_000), 1),
        ("&".join(['""'] * 2_700), ""),
        ("1" + "^1" * 4_000, 1),
        ("job" + ".a" * 4_000, None),
        (f"Max({','.join(['1'] * 4_000)})", 1),
    ],
)
def test_long_chains_nest_nowhere(text: str, expected: Any) -> None:
    assert powerfx.compiled(text)({}) == expected


def test_text_is_limited_in_bytes() -> None:
    assert powerfx.compiled('"' + "a" * (BYTES - 2) + '"')({}) == "a" * (BYTES - 2)
    with pytest.raises(InvalidExpression, match=r"8,193 bytes and may have 8,192"):
        powerfx.parse('"' + "a" * (BYTES - 1) + '"')
    with pytest.raises(InvalidExpression, match="bytes"):
        powerfx.parse('"' + "é" * (BYTES // 2) + '"')
    with pytest.raises(InvalidExpression, match="may have 3"):
        powerfx.parse("1 + 1", bytes_max=3)


def test_a_tree_that_no_text_made_is_limited_too() -> None:
    deep: tree.Expression = tree.Constant(True)
    for _ in range(5_000):
        deep = tree.Not(deep, RULES)
    with pytest.raises(InvalidExpression, match="nests deeper"):
        to_python.function(deep)
    with pytest.raises(InvalidExpression, match="more than 10 parts"):
        to_python.function(powerfx.parse("[1,2,3,4,5,6,7,8,9,10]"), steps_max=10)


@pytest.mark.parametrize(
    "text",
    [
        "Sum(workers)",
        "Sum(workers, workers)",
        "0.5 in workers",
        'Len(job.Long & "a")',
        'Substitute(job.Long, "a", "bb")',
        'Find("b", job.Long)',
        '"b" in job.Long',
        # Each level multiplies the text, so that few levels would fill any memory.
        "Substitute(" * 5 + '"aaaa"' + ',"a","aaaaaaaaaaaaaaaa")' * 5,
    ],
)
def test_steps_bound_what_values_make_of_an_expression(text: str) -> None:
    scope = {"workers": [1] * 20_000, "job": {"Long": "a" * 700_000}}
    with pytest.raises(ExpressionFailed, match="too many steps"):
        powerfx.compiled(text)(scope)


def test_steps_count_nodes_items_and_characters() -> None:
    expression = powerfx.parse("Sum(workers)")
    evaluate = to_python.function(expression, steps_max=12)
    assert evaluate({"workers": [1] * 10}) == 10  # two nodes, ten items
    assert evaluate({"workers": [1] * 10}) == 10  # every evaluation has its own
    with pytest.raises(ExpressionFailed, match="too many steps"):
        evaluate({"workers": [1] * 11})
    longest = to_python.function(powerfx.parse("Len(job.a)"), steps_max=4)  # three nodes
    assert longest({"job": {"a": "x" * 127}}) == 127
    with pytest.raises(ExpressionFailed):
        longest({"job": {"a": "x" * 128}})
