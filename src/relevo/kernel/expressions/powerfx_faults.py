"""What is said about text that is not Power Fx: where, what was expected, and what to do."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, cast

from lark.exceptions import UnexpectedToken

from relevo.errors import InvalidExpression

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lark import Token
    from lark.exceptions import UnexpectedInput

_EXPECTED: Final = {
    "NUMBER": "a value",
    "NAME": "a name",
    "PLUS": "an operator",
    "LPAR": "`(`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "RPAR": "`)`",
    "RSQB": "`]`",
    "RBRACE": "`}`",
    "$END": "the end",
}
"""By the terminal that stands for them; where a value may stand, so may a name."""

_HINTS: Final = {
    '"': 'Close the text with ", and write "" for a quote inside it.',
    "'": "Names are quoted with ', texts with \"; close the name, and write '' for ' inside it.",
    "=": "Write a single = to compare.",
    "!": "Write <> for unequal.",
    "|": "Write || or Or.",
    ";": "Separate arguments with commas.",
    "": "Complete the expression; perhaps a parenthesis is not closed.",
}
"""By what was found: the mistakes that people make."""


def at(line: int, column: int, what: str) -> InvalidExpression:
    """Return the error for a place in the text."""
    return InvalidExpression(
        f"The expression is not valid at line {line}, column {column}: {what}",
        line=line,
        column=column,
    )


def syntax(text: str, error: UnexpectedInput, expected: set[str]) -> InvalidExpression:
    """Return the error for a text that the grammar does not have."""
    if isinstance(error, UnexpectedToken):
        found = str(error.token)
    else:
        found = text[cast(int, error.pos_in_stream)]
    line, column = (error.line, error.column) if found else _end(text)
    hint = _HINTS.get(found, "Correct it there, or just before.")
    shown = f"found `{found[:40]}`" if found else "the text ends"
    return at(line, column, f"{shown} where {_listed(expected)} is expected. {hint}")


def similar(what: str, token: Token, known: Iterable[str]) -> InvalidExpression:
    """Return the error for a name that is not known, with those that are like it."""
    names = {name.lower(): name for name in sorted(known)}
    close = [names[n] for n in difflib.get_close_matches(token[:64].lower(), names, n=3)]
    choice = close or (list(names.values()) if len(names) <= 5 else [])
    advice = f"Write {' or '.join(choice)}." if choice else "See the list of functions."
    return at(*place(token), f"there is no {what} `{token[:64]}`. {advice}")


def place(token: Token) -> tuple[int, int]:
    """Return the line and column of a token."""
    return token.line or 1, token.column or 1


def _end(text: str) -> tuple[int, int]:
    """Where something is missing: behind the last thing that is there."""
    before = text.rstrip()
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _listed(expected: Iterable[str]) -> str:
    names = set(expected)
    if "NUMBER" in names:
        names -= {"NAME", "LPAR"}
    words = [word for terminal, word in _EXPECTED.items() if terminal in names] or [
        "something else"
    ]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
