"""The rules that nodes carry: other languages mean other things by null, case and mixed types."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import ExpressionFailed, InvalidExpression
from relevo.kernel.expressions import to_python
from relevo.kernel.expressions.tree import (
    Affix,
    Arithmetic,
    Compare,
    CompareOperator,
    Constant,
    Expression,
    FunctionCall,
    In,
    IsNull,
    Join,
    List,
    Logic,
    LogicOperator,
    Name,
    Negate,
    Not,
    Rules,
    children,
)
from relevo.kernel.expressions.values import fold
from tests.kernel.expressions import expression_trees as random

BLANK = Rules(nulls="blank")
UNKNOWN = Rules(nulls="unknown", mixed="unknown")
FOLDED = Rules(nulls="unknown", case="folded", mixed="unknown")
STRICT = Rules(nulls="unknown", mixed="differ")


def value(expression: Expression, **scope: Any) -> Any:
    return to_python.function(expression)(scope)


def compared(a: Any, sign: CompareOperator, b: Any, rules: Rules) -> Any:
    return value(Compare(sign, Constant(a), Constant(b), rules))


@pytest.mark.parametrize(
    ("a", "sign", "b", "rules", "expected"),
    [
        (None, "=", None, BLANK, True),
        (None, "=", None, UNKNOWN, None),
        (None, "<>", 1, BLANK, True),
        (None, "<>", 1, UNKNOWN, None),
        (None, "<", 1, BLANK, False),
        (None, "<", 1, UNKNOWN, None),
        ("a", "=", "A", UNKNOWN, False),
        ("a", "=", "A", FOLDED, True),
        ("ÀΣ", "=", "àσ", FOLDED, True),
        ("a", "<", "B", UNKNOWN, False),
        ("a", "<", "B", FOLDED, True),
        ("10", ">", 5, BLANK, False),
        ("10", ">", 5, UNKNOWN, None),
        ("10", "<>", 5, BLANK, True),
        ("10", "<>", 5, UNKNOWN, None),
        ("10", "<>", 5, STRICT, True),
        (True, "<", True, STRICT, False),
        (True, "<=", True, UNKNOWN, None),
        (datetime(2026, 1, 1, tzinfo=UTC), "<", datetime(2026, 1, 2, tzinfo=UTC), UNKNOWN, True),
        (UUID(int=1), "=", UUID(int=1), UNKNOWN, True),
    ],
)
def test_comparison(a: Any, sign: CompareOperator, b: Any, rules: Rules, expected: Any) -> None:
    assert compared(a, sign, b, rules) is expected


@pytest.mark.parametrize("operator", ["and", "or"])
def test_logic_is_two_or_three_valued(operator: LogicOperator) -> None:
    decisive = operator == "or"
    for operands in product([True, False, None], repeat=3):
        node = tuple(Constant(one) for one in operands)
        blank = [bool(one) for one in operands]
        assert value(Logic(operator, node, BLANK)) is (any(blank) if decisive else all(blank))
        rest = None if None in operands else not decisive
        expected = decisive if decisive in operands else rest
        assert value(Logic(operator, node, UNKNOWN)) is expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Not(Constant(None), BLANK), True),
        (Not(Constant(None), UNKNOWN), None),
        (Not(Constant(True), UNKNOWN), False),
        (IsNull(Constant(None)), True),
        (IsNull(Constant(0)), False),
        (IsNull(Name("missing")), True),
        (Negate(Constant(None), BLANK), 0),
        (Negate(Constant(None), UNKNOWN), None),
        (Negate(Constant(2), UNKNOWN), -2),
        (Arithmetic(Constant(None), (("+", Constant(1)),), UNKNOWN), None),
        (Arithmetic(Constant(1), (("+", Constant(None)),), UNKNOWN), None),
        (Join((Constant("a"), Constant(None)), BLANK), "a"),
        (Join((Constant("a"), Constant(None)), UNKNOWN), None),
        (Affix("start", Constant("ab"), Constant("A"), UNKNOWN), False),
        (Affix("start", Constant("ab"), Constant("A"), FOLDED), True),
        (Affix("end", Constant(None), Constant(""), FOLDED), None),
        (Affix("end", Constant(None), Constant(""), BLANK), True),
        (In(Constant("B"), Constant("abc"), FOLDED), True),
        (In(Constant(None), Constant("abc"), FOLDED), None),
        (In(Constant(1), List((Constant(1), Constant(None))), UNKNOWN), True),
        (In(Constant(2), List((Constant(1), Constant(None))), UNKNOWN), None),
        (In(Constant(2), List((Constant(1), Constant("2"))), UNKNOWN), None),
        (In(Constant(2), List((Constant(1), Constant("2"))), STRICT), False),
        (In(Constant(None), List((Constant(1),)), UNKNOWN), None),
        (In(Constant(None), List(()), UNKNOWN), False),
    ],
)
def test_nulls_by_rule(node: Expression, expected: Any) -> None:
    assert value(node) is expected or value(node) == expected


def test_lists_and_records_are_not_compared() -> None:
    with pytest.raises(ExpressionFailed, match="Comparing a list has no result"):
        compared([1], "=", [1], BLANK)
    assert compared([1], "=", {}, BLANK) is False


def test_a_function_that_does_not_exist_is_refused_when_it_is_made() -> None:
    with pytest.raises(InvalidExpression, match="no function Nope"):
        to_python.function(FunctionCall("Nope", ()))


@given(st.characters())
def test_folding_is_simple_and_done_once(one: str) -> None:
    assert len(fold(one)) == 1
    assert fold(fold(one)) == fold(one)
    assert fold(one) == one.lower() or len(one.lower()) > 1
    assert fold(f"{one}É") == f"{fold(one)}é"


@given(random.trees)
def test_children_are_all_there_is(expression: Expression) -> None:
    """A node's representation is made of its children's, so none is left out."""
    for child in children(expression):
        assert repr(child) in repr(expression)
    nested = repr(expression).count("Constant(") + repr(expression).count("Name(name=")
    assert nested == sum(isinstance(one, (Constant, Name)) for one in every(expression))


def every(expression: Expression) -> list[Expression]:
    found, todo = [], [expression]
    while todo:
        found.append(todo.pop())
        todo += children(found[-1])
    return found
