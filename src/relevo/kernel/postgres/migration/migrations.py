"""Migrations: the schema of a fresh database, and numbered files for existing ones.

A numbered file begins with comments: `-- description: …`, `-- locks: …`, and `-- kind: steps` if it
holds statements that PostgreSQL refuses inside a transaction. Such a file is a list of sections
`-- step: name`, each with one statement and, if a killed attempt leaves something behind, a line
`-- undo: statement` that is run before the step is tried again.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import re

import msgspec
from msgspec import Struct

from relevo.errors import SchemaError
from relevo.kernel.postgres.migration import schema
from relevo.kernel.postgres.migration.schema import FunctionFile

_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")


class MigrationStep(Struct, frozen=True):
    """One statement that runs outside of a transaction, and how to clear up a killed attempt."""

    name: str
    sql: str
    undo: str | None


class Migration(Struct, frozen=True, kw_only=True):
    """The schema of a fresh database, or one numbered file."""

    version: int
    name: str
    text: str
    description: str
    locks: str
    steps: tuple[MigrationStep, ...] = ()
    script: str = ""
    """The statements, if they are more than the text."""
    functions: tuple[FunctionFile, ...] = ()
    """The functions that the script creates; of the schema alone."""
    in_schema: bool = False
    """Whether a fresh database has it by its schema."""

    @property
    def checksum(self) -> str:
        """The checksum of the file; a released file never changes."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def label(self) -> str:
        """Number and name, as in the file's name."""
        return f"{self.version:04d}_{self.name}"


def parse(filename: str, text: str) -> Migration:
    """Read one migration file."""
    match = _FILE.match(filename)
    if match is None:
        raise SchemaError(f"migration file {filename!r} is not named like 0001_name.sql")
    text = text.replace("\r\n", "\n")
    header = dict(re.findall(r"^-- (description|locks|kind): (.+)$", text, re.MULTILINE))
    if "description" not in header or "locks" not in header:
        raise SchemaError(f"migration file {filename!r} needs `-- description:` and `-- locks:`")
    return Migration(
        version=int(match[1]),
        name=match[2],
        text=text,
        description=header["description"],
        locks=header["locks"],
        steps=_steps(text) if header.get("kind") == "steps" else (),
    )


def _steps(text: str) -> tuple[MigrationStep, ...]:
    pieces = re.split(r"^-- step: (\S+)$", text, flags=re.MULTILINE)
    return tuple(
        MigrationStep(
            name,
            re.sub(r"^--.*$", "", body, flags=re.MULTILINE).strip().rstrip(";"),
            undo[1] if (undo := re.search(r"^-- undo: (.+?);?$", body, re.MULTILINE)) else None,
        )
        for name, body in zip(pieces[1::2], pieces[2::2], strict=True)
    )


def known() -> tuple[Migration, ...]:
    """Every migration this program carries, in order; the first is the schema itself."""
    read = schema.read()
    first = Migration(
        version=1,
        name="schema",
        text=read.tables,
        description="tables, views and functions of every part",
        locks="nothing that exists; all objects are new",
        script=read.script,
        functions=read.functions,
    )
    return (first, *_numbered())


def _numbered() -> tuple[Migration, ...]:
    folder = importlib.resources.files(__package__) / "migrations"
    if not folder.is_dir():
        return ()
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    found = tuple(parse(name, (folder / name).read_text("utf-8")) for name in files)
    if len({1, *(migration.version for migration in found)}) <= len(found):
        raise SchemaError(f"two migration files have the same number: {', '.join(files)}")
    return tuple(msgspec.structs.replace(migration, in_schema=True) for migration in found)
