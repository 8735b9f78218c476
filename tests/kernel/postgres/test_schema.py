"""The schema as files: one text per function, created again when it changes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

import relevo
from relevo import settings
from relevo.errors import SchemaError
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.embedded.account import binaries
from relevo.kernel.postgres.migration import migrate
from relevo.kernel.postgres.migration.migrations import Migration, known, parse
from relevo.kernel.postgres.migration.schema import FunctionFile, read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio

ROOT = Path(relevo.__file__).parent
ADDED = """-- description: cooks have a rank
-- locks: relevo.cook for a moment
drop function relevo.cooks();
alter table relevo.cook add column rank int not null default 0;
"""


def answering(number: int) -> FunctionFile:
    text = f"create or replace function relevo.answer() returns int language sql return {number};"
    return FunctionFile("answer", text)


def installation(*functions: FunctionFile, tables: str = "") -> Migration:
    """A small schema with functions, in the place of the product's own."""
    script = "\n".join([tables, *(function.text for function in functions)])
    return Migration(
        version=1, name="schema", text=tables, description="", locks="", script=script,
        functions=functions,
    )  # fmt: skip


@pytest.fixture
async def empty(relevo_databases: TestDatabases) -> AsyncIterator[Database]:
    url = relevo_databases.create(migrated=False)
    async with await Database.open(settings.load({"database_url": url}, environ={})) as database:
        yield database
    relevo_databases.drop(url)


def dump(database: Database) -> str:
    """The schema as pg_dump writes it, without the lines that differ by run."""
    command = [str(binaries() / "pg_dump"), "--schema-only", "--no-owner", database.endpoint.url]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.sub(r"^\\(un)?restrict .*$|^.* SET \(pg_attver=.*$", "", text, flags=re.MULTILINE)


def test_every_function_has_one_file_that_bears_its_name() -> None:
    texts = {path: path.read_text("utf-8") for path in ROOT.rglob("sql/**/*.sql")}
    made = [
        (path.stem, name)
        for path, text in texts.items()
        for name in re.findall(
            r"^create (?:or replace )?function relevo\.(\w+)", text, re.MULTILINE
        )
    ]
    assert [pair for pair in made if pair[0] != pair[1]] == []
    assert len({name for _, name in made}) == len(made) == len(read().functions)


def test_sql_is_plain_ascii() -> None:
    """A database of another encoding, such as LATIN1, refuses characters that it does not have."""
    strange = [
        path.name for path in ROOT.rglob("sql/**/*.sql") if not path.read_text("utf-8").isascii()
    ]
    assert strange == []


async def test_a_changed_function_is_created_again_and_alone(empty: Database) -> None:
    await migrate.up(empty, [installation(answering(1))])
    assert await migrate.up(empty, [installation(answering(1))]) == []
    changed = [installation(answering(2))]
    assert await migrate.check(empty, changed) == ["functions/answer"]
    assert await migrate.up(empty, changed) == ["functions/answer"]
    assert await empty.fetchval("select relevo.answer()") == 2
    assert await migrate.check(empty, changed) == []


async def test_a_function_of_a_newer_program_stays(empty: Database) -> None:
    await migrate.up(empty, [installation(answering(2))])
    await empty.write("update relevo.function set program = 'relevo 99.1.0'")
    older = [installation(answering(1))]
    assert await migrate.check(empty, older) == []
    assert await migrate.up(empty, older) == []
    assert await empty.fetchval("select relevo.answer()") == 2


async def test_a_migrated_database_is_like_a_fresh_one(
    empty: Database, relevo_databases: TestDatabases
) -> None:
    cooks = FunctionFile(
        "cooks",
        "create or replace function relevo.cooks() returns setof relevo.cook language sql stable"
        " begin atomic select * from relevo.cook; end;",
    )
    before = installation(cooks, tables="create table relevo.cook (id int primary key);")
    after = installation(
        cooks, tables="create table relevo.cook (id int primary key, rank int not null default 0);"
    )
    added = msgspec.structs.replace(parse("0002_rank.sql", ADDED), in_schema=True)
    await migrate.up(empty, [before])
    assert await migrate.up(empty, [after, added]) == ["0002_rank"]
    url = relevo_databases.create(migrated=False)
    async with await Database.open(settings.load({"database_url": url}, environ={})) as fresh:
        assert await migrate.up(fresh, [after, added]) == ["0001_schema"]
        assert dump(fresh) == dump(empty)
        assert await migrate.check(fresh, [after, added]) == []
    relevo_databases.drop(url)


ROW_TYPES: Final = """
select p.proname as function, c.relname as name from pg_proc p
cross join unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]) || p.prorettype) as used (type)
join pg_type t on t.oid = used.type
join pg_type e on e.oid = case when t.typelem <> 0 then t.typelem else t.oid end
join pg_class c on c.oid = e.typrelid and c.relkind in ('r', 'p')
where p.pronamespace = 'relevo'::regnamespace
"""


def unsafe(migration: Migration, functions: Iterable[tuple[str, str]]) -> list[str]:
    """Tables that a migration changes although a function has their row type."""
    text = migration.text.lower()
    found = set()
    for alter in re.finditer(r"alter table (?:only )?relevo\.(\w+)", text):
        before = text[: alter.start()]
        dropped = set(re.findall(r"drop function (?:if exists )?relevo\.(\w+)", before))
        found |= {table for name, table in functions if table == alter[1] and name not in dropped}
    return sorted(found)


async def test_no_migration_changes_a_table_whose_row_type_a_function_has(
    database: Database,
) -> None:
    """PostgreSQL refuses it since the releases of November 2026; dropped functions come again."""
    rows = await database.fetch(ROW_TYPES)
    functions = [(row["function"], row["name"]) for row in rows]
    assert ("job_particulars", "job") in functions  # so this finds what it looks for
    head, added = "-- description: x\n-- locks: y\n", "alter table relevo.job add column more int;"
    assert unsafe(parse("0002_more.sql", head + added), functions) == ["job"]
    dropping = "".join(f"drop function relevo.{name};\n" for name, _ in functions)
    assert unsafe(parse("0002_more.sql", head + dropping + added), functions) == []
    for migration in known()[1:]:
        assert unsafe(migration, functions) == [], migration.label


async def test_the_database_of_an_unreleased_build_is_refused_by_name(empty: Database) -> None:
    await empty.run(lambda tx: tx.execute(migrate.BOOTSTRAP))
    await empty.write(
        "insert into relevo.migration (version, name, checksum, program)"
        " select n, case n when 1 then 'foundation' else 'more' end, '', 'relevo 0.1.0'"
        " from generate_series(1, 20) as n"
    )
    for act in (migrate.check, migrate.up):
        with pytest.raises(SchemaError, match=r"unreleased build of Relevo \(20 numbered"):
            await act(empty, known())
