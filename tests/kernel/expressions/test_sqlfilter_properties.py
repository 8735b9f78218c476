"""SQL filters: every tree can be written and read, and means what the slow evaluator says."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from relevo.errors import ExpressionFailed, InvalidExpression
from relevo.kernel.expressions import powerfx, sqlaction, sqlfilter, to_python
from relevo.kernel.expressions.filter_functions import NEW_ID
from relevo.kernel.expressions.sqlfilter import RULES, TREE_DEPTH_MAX
from relevo.kernel.expressions.tree import (
    Arithmetic,
    ArithmeticOperator,
    Compare,
    Constant,
    Expression,
    FunctionCall,
)
from tests.kernel.expressions import filter_reference as reference
from tests.kernel.expressions import filter_trees as random
from tests.kernel.expressions.filter_reference import Failed, Reference

patient = settings(suppress_health_check=[HealthCheck.too_slow])
"""Trees are large, and the machines that make them busy."""


def outcome(tree: Expression, system: dict[str, Any], user: dict[str, Any]) -> Any:
    """The result, and the error if there is none."""
    evaluate = to_python.function(tree, depth_max=TREE_DEPTH_MAX)
    try:
        return evaluate(sqlfilter.scope(system, user))
    except ExpressionFailed:
        return Failed


def expected(tree: Expression, system: dict[str, Any], user: dict[str, Any]) -> Any:
    try:
        return Reference(system, user).value(tree)
    except Failed:
        return Failed


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and (math.isnan(a) or math.isnan(b)):
        return math.isnan(a) and math.isnan(b)
    return type(a) is type(b) and a == b


@patient
@given(random.conditions)
@example(Compare("=", FunctionCall(NEW_ID, ()), Constant(random.UUIDS[0]), RULES))
def test_what_is_written_is_read_as_it_was(tree: Expression) -> None:
    written = random.Written(tree)
    found = sqlfilter.parse(written.text, parameters=written.parameters, length_max=16_384)
    assert repr(found) == repr(tree)  # in which NaN is itself


@patient
@given(random.conditions, random.systems, random.users)
def test_a_filter_means_what_the_slow_evaluator_says(
    tree: Expression, system: dict[str, Any], user: dict[str, Any]
) -> None:
    assert outcome(tree, system, user) is expected(tree, system, user)


@patient
@given(random.operands, random.systems, random.users)
def test_a_value_is_what_the_slow_evaluator_says(
    tree: Expression, system: dict[str, Any], user: dict[str, Any]
) -> None:
    assert same(outcome(tree, system, user), expected(tree, system, user))


@patient
@given(random.conditions, random.systems, random.users)
def test_evaluation_changes_nothing_and_repeats(
    tree: Expression, system: dict[str, Any], user: dict[str, Any]
) -> None:
    before = repr((system, user))
    assert outcome(tree, system, user) is outcome(tree, system, user)  # M23
    assert repr((system, user)) == before


numbers = random.whole | st.integers(-(2**63), 2**63 - 1)


@given(st.sampled_from("+-*/%"), numbers, numbers)
def test_whole_numbers_are_calculated_by_the_rules_of_c_sharp(
    sign: ArithmeticOperator, a: int, b: int
) -> None:
    found = outcome(Arithmetic(Constant(a), ((sign, Constant(b)),), RULES), {}, {})
    try:
        assert same(found, reference.whole(sign, a, b))
    except Failed:
        assert found is Failed


floats = st.floats() | random.fraction | numbers


@given(st.sampled_from("+-*/%"), st.floats(), floats, st.booleans())
def test_floating_numbers_follow_ieee(
    sign: ArithmeticOperator, a: float, b: float, turned: bool
) -> None:
    a, b = (b, a) if turned else (a, b)
    found = outcome(Arithmetic(Constant(a), ((sign, Constant(b)),), RULES), {}, {})
    assert same(found, reference.floating(sign, float(a), float(b)))


WORDS = """a b sys user . MessageId [ ] [a] " "q" ' 'x' '' 1 2.5 1e9 9223372036854775808 TRUE null
@p @ ( ) , ; + - * / % = <> != < >= ! AND or NOT IS IN LIKE ESCAPE EXISTS EXISTS( newid() p( SET
REMOVE ñ ² $"""
pieces = st.sampled_from([*WORDS.split(), "\n", "[a b]"])
anything = st.lists(pieces, max_size=20).map(" ".join) | st.text(max_size=30)


@given(anything)
@example("")
@example("\n")
@example("a = 1 AND\n\n")
def test_any_text_is_a_filter_or_refused_with_a_place_inside_it(text: str) -> None:
    for read in (sqlfilter.compiled, sqlaction.parse):
        refused: InvalidExpression | None = None
        try:
            read(text, parameters={"p": 1})
        except InvalidExpression as error:
            refused = error
        if refused is not None:
            lines, line, column = text.split("\n"), refused.line, refused.column
            assert 1 <= line <= len(lines)
            assert 1 <= column <= len(lines[line - 1]) + 1
            assert f"line {line}, column {column}" in refused.message


@given(anything, random.systems, random.users)
def test_any_filter_that_is_read_has_a_result_or_fails(
    text: str, system: dict[str, Any], user: dict[str, Any]
) -> None:
    with suppress(InvalidExpression, ExpressionFailed):
        result = sqlfilter.compiled(text)(sqlfilter.scope(system, user))
        assert result in (True, False, None)


def test_newid_is_new_each_time() -> None:
    fresh = to_python.function(FunctionCall(NEW_ID, ()))
    assert fresh({}) != fresh({})


def test_other_languages_do_not_have_its_functions() -> None:
    for text in ("newid()", 'property(job, "a")'):
        with pytest.raises(InvalidExpression, match="there is no function"):
            powerfx.parse(text)
