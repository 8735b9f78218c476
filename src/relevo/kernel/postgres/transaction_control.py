"""Finds statements that begin or end a transaction in SQL of users. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_SUSPECT: Final = re.compile(
    r"\b(commit|end|rollback|abort|begin|start|prepare)\b", re.IGNORECASE
)  # most SQL has none of these words, and is looked at no closer
_OPAQUE: Final = re.compile(
    r"""
      \bE'(?:[^'\\]|\\.|'')*'                # escape strings
    | '(?:[^']|'')*'                         # strings
    | "(?:[^"]|"")*"                         # quoted names
    | \$(?P<tag>[A-Za-z_]\w*)?\$.*?\$(?(tag)(?P=tag))\$   # dollar quotes
    | --[^\n]*                               # comments
    | /\*.*?\*/
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_CONTROL: Final = re.compile(
    r"""
      (?:commit|end|rollback|abort) (?:\s+(?:work|transaction))? (?:\s+and\s+(?:no\s+)?chain)?
    | (?:begin|start)\b .*
    | (?:commit|rollback)\s+prepared\b .*
    | prepare\s+transaction\b .*
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


@lru_cache(maxsize=1_024)
def control_in(sql: str) -> str | None:
    """Return the first statement that begins or ends a transaction; savepoints are none.

    >>> control_in("insert into t values ('commit;'); COMMIT")
    'COMMIT'
    >>> control_in("rollback to savepoint one") is None
    True
    """
    if not _SUSPECT.search(sql):
        return None
    statements = (one.strip() for one in _OPAQUE.sub(_blank, sql).split(";"))
    return next((statement for statement in statements if _CONTROL.fullmatch(statement)), None)


def _blank(opaque: re.Match[str]) -> str:
    """A comment is a space; a string keeps its quotes, so that it is not taken for one."""
    return " " if opaque.group().startswith(("--", "/*")) else "''"
