"""The SQL back end: a tree becomes a clause for PostgreSQL, with every value a bound parameter.

    clause(tree, {("age",): SqlColumn("j.age", "bigint")}.get)
    Clause("(j.age > $1::bigint)", (5,), "boolean")

It gives the results of the Python back end, for the nodes that queries need. It refuses other nodes
and rules by name, and so it does with anything that could make a statement fail because of one row
(dividing by a column). Columns have one type each, so comparisons of different types are decided
here, not row by row. Numbers with fractions are doubles: a whole number beyond 2^53 that meets one
is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from relevo import limits
from relevo.errors import InvalidExpression
from relevo.kernel.decoding import is_unicode
from relevo.kernel.expressions.tree import (
    Affix,
    Arithmetic,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    List,
    Logic,
    Member,
    Name,
    Negate,
    Not,
    Rules,
    measure,
)
from relevo.kernel.expressions.values import WHOLE_MAX, fold, folding, shown

SqlType = Literal["bigint", "numeric", "float8", "text", "boolean", "timestamptz", "uuid", "null"]

_TYPES: Final[dict[type, SqlType]] = {
    bool: "boolean",
    int: "bigint",
    float: "float8",
    str: "text",
    datetime: "timestamptz",
    UUID: "uuid",
    type(None): "null",
}


class SqlColumn(Struct, frozen=True):
    """The SQL of a path, written by the caller, and its type.

    Operators are written around it, so it is a name, a call or in parentheses.
    """

    sql: str
    type: SqlType
    exact: bool = False
    """Letter case always matters in it, whatever the rules say: ids stored as text."""


class Clause(Struct, frozen=True):
    """An SQL expression, the values of its parameters in order, and its type."""

    sql: str
    parameters: tuple[Any, ...]
    type: SqlType


Columns = Callable[[tuple[str, ...]], SqlColumn | None]


class Parameters:
    """The values that a statement binds, numbered from `first`; several clauses may share them."""

    def __init__(self, first: int = 1) -> None:
        self.first = first
        self.values: list[Any] = []
        self.folding: tuple[str, str] | None = None

    def bound(self, value: Any, kind: str) -> str:
        """Bind a value and return the SQL that stands for it."""
        self.values.append(value)
        return f"${self.first + len(self.values) - 1}::{kind}"

    def folded(self, sql: str) -> str:
        """Return the SQL of a text in Unicode's simple lower case, by our own table.

        That of servers depends on their version and locale. Most texts need only ASCII's.
        """
        if self.folding is None:
            upper, lower = "".join(map(chr, folding())), "".join(folding().values())
            self.folding = self.bound(upper, "text"), self.bound(lower, "text")
        upper, lower = self.folding
        return (
            f'(case when octet_length({sql}) = length({sql}) then lower({sql} collate "C") '
            f"else translate({sql}, {upper}, {lower}) end)"
        )


def clause(
    expression: Expression,
    columns: Columns,
    *,
    first: int = 1,
    parameters: Parameters | None = None,
    depth_max: int = limits.EXPRESSION_DEPTH_MAX,
    nodes_max: int = limits.EXPRESSION_STEPS_MAX,
) -> Clause:
    """Return the clause of an expression, its parameters numbered from `first`.

    `columns` says what a path (a name and its members) stands for, or None if it is unknown. What
    this back end does not know raises `InvalidExpression`. With `parameters` the values are bound
    there, behind those that are there already.
    """
    measure(expression, depth_max=depth_max, nodes_max=nodes_max)
    bound = Parameters(first) if parameters is None else parameters
    result = _ClauseWriter(columns, bound, depth_max).sql(expression)
    return Clause(result.sql, tuple(bound.values), result.type)


class _ClauseWriter:
    def __init__(self, columns: Columns, parameters: Parameters, terms_max: int) -> None:
        self.columns = columns
        self.terms_max = terms_max
        self.parameters = parameters
        self.bound = parameters.bound

    def sql(self, node: Expression) -> SqlColumn:
        _refuse_rules(node)
        match node:
            case Constant(value=value):
                return self.constant(value)
            case Name(name=name):
                return self.column((name,))
            case Member(of=Name(name=name), path=path, case=case):
                return self.column((name, *(map(fold, path) if case == "folded" else path)))
            case IsNull(operand=operand):
                return SqlColumn(f"({self.sql(operand).sql} is null)", "boolean")
            case Not(operand=operand, rules=rules):
                return SqlColumn(f"(not {self.condition(operand, rules)})", "boolean")
            case Logic(operator=sign, operands=operands, rules=rules):
                parts = [self.condition(operand, rules) for operand in operands]
                return SqlColumn(f"({f' {sign} '.join(parts)})", "boolean")
            case Compare():
                return self.compare(node)
            case In():
                if isinstance(node.container, List):
                    return self.listed(node, node.container.items)
                whole, part = self.texts(node.container, node.item, node.rules)
                return SqlColumn(f"(position({part} in {whole}) > 0)", "boolean")
            case Affix():
                return self.affix(node)
            case Like():
                return self.like(node)
            case Negate(operand=operand, rules=rules):
                return self.arithmetic(Arithmetic(Constant(0), (("-", operand),), rules))
            case Arithmetic():
                return self.arithmetic(node)
            case _:
                raise InvalidExpression(
                    f"{type(node).__name__} cannot be searched for in the database; use "
                    "comparisons, and, or, not, in, starts, ends and arithmetic."
                )

    def constant(self, value: Any) -> SqlColumn:
        kind = _type(value)
        return SqlColumn("null" if kind == "null" else self.bound(value, kind), kind)

    def column(self, path: tuple[str, ...]) -> SqlColumn:
        column = self.columns(path)
        if column is None:
            raise InvalidExpression(f"There is no column `{'.'.join(path)}`; check its name.")
        return column

    def condition(self, node: Expression, rules: Rules) -> str:
        operand = self.sql(node)
        if operand.type not in ("boolean", "null"):
            raise InvalidExpression(
                f"A {operand.type} stands where a condition is needed; compare it with something."
            )
        blank = rules.nulls == "blank"
        return f"coalesce({operand.sql}, false)" if blank else f"{operand.sql}::boolean"

    def compare(self, node: Compare) -> SqlColumn:
        left, right = self.sql(node.left), self.sql(node.right)
        sign, rules, equality = node.operator, node.rules, node.operator in ("=", "<>")
        alike = _kind(left.type) == _kind(right.type) != "null"
        if not alike or (left.type == "boolean" and not equality):
            return _unlike(left, right, node)
        if left.type == "text":
            rules = _exact(rules, left, right)
            order = "" if equality else ' collate "C"'  # by code points, as Python orders
            a, b = (self.text(operand, rules) + order for operand in (left, right))
        elif "float8" in (left.type, right.type):
            a, b = f"{left.sql}::float8", f"{right.sql}::float8"
        else:
            a, b = left.sql, right.sql
        if rules.nulls == "unknown":
            return SqlColumn(f"({a} {sign} {b})", "boolean")
        if equality:
            distinct = "is not distinct from" if sign == "=" else "is distinct from"
            return SqlColumn(f"({a} {distinct} {b})", "boolean")
        return SqlColumn(f"coalesce({a} {sign} {b}, false)", "boolean")

    def text(self, column: SqlColumn, rules: Rules) -> str:
        """A text as it is compared."""
        return column.sql if rules.case == "exact" else self.parameters.folded(column.sql)

    def listed(self, node: In, items: tuple[Expression, ...]) -> SqlColumn:
        """Whether a list has the item: its type's values in one array, then the other values."""
        values = [each.value for each in items if isinstance(each, Constant)]
        nested = not isinstance(node.item, (Constant, Name, Member, Negate, Arithmetic))
        if len(values) < len(items) or nested:
            raise InvalidExpression("Only columns can be looked for in lists, and only constants.")
        item, rules = self.sql(node.item), node.rules
        unknown, kinds = "null::boolean", {_kind(_type(value)) for value in values}
        parts = [f"({item.sql} is null and false)"]  # every parameter is named, also of no use
        if item.type != "null" and _kind(item.type) in kinds:
            same = [v for v in values if _kind(_type(v)) == _kind(item.type)]
            parts = [self.array(item, same, rules)]
        if "null" in kinds:
            parts.append(f"({item.sql} is null)" if rules.nulls == "blank" else unknown)
        if kinds - {"null", _kind(item.type)}:
            with_null = "false" if rules.nulls == "blank" else unknown
            different = "false" if rules.mixed == "differ" else unknown
            parts.append(f"(case when {item.sql} is null then {with_null} else {different} end)")
        return SqlColumn(f"({' or '.join(parts)})", "boolean")

    def array(self, item: SqlColumn, values: list[Any], rules: Rules) -> str:
        sql, kind = item.sql, _type(values[0])
        if kind == "text":
            rules = _exact(rules, item)
            sql = self.text(item, rules)
            values = [fold(v) for v in values] if rules.case == "folded" else values
        elif _kind(kind) == "number" and "float8" in {item.type, *map(_type, values)}:
            sql, kind, values = f"{sql}::float8", "float8", [float(v) for v in values]
        test = f"({sql} = any({self.bound(values, f'{kind}[]')}))"
        return f"coalesce({test}, false)" if rules.nulls == "blank" else test

    def texts(self, whole: Expression, part: Expression, rules: Rules) -> tuple[str, str]:
        return self.as_text(whole, rules), self.as_text(part, rules)

    def as_text(self, node: Expression, rules: Rules) -> str:
        operand = self.sql(node)
        if operand.type not in ("text", "null"):
            raise InvalidExpression(f"A {operand.type} stands where a text is needed; use a text.")
        blank = "coalesce({}::text, '')" if rules.nulls == "blank" else "{}::text"
        return self.text(SqlColumn(blank.format(operand.sql), "text"), rules)

    def affix(self, node: Affix) -> SqlColumn:
        whole, part = self.texts(node.text, node.part, node.rules)
        if node.side == "start":
            return SqlColumn(f"starts_with({whole}, {part})", "boolean")
        return SqlColumn(f"(right({whole}, length({part})) = {part})", "boolean")

    def like(self, node: Like) -> SqlColumn:
        if not isinstance(node.pattern, Constant) or type(node.pattern.value) is not str:
            raise InvalidExpression("The database matches constant patterns only; write a text.")
        if node.escape is not None:
            raise InvalidExpression("The database matches patterns without ESCAPE; drop it.")
        pattern: str = node.pattern.value
        _type(pattern)
        pattern = fold(pattern) if node.rules.case == "folded" else pattern
        text = self.as_text(node.text, node.rules)
        return SqlColumn(f"({text} like {self.bound(pattern, 'text')} escape '')", "boolean")

    def arithmetic(self, node: Arithmetic) -> SqlColumn:
        if len(node.rest) > self.terms_max:  # PostgreSQL nests them, and its stack has an end
            raise InvalidExpression(
                f"A calculation in the database has at most {self.terms_max} terms; shorten it."
            )
        total = self.operand(node.first, node.rules)
        for sign, operand in node.rest:
            if sign in ("^", "%") or (sign == "/" and not _divisor(operand)):
                raise InvalidExpression(
                    f"`{sign}` can fail for one row and with it the whole search; the database "
                    "divides only, and only by constants other than zero."
                )
            other = self.operand(operand, node.rules)
            double = sign == "/" or "float8" in (total.type, other.type)
            kind: SqlType = "float8" if double else "numeric"
            total = SqlColumn(f"({total.sql}::{kind} {sign} {other.sql}::{kind})", kind)
        return total

    def operand(self, node: Expression, rules: Rules) -> SqlColumn:
        operand = self.sql(node)
        if _kind(operand.type) not in ("number", "null"):
            raise InvalidExpression(f"A {operand.type} stands where a number is needed; use one.")
        kind: SqlType = "numeric" if operand.type == "null" else operand.type
        blank = rules.nulls == "blank"
        return SqlColumn(f"coalesce({operand.sql}::{kind}, 0)" if blank else operand.sql, kind)


