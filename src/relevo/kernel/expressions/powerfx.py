"""The front end for Power Fx, the router's rule language.

    parse("If(job.Total > 5, 10, 1)")       the tree
    compiled("If(job.Total > 5, 10, 1)")    the function, remembered by its text

Text is read by a table-driven parser without recursion and then built into the tree by one whose
recursion is counted. Names, functions and numbers of arguments are checked here, not when it runs.
"""

from __future__ import annotations

import functools
import importlib.resources
from math import inf
from typing import Any, Final, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken

from relevo import limits
from relevo.errors import InvalidExpression
from relevo.kernel.expressions import to_python
from relevo.kernel.expressions.functions import numeric
from relevo.kernel.expressions.powerfx_faults import at, place, similar, syntax
from relevo.kernel.expressions.powerfx_forms import FOLDED, FORMS, RULES, Form
from relevo.kernel.expressions.tree import (
    Arithmetic,
    ArithmeticOperator,
    Compare,
    CompareOperator,
    Constant,
    Expression,
    In,
    Join,
    List,
    Logic,
    Member,
    Name,
    Negate,
    Not,
    Record,
)

NAMES: Final = frozenset({"job", "worker", "selectors", "workers"})
"""What an expression can speak of; a place that has fewer says so."""
COMPILED_MAX: Final = 4_096
COMPILED_LONG_MAX: Final = 256
LONG: Final = 512
"""How many functions are remembered, the least used forgotten first. One is about a hundred times
as large as its text, so there are fewer of those whose texts are longer than `LONG`."""


