"""The Python back end: a tree becomes one function, made of closures.

A step is one node, one item of a list that is walked, or 64 characters of a text that is made or
searched. The nodes are counted when the function is made, since none runs twice; what depends on
values is counted while it runs. So an evaluation is bounded, and most count nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from relevo import limits
from relevo.core.expressions import values
from relevo.core.expressions.functions import FUNCTIONS
from relevo.core.expressions.tree import (
    Affix,
    Arithmetic,
    Call,
    Coalesce,
    Compare,
    Constant,
    Expression,
    If,
    In,
    IsNull,
    Join,
    Like,
    List,
    Logic,
    Member,
    Name,
    Negate,
    Not,
    Record,
    Rules,
    Switch,
    measure,
)
from relevo.core.expressions.values import Comparison, Meter, charge, number, text, truth, weight
from relevo.errors import ExpressionFailed, InvalidExpression

Evaluate = Callable[[Mapping[str, Any]], Any]
Run = Callable[[Mapping[str, Any], Meter], Any]


def function(
    expression: Expression,
    *,
    steps_max: int = limits.EXPRESSION_STEPS_MAX,
    depth_max: int = limits.EXPRESSION_DEPTH_MAX,
) -> Evaluate:
    """Return a function from a scope (names to plain JSON values) to the expression's value.

    It raises `ExpressionFailed` for values that have no result, and nothing else. Safe to keep and
    to call from many threads.
    """
    left = steps_max - measure(expression, depth_max=depth_max, nodes_max=steps_max)
    run = _run(expression)

    def evaluate(scope: Mapping[str, Any]) -> Any:
        try:
            return run(scope, [left])
        except (ArithmeticError, ValueError) as error:
            raise ExpressionFailed(
                f"The expression cannot calculate with these values ({error}); use smaller ones."
            ) from error

    return evaluate


def _run(node: Expression) -> Run:
    match node:
        case Constant(value=value):
            return lambda scope, meter: value
        case Name(name=name):
            return lambda scope, meter: scope.get(name)
        case Member():
            return _member(node)
        case IsNull(operand=operand):
            return partial(_is_null, _run(operand))
        case Not() | Logic():
            return _condition(node)
        case Compare():
            return _compare(node)
        case In():
            return _in(node)
        case Affix():
            return _affix(node)
        case Like():
            raise InvalidExpression("Like is only searched for in the database; use In or Affix.")
        case Negate() | Arithmetic():
            return _calculation(node)
        case Join():
            return _join(node)
        case Call():
            return _call(node)
        case If():
            return _if(node)
        case Switch():
            return _switch(node)
        case Coalesce(operands=operands):
            return partial(_coalesce, [_run(one) for one in operands])
        case Record(fields=fields):
            made = [(name, _run(value)) for name, value in fields]
            return lambda scope, meter: {name: run(scope, meter) for name, run in made}
        case List(items=items):
            runs = [_run(item) for item in items]
            return lambda scope, meter: [run(scope, meter) for run in runs]


def _member(node: Member) -> Run:
    of, (first, *deeper) = _run(node.of), node.path

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        record = of(scope, meter)
        value = record.get(first) if type(record) is dict else _inside(record, first)
        for name in deeper:
            value = _inside(value, name)
        return value

    return run


def _inside(record: Any, name: str) -> Any:
    if record is None:
        return None
    if isinstance(record, Mapping):
        return record.get(name)
    raise ExpressionFailed(
        f"`{name}` was looked for in {values.shown(record)}; only records have members."
    )


def _is_null(run: Run, scope: Mapping[str, Any], meter: Meter) -> bool:
    return run(scope, meter) is None


def _condition(node: Not | Logic) -> Run:
    blank = node.rules.nulls == "blank"
    if isinstance(node, Not):
        return partial(_not, _run(node.operand), True if blank else None)
    runs = [_run(operand) for operand in node.operands]
    return partial(_logic, runs, node.operator == "or", blank, node.operator.capitalize())


def _not(run: Run, of_null: bool | None, scope: Mapping[str, Any], meter: Meter) -> bool | None:
    value = truth(run(scope, meter), "Not")
    return of_null if value is None else not value


def _logic(
    runs: list[Run], decisive: bool, blank: bool, who: str, scope: Mapping[str, Any], meter: Meter
) -> bool | None:
    """One operand that is `decisive` decides; without it a null one, unless null means false."""
    result: bool | None = not decisive
    for run in runs:
        value = truth(run(scope, meter), who)
        if value is None:
            if not blank:
                result = None
                continue
            value = False
        if value is decisive:
            return decisive
    return result


def _compare(node: Compare) -> Run:
    left, right = _run(node.left), _run(node.right)
    compare = values.comparison(node.operator, node.rules)
    return lambda scope, meter: compare(left(scope, meter), right(scope, meter))


def _in(node: In) -> Run:
    item, container, rules = _run(node.item), _run(node.container), node.rules
    equal = values.comparison("=", rules)

    def run(scope: Mapping[str, Any], meter: Meter) -> bool | None:
        wanted, found = item(scope, meter), container(scope, meter)
        charge(meter, weight(found))
        if isinstance(found, list):
            return _among(wanted, found, equal)
        return _texts(rules, "in", found, wanted, str.__contains__)

    return run


def _among(wanted: Any, items: list[Any], equal: Comparison) -> bool | None:
    """Whether one item is equal; if none is, null if that of one is unknown."""
    result: bool | None = False
    for one in items:
        same = equal(one, wanted)
        if same:
            return True
        if same is None:
            result = None
    return result


def _affix(node: Affix) -> Run:
    whole, part, rules = _run(node.text), _run(node.part), node.rules
    who, test = {"start": ("StartsWith", str.startswith), "end": ("EndsWith", str.endswith)}[
        node.side
    ]

    def run(scope: Mapping[str, Any], meter: Meter) -> bool | None:
        return _texts(rules, who, whole(scope, meter), part(scope, meter), test)

    return run


def _texts(
    rules: Rules, who: str, whole: Any, part: Any, test: Callable[[str, str], bool]
) -> bool | None:
    if rules.nulls == "unknown" and (whole is None or part is None):
        return None
    a, b = text(whole, who), text(part, who)
    return test(values.fold(a), values.fold(b)) if rules.case == "folded" else test(a, b)


def _calculation(node: Negate | Arithmetic) -> Run:
    if isinstance(node, Negate):
        node = Arithmetic(Constant(0), (("-", node.operand),), node.rules)
    first, unknown = _run(node.first), node.rules.nulls == "unknown"
    rest = [(f"`{sign}`", values.ARITHMETIC[sign], _run(operand)) for sign, operand in node.rest]
    opening = rest[0][0]

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        value = first(scope, meter)
        if value is None and unknown:
            return None
        total = number(value, opening)
        for who, apply, operand in rest:
            value = operand(scope, meter)
            if value is None and unknown:
                return None
            total = apply(total, number(value, who))
        return total

    return run


def _join(node: Join) -> Run:
    runs, unknown = [_run(operand) for operand in node.operands], node.rules.nulls == "unknown"

    def run(scope: Mapping[str, Any], meter: Meter) -> str | None:
        found = [run(scope, meter) for run in runs]
        if unknown and None in found:
            return None
        charge(meter, sum(map(weight, found)))
        return "".join([text(value, "`&`") for value in found])

    return run


def _call(node: Call) -> Run:
    if node.function not in FUNCTIONS:
        raise InvalidExpression(f"There is no function {node.function}; check the front end.")
    apply, runs = FUNCTIONS[node.function].apply, [_run(one) for one in node.arguments]

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        arguments = [run(scope, meter) for run in runs]
        charge(meter, sum(map(weight, arguments)))
        return apply(arguments, meter)

    return run


def _if(node: If) -> Run:
    branches, otherwise = [(_run(a), _run(b)) for a, b in node.branches], _run(node.otherwise)

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        for condition, value in branches:
            held = condition(scope, meter)
            if held is True or truth(held, "If"):
                return value(scope, meter)
        return otherwise(scope, meter)

    return run


def _switch(node: Switch) -> Run:
    subject, otherwise = _run(node.subject), _run(node.otherwise)
    cases = [(_run(case), _run(value)) for case, value in node.cases]
    equal = values.comparison("=", node.rules)

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        wanted = subject(scope, meter)
        for case, value in cases:
            if equal(wanted, case(scope, meter)):
                return value(scope, meter)
        return otherwise(scope, meter)

    return run


def _coalesce(runs: list[Run], scope: Mapping[str, Any], meter: Meter) -> Any:
    for run in runs:
        value = run(scope, meter)
        if value is not None and value != "":
            return value
    return None
