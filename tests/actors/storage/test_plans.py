"""Hot statements read what they are asked for, however many actors and messages there are."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.actors.core.deltas import Delta, EntryChange, RecordedCall, ReminderChange
from relevo.actors.core.folding import fold
from relevo.actors.storing.commits import columns
from relevo.actors.storing.storage import SQL
from tests.actors.storage.slots import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio
STORED = 40_000
FILL = [
    """insert into relevo.host (incarnation, name, lease_until, started_at, version)
    values (gen_random_uuid(), 'h', 'infinity', relevo.now(), '1')""",
    """insert into relevo.unit (kind, name, strict, handoff_timeout, rest)
    values ('actors', 'default', true, '1 s', '1 s')""",
    """insert into relevo.lease (unit_id, name, owner, epoch, free_since)
    select u.id, i::text, h.incarnation, 1, null
    from relevo.unit u, relevo.host h, generate_series(0, 255) i""",
    "insert into relevo.actor_group (name, slots) values ('default', 256)",
    """insert into relevo.actor (id, placement_group, slot, revision, commit_number, updated_at,
      deleted_at, document)
    select 'account/i:' || i, 'default', i % 256, 1, 0, relevo.now(),
      case when i % 100 = 0 then relevo.now() end, 'x' from generate_series(1, {n}) i""",
    """insert into relevo.actor_entry select 'account/i:' || i, 'm', 'k', 'x'
    from generate_series(1, {n}) i""",
    """insert into relevo.actor_call select 'account/i:' || i, 'c', relevo.now(), 'm', '', ''
    from generate_series(1, {n}) i""",
    """insert into relevo.actor_reminder (actor, name, placement_group, slot, due, method, schedule,
      payload, dead_at)
    select 'account/i:' || i, 'r', 'default', i % 256, relevo.now() + i * interval '1 h', 'm', '',
      '', case when i % 100 = 0 then relevo.now() end from generate_series(1, {n}) i""",
    # A few pairs with many messages each, in few slots, and dead ones.
    """insert into relevo.actor_message (slot, attempts, on_dead, placement_group, receiver, sender,
      method, digest, headers, body, dead_at)
    select i % 20, 20, 'continue', 'default', 'account/i:' || i % 20, '', 'm', '', '{{}}', '',
      case when i % 100 > 79 then relevo.now() end from generate_series(1, {n}) i""",
]
ANALYZE = (
    "vacuum analyze relevo.{}",
    ("actor", "actor_entry", "actor_call", "actor_reminder", "actor_message", "lease"),
)
PAGES_PER_ROW = 80
"""A row and every index that has it, a few times; a scan would be hundreds of pages."""
LIMITS = pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])


@pytest.fixture(scope="module")
def url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture
async def db(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to many stored actors; what a test does is undone."""
    db = await asyncpg.connect(url)
    if not await db.fetchval("select exists (select from relevo.actor)"):
        for statement in FILL:
            await db.execute(statement.format(n=STORED))
        for table in ANALYZE[1]:
            await db.execute(ANALYZE[0].format(table))
    transaction = db.transaction()
    await transaction.start()
    yield db
    await transaction.rollback()
    await db.close()


async def touched(db: asyncpg.Connection, sql: str, *arguments: Any, generic: bool = False) -> int:
    """The pages that a statement touches, with those of the functions that it calls."""
    mode = "force_generic_plan" if generic else "force_custom_plan"
    await db.execute(f"set local plan_cache_mode = {mode}")
    for _ in range(2):  # first it is planned, and the catalog read
        transaction = db.transaction()
        await transaction.start()
        found = await db.fetch(f"explain (analyze, buffers, timing off) {sql}", *arguments)
        await transaction.rollback()
    plan = "\n".join(row[0] for row in found)
    assert "Seq Scan on actor" not in plan, plan
    pages = re.findall(r"shared hit=(\d+)(?: read=(\d+))?", plan)
    return sum(int(number or 0) for number in pages[0])


async def turns(db: asyncpg.Connection, count: int, **changes: Any) -> list[Any]:
    """The arguments of a batch that changes so many stored actors."""
    rows = await db.fetch("select name::integer, id from relevo.lease")
    leases = {row["name"]: row["id"] for row in rows}
    made = [
        Delta(
            f"account/i:{i}", leases[i % 256], 1, "default", i % 256, 0, 1, document=b"new",
            **changes,
        )
        for i in range(1, 100 * count, 100)
    ]  # fmt: skip
    return [1, *columns(fold(made)[0])]


