"""Every named query of every part: it parses on the real schema, is used, and has a sentence."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import relevo
from relevo import settings
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.migration import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio

ROOT = Path(relevo.__file__).parent
FILES = sorted(folder for folder in ROOT.rglob("sql") if catalog.text_in(folder) is not None)
"""The `sql` folders of all parts."""


def load(file: Path) -> catalog.Queries:
    package = ".".join(("relevo", *file.parent.relative_to(ROOT).parts))
    return catalog.load(package)


def modules(file: Path) -> list[Path]:
    """The modules of a part, without those of a part inside it that has queries of its own."""

    def nearest(path: Path) -> Path:
        return next(up for up in path.parents if (up / "sql") in FILES)

    return [path for path in file.parent.rglob("*.py") if nearest(path) == file.parent]


def names(file: Path) -> str:
    return ".".join(file.parent.relative_to(ROOT).parts)


def test_there_are_parts_with_queries() -> None:
    assert {"kernel.postgres", "kernel.leases"} <= {names(file) for file in FILES}


@pytest.fixture
async def elsewhere(relevo_databases: TestDatabases) -> AsyncIterator[Database]:
    """A database without the schema `relevo`: Relevo is in one whose name is a word of SQL."""
    url = relevo_databases.create(migrated=False)
    told = settings.load({"database_url": url, "schema": "order"}, environ={})
    async with await Database.open(told) as database:
        await migrate.up(database)
        yield database
    relevo_databases.drop(url)


@pytest.mark.parametrize("file", FILES, ids=names)
async def test_every_query_parses_on_the_migrated_schema(file: Path, database: Database) -> None:
    assert await faults_of(file, database) == {}


async def test_every_query_parses_where_the_schema_has_another_name(elsewhere: Database) -> None:
    found = {names(file): await faults_of(file, elsewhere) for file in FILES}
    assert {file: faults for file, faults in found.items() if faults} == {}


async def test_no_function_or_view_names_a_schema_literally(elsewhere: Database) -> None:
    rows = await elsewhere.fetch(
        "select p.proname as name, pg_get_functiondef(p.oid) as text from pg_proc p"
        " where p.pronamespace = to_regnamespace('\"order\"') and p.prokind = 'f'"
        " union all select c.relname, pg_get_viewdef(c.oid) from pg_class c"
        " where c.relnamespace = to_regnamespace('\"order\"') and c.relkind = 'v'"
    )
    assert len(rows) > 100
    texts = {row["name"]: re.sub(r"--.*|'[^']*'", "", row["text"]) for row in rows}
    assert [name for name, text in texts.items() if "relevo." in text] == []


async def faults_of(file: Path, database: Database) -> dict[str, str]:
    """What PostgreSQL says against each statement of a part."""

    async def prepare(sql: str) -> None:
        async with database.transaction() as tx:
            await tx.prepare(sql)

    faults = {}
    for query in load(file).queries.values():
        try:
            await prepare(query.sql)
        except Exception as error:
            faults[query.name] = str(error)
    return faults


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
