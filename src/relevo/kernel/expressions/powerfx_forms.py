"""The functions of Power Fx as they are written: numbers of arguments, and the resulting node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct

from relevo.kernel.expressions.functions import FUNCTIONS
from relevo.kernel.expressions.tree import (
    NULL,
    Affix,
    Coalesce,
    Expression,
    FunctionCall,
    If,
    List,
    Logic,
    Rules,
    Switch,
)

RULES: Final = Rules(nulls="blank", case="exact", mixed="differ")
"""Blank equals only Blank; `=` is case-sensitive; values of different types are not equal."""
FOLDED: Final = Rules(nulls="blank", case="folded", mixed="differ")
"""For `in`, `StartsWith` and `EndsWith`, which ignore letter case."""

Arguments = tuple[Expression, ...]
Pairs = tuple[tuple[Expression, Expression], ...]


class Form(Struct, frozen=True):
    """A function as it is written."""

    name: str
    least: int
    most: int | None
    node: Callable[[Arguments], Expression]


def _pairs(arguments: Arguments) -> tuple[Pairs, Expression]:
    """Pairs of arguments, and the last argument if it has no partner, else Blank."""
    paired = len(arguments) // 2 * 2
    pairs = tuple(zip(arguments[:paired:2], arguments[1:paired:2], strict=True))
    return pairs, arguments[paired] if paired < len(arguments) else NULL


def _switch(arguments: Arguments) -> Expression:
    return Switch(arguments[0], *_pairs(arguments[1:]), RULES)


def _forms() -> dict[str, Form]:
    special = [
        Form("And", 1, None, lambda a: Logic("and", a, RULES)),
        Form("Blank", 0, 0, lambda a: NULL),
        Form("Coalesce", 1, None, Coalesce),
        Form("EndsWith", 2, 2, lambda a: Affix("end", a[0], a[1], FOLDED)),
        Form("If", 2, None, lambda a: If(*_pairs(a))),
        Form("Or", 1, None, lambda a: Logic("or", a, RULES)),
        Form("StartsWith", 2, 2, lambda a: Affix("start", a[0], a[1], FOLDED)),
        Form("Switch", 3, None, _switch),
        Form("Table", 0, None, List),
    ]
    plain = [Form(n, f.least, f.most, partial(FunctionCall, n)) for n, f in FUNCTIONS.items()]
    return {form.name.lower(): form for form in (*special, *plain)}


FORMS: Final = _forms()
"""By lower-case name: functions are written in any case. `Not` is an operator, also before `(`."""
