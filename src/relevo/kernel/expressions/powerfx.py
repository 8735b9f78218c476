"""The front end for Power Fx, the router's rule language.

    parse("If(job.Total > 5, 10, 1)")       the tree
    compiled("If(job.Total > 5, 10, 1)")    the function, cached by its text

Names, functions and numbers of arguments are checked when the text is read, not when it runs.
"""

from __future__ import annotations

import functools
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from relevo import limits
from relevo.errors import InvalidExpression
from relevo.kernel.expressions import to_python
from relevo.kernel.expressions.functions import numeric
from relevo.kernel.expressions.powerfx_forms import FOLDED, FORMS, RULES, Form
from relevo.kernel.expressions.syntax import VALUE, Grammar, TreeBuilder, at, place, similar
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

if TYPE_CHECKING:
    from lark import Token

GRAMMAR: Final = Grammar(
    "powerfx.lark",
    starts=("start",),
    expected={
        "NUMBER": VALUE,
        "NAME": "a name",
        "PLUS": "an operator",
        "LPAR": "`(`",
        "COMMA": "`,`",
        "COLON": "`:`",
        "RPAR": "`)`",
        "RSQB": "`]`",
        "RBRACE": "`}`",
        "$END": "the end",
    },
    hints={
        '"': 'Close the text with ", and write "" for a quote inside it.',
        "'": "Quote names with ' and texts with \"; close the name, and write '' for ' inside it.",
        "=": "Write a single = to compare.",
        "!": "Write <> for unequal.",
        "|": "Write || or Or.",
        ";": "Separate arguments with commas.",
        "": "Complete the expression; perhaps a parenthesis is not closed.",
    },
)
NAMES: Final = frozenset({"job", "worker", "selectors", "workers"})
"""The names of a rule's scope; some places have fewer."""
COMPILED_MAX: Final = 4_096
COMPILED_LONG_MAX: Final = 256
LONG: Final = 512
"""The size of the cache of functions. A function is about a hundred times as large as its text, so
texts longer than `LONG` characters have a smaller cache of their own."""


def parse(
    text: str,
    *,
    names: frozenset[str] = NAMES,
    bytes_max: int = limits.EXPRESSION_BYTES_MAX,
    depth_max: int = limits.EXPRESSION_DEPTH_MAX,
) -> Expression:
    """Return the tree of an expression; `InvalidExpression` says where the text is wrong and why.

    `names` are those of the scope. Brackets count as nesting, chains of one operator do not.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > bytes_max:
        raise InvalidExpression(
            f"The expression has {size:,} bytes and may have {bytes_max:,}; shorten it."
        )
    return _PowerFxBuilder(names, depth_max).build(GRAMMAR.parse(text, "start"))


def compiled(text: str, names: frozenset[str] = NAMES) -> to_python.Evaluate:
    """Return the function of an expression, within the default limits.

    Reading a long text takes a tenth of a second, so do that in a thread, not in the event loop.
    """
    return (_compiled if len(text) <= LONG else _compiled_long)(text, names)


@functools.lru_cache(maxsize=COMPILED_MAX)
def _compiled(text: str, names: frozenset[str]) -> to_python.Evaluate:
    return to_python.function(parse(text, names=names))


_compiled_long: Final = functools.lru_cache(maxsize=COMPILED_LONG_MAX)(_compiled.__wrapped__)


class _PowerFxBuilder(TreeBuilder):
    def __init__(self, names: frozenset[str], depth_max: int) -> None:
        super().__init__(depth_max)
        self.names = names

    def _disjunction(self, parts: list[Any]) -> Expression:
        return Logic("or", self.all(parts[::2]), RULES)

    def _conjunction(self, parts: list[Any]) -> Expression:
        return Logic("and", self.all(parts[::2]), RULES)

    def _comparison(self, parts: list[Any]) -> Expression:
        left, right = self.all(parts[::2])
        sign = str(parts[1]).lower()
        if sign in ("in", "exactin"):
            return In(left, right, FOLDED if sign == "in" else RULES)
        return Compare(cast(CompareOperator, sign), left, right, RULES)

    def _joined(self, parts: list[Any]) -> Expression:
        return Join(self.all(parts), RULES)

    def _chain(self, parts: list[Any]) -> Expression:
        signs = [cast(ArithmeticOperator, str(sign)) for sign in parts[1::2]]
        first, *rest = self.all(parts[::2])
        return Arithmetic(first, tuple(zip(signs, rest, strict=True)), RULES)

    _sum = _product = _chain

    def _power(self, parts: list[Any]) -> Expression:
        base, *exponents = self.all(parts)
        return Arithmetic(base, tuple(("^", exponent) for exponent in exponents), RULES)

    def _negated(self, parts: list[Any]) -> Expression:
        (operand,) = self.all(parts)
        if isinstance(operand, Constant) and type(operand.value) in (int, float):
            return Constant(-operand.value)
        return Negate(operand, RULES)

    def _inverted(self, parts: list[Any]) -> Expression:
        return Not(self.build(parts[0]), RULES)

    def _hundredth(self, parts: list[Any]) -> Expression:
        return Arithmetic(self.build(parts[0]), (("/", Constant(100)),), RULES)

    def _member(self, parts: list[Any]) -> Expression:
        return Member(self.build(parts[0]), tuple(_name(name) for name in parts[1:]))

    def _number(self, parts: list[Any]) -> Expression:
        (token,) = parts
        value = numeric(token)
        if value is None:
            raise at(*place(token), f"the number {token[:20]}… is too large. Write a smaller one.")
        return Constant(value)

    def _text(self, parts: list[Any]) -> Expression:
        return Constant(str(parts[0])[1:-1].replace('""', '"'))

    def _true(self, _: list[Any]) -> Expression:
        return Constant(True)

    def _false(self, _: list[Any]) -> Expression:
        return Constant(False)

    def _name(self, parts: list[Any]) -> Expression:
        (token,) = parts
        name = _name(token)
        if name not in self.names:
            raise similar("name", token, self.names)
        return Name(name)

    def _group(self, parts: list[Any]) -> Expression:
        return self.build(parts[0])

    def _call(self, parts: list[Any]) -> Expression:
        token, arguments = parts[0], parts[1:]
        form = FORMS.get(token.lower())
        if form is None:
            raise similar("function", token, (form.name for form in FORMS.values()))
        if not form.least <= len(arguments) <= (inf if form.most is None else form.most):
            raise at(*place(token), _miscount(form, len(arguments)))
        return form.node(self.all(arguments))

    def _record(self, parts: list[Any]) -> Expression:
        fields: dict[str, Expression] = {}
        for field in parts:
            token, value = field.children
            name = _name(token)
            if name in fields:
                raise at(*place(token), f"`{name}` is given twice. Drop one.")
            fields[name] = self.build(value)
        return Record(tuple(fields.items()))

    def _list(self, parts: list[Any]) -> Expression:
        return List(self.all(parts))


def _name(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'") if token.startswith("'") else str(token)


def _miscount(form: Form, count: int) -> str:
    if form.most is None:
        takes = f"at least {form.least}"
    else:
        takes = " or ".join(str(n) for n in range(form.least, form.most + 1))
    return f"{form.name} takes {takes} argument{'s' * (takes[-1] != '1')}, not {count}."
