"""The schema as files: `sql/schema.sql` and `sql/functions/**/<name>.sql` of every part.

`schema.sql` holds tables, types, views and triggers. Its header names the parts that come before it
(`-- after: store users`). A line `\\ir functions/<name>.sql` creates a function at that place,
because the next object needs it; all other functions are created after the tables of all parts.
Both forms load with psql, too. Every SQL function has one file, named after it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import re
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.kernel.postgres.binding import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

_AFTER = re.compile(r"^-- after: (.+)$", re.MULTILINE)
_INCLUDE = re.compile(r"^\\ir (functions/\S+\.sql)$", re.MULTILINE)


class FunctionFile(Struct, frozen=True):
    """The text of an SQL function."""

    name: str
    text: str
    schema: str = DEFAULT
    """Where it is created. Bodies name their schema, so a schema that got another name is noticed
    by checksums of the one that it had before."""

    @property
    def checksum(self) -> str:
        """The checksum of the file: a changed file is applied again."""
        place = "" if self.schema == DEFAULT else self.schema
        return hashlib.sha256(f"{self.text}{place}".encode()).hexdigest()


class Schema(Struct, frozen=True):
    """Everything that a fresh database gets."""

    tables: str
    """The `schema.sql` of all parts, as they stand in the tree."""
    script: str
    """The schema with every function, for a fresh installation."""
    functions: tuple[FunctionFile, ...]
    """In an order in which they can be created."""


@functools.cache
def read() -> Schema:
    """Read the schema from the files of this program."""
    parts = dict(_parts(importlib.resources.files("relevo")))
    texts = {name: _text(folder / "schema.sql") for name, folder in parts.items()}
    files = {name: dict(_function_files(folder)) for name, folder in parts.items()}
    functions = _in_order([one for each in files.values() for one in each.values()])
    order = TopologicalSorter({part: _after(text) for part, text in texts.items()}).static_order()
    tables, script, included = [], [], set()
    for part in order:
        tables.append(texts[part])
        paths = _INCLUDE.findall(texts[part])
        included |= {files[part][path].name for path in paths}
        script.append(_with_functions(texts[part], files[part]))
    script += [function.text for function in functions if function.name not in included]
    return Schema("\n".join(tables), "\n".join(script), functions)


def _parts(root: Traversable) -> Iterator[tuple[str, Traversable]]:
    """Yield name and `sql` folder of every part, wherever in the tree it stands."""
    for folder in sorted(root.iterdir(), key=lambda each: each.name):
        if not folder.is_dir() or folder.name == "sql":
            continue
        if (folder / "sql" / "schema.sql").is_file():
            yield folder.name, folder / "sql"
        yield from _parts(folder)


def _function_files(folder: Traversable) -> Iterator[tuple[str, FunctionFile]]:
    """Yield path and text of every function of a part."""
    pending = [("functions", folder / "functions")]
    while pending:
        path, place = pending.pop()
        if place.is_dir():
            pending += [(f"{path}/{inner.name}", inner) for inner in place.iterdir()]
        elif path.endswith(".sql"):
            yield path, FunctionFile(place.name.removesuffix(".sql"), _text(place))


def _in_order(functions: list[FunctionFile]) -> tuple[FunctionFile, ...]:
    """Sort functions so that each can be created: one without `$$` is bound at once."""
    by_name = {one.name: one for one in sorted(functions, key=lambda one: one.name)}
    needs = {name: _calls(one) & by_name.keys() for name, one in by_name.items()}
    return tuple(by_name[name] for name in TopologicalSorter(needs).static_order())


def _calls(function: FunctionFile) -> set[str]:
    if "$$" in function.text:
        return set()
    return set(re.findall(r"relevo\.(\w+)\(", function.text)) - {function.name}


def _with_functions(text: str, files: dict[str, FunctionFile]) -> str:
    return _INCLUDE.sub(lambda match: files[match[1]].text, text)


def _after(text: str) -> list[str]:
    match = _AFTER.search(text)
    return match[1].split() if match else []


def _text(file: Traversable) -> str:
    return file.read_text("utf-8").replace("\r\n", "\n")