@LIMITS
@pytest.mark.parametrize("count", [1, 50])
async def test_a_batch_reads_the_actors_that_it_changes(
    db: asyncpg.Connection, count: int, generic: bool
) -> None:
    arguments = await turns(db, count)
    pages = await touched(db, SQL.commit_turns, *arguments, generic=generic)
    assert pages < (count + 1) * PAGES_PER_ROW


@LIMITS
async def test_changes_of_every_kind_are_looked_up(db: asyncpg.Connection, generic: bool) -> None:
    number = await db.fetchval("select min(number) from relevo.actor_message where dead_at is null")
    arguments = await turns(
        db, 10, entries=(EntryChange("m", "k", None), EntryChange("m", "l", b"1")),
        reminders=(ReminderChange("r", datetime(2030, 1, 1, tzinfo=UTC)),),
        messages=(message("x"),), recorded=(RecordedCall("c", "m", b"", b""),),
        handled_message=number,
    )  # fmt: skip
    pages = await touched(db, SQL.commit_turns, *arguments, generic=generic)
    assert pages < 10 * 6 * PAGES_PER_ROW
    deleted = await turns(db, 10, deleted=True)
    pages = await touched(db, SQL.commit_turns, *deleted, generic=generic)
    assert pages < 10 * 6 * PAGES_PER_ROW


@LIMITS
async def test_what_is_due_is_found_by_slot(db: asyncpg.Connection, generic: bool) -> None:
    places = ["default"] * 256, list(range(256))
    messages = await db.fetch(SQL.due_messages, *places, [], 1_000)
    assert len(messages) == 20
    for sql in (SQL.due_messages, SQL.due_reminders):  # a probe for each slot
        assert await touched(db, sql, *places, [], 1_000, generic=generic) < 256 * 8
    assert await touched(db, SQL.next_due, *places, generic=generic) < 256 * 12
    await db.execute("update relevo.clock set shift = interval '100 years'")
    found = await db.fetch(SQL.due_reminders, *places, [], 50)
    assert len(found) == 50
    pages = await touched(db, SQL.due_reminders, *places, [], 50, generic=generic)
    assert pages < 50 * PAGES_PER_ROW


@pytest.mark.parametrize(
    ("sql", "arguments"),
    [
        (SQL.load_actors, ([f"account/i:{n * 100}" for n in range(20)], 1_000_000)),
        (SQL.actor_entries, ("account/i:7", "m", "", 20)),
        (SQL.recorded_call, ("account/i:7", "c")),
        (SQL.list_actors, ("account/i:3", "account0", 20)),
        (SQL.list_quarantined, ("", 20)),
        (SQL.dead_messages, (5_000, None, 20)),
        (SQL.dead_reminders, ("account/i:5", "", None, 20)),
        (SQL.trim_calls, (60.0, 20)),
        (SQL.trim_tombstones, (60.0, 20)),
    ],
    ids=lambda one: one.split()[2] if isinstance(one, str) else "",
)
@LIMITS
async def test_pages_and_duties_read_no_more_than_they_give(
    db: asyncpg.Connection, sql: str, arguments: tuple[Any, ...], generic: bool
) -> None:
    for by in ("0", "1 day"):  # with nothing to trim, and with all of it
        await db.execute(f"update relevo.clock set shift = interval '{by}'")
        assert await touched(db, sql, *arguments, generic=generic) < 20 * PAGES_PER_ROW


async def test_changes_of_a_state_are_heap_only(db: asyncpg.Connection) -> None:
    """Updates of actors write no index."""
    arguments = await turns(db, 50)
    assert await db.fetch(SQL.commit_turns, *arguments) == []
    await db.execute("select pg_stat_force_next_flush()")
    row = await db.fetchrow(
        "select n_tup_upd, n_tup_hot_upd from pg_stat_xact_all_tables"
        " where relid = 'relevo.actor'::regclass"
    )
    assert row is not None
    assert row["n_tup_upd"] == row["n_tup_hot_upd"] == 50
