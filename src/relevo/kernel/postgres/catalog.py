"""Named SQL: every statement of a part stands in its `sql/queries.sql`, with a sentence.

A part with many has a folder instead, `sql/queries`, with a file for each theme.

    -- name: heartbeat
    -- Renews a host that is still within its time.
    update …;

`SQL = catalog.load(__package__)` reads the files once; `SQL.heartbeat` is the text. A name that
does not exist is an error when the module that uses it is imported by the tests, not in production.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.MULTILINE)
OWN_MARK: Final = "/* relevo "
"""Begins every statement of Relevo's that needs Relevo's search path."""
ANY_MARK: Final = "/*relevo "
"""Begins those that run with any search path."""
_ANY_PATH: Final = "-- path: any"


class NamedQuery(Struct, frozen=True):
    """A named statement and its description."""

    name: str
    sentence: str
    sql: str


class Queries:
    """The statements of one part; attributes are their texts."""

    def __init__(self, part: str, queries: dict[str, NamedQuery]) -> None:
        self.part = part
        self.queries = queries
        vars(self).update((name, query.sql) for name, query in queries.items())

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"{self.part} has no query named {name!r}")


def own(name: str, sql: str, *, any_path: bool = False) -> str:
    """Mark a statement as Relevo's own: it runs with Relevo's search path, and errors name it.

    Every statement in these files is marked; one that is composed must be marked by hand. One
    that has a line `-- path: any` runs with whatever path there is, which saves a round trip inside
    of users' transactions: it calls one function and names it and every type with their schema.

    >>> own("jobs.query", "select 1")
    '/* relevo jobs.query */ select 1'
    """
    return f"{ANY_MARK if any_path else OWN_MARK}{name} */ {sql}"


def is_own(sql: str) -> bool:
    """Whether a statement needs Relevo's search path."""
    return sql.startswith(OWN_MARK)


def name_of(sql: str) -> str | None:
    """Return the name of a statement of Relevo's."""
    if not sql.startswith((OWN_MARK, ANY_MARK)):
        return None
    return sql[: sql.index(" */")].partition("relevo ")[2].rpartition("/")[2]


def marked_with(sql: str, schema: str) -> str:
    """Note in a statement's mark which schema it is for, unless it says so or is not Relevo's.

    >>> marked_with(own("jobs.query", "select 1"), "shop")
    '/* relevo shop/jobs.query */ select 1'
    """
    mark = OWN_MARK if is_own(sql) else ANY_MARK
    if not sql.startswith(mark) or "/" in sql[len(mark) : sql.index(" */")]:
        return sql
    return f"{mark}{schema}/{sql[len(mark) :]}"


def parse(part: str, text: str) -> Queries:
    """Split the text of a part into its statements; each needs a unique name and a sentence."""
    pieces = _NAME.split(text)
    found: dict[str, NamedQuery] = {}
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
        sentence = " ".join(c.removeprefix("--").strip() for c in comment if c != _ANY_PATH)
        label = f"{part.rpartition('.')[2]}.{name}"
        marked = own(label, sql, any_path=_ANY_PATH in comment)
        found[name] = NamedQuery(name, sentence, marked)
    return Queries(part, found)


def text_in(folder: Traversable) -> str | None:
    """Return the named statements in the `sql` folder of a part; None if it has none."""
    themes = folder / "queries"
    if themes.is_dir():
        files = sorted(themes.iterdir(), key=lambda file: file.name)
        return "\n".join(file.read_text("utf-8") for file in files if file.name.endswith(".sql"))
    file = folder / "queries.sql"
    return file.read_text("utf-8") if file.is_file() else None


@functools.cache
def load(package: str) -> Queries:
    """Return the queries of the package `package` (pass `__package__`)."""
    text = text_in(importlib.resources.files(package) / "sql")
    if text is None:
        raise FileNotFoundError(f"{package} has neither sql/queries.sql nor sql/queries/*.sql")
    return parse(package, text)
