"""Every named query of every part: it parses on the real schema, is used, and has a sentence."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import relevo
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database

pytestmark = pytest.mark.anyio

ROOT = Path(relevo.__file__).parent
FILES = sorted(file.parent for file in ROOT.rglob("sql/queries.sql"))
"""The `sql` folders of all parts."""


def load(file: Path) -> catalog.Queries:
    package = ".".join(("relevo", *file.parent.relative_to(ROOT).parts))
    return catalog.load(package)


def modules(file: Path) -> list[Path]:
    """The modules of a part, without those of a part inside it that has queries of its own."""

    def nearest(path: Path) -> Path:
        return next(up for up in path.parents if (up / "sql" / "queries.sql").exists())

    return [path for path in file.parent.rglob("*.py") if nearest(path) == file.parent]


def names(file: Path) -> str:
    return ".".join(file.parent.relative_to(ROOT).parts)


def test_there_are_parts_with_queries() -> None:
    assert {"kernel.postgres", "kernel.leases"} <= {names(file) for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=names)
async def test_every_query_parses_on_the_migrated_schema(file: Path, database: Database) -> None:
    async def prepare(sql: str) -> None:
        async with database.transaction() as tx:
            await tx.prepare(sql)

    faults = {}
    for query in load(file).queries.values():
        try:
            await prepare(query.sql)
        except Exception as error:
            faults[query.name] = str(error)
    assert faults == {}


@pytest.mark.parametrize("file", FILES, ids=names)
def test_every_query_is_used_by_its_part_and_every_used_one_exists(file: Path) -> None:
    used = {
        node.attr
        for path in modules(file)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "SQL"
    }
    assert used - {"part", "queries"} == set(load(file).queries)


@pytest.mark.parametrize("file", FILES, ids=names)
def test_every_query_has_a_sentence(file: Path) -> None:
    wrong = [
        query.name
        for query in load(file).queries.values()
        if not (query.sentence[0].isupper() and query.sentence.endswith((".", "?")))
    ]
    assert wrong == []
