"""The Python back end: a tree becomes one function, made of closures.

Every evaluation is bounded in steps (`costs`). The nodes are counted when the function is made,
since none runs twice. Work that depends on values is charged while it runs: by `_charged`, by
`checked.chain`, and by `_switch`, which compares one case after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from relevo import limits
from relevo.errors import ExpressionFailed, InvalidExpression
from relevo.kernel.expressions import checked, values
from relevo.kernel.expressions.costs import (
    CHARACTERS_PER_STEP,
    Meter,
    Run,
    charge,
    comparing,
    searching,
    walking,
    weight,
)
from relevo.kernel.expressions.filter_functions import FILTER_FUNCTIONS
from relevo.kernel.expressions.functions import FUNCTIONS
from relevo.kernel.expressions.text_tests import LikeTest, affix, membership, one_of
from relevo.kernel.expressions.tree import (
    Affix,
    Arithmetic,
    Coalesce,
    Compare,
    Constant,
    Exists,
    Expression,
    FunctionCall,
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
    Switch,
    measure,
)
from relevo.kernel.expressions.values import fold, number, text, truth

Evaluate = Callable[[Mapping[str, Any]], Any]

_FUNCTIONS: Final = FUNCTIONS | FILTER_FUNCTIONS


def function(
    expression: Expression,
    *,
    steps_max: int = limits.EXPRESSION_STEPS_MAX,
    depth_max: int = limits.EXPRESSION_DEPTH_MAX,
) -> Evaluate:
    """Return a function from a scope (names to values) to the expression's value.

    It raises `ExpressionFailed` for values without a result, and nothing else. It can be kept, and
    called from many threads.
    """
    left = steps_max - measure(expression, depth_max=depth_max, nodes_max=steps_max)
    run = _run(expression)

    def evaluate(scope: Mapping[str, Any]) -> Any:
        try:
            return run(scope, [left])
        except (ArithmeticError, ValueError) as error:
            raise _uncalculable(error) from error

    return evaluate


def metered(
    expression: Expression,
    *,
    steps_max: int = limits.EXPRESSION_STEPS_MAX,
    depth_max: int = limits.EXPRESSION_DEPTH_MAX,
) -> Run:
    """Return the same function for expressions that share a meter: it pays from the given one."""
    nodes = measure(expression, depth_max=depth_max, nodes_max=steps_max)
    run = _run(expression)

    def evaluate(scope: Mapping[str, Any], meter: Meter) -> Any:
        charge(meter, nodes)
        try:
            return run(scope, meter)
        except (ArithmeticError, ValueError) as error:
            raise _uncalculable(error) from error

    return evaluate


def _uncalculable(error: Exception) -> ExpressionFailed:
    return ExpressionFailed(
        f"The expression cannot calculate with these values ({error}); use smaller ones."
    )


def _run(node: Expression) -> Run:
    match node:
        case Constant(value=value):
            return lambda scope, meter: value
        case Name(name=name):
            return lambda scope, meter: scope.get(name)
        case Member():
            return _member(node)
        case Exists(member=member):
            return _exists(member)
        case IsNull(operand=operand):
            return partial(_is_null, _run(operand))
        case Not() | Logic():
            return _condition(node)
        case Compare():
            return _compare(node)
        case In():
            return _in(node)
        case Affix(side=side, text=whole, part=part, rules=rules):
            return _compared(whole, part, affix(side, rules))
        case Like():
            return _like(node)
        case Negate() | Arithmetic() if node.rules.arithmetic == "checked":
            return _checked(node)
        case Negate() | Arithmetic():
            return _calculation(node)
        case Join():
            return _join(node)
        case FunctionCall():
            return _call(node)
        case If():
            return _if(node)
        case Switch():
            return _switch(node)
        case Coalesce(operands=operands):
            return partial(_coalesce, [_run(operand) for operand in operands])
        case Record(fields=fields):
            named = [(name, _run(value)) for name, value in fields]
            return lambda scope, meter: {name: run(scope, meter) for name, run in named}
        case List(items=items):
            runs = [_run(item) for item in items]
            return lambda scope, meter: [run(scope, meter) for run in runs]


def _charged(
    operands: Sequence[Expression], cost: Callable[..., int], apply: Callable[..., Any]
) -> Run:
    """Return a function that evaluates operands, pays for the work on them, and does it.

    It also pays for the resulting text. Nodes that look into values are made here, so that none of
    them works for nothing.
    """
    runs = [_run(operand) for operand in operands]

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        arguments = [run(scope, meter) for run in runs]
        steps = cost(*arguments)
        if steps:
            charge(meter, steps)
        result = apply(*arguments)
        if type(result) is str and len(result) >= CHARACTERS_PER_STEP:
            charge(meter, weight(result))
        return result

    return run


def _compared(left: Expression, right: Expression, apply: Callable[[Any, Any], bool | None]) -> Run:
    """The same for a comparison of two values, the most frequent node."""
    first, second = _run(left), _run(right)
    if _is_short(left) or _is_short(right):
        return lambda scope, meter: apply(first(scope, meter), second(scope, meter))

    def run(scope: Mapping[str, Any], meter: Meter) -> bool | None:
        a, b = first(scope, meter), second(scope, meter)
        if (type(a) is str or type(a) is bytes) and len(a) >= CHARACTERS_PER_STEP:
            charge(meter, comparing(a, b))
        return apply(a, b)

    return run


def _is_short(node: Expression) -> bool:
    """Whether comparing with it costs only its node: a comparison ends with the shorter text, and
    this one is short whatever the values are."""
    return isinstance(node, Constant) and not weight(node.value)


def _member(node: Member) -> Run:
    of, (first, *deeper) = _run(node.of), _names(node)
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
    """The member of a name, such as `job.Total`: the most frequent operand."""

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        record = scope.get(name)
        return record.get(first) if type(record) is dict else _inside(record, first)

    return run


def _names(node: Member) -> tuple[str, ...]:
    return tuple(map(fold, node.path)) if node.case == "folded" else node.path


def _exists(node: Member) -> Run:
    of, (*way, last) = _run(node.of), _names(node)

    def run(scope: Mapping[str, Any], meter: Meter) -> bool:
        record = of(scope, meter)
        for name in way:
            record = _inside(record, name)
        return _inside(record, last) is not None or (record is not None and last in record)

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
    """A `decisive` operand decides; without one, a null operand does, unless null is false."""
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
    known = _constants(node.container)
    if known is not None:
        return _charged((node.item,), walking, one_of(known, node.rules))
    return _charged((node.item, node.container), searching, membership(node.rules))


def _constants(node: Expression) -> list[Any] | None:
    """The values of a list of constants, which were counted as nodes; None for other lists."""
    if not isinstance(node, List):
        return None
    items = [item.value for item in node.items if isinstance(item, Constant)]
    return items if len(items) == len(node.items) else None


def _like(node: Like) -> Run:
    pattern = node.pattern, *(() if node.escape is None else (node.escape,))
    known = [operand.value for operand in pattern if isinstance(operand, Constant)]
    if len(known) == len(pattern):
        test = LikeTest(node.rules, *known)
        if test.pattern is not None:
            return _charged((node.text,), test.cost, test)
    test = LikeTest(node.rules)
    return _charged((node.text, *pattern), test.cost, test)


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


def _checked(node: Negate | Arithmetic) -> Run:
    if isinstance(node, Negate):
        return checked.negation(_run(node.operand))
    return checked.chain(_run(node.first), [(sign, _run(operand)) for sign, operand in node.rest])


def _join(node: Join) -> Run:
    unknown = node.rules.nulls == "unknown"

    def apply(*operands: Any) -> str | None:
        if unknown and None in operands:
            return None
        return "".join([text(value, "`&`") for value in operands])

    return _charged(node.operands, walking, apply)


def _call(node: FunctionCall) -> Run:
    if node.function not in _FUNCTIONS:
        raise InvalidExpression(f"There is no function {node.function}; check the front end.")
    function = _FUNCTIONS[node.function]
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
