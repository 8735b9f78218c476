"""Reads text by a grammar. Text that does not fit gets an error with its place and a hint.

    GRAMMAR = Grammar("powerfx.lark", starts=("start",), expected={…}, hints={…})
    GRAMMAR.parse("1 +", "start")    InvalidExpression: … at line 1, column 4: the text ends where …

The parser is table-driven and does not recurse. Each front end builds its tree from the result.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
from typing import TYPE_CHECKING, Any, Final, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken

from relevo.errors import InvalidExpression

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from relevo.kernel.expressions.tree import Expression

VALUE: Final = "a value"
"""What errors call the start of a value; first among the words of a grammar."""
_IN_VALUES: Final = frozenset({"a name", "an operator", "`(`"})
LISTED_MAX: Final = 5
"""An error lists all known names up to this number, and only similar ones beyond it."""


class Grammar:
    """A language: its grammar file and the words of its error messages."""

    def __init__(
        self,
        file: str,
        *,
        starts: tuple[str, ...],
        expected: Mapping[str, str],
        hints: Mapping[str, str],
    ) -> None:
        self.file = file
        self.starts = starts
        self.expected = expected
        """What an error calls a terminal, by the terminal's name, in the order of mention."""
        self.hints = hints
        """How to correct a common mistake, by the text found; "" is the end of the text."""

    def parse(self, text: str, start: str) -> Tree[Token]:
        """Return the syntax tree of a text; raises `InvalidExpression`."""
        try:
            return self._lark.parse(text, start=start)
        except UnexpectedInput as error:
            raise self._refusal(text, error, start) from None

    @functools.cached_property
    def _lark(self) -> Lark:
        text = importlib.resources.files(__package__).joinpath(self.file).read_text("utf-8")
        return Lark(
            text,
            parser="lalr",
            start=list(self.starts),
            maybe_placeholders=False,
            propagate_positions=True,
        )

    def _refusal(self, text: str, error: UnexpectedInput, start: str) -> InvalidExpression:
        if isinstance(error, UnexpectedToken):
            found, terminals = str(error.token), error.accepts
        else:
            position = cast(int, error.pos_in_stream)
            found, terminals = text[position], self._accepted(text[:position], start)
        line, column = (error.line, error.column) if found else _end(text)
        hint = self.hints.get(found, "Correct it there, or just before.")
        shown = f"found `{found[:40]}`" if found else "the text ends"
        return at(line, column, f"{shown} where {self._listed(terminals)} is expected. {hint}")

    def _accepted(self, before: str, start: str) -> set[str]:
        """The terminals that can follow a text."""
        parser = self._lark.parse_interactive(before, start=start)
        parser.exhaust_lexer()
        return cast(set[str], parser.accepts())  # type: ignore[no-untyped-call]

    def _listed(self, terminals: set[str]) -> str:
        words = [word for terminal, word in self.expected.items() if terminal in terminals]
        if words and words[0] == VALUE:
            words = [word for word in words if word not in _IN_VALUES]
        words = words or ["something else"]
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


class TreeBuilder:
    """Turns a syntax tree into nodes, by one method for each name in the grammar.

    It recurses, and counts how deep: brackets nest, chains of one operator do not.
    """

    def __init__(self, depth_max: int) -> None:
        self.depth_max = depth_max
        self.depth = 0

    def build(self, syntax: Tree[Token]) -> Expression:
        """Return the node of a part of the syntax tree."""
        if self.depth > self.depth_max:
            raise at(*place(syntax), f"it nests deeper than {self.depth_max} levels. Flatten it.")
        self.depth += 1
        node: Expression = getattr(self, f"_{syntax.data}")(syntax.children)
        self.depth -= 1
        return node

    def all(self, parts: list[Any]) -> tuple[Expression, ...]:
        """Return the nodes of several parts."""
        return tuple(self.build(part) for part in parts)


def at(line: int, column: int, what: str) -> InvalidExpression:
    """Return the error for a place in the text."""
    return InvalidExpression(
        f"The expression is not valid at line {line}, column {column}: {what}",
        line=line,
        column=column,
    )


def similar(what: str, token: Token, known: Iterable[str]) -> InvalidExpression:
    """Return the error for an unknown name, with the known names that resemble it."""
    names = {name.lower(): name for name in sorted(known)}
    close = [names[n] for n in difflib.get_close_matches(token[:64].lower(), names, n=3)]
    choice = close or (list(names.values()) if len(names) <= LISTED_MAX else [])
    advice = f"Write {' or '.join(choice)}." if choice else "See the reference for the list."
    return at(*place(token), f"there is no {what} `{token[:64]}`. {advice}")


def place(syntax: Token | Tree[Token]) -> tuple[int, int]:
    """Return the line and column at which a token or a part of the syntax tree begins."""
    where = syntax.meta if isinstance(syntax, Tree) else syntax
    return where.line or 1, where.column or 1


def place_of(text: str, position: int) -> tuple[int, int]:
    """Return the line and column of a character of the text."""
    before = text[:position]
    return before.count("\n") + 1, position - before.rfind("\n")


def _end(text: str) -> tuple[int, int]:
    """Where something is missing: behind the last character that is not a space."""
    return place_of(text, len(text.rstrip()))