def parse(
    text: str,
    *,
    names: frozenset[str] = NAMES,
    bytes_max: int = limits.EXPRESSION_BYTES_MAX,
    depth_max: int = limits.EXPRESSION_DEPTH_MAX,
) -> Expression:
    """Return the tree of an expression; `InvalidExpression` says where and why it is none.

    `names` are what it may speak of. Brackets count as nesting, chains of one operator do not.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > bytes_max:
        raise InvalidExpression(
            f"The expression has {size:,} bytes and may have {bytes_max:,}; shorten it."
        )
    try:
        found = _grammar().parse(text)
    except UnexpectedInput as error:
        raise syntax(text, error, _expected(text, error)) from None
    return _Builder(names, depth_max).build(found)


def compiled(text: str, names: frozenset[str] = NAMES) -> to_python.Evaluate:
    """Return the function that an expression stands for, within the default limits.

    To read a long one takes a tenth of a second, so that is no work for the event loop.
    """
    return (_compiled if len(text) <= LONG else _compiled_long)(text, names)


@functools.lru_cache(maxsize=COMPILED_MAX)
def _compiled(text: str, names: frozenset[str]) -> to_python.Evaluate:
    return to_python.function(parse(text, names=names))


_compiled_long: Final = functools.lru_cache(maxsize=COMPILED_LONG_MAX)(_compiled.__wrapped__)


@functools.cache
def _grammar() -> Lark:
    text = importlib.resources.files(__package__).joinpath("powerfx.lark").read_text("utf-8")
    return Lark(text, parser="lalr", maybe_placeholders=False, propagate_positions=True)


def _expected(text: str, error: UnexpectedInput) -> set[str]:
    """What the grammar could go on with, where it could not."""
    if isinstance(error, UnexpectedToken):
        return error.accepts
    parser = _grammar().parse_interactive(text[: error.pos_in_stream])
    parser.exhaust_lexer()
    return cast(set[str], parser.accepts())  # type: ignore[no-untyped-call]


class _Builder:
    """Turns what the parser found into nodes; one method for each name in the grammar."""

    def __init__(self, names: frozenset[str], depth_max: int) -> None:
        self.names = names
        self.depth_max = depth_max
        self.depth = 0

    def build(self, found: Tree[Token]) -> Expression:
        if self.depth > self.depth_max:
            raise at(
                found.meta.line,
                found.meta.column,
                f"it nests deeper than {self.depth_max} levels. Flatten it.",
            )
        self.depth += 1
        node: Expression = getattr(self, f"_{found.data}")(found.children)
        self.depth -= 1
        return node

    def all(self, found: list[Any]) -> tuple[Expression, ...]:
        return tuple(self.build(one) for one in found)

    def _disjunction(self, found: list[Any]) -> Expression:
        return Logic("or", self.all(found[::2]), RULES)

    def _conjunction(self, found: list[Any]) -> Expression:
        return Logic("and", self.all(found[::2]), RULES)

    def _comparison(self, found: list[Any]) -> Expression:
        left, right = self.all(found[::2])
        sign = str(found[1]).lower()
        if sign in ("in", "exactin"):
            return In(left, right, FOLDED if sign == "in" else RULES)
        return Compare(cast(CompareOperator, sign), left, right, RULES)

    def _joined(self, found: list[Any]) -> Expression:
        return Join(self.all(found), RULES)

    def _chain(self, found: list[Any]) -> Expression:
        signs = [cast(ArithmeticOperator, str(sign)) for sign in found[1::2]]
        first, *rest = self.all(found[::2])
        return Arithmetic(first, tuple(zip(signs, rest, strict=True)), RULES)

    _sum = _product = _chain

    def _power(self, found: list[Any]) -> Expression:
        base, *exponents = self.all(found)
        return Arithmetic(base, tuple(("^", exponent) for exponent in exponents), RULES)

    def _negated(self, found: list[Any]) -> Expression:
        (operand,) = self.all(found)
        if isinstance(operand, Constant) and type(operand.value) in (int, float):
            return Constant(-operand.value)
        return Negate(operand, RULES)

    def _inverted(self, found: list[Any]) -> Expression:
        return Not(self.build(found[0]), RULES)

    def _hundredth(self, found: list[Any]) -> Expression:
        return Arithmetic(self.build(found[0]), (("/", Constant(100)),), RULES)

    def _member(self, found: list[Any]) -> Expression:
        return Member(self.build(found[0]), tuple(_name(name) for name in found[1:]))

    def _number(self, found: list[Any]) -> Expression:
        (token,) = found
        value = numeric(token)
        if value is None:
            raise at(*place(token), f"the number {token[:20]}… is too large. Write a smaller one.")
        return Constant(value)

    def _text(self, found: list[Any]) -> Expression:
        return Constant(str(found[0])[1:-1].replace('""', '"'))

    def _true(self, _: list[Any]) -> Expression:
        return Constant(True)

    def _false(self, _: list[Any]) -> Expression:
        return Constant(False)

    def _name(self, found: list[Any]) -> Expression:
        (token,) = found
        name = _name(token)
        if name not in self.names:
            raise similar("name", token, self.names)
        return Name(name)

    def _group(self, found: list[Any]) -> Expression:
        return self.build(found[0])

    def _call(self, found: list[Any]) -> Expression:
        token, arguments = found[0], found[1:]
        form = FORMS.get(token.lower())
        if form is None:
            raise similar("function", token, (form.name for form in FORMS.values()))
        if not form.least <= len(arguments) <= (inf if form.most is None else form.most):
            raise at(*place(token), _miscount(form, len(arguments)))
        return form.node(self.all(arguments))

    def _record(self, found: list[Any]) -> Expression:
        fields: dict[str, Expression] = {}
        for field in found:
            token, value = field.children
            name = _name(token)
            if name in fields:
                raise at(*place(token), f"`{name}` stands there twice. Drop one.")
            fields[name] = self.build(value)
        return Record(tuple(fields.items()))

    def _list(self, found: list[Any]) -> Expression:
        return List(self.all(found))


def _name(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'") if token.startswith("'") else str(token)


def _miscount(form: Form, count: int) -> str:
    if form.most is None:
        takes = f"at least {form.least}"
    else:
        takes = " or ".join(str(n) for n in range(form.least, form.most + 1))
    return f"{form.name} takes {takes} argument{'s' * (takes[-1] != '1')}, not {count}."
