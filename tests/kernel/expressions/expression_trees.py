"""Random Power Fx trees, and how they are written."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st

from relevo.kernel.expressions.functions import FUNCTIONS
from relevo.kernel.expressions.powerfx_forms import FOLDED, RULES
from relevo.kernel.expressions.tree import (
    NULL,
    Affix,
    Arithmetic,
    Coalesce,
    Compare,
    Constant,
    Expression,
    FunctionCall,
    If,
    In,
    Join,
    List,
    Logic,
    Member,
    Name,
    Negate,
    Not,
    Record,
    Switch,
)
from relevo.kernel.expressions.values import plain

names = st.sampled_from(["Total", "in", "Or", "a b", "it's", "true", "ñ", "x-y", '"'])
numbers = st.integers(1 - 2**63, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | st.integers(-9, 9) | numbers | st.text(max_size=5)
documents = st.recursive(
    values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
scopes = st.fixed_dictionaries(
    {"job": documents}, optional={"worker": documents, "workers": st.lists(documents, max_size=3)}
)
leaves = values.map(Constant) | st.sampled_from(["job", "worker", "workers"]).map(Name)


def chains(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    def rest(signs: str) -> st.SearchStrategy[Any]:
        pairs = st.tuples(st.sampled_from(signs), inner)
        return st.lists(pairs, min_size=1, max_size=3).map(tuple)

    chain = rest("+-") | rest("*/") | rest("^")
    return st.builds(Arithmetic, inner, chain, st.just(RULES))


def calls(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    def call(name: str) -> st.SearchStrategy[Expression]:
        function = FUNCTIONS[name]
        most = function.least + 2 if function.most is None else function.most
        sized = st.lists(inner, min_size=function.least, max_size=most)
        return sized.map(lambda arguments: FunctionCall(name, tuple(arguments)))

    return st.sampled_from(sorted(FUNCTIONS)).flatmap(call)


def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    pairs = st.lists(st.tuples(inner, inner), min_size=1, max_size=2).map(tuple)
    exact, either = st.just(RULES), st.sampled_from([RULES, FOLDED])
    signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    return st.one_of(
        chains(inner),
        calls(inner),
        st.builds(Member, inner, st.lists(names, min_size=1, max_size=3).map(tuple)),
        st.builds(Not, inner, exact),
        st.builds(Logic, st.sampled_from(["and", "or"]), several, exact),
        st.builds(Compare, signs, inner, inner, exact),
        st.builds(In, inner, inner, either),
        st.builds(Affix, st.sampled_from(["start", "end"]), inner, inner, st.just(FOLDED)),
        # The sign of a number belongs to the number.
        st.builds(Negate, inner.filter(lambda one: not is_number(one)), exact),
        st.builds(Join, st.lists(inner, min_size=2, max_size=3).map(tuple), exact),
        st.builds(If, pairs, inner),
        st.builds(Switch, inner, pairs, inner, exact),
        st.builds(Coalesce, several),
        st.dictionaries(names, inner, max_size=2).map(lambda fields: Record(tuple(fields.items()))),
        st.lists(inner, max_size=3).map(lambda items: List(tuple(items))),
    )


trees = st.recursive(leaves, larger, max_leaves=12)


def is_number(node: Expression) -> bool:
    return isinstance(node, Constant) and type(node.value) in (int, float)


def named(name: str) -> str:
    return name if re.fullmatch(r"[^\W\d]\w*", name) else "'{}'".format(name.replace("'", "''"))


def literal(value: Any) -> str:
    match value:
        case None:
            return "Blank()"
        case bool():
            return str(value).lower()
        case str():
            return '"{}"'.format(value.replace('"', '""'))
        case float() if value.is_integer():
            return f"{plain(value)}.0" if value else str(value)
        case _:
            return plain(value)


def call(name: str, *arguments: Expression) -> str:
    return f"{name}({', '.join(map(written, arguments))})"


def group(node: Expression) -> str:
    return f"({written(node)})"


def written(node: Expression) -> str:
    """A tree as text, with more parentheses than it needs."""
    match node:
        case Constant(value=value):
            return literal(value)
        case Name(name=name):
            return named(name)
        case Member(of=of, path=path):
            return ".".join([group(of), *map(named, path)])
        case Not(operand=operand):
            return f"!{group(operand)}"
        case Negate(operand=operand):
            return f"-{group(operand)}"
        case Logic(operator=sign, operands=operands):
            if len(operands) == 1:
                return call(sign, *operands)
            return f" {sign} ".join(map(group, operands))
        case Compare(operator=sign, left=left, right=right):
            return f"{group(left)} {sign} {group(right)}"
        case In(item=item, container=container, rules=rules):
            return f"{group(item)} {'in' if rules == FOLDED else 'exactin'} {group(container)}"
        case Affix(side=side, text=text, part=part):
            return call(f"{side}s".capitalize() + "With", text, part)
        case Arithmetic(first=first, rest=rest):
            return group(first) + "".join(f" {sign} {group(one)}" for sign, one in rest)
        case Join(operands=operands):
            return " & ".join(map(group, operands))
        case FunctionCall(function=name, arguments=arguments):
            return call(name.upper(), *arguments)
        case If(branches=branches, otherwise=otherwise):
            default = () if otherwise == NULL else (otherwise,)
            return call("If", *(part for branch in branches for part in branch), *default)
        case Switch(subject=subject, cases=cases, otherwise=otherwise):
            flat = [part for case in cases for part in case]
            return call("Switch", subject, *flat, otherwise)
        case Coalesce(operands=operands):
            return call("coalesce", *operands)
        case Record(fields=fields):
            inside = ", ".join(f"{named(name)}: {written(value)}" for name, value in fields)
            return f"{{{inside}}}"
        case List(items=items):
            return f"[{', '.join(map(written, items))}]"
        case _:
            raise AssertionError(f"{node} is not of Power Fx")
