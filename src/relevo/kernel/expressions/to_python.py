"""The Python back end: a tree becomes one function, made of closures.

Every evaluation is bounded in steps (`costs`). The nodes are counted when the function is made,
since none runs twice; what depends on values is charged while it runs: by `_charged`, and by
`_switch`, which compares one case after the other. So most evaluations count nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from relevo import limits
from relevo.errors import ExpressionFailed, InvalidExpression
from relevo.kernel.expressions import values
from relevo.kernel.expressions.costs import (
    CHARACTERS_PER_STEP,
    Meter,
    charge,
    comparing,
    searching,
    walking,
    weight,
)
from relevo.kernel.expressions.functions import FUNCTIONS
from relevo.kernel.expressions.tree import (
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
from relevo.kernel.expressions.values import Comparison, number, text, truth

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


def _charged(
    operands: Sequence[Expression], cost: Callable[..., int], apply: Callable[..., Any]
) -> Run:
    """Return what evaluates operands, is charged what work on them costs, and does that work.

    The text that comes out is charged too. Nodes that look into values are made here and nowhere
    else, so that none works for nothing.
    """
    runs = [_run(operand) for operand in operands]

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        found = [run(scope, meter) for run in runs]
        steps = cost(*found)
        if steps:
            charge(meter, steps)
        result = apply(*found)
        if type(result) is str and len(result) >= CHARACTERS_PER_STEP:
            charge(meter, weight(result))
        return result

    return run


def _compared(left: Expression, right: Expression, apply: Callable[[Any, Any], bool | None]) -> Run:
    """The same for two values that are compared, which is what most rules are made of."""
    first, second = _run(left), _run(right)
    if _is_short(left) or _is_short(right):
        return lambda scope, meter: apply(first(scope, meter), second(scope, meter))

    def run(scope: Mapping[str, Any], meter: Meter) -> bool | None:
        a, b = first(scope, meter), second(scope, meter)
        if type(a) is str and len(a) >= CHARACTERS_PER_STEP:
            charge(meter, comparing(a, b))
        return apply(a, b)

    return run


def _is_short(node: Expression) -> bool:
    """Whether comparing with it costs nothing beyond its node: a comparison ends with the shorter
    text, and this one is short whatever the values are."""
    return isinstance(node, Constant) and not weight(node.value)


def _member(node: Member) -> Run:
    of, (first, *deeper) = _run(node.of), node.path
    if isinstance(node.of, Name) and not deeper:
        return _label(node.of.name, first)

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        record = of(scope, meter)
        value = record.get(first) if type(record) is dict else _inside(record, first)
        for name in deeper:
            value = _inside(value, name)
        return value

    return run


def _label(name: str, first: str) -> Run:
    """The member of a name, such as `job.Total`: nearly all that rules look at."""

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        record = scope.get(name)
        return record.get(first) if type(record) is dict else _inside(record, first)

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
    compare = values.comparison(node.operator, node.rules)
    if node.rules.case == "folded":
        return _charged((node.left, node.right), walking, compare)
    return _compared(node.left, node.right, compare)


def _in(node: In) -> Run:
    rules, folded = node.rules, node.rules.case == "folded"
    equal = values.comparison("=", replace(rules, case="exact"))
    known = _written(node.container)
    if known is not None:
        items = [_folded(one, folded) for one in known]
        return _charged(
            (node.item,), walking, lambda item: _among(_folded(item, folded), items, equal)
        )

    def apply(wanted: Any, found: Any) -> bool | None:
        if isinstance(found, list):
            items = (_folded(one, folded) for one in found)
            return _among(_folded(wanted, folded), items, equal)
        return _texts(rules, "in", found, wanted, str.__contains__)

    return _charged((node.item, node.container), searching, apply)


def _written(node: Expression) -> list[Any] | None:
    """The values of a list in which all are written out: as nodes they have been counted."""
    if not isinstance(node, List):
        return None
    items = [one.value for one in node.items if isinstance(one, Constant)]
    return items if len(items) == len(node.items) else None


def _folded(value: Any, folded: bool) -> Any:
    return values.fold(value) if folded and type(value) is str else value


def _among(wanted: Any, items: Iterable[Any], equal: Comparison) -> bool | None:
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
    rules, at_start, folded = node.rules, node.side == "start", node.rules.case == "folded"
    who = "StartsWith" if at_start else "EndsWith"

    def test(whole: str, part: str) -> bool:
        # Letter case is folded character by character, so the rest of the text need not be.
        spare = len(whole) - len(part)
        if spare < 0:
            return False
        end = whole[: len(part)] if at_start else whole[spare:]
        return end == part or (folded and values.fold(end) == values.fold(part))

    def apply(whole: Any, part: Any) -> bool | None:
        if type(whole) is str and type(part) is str:
            return test(whole, part)
        return _texts(replace(rules, case="exact"), who, whole, part, test)

    return _compared(node.text, node.part, apply)


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
    unknown = node.rules.nulls == "unknown"

    def apply(*found: Any) -> str | None:
        if unknown and None in found:
            return None
        return "".join([text(value, "`&`") for value in found])

    return _charged(node.operands, walking, apply)


def _call(node: Call) -> Run:
    if node.function not in FUNCTIONS:
        raise InvalidExpression(f"There is no function {node.function}; check the front end.")
    function = FUNCTIONS[node.function]
    return _charged(node.arguments, function.cost, function.apply)


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
    cases = [(_run(case), _run(value), _is_short(case)) for case, value in node.cases]
    equal = values.comparison("=", node.rules)

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        wanted = subject(scope, meter)
        for case, value, is_short in cases:
            other = case(scope, meter)
            if not is_short:
                charge(meter, comparing(wanted, other))
            if equal(wanted, other):
                return value(scope, meter)
        return otherwise(scope, meter)

    return run


def _coalesce(runs: list[Run], scope: Mapping[str, Any], meter: Meter) -> Any:
    for run in runs:
        value = run(scope, meter)
        if value is not None and value != "":
            return value
    return None
