"""Reads the text of an OData query option into a syntax tree, and says where it is none."""

from __future__ import annotations

import functools
import importlib.resources
from typing import TYPE_CHECKING, Final, Literal, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken

from relevo import limits
from relevo.kernel.querying.errors import IMPOSSIBLE, InvalidQuery

if TYPE_CHECKING:
    from collections.abc import Iterable

Start = Literal["filter", "select", "orderby", "expand", "apply", "value"]
STARTS: Final[tuple[Start, ...]] = ("filter", "select", "orderby", "expand", "apply", "value")

_EXPECTED: Final = {
    "INTEGER": "a value",
    "NAME": "a name",
    "COMPARE": "an operator (eq, ne, gt, ge, lt, le, in)",
    "LPAR": "`(`",
    "COMMA": "`,`",
    "RPAR": "`)`",
    "_AND": "`and` or `or`",
    "$END": "the end",
}
"""By the terminal that stands for them."""
_HINTS: Final = {
    "'": "Close the text with ', and write '' for a quote inside it.",
    '"': "Write texts in single quotes.",
    "=": "Write eq to compare.",
    "": "Complete it; perhaps a parenthesis or a quote is not closed.",
}
"""By what was found: the mistakes that people make."""


class SourcePlace:
    """Names where in a request a fault lies."""

    def __init__(self, option: str) -> None:
        self.option = option

    def at(
        self, found: Token | Tree[Token] | int, what: str, code: str = IMPOSSIBLE
    ) -> InvalidQuery:
        """Return the error for a place in the option's text."""
        if isinstance(found, Tree):
            start = getattr(found.meta, "start_pos", 0)
        else:
            start = found if isinstance(found, int) else found.start_pos or 0
        return InvalidQuery(
            f"{self.option} is not valid at position {start + 1}: {what}",
            dataverse=code,
            pointer=self.option,
        )


def parse(start: Start, text: str, place: SourcePlace) -> Tree[Token]:
    """Return the syntax tree of an option's text; raises `InvalidQuery`."""
    if len(text.encode("utf-8", "surrogatepass")) > limits.QUERY_URL_BYTES_MAX:
        raise place.at(0, f"it has more than {limits.QUERY_URL_BYTES_MAX:,} bytes. Shorten it.")
    try:
        return _grammar().parse(text, start=start)
    except UnexpectedInput as error:
        raise _syntax(text, error, place) from None


def is_built() -> bool:
    """Whether the grammar is there; to build it takes as long as to read a long query."""
    return _grammar.cache_info().currsize > 0


@functools.cache
def _grammar() -> Lark:
    text = importlib.resources.files(__package__).joinpath("odata.lark").read_text("utf-8")
    return Lark(
        text,
        parser="lalr",
        start=list(STARTS),
        maybe_placeholders=True,
        propagate_positions=True,
    )


def _syntax(text: str, error: UnexpectedInput, place: SourcePlace) -> InvalidQuery:
    position = len(text.rstrip())
    found, expected = "", set[str]()
    if isinstance(error, UnexpectedToken):
        expected = error.accepts
        found = str(error.token)
        if found:
            position = cast(int, error.pos_in_stream)
    else:
        position = cast(int, error.pos_in_stream)
        found = text[position : position + 1]
        expected = set(getattr(error, "allowed", None) or ())
    shown = f"found `{found[:40]}`" if found else "the text ends"
    hint = _HINTS.get(found[:1], "Correct it there, or just before.")
    return place.at(position, f"{shown} where {_listed(expected)} is expected. {hint}")


def _listed(expected: Iterable[str]) -> str:
    names = set(expected)
    words = [word for terminal, word in _EXPECTED.items() if terminal in names]
    words = words or ["something else"]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
