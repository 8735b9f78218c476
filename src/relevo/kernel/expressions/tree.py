"""The one tree that every expression language of Relevo is read into.

Languages mean different things by `=` and by a missing value, so nodes carry `Rules`: a front end
sets them, back ends obey them, and a back end that cannot express a node refuses it by name. Chains
(`a && b && c`, `1 + 2 - 3`) are flat nodes, so that long ones nest nowhere.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from relevo.errors import InvalidExpression

LogicOperator = Literal["and", "or"]
CompareOperator = Literal["=", "<>", "<", "<=", ">", ">="]
ArithmeticOperator = Literal["+", "-", "*", "/", "^"]


class Rules(Struct, frozen=True):
    """What a node means by null, by letter case and by values of different types."""

    nulls: Literal["blank", "unknown"]
    """`blank`: null equals only null, no order holds with it, and it counts as 0, as empty text and
    as false. `unknown`: what is computed from null is null (three-valued logic)."""
    case: Literal["exact", "folded"] = "exact"
    """`folded`: texts compare in Unicode's simple lower case, the same on every machine."""
    mixed: Literal["differ", "unknown"] = "differ"
    """Values of different types: `differ` (only `<>` holds), or null."""


class Constant(Struct, frozen=True):
    """A value written in the text: null, boolean, number, text, or what a front end makes."""

    value: Any


class Name(Struct, frozen=True):
    """A value of the scope; null if the scope does not have it."""

    name: str


class Member(Struct, frozen=True):
    """What lies at a path inside a record; null if it, or the record, is missing."""

    of: Expression
    path: tuple[str, ...]


class IsNull(Struct, frozen=True):
    """Whether a value is missing."""

    operand: Expression


class Not(Struct, frozen=True):
    """The opposite of a condition."""

    operand: Expression
    rules: Rules


class Logic(Struct, frozen=True):
    """All, or any, of some conditions; later ones are looked at only if they matter."""

    operator: LogicOperator
    operands: tuple[Expression, ...]
    rules: Rules


class Compare(Struct, frozen=True):
    """Two values compared."""

    operator: CompareOperator
    left: Expression
    right: Expression
    rules: Rules


class In(Struct, frozen=True):
    """Whether a list has an item, or a text contains another."""

    item: Expression
    container: Expression
    rules: Rules


class Affix(Struct, frozen=True):
    """Whether a text starts or ends with another."""

    side: Literal["start", "end"]
    text: Expression
    part: Expression
    rules: Rules


class Like(Struct, frozen=True):
    """Whether a text has the form of a pattern: `%` is any text, `_` any character."""

    text: Expression
    pattern: str
    """Nothing else in it is special, and nothing takes what is special from the two."""
    rules: Rules


class Negate(Struct, frozen=True):
    """A number with its sign turned."""

    operand: Expression
    rules: Rules


class Arithmetic(Struct, frozen=True):
    """A chain of operators of one precedence, from left to right."""

    first: Expression
    rest: tuple[tuple[ArithmeticOperator, Expression], ...]
    rules: Rules


class Join(Struct, frozen=True):
    """Texts one after the other."""

    operands: tuple[Expression, ...]
    rules: Rules


class Call(Struct, frozen=True):
    """A function of `functions.FUNCTIONS` applied to values."""

    function: str
    arguments: tuple[Expression, ...]


class If(Struct, frozen=True):
    """The value beside the first condition that holds; nothing else is evaluated."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression


class Switch(Struct, frozen=True):
    """The value beside the first case that equals the subject; nothing else is evaluated."""

    subject: Expression
    cases: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    rules: Rules


class Coalesce(Struct, frozen=True):
    """The first operand that is neither null nor empty text; later ones are not evaluated."""

    operands: tuple[Expression, ...]


class Record(Struct, frozen=True):
    """Values by name."""

    fields: tuple[tuple[str, Expression], ...]


class List(Struct, frozen=True):
    """Values in order."""

    items: tuple[Expression, ...]


Expression: TypeAlias = (
    Constant
    | Name
    | Member
    | IsNull
    | Not
    | Logic
    | Compare
    | In
    | Affix
    | Like
    | Negate
    | Arithmetic
    | Join
    | Call
    | If
    | Switch
    | Coalesce
    | Record
    | List
)

NULL: Final = Constant(None)


def children(node: Expression) -> tuple[Expression, ...]:
    """Return what a node is made of, in the order in which it is written."""
    match node:
        case Constant() | Name():
            return ()
        case Member(of=of):
            return (of,)
        case IsNull(operand=operand) | Not(operand=operand) | Negate(operand=operand):
            return (operand,)
        case Logic(operands=parts) | Join(operands=parts) | Coalesce(operands=parts):
            return parts
        case Compare(left=left, right=right):
            return (left, right)
        case In(item=item, container=container):
            return (item, container)
        case Affix(text=text, part=part):
            return (text, part)
        case Like(text=text):
            return (text,)
        case Arithmetic(first=first, rest=rest):
            return (first, *(operand for _, operand in rest))
        case Call(arguments=parts) | List(items=parts):
            return parts
        case If(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case Switch(subject=subject, cases=cases, otherwise=otherwise):
            return (subject, *(part for case in cases for part in case), otherwise)
        case Record(fields=fields):
            return tuple(value for _, value in fields)


def measure(expression: Expression, *, depth_max: int, nodes_max: int) -> int:
    """Return how many nodes there are; refuses what nests too deep or has too many.

    Back ends walk a tree by recursion once it was measured, so nothing meets Python's own limit.
    """
    nodes, depth = 0, 0
    level: tuple[Expression, ...] = (expression,)
    while level:
        nodes += len(level)
        if nodes > nodes_max:
            raise InvalidExpression(
                f"The expression has more than {nodes_max:,} parts; split it into several."
            )
        level = tuple(child for node in level for child in children(node))
        depth += 1
        if level and depth > depth_max:
            raise InvalidExpression(
                f"The expression nests deeper than {depth_max} levels; write it flatter."
            )
    return nodes
