"""Another order of an entity: what waits is ranked anew, whole, and keeps its class."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from relevo.messaging import Aging, Deadline, Fifo, Message, Strict, Weighted
from relevo.messaging.core import fairness, ordering, times
from relevo.messaging.core.acceptance import Outgoing, accepted
from relevo.messaging.core.content import check_message
from relevo.testing import FaultBoard
from tests.messaging.sends import SQL, send

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from relevo.kernel.postgres import Database
    from relevo.messaging.definitions import Definitions
    from relevo.messaging.entities import Entities
    from relevo.messaging.model import Ordering

pytestmark = pytest.mark.anyio
POLICIES: list[Ordering] = [
    Fifo(), Strict(), Aging(), Aging(seconds_per_level=5, floor_share=0), Deadline(otherwise=60),
    Weighted(),
]  # fmt: skip


async def ranks(database: Database) -> list[tuple[int, str, int, int, datetime, str | None, int]]:
    rows = await database.fetch(
        """select m.sequence, k.name, m.class, m.priority, m.enqueued_at, m.fairness_key, m.rank
           from relevo.message m join relevo.message_class k
             on k.entity_id = m.entity_id and k.number = m.class
           where m.sub_queue = 0 order by m.sequence"""
    )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: type(one).__name__)
async def test_another_policy_ranks_what_waits_as_the_core_does(
    database: Database, entities: Entities, definitions: Definitions, policy: Ordering
) -> None:
    record = await entities.create("q", "queue", {"ordering": Strict(), "fair": True})
    sent = [Message(b"", priority=n % 10, fairness_key="ab"[n % 2]) for n in range(20)]
    await send(database, definitions, "q", *sent)
    await database.write(
        "update relevo.message set enqueued_at = enqueued_at - sequence * interval '1.000001 s'"
    )
    await database.write(
        """update relevo.message set state = 1, token = 1
           where sequence = (select min(sequence) from relevo.message)"""
    )
    before = await ranks(database)
    await entities.update("q", {"ordering": policy, "fair": False})
    after = await ranks(database)
    assert [row[:6] for row in after] == [row[:6] for row in before]  # M32
    of = {one.name: one for one in record.properties.classes}
    for _, name, _, priority, enqueued_at, _, rank in after:
        arrived = times.micros(enqueued_at)
        assert rank == ordering.rank(policy, of[name], priority=priority, arrived=arrived)
    assert await database.fetchval("select count(*) from relevo.message_fairness") == 0


@pytest.mark.parametrize("policy", [Strict(), Weighted()], ids=lambda one: type(one).__name__)
async def test_fairness_tags_what_waits_as_the_core_does(
    database: Database, entities: Entities, definitions: Definitions, policy: Ordering
) -> None:
    await entities.create("q", "queue", {})
    sent = [Message(b"", priority=n % 10, fairness_key="aab "[n % 4].strip()) for n in range(40)]
    await send(database, definitions, "q", *sent)
    await entities.update("q", {"ordering": policy, "fair": True})
    last: dict[tuple[int, str], int] = {}
    for number in (1, 2, 3):
        rows = [row for row in await ranks(database) if row[2] == number]
        keys = [(row[0], row[5] or "") for row in rows]
        tags, latest = fairness.tag_all(keys, reached=0, last={}, weights={})
        assert [row[6] for row in rows] == tags
        last |= {(number, key): tag for key, tag in latest.items()}
    stored = await database.fetch("select class, key, last_tag from relevo.message_fairness")
    assert {(row["class"], row["key"]): row["last_tag"] for row in stored} == last


async def test_a_change_of_the_order_that_is_killed_changes_nothing(
    database: Database,
    entities: Entities,
    definitions: Definitions,
    relevo_url: str,
    tmp_path: Path,
) -> None:
    await entities.create("q", "queue", {})
    await send(database, definitions, "q", *(Message(b"", priority=n) for n in range(10)))
    before = await ranks(database)
    board = FaultBoard(tmp_path)
    board.arm("mid_rerank", "kill")
    program = f"""
import asyncio
from relevo import settings
from relevo.kernel.postgres import Database
from relevo.messaging import Strict
from relevo.messaging.entities import Entities

async def main():
    told = settings.load({{"database_url": {relevo_url!r}}}, environ={{}})
    async with await Database.open(told) as database:
        await Entities(database).update("q", {{"ordering": Strict()}})

asyncio.run(main())
"""
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=board.env())
    assert await child.wait() == -signal.SIGKILL
    assert board.hits("mid_rerank") == 1
    assert isinstance((await entities.get("q")).properties.ordering, Aging)
    assert await ranks(database) == before
    await entities.update("q", {"ordering": Strict()})  # nothing is left locked
    assert [row[6] for row in await ranks(database)] == [-n for n in range(10)]


async def test_messages_are_accepted_before_or_after_a_change_of_the_order(
    database: Database, entities: Entities, definitions: Definitions
) -> None:
    await entities.create("q", "queue", {"ordering": Strict()})

    async def sender() -> None:
        for n in range(60):
            message = Message(b"", priority=n % 10)
            while True:
                definition = await definitions.of("q")
                plan = accepted([(definition, Outgoing(message, check_message(message), f"{n}"))])
                [row] = await database.write(SQL.accept, *plan.columns())
                if row["outcome"] == "sent":
                    break
                definitions.forget("q")

    async def changer() -> None:
        for n in range(9):
            await entities.update("q", {"ordering": Strict() if n % 2 else Fifo()})

    await asyncio.gather(sender(), sender(), changer())
    assert {row[6] for row in await ranks(database)} == {0}
    assert len(await ranks(database)) == 120
