"""Migrations: once, whole, in order, by one process at a time, and safe to be killed anywhere."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from relevo import settings
from relevo.errors import SchemaError, SchemaTooNew
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.migration import migrate
from relevo.kernel.postgres.migration.migrations import known, parse
from relevo.testing.faults import FaultBoard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo.kernel.postgres.migration.migrations import Migration
    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio

WHOLE = """-- description: two tables
-- locks: nothing that exists
create table relevo.dish (id int primary key, name text);
insert into relevo.dish select n, 'dish ' || n from generate_series(1, 100) n;
create table relevo.cook (id int primary key);
"""
STEPS = """-- description: indexes that are built while others write
-- locks: share update exclusive on relevo.dish
-- kind: steps
-- step: by_name
-- undo: drop index concurrently if exists relevo.dish_name;
create index concurrently dish_name on relevo.dish (name);
-- step: by_length
-- undo: drop index concurrently if exists relevo.dish_length
create index concurrently dish_length on relevo.dish (length(name));
"""
LAST = """-- description: a view
-- locks: nothing that exists
create view relevo.menu as select name from relevo.dish;
"""
FILES = {"0101_dishes.sql": WHOLE, "0102_indexes.sql": STEPS, "0103_menu.sql": LAST}
LABELS = ["0101_dishes", "0102_indexes", "0103_menu"]
MADE = """
select array_agg(c.relname::text order by c.relname) from pg_class c
where c.relnamespace = 'relevo'::regnamespace and c.relname ~ '^(dish|cook|menu)'
  and not exists (select from pg_index i where i.indexrelid = c.oid and not i.indisvalid)
"""
ALL = ["cook", "cook_pkey", "dish", "dish_length", "dish_name", "dish_pkey", "menu"]

MIGRATE = """
import asyncio, sys
from relevo import settings
from relevo.kernel.postgres.migration import migrate
from relevo.kernel.postgres.database import Database
from tests.kernel.postgres.test_migrate import migrations

async def main():
    told = settings.load({"database_url": sys.argv[1]}, environ={})
    async with await Database.open(told) as database:
        print(*await migrate.up(database, migrations()), flush=True)

asyncio.run(main())
"""


def migrations() -> list[Migration]:
    return [parse(name, text) for name, text in FILES.items()]


@pytest.fixture
def empty_url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create(migrated=False)
    yield url
    relevo_databases.drop(url)


@pytest.fixture
async def empty(empty_url: str) -> AsyncIterator[Database]:
    async with await Database.open(
        settings.load({"database_url": empty_url}, environ={})
    ) as database:
        yield database


async def run_program(url: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        MIGRATE,
        url,
        env=environment,
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode().strip()


async def made(database: Database) -> list[str] | None:
    found: list[str] | None = await database.fetchval(MADE)
    return found


# --- order, once, and what is refused ---------------------------------------------------------


async def test_what_is_pending_is_applied_once_and_in_order(empty: Database) -> None:
    assert await migrate.check(empty, migrations()) == LABELS
    assert await migrate.up(empty, migrations()[:1]) == LABELS[:1]
    assert await migrate.up(empty, migrations()) == LABELS[1:]
    assert await migrate.up(empty, migrations()) == []
    assert await made(empty) == ALL


async def test_the_first_migration_of_all_may_consist_of_steps(empty: Database) -> None:
    text = STEPS.replace("relevo.dish", "public.dish")
    await empty.write("create table public.dish (name text)")
    assert await migrate.up(empty, [parse("0101_first.sql", text)]) == ["0101_first"]


async def test_the_state_of_each_is_shown(empty: Database) -> None:
    await migrate.up(empty, migrations()[:2])
    shown = await migrate.status(empty, migrations())
    assert [(one.migration, one.state) for one in shown] == [
        ("0101_dishes", "applied"),
        ("0102_indexes", "applied"),
        ("0103_menu", "pending"),
    ]
    assert shown[0].applied_at is not None
    assert (shown[2].description, shown[2].locks) == ("a view", "nothing that exists")


async def test_an_older_program_refuses_a_newer_schema_by_name(empty: Database) -> None:
    await migrate.up(empty, migrations())
    for act in (migrate.check, migrate.up):
        with pytest.raises(SchemaTooNew, match="has 0103_menu, which this program does not know"):
            await act(empty, migrations()[:2])
    assert (await migrate.status(empty, migrations()[:2]))[-1].state == "unknown"


async def test_a_file_that_changed_after_it_landed_is_refused(empty: Database) -> None:
    await migrate.up(empty, migrations()[:1])
    changed = [parse("0101_dishes.sql", WHOLE + "\n"), *migrations()[1:]]
    for act in (migrate.check, migrate.up):
        with pytest.raises(SchemaError, match=r"0101_dishes was applied .* with another text"):
            await act(empty, changed)


async def test_line_ends_do_not_make_another_text() -> None:
    windows = parse("0101_dishes.sql", WHOLE.replace("\n", "\r\n"))
    assert windows.checksum == migrations()[0].checksum


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("1_short.sql", WHOLE, "is not named like"),
        ("0001_Upper.sql", WHOLE, "is not named like"),
        ("0001_bare.sql", "select 1;", "needs `-- description:`"),
    ],
)
def test_a_file_that_is_not_well_formed_is_refused(name: str, text: str, fault: str) -> None:
    with pytest.raises(SchemaError, match=fault):
        parse(name, text)


def test_steps_are_read_with_their_undo() -> None:
    by_name, by_length = migrations()[1].steps
    assert by_name.name == "by_name"
    assert by_name.sql == "create index concurrently dish_name on relevo.dish (name)"
    assert by_name.undo == "drop index concurrently if exists relevo.dish_name"
    assert by_length.undo == "drop index concurrently if exists relevo.dish_length"


def test_the_migrations_of_this_program_are_well_formed() -> None:
    numbers = [migration.version for migration in known()]
    assert numbers == sorted(set(numbers))


async def test_the_schema_of_this_program_is_complete_on_a_fresh_database(empty: Database) -> None:
    labels = [one.label for one in known()]
    assert await migrate.up(empty) == labels
    assert await migrate.check(empty) == []


# --- killed anywhere --------------------------------------------------------------------------

SUICIDE = """
create sequence public.commands;
create function public.die() returns event_trigger language plpgsql as $$
begin
  if nextval('public.commands') = {k} then
    perform pg_terminate_backend(pg_backend_pid());
    perform pg_sleep(10);
  end if;
