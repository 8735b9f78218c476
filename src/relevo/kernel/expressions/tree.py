"""The one tree into which Relevo reads every expression language.

Languages differ in what `=` and a missing value mean, so nodes carry `Rules`: a front end sets
them, back ends obey them, and a back end that cannot express a node refuses it by name. Chains
(`a && b && c`, `1 + 2 - 3`) are flat nodes, so long chains do not nest.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from relevo.errors import InvalidExpression

LogicOperator = Literal["and", "or"]
CompareOperator = Literal["=", "<>", "<", "<=", ">", ">="]
ArithmeticOperator = Literal["+", "-", "*", "/", "%", "^"]
LetterCase = Literal["exact", "folded"]


class Rules(Struct, frozen=True):
    """How a node treats nulls, letter case, values of different types and numbers."""

    nulls: Literal["blank", "unknown"]
    """`blank`: null equals only null, is neither less nor greater than a value, and counts as 0, as
    empty text and as false. `unknown`: the result is null (three-valued logic)."""
    case: LetterCase = "exact"
    """`folded`: texts compare in Unicode's simple lower case, the same on every machine."""
    mixed: Literal["differ", "unknown"] = "differ"
    """The result for values of different types: `differ` (only `<>` holds), or null."""
    arithmetic: Literal["widening", "checked"] = "widening"
    """`widening`: whole numbers beyond 64 bits become floating, and every result is finite.
    `checked`: the rules of C#. Whole numbers stay whole; overflow and division by zero fail.
    Floating numbers follow IEEE 754. `+` also joins texts; times and durations can be added."""
    uuids: Literal["typed", "written"] = "typed"
    """`written`: a UUID also compares with its canonical text."""


class Constant(Struct, frozen=True):
    """A value of the expression itself: null, boolean, number, text, time, UUID."""

    value: Any


class Name(Struct, frozen=True):
    """A value of the scope; null if the scope does not have it."""

    name: str


class Member(Struct, frozen=True):
    """The value at a path inside a record; null if it, or the record, is missing."""

    of: Expression
    path: tuple[str, ...]
    case: LetterCase = "exact"
    """`folded`: the path ignores letter case. The records then have `values.fold`ed names, so that
    folding is done once for all expressions."""


class Exists(Struct, frozen=True):
    """Whether a record has a member, even if its value is null."""

    member: Member


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
    """A comparison of two values."""

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
    """Whether a text matches a pattern, in which `%` is any text and `_` any character."""

    text: Expression
    pattern: Expression
    rules: Rules
    escape: Expression | None = None
    """A character that makes a `%`, a `_` or itself an ordinary character; none if missing."""


class Negate(Struct, frozen=True):
    """A number with the opposite sign."""

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


class FunctionCall(Struct, frozen=True):
    """A function of Power Fx (`functions.FUNCTIONS`) or of SQL filters (`filter_functions`)."""

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
    | Exists
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
    | FunctionCall
    | If
    | Switch
    | Coalesce
    | Record
    | List
)

NULL: Final = Constant(None)


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the parts of a node, in the order in which they are written."""
    match node:
        case Constant() | Name():
            return ()
        case Member(of=of):
            return (of,)
        case Exists(member=member):
            return (member,)
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
        case Like(text=text, pattern=pattern, escape=escape):
            return (text, pattern) if escape is None else (text, pattern, escape)
        case Arithmetic(first=first, rest=rest):
            return (first, *(operand for _, operand in rest))
        case FunctionCall(arguments=parts) | List(items=parts):
            return parts
        case If(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case Switch(subject=subject, cases=cases, otherwise=otherwise):
            return (subject, *(part for case in cases for part in case), otherwise)
        case Record(fields=fields):
            return tuple(value for _, value in fields)


def measure(expression: Expression, *, depth_max: int, nodes_max: int) -> int:
    """Return the number of nodes; refuses a tree that is too deep or has too many.

    Back ends recurse only into measured trees, so none reaches Python's own recursion limit.
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
