"""Named SQL: every statement of a part stands in its `sql/queries.sql`, with a sentence.

    -- name: heartbeat
    -- Renews a host that is still within its time.
    update …;

`SQL = catalog.load(__package__)` reads the file once; `SQL.heartbeat` is the text. A name that does
not exist is an error when the module that uses it is imported by the tests, not in production.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from typing import Final

from msgspec import Struct

_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.MULTILINE)
_MARK: Final = "/* relevo "


class Query(Struct, frozen=True):
    """A named statement and the sentence that says what it is for."""

    name: str
    sentence: str
    sql: str


class Queries:
    """The statements of one part; attributes are their texts."""

    def __init__(self, part: str, queries: dict[str, Query]) -> None:
        self.part = part
        self.queries = queries

    def __getattr__(self, name: str) -> str:
        try:
            return self.queries[name].sql
        except KeyError:
            raise AttributeError(f"{self.part} has no query named {name!r}") from None


def own(name: str, sql: str) -> str:
    """Mark a statement as Relevo's own: it runs with Relevo's search path, and is told by name.

    Every statement of a `queries.sql` is marked; one that is composed must be marked by hand.

    >>> own("jobs.query", "select 1")
    '/* relevo jobs.query */ select 1'
    """
    return f"{_MARK}{name} */ {sql}"


def is_own(sql: str) -> bool:
    """Whether a statement is Relevo's own."""
    return sql.startswith(_MARK)


def name_of(sql: str) -> str | None:
    """Return the name of a statement of Relevo's own."""
    return sql[len(_MARK) : sql.index(" */")] if is_own(sql) else None


def parse(part: str, text: str) -> Queries:
    """Split a `queries.sql` into its statements; each needs a unique name and a sentence."""
    pieces = _NAME.split(text)
    found: dict[str, Query] = {}
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        lines = body.strip().split("\n")
        comment = [line for line in lines if line.startswith("--")]
        sql = "\n".join(line for line in lines if not line.startswith("--")).strip().rstrip(";")
        if any(line.startswith("-- name") for line in comment):
            raise ValueError(f"after query {name!r} of {part}: names look like `-- name: the_name`")
        if not comment or not sql:
            raise ValueError(f"query {name!r} of {part} needs a sentence and a statement")
        if name in found:
            raise ValueError(f"query {name!r} of {part} is there twice")
        sentence = " ".join(c.removeprefix("--").strip() for c in comment)
        marked = own(f"{part.removeprefix('relevo.')}.{name}", sql)
        found[name] = Query(name, sentence, marked)
    return Queries(part, found)


@functools.cache
def load(package: str) -> Queries:
    """Return the queries of the package `package` (pass `__package__`)."""
    text = importlib.resources.files(package).joinpath("sql", "queries.sql").read_text("utf-8")
    return parse(package, text)