def _refuse_rules(node: Expression) -> None:
    rules = getattr(node, "rules", None)
    if rules is not None and (rules.arithmetic == "checked" or rules.uuids == "written"):
        raise InvalidExpression(
            f"{type(node).__name__} has rules of SQL filters, which only Python evaluates."
        )


def _unlike(left: SqlColumn, right: SqlColumn, node: Compare) -> SqlColumn:
    """Values that have no common type: what their comparison gives depends on nulls alone."""
    sign, rules = node.operator, node.rules
    unlike = "null::boolean" if rules.mixed == "unknown" else str(sign == "<>").lower()
    single = "null::boolean" if rules.nulls == "unknown" else str(sign == "<>").lower()
    both = "null::boolean" if rules.nulls == "unknown" else str(sign == "=").lower()
    nulls = f"num_nulls({left.sql}, {right.sql})"  # names each once, so that nests stay short
    return SqlColumn(
        f"(case {nulls} when 0 then {unlike} when 1 then {single} else {both} end)", "boolean"
    )


def _exact(rules: Rules, *columns: SqlColumn) -> Rules:
    return replace(rules, case="exact") if any(column.exact for column in columns) else rules


def _divisor(node: Expression) -> bool:
    return isinstance(node, Constant) and type(node.value) in (int, float) and node.value != 0


def _kind(kind: SqlType) -> str:
    return "number" if kind in ("bigint", "numeric", "float8") else kind


def _type(value: Any) -> SqlType:
    """The type under which a constant is bound; refuses what PostgreSQL cannot hold."""
    if type(value) is int and not -WHOLE_MAX - 1 <= value <= WHOLE_MAX:
        raise InvalidExpression("A whole number has more than 64 bits; write a smaller one.")
    if type(value) is str and not storable(value):
        raise InvalidExpression("A text has a character that the database cannot hold; drop it.")
    kind = UUID if isinstance(value, UUID) else type(value)  # drivers have classes of their own
    if kind not in _TYPES:
        raise InvalidExpression(f"The database cannot compare with {shown(value)}; use its values.")
    return _TYPES[kind]


def storable(value: str) -> bool:
    """Whether a text is proper Unicode without the null character."""
    return "\0" not in value and is_unicode(value)
