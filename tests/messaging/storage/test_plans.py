"""Hot statements read what they take, however many messages wait."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from relevo.messaging.model import Aging, Deadline, Fifo, Strict, Weighted
from relevo.messaging.operating.timers import SQL
from tests.messaging.storage.rows import Rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo.testing.databases import TestDatabases
    from tests.messaging.storage.rows import EntityRow

pytestmark = pytest.mark.anyio
WAITING = 200_000
FILL = """
insert into relevo.message (rank, enqueued_at, entity_id, class, state, priority, body_kind, size,
  message_id, fairness_key, expires_at, visible_at, body)
select i, relevo.now(), $1, i % 3, case when i % 50 = 0 then 4 when i % 50 = 1 then 5 else 0 end, 4,
  0, 1, i::text, 't' || i % 1000, case when i % 2 = 0 then relevo.now() + i * interval '1 h' end,
  case when i % 50 < 2 then relevo.now() + i * interval '1 h' end, 'x'
from generate_series(1, $2::integer) i
"""
DEAD = """
insert into relevo.message (rank, enqueued_at, entity_id, sub_queue, class, state, priority,
  body_kind, size, message_id, body)
select 0, relevo.now(), $1, 1, i % 3, 0, 4, 0, 1, i::text, 'x' from generate_series(1, 20000) i
"""
PAGES_PER_MESSAGE = 80
"""Its row, and every index that has it, a few times; a scan would be thousands of pages."""


@pytest.fixture(scope="module")
def url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture
async def rows(url: str) -> AsyncIterator[Rows]:
    """A queue with many waiting messages; what a test does is undone."""
    rows = await Rows.open(url)
    if not await rows.db.fetchval("select exists (select from relevo.message)"):
        entity = await rows.entity()
        await rows.db.execute(FILL, entity.id, WAITING)
        await rows.db.execute(DEAD, entity.id)
        await rows.db.execute("vacuum analyze relevo.message")
    transaction = rows.db.transaction()
    await transaction.start()
    yield rows
    await transaction.rollback()
    await rows.db.close()


async def queue(rows: Rows) -> EntityRow:
    """The queue with the messages, of which only its number counts here."""
    id_ = await rows.db.fetchval("select id from relevo.message_entity where name = 'queue'")
    return type(await rows.entity("other"))(id_, "queue", Fifo(), (), fair=False)


async def touched(rows: Rows, sql: str, *arguments: Any) -> int:
    """The pages that a statement touches, with those of the functions that it calls."""
    for _ in range(2):  # first it is planned, and the catalog read
        transaction = rows.db.transaction()
        await transaction.start()
        found = await rows.db.fetch(f"explain (analyze, buffers, timing off) {sql}", *arguments)
        await transaction.rollback()
    plan = "\n".join(row[0] for row in found)
    assert "Seq Scan on message " not in plan, plan
    return int(re.findall(r"shared hit=(\d+)", plan)[0])


@pytest.mark.parametrize(
    "policy",
    [Fifo(), Strict(), Aging(), Deadline(), Weighted()],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize(
    "limits", [None, '{"free": 30, "classes": {"high": {"base": 8, "reserved": 9}}}']
)
async def test_a_claim_reads_what_it_takes(rows: Rows, policy: Any, limits: str | None) -> None:
    entity = await queue(rows)
    other = await rows.entity("policy", policy)
    for table, key in (("message_class", "entity_id"), ("message_entity", "id")):
        columns = "tier" if table == "message_class" else "policy, floor_patience"
        await rows.db.execute(
            f"update relevo.{table} t set ({columns}) = (select {columns} from relevo.{table} o"
            f" where o.{key} = $2 {'and o.number = t.number' if columns == 'tier' else ''}"
            f" limit 1) where t.{key} = $1",
            entity.id, other.id,
        )  # fmt: skip
    claim = """select * from relevo.claim_messages(array[$1::integer], array[0::smallint], 20, 7,
      p_limits => $2::jsonb)"""
    assert await touched(rows, claim, entity.id, limits) < 20 * PAGES_PER_MESSAGE


async def test_settling_looks_each_message_up(rows: Rows) -> None:
    entity = await queue(rows)
    messages = await rows.claim(entity, 40)
    numbers = [one["sequence"] for one in messages]
    tokens = [one["token"] for one in messages]
    settle = "select relevo.settle_messages($1, $2, array_fill($3::text, array[20]))"
    for event, at in (("complete", 0), ("abandon", 20)):
        pages = await touched(rows, settle, numbers[at : at + 20], tokens[at : at + 20], event)
        assert pages < 20 * PAGES_PER_MESSAGE


@pytest.mark.parametrize(
    "sql",
    [
        "select relevo.recover_messages(1000)",
        "select relevo.make_messages_due(1000)",
        "select relevo.expire_messages(1000)",
        "select relevo.lost_hosts()",
        "select relevo.forget_messages(1000)",
        SQL.tend.rstrip().rstrip(";"),
    ],
)
async def test_duties_with_nothing_to_do_read_next_to_nothing(rows: Rows, sql: str) -> None:
    assert await touched(rows, sql) < 120


@pytest.mark.parametrize(
    ("change", "duty"),
    [
        ("update relevo.message set visible_at = relevo.now() where {}", "make_messages_due"),
        ("update relevo.message set expires_at = relevo.now() where {}", "expire_messages"),
    ],
)
async def test_duties_read_what_is_due(rows: Rows, change: str, duty: str) -> None:
    some = "sequence in (select sequence from relevo.message where state in (4, 5) limit 20)"
    if duty == "expire_messages":
        some = some.replace("(4, 5)", "(0, 5)")
    await rows.db.execute(change.format(some))
    pages = await touched(rows, f"select relevo.{duty}(1000)")
    assert pages < 20 * PAGES_PER_MESSAGE


async def test_lost_locks_are_found_by_their_holders(rows: Rows) -> None:
    entity = await queue(rows)
    host = await rows.host()
    await rows.claim(entity, 2_000, host=host)
    pages = await touched(rows, "select relevo.lost_hosts()")
    assert pages < 60  # it steps from host to host, not from message to message
    await rows.end_host(host)
    assert await rows.db.fetchval("select relevo.recover_messages(20)") == [entity.id]


@pytest.mark.parametrize(
    ("name", "arguments"), [("peek", (0, 5, 20)), ("peek", (1, 5, 20)), ("oldest", ())]
)
async def test_looking_at_messages_reads_a_page_of_them(
    rows: Rows, name: str, arguments: tuple[int, ...]
) -> None:
    entity = await queue(rows)
    sql = getattr(SQL, name)
    assert await touched(rows, sql, entity.id, *arguments) < 20 * PAGES_PER_MESSAGE


async def test_operators_do_not_read_all_messages(rows: Rows) -> None:
    entity = await queue(rows)
    numbers = [
        row["sequence"]
        for row in await rows.db.fetch(
            "select sequence from relevo.message where state = 4 order by sequence limit 20"
        )
    ]
    statements = [
        ("select relevo.cancel_scheduled($1, $2)", (entity.id, numbers[:5])),
        (
            "select relevo.reprioritize_messages($1, $2, 0::smallint, 9::smallint)",
            (entity.id, numbers[5:]),
        ),
        ("select relevo.redrive_messages($1, 1::smallint, null, 20)", (entity.id,)),
        ("select relevo.purge_messages($1, 0::smallint, null, 20)", (entity.id,)),
    ]
    for sql, arguments in statements:
        pages = await touched(rows, sql, *arguments)
        assert pages < 20 * PAGES_PER_MESSAGE, sql
