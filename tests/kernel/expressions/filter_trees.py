"""Random trees of SQL filters, how they are written, and messages for them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from relevo.kernel.expressions.filter_functions import NEW_ID, PROPERTY
from relevo.kernel.expressions.sqlfilter import RULES, SYSTEM, SYSTEM_PROPERTIES, USER
from relevo.kernel.expressions.tree import (
    Arithmetic,
    Compare,
    Constant,
    Exists,
    Expression,
    FunctionCall,
    In,
    IsNull,
    Like,
    List,
    Logic,
    Member,
    Negate,
    Not,
)

KEYWORDS = {"and", "or", "not", "is", "in", "like", "escape", "exists", "null", "true", "false"}
LARGEST = 2**63 - 1
UUIDS = [UUID(int=1), UUID("0f0e0d0c-0b0a-0908-0706-050403020100")]
INSTANTS = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 31, 10, tzinfo=UTC)]

names = st.sampled_from(
    ["a", "A", "total", "Total", "in", "set", "a b", "it]s", 'q"', "ñ", "Ñ", "p"]
)
whole = st.integers(-9, 9) | st.sampled_from([LARGEST, -LARGEST - 1, LARGEST - 1, 2**32])
fraction = st.sampled_from([0.0, -0.0, 0.5, -2.5, 3.0, 1e300, -1e300]) | st.floats(
    allow_nan=False, allow_infinity=False
)
texts = st.sampled_from(["", "a", "A", "ab", "it's", "%", "a%", "_b", "!%", str(UUIDS[0])])
others = st.one_of(
    st.sampled_from(UUIDS),
    st.sampled_from(INSTANTS),
    st.timedeltas(timedelta(days=-400), timedelta(days=400)),
    st.sampled_from([b"", b"a", b"ab"]),
    st.sampled_from([float("inf"), float("nan")]),
)
values = st.one_of(st.none(), st.booleans(), whole, fraction, texts, others)
users = st.dictionaries(names, values, max_size=6)
systems = st.fixed_dictionaries(
    {"message_id": texts, "priority": st.integers(0, 9)},
    optional={
        "subject": st.none() | texts,
        "at": st.none() | st.sampled_from(INSTANTS),
        "ttl": st.none() | st.just(timedelta(hours=1)),
    },
)

user_members = names.map(lambda name: Member(USER, (name,), "folded"))
system_members = st.sampled_from(SYSTEM_PROPERTIES).map(lambda one: Member(SYSTEM, (one.field,)))
members = user_members | user_members | system_members
leaves: st.SearchStrategy[Expression] = values.map(Constant) | members


def sums(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    def chain(signs: str) -> st.SearchStrategy[Any]:
        return st.lists(st.tuples(st.sampled_from(signs), inner), min_size=1, max_size=3).map(tuple)

    return st.one_of(
        st.builds(Arithmetic, inner, chain("+-") | chain("*/%"), st.just(RULES)),
        # The sign of a number belongs to the number, unless there is no such number.
        st.builds(Negate, inner.filter(lambda node: not is_number(node)), st.just(RULES)),
        inner.map(lambda name: FunctionCall(PROPERTY, (USER, name))),
    )


operands = st.recursive(leaves, sums, max_leaves=5)
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
rules = st.just(RULES)
simple: st.SearchStrategy[Expression] = st.one_of(
    st.booleans().map(Constant),
    st.builds(IsNull, members),
    st.builds(Exists, members),
    st.builds(Compare, signs, operands, operands, rules),
    st.builds(
        In,
        operands,
        st.lists(operands, min_size=1, max_size=4).map(lambda items: List(tuple(items))),
        rules,
    ),
    st.builds(Like, operands, operands, rules, st.none() | operands),
)


def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Not, inner, rules),
        st.builds(Logic, st.sampled_from(["and", "or"]), several, rules),
        st.builds(Compare, signs, inner, inner, rules),
    )


conditions = st.recursive(simple, larger, max_leaves=6)


def is_number(node: Expression) -> bool:
    return isinstance(node, Constant) and type(node.value) in (int, float)


class Written:
    """A tree as text, with more parentheses than it needs, and the parameters in it."""

    def __init__(self, tree: Expression) -> None:
        self.parameters: dict[str, Any] = {}
        self.text = self.written(tree)

    def group(self, node: Expression) -> str:
        return f"({self.written(node)})"

    def written(self, node: Expression) -> str:
        match node:
            case Constant(value=value):
                return self.constant(value)
            case Member():
                return self.member(node)
            case IsNull(operand=operand):
                return f"{self.written(operand)} is null"
            case Exists(member=member):
                return f"Exists({self.written(member)})"
            case Not(operand=operand):
                return f"NOT {self.group(operand)}"
            case Negate(operand=operand):
                return f"-{self.group(operand)}"
            case Logic(operator=sign, operands=operands):
                return f" {sign} ".join(map(self.group, operands))
            case Compare(operator=sign, left=left, right=right):
                sign_ = "!=" if sign == "<>" else sign
                return f"{self.group(left)}{sign_}{self.group(right)}"
            case In(item=item, container=List(items=items)):
                return f"{self.group(item)} IN ({', '.join(map(self.group, items))})"
            case Like(text=text, pattern=pattern, escape=escape):
                end = "" if escape is None else f" ESCAPE {self.group(escape)}"
                return f"{self.group(text)} LIKE {self.group(pattern)}{end}"
            case Arithmetic(first=first, rest=rest):
                return self.group(first) + "".join(f" {s} {self.group(n)}" for s, n in rest)
            case FunctionCall(function=name, arguments=(_, argument)) if name == PROPERTY:
                return f"P({self.written(argument)})"
            case FunctionCall(function=name) if name == NEW_ID:
                return "newid()"
            case _:
                raise AssertionError(f"{node} is not of SQL filters")

    def constant(self, value: Any) -> str:
        match value:
            case None | bool():
                return {None: "null", True: "TRUE", False: "false"}[value]
            case int():
                return str(value)
            case float() if abs(value) < float("inf"):
                return repr(value)
            case str():
                return "'{}'".format(value.replace("'", "''"))
            case _:
                name = f"p{len(self.parameters)}"
                self.parameters[name] = value
                return f"@{name.upper()}"

    def member(self, node: Member) -> str:
        (name,) = node.path
        if node.of == SYSTEM:
            found = next(one.name for one in SYSTEM_PROPERTIES if one.field == name)
            return f"SYS . {found.upper()}"
        if re.fullmatch(r"[^\W\d_]\w*", name) and name.lower() not in KEYWORDS:
            return f"user.{name}" if len(name) == 1 else name
        if "]" in name:
            return '"{}"'.format(name.replace('"', '""'))
        return "[{}]".format(name.replace("]", "]]"))