end $$;
create event trigger die on ddl_command_start execute function public.die();
"""


async def migrated_with_a_death(databases: TestDatabases, files: list[Migration], k: int) -> bool:
    """Whether there was a k-th statement that defines something, and the migration outlived it."""
    url = databases.create(migrated=False)
    admin = await asyncpg.connect(url)
    await admin.execute(SUICIDE.format(k=k))
    async with await Database.open(settings.load({"database_url": url}, environ={})) as database:
        await migrate.up(database, files)  # its backend dies, and it begins again
        assert await migrate.check(database, files) == []
        assert await made(database) == ALL
    commands: int = await admin.fetchval("select last_value from public.commands")
    await admin.close()
    databases.drop(url)
    return commands >= k


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.soak)])
async def test_a_backend_killed_at_any_statement_leaves_nothing_that_a_rerun_minds(
    relevo_databases: TestDatabases, every: int
) -> None:
    files = [*known(), *migrations()]
    k = 1
    while await migrated_with_a_death(relevo_databases, files, k):
        k += every
    assert k > 40


@pytest.mark.parametrize(
    ("point", "skip"),
    [
        ("before_migration", 0),
        ("after_migration", 0),
        ("before_migration_step", 0),
        ("after_migration_step", 0),
        ("before_migration_step", 1),
        ("after_migration_step", 1),
        ("before_migration", 1),
        ("after_migration", 1),
    ],
)
async def test_a_process_killed_at_any_point_can_be_run_again(
    empty: Database, empty_url: str, tmp_path: Path, point: str, skip: int
) -> None:
    board = FaultBoard(tmp_path / "faults")
    board.arm(point, "kill", skip=skip)
    assert (await run_program(empty_url, board.env()))[0] == -9
    assert board.hits(point) == 1
    board.disarm(point)
    applied = [
        one.migration for one in await migrate.status(empty, migrations()) if one.state == "applied"
    ]
    done = await migrate.up(empty, migrations())
    assert applied + done == LABELS  # each once
    assert await made(empty) == ALL


async def test_processes_that_migrate_at_the_same_instant_share_the_work(
    empty: Database, empty_url: str
) -> None:
    results = await asyncio.gather(*(run_program(empty_url) for _ in range(3)))
    assert [code for code, _ in results] == [0, 0, 0]
    assert sorted(label for _, done in results for label in done.split()) == LABELS
    assert await made(empty) == ALL


async def test_a_program_that_finds_another_text_under_the_lock_refuses(
    empty: Database, empty_url: str, tmp_path: Path
) -> None:
    """Two versions start together; the one that comes second must not go on."""
    board = FaultBoard(tmp_path / "faults")
    board.arm("after_migration", "wait")
    first = asyncio.ensure_future(run_program(empty_url, board.env()))
    await board.reached("after_migration")
    changed = [parse("0101_dishes.sql", WHOLE + "\n")]
    second = asyncio.ensure_future(migrate.up(empty, changed))
    board.disarm("after_migration")
    with pytest.raises(SchemaError):
        await second
    assert (await first)[0] == 0
