"""SIGKILL of hosts, receivers, senders and the server under load: no accepted message is lost, none
is completed twice, and deliveries are counted."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.errors import RelevoError
from relevo.testing.cluster import Cluster
from tests.jobs.office import QUICK
from tests.messaging import programs
from tests.support.servers import kill_server

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.anyio
SETTINGS = {
    **QUICK, "lease_expiration": 2.0, "lease_renew": 0.4, "pool_size": 4, "drain_seconds": 0.2,
}  # fmt: skip
NAMES = ("host-a", "host-b", "receiver-a", "sender-a")
RECOUNT = """
select coalesce(c.entity_id, r.entity_id), coalesce(c.sub_queue, r.sub_queue), c.active, r.active,
  c.locked, r.locked, c.bytes, r.bytes
from (
  select d.entity_id, d.sub_queue, sum(d.active) as active, sum(d.locked) as locked,
    sum(d.bytes) as bytes
  from (select entity_id, sub_queue, active, locked, bytes from relevo.message_delta
        union all
        select entity_id, sub_queue, active, locked, bytes from relevo.message_count) d
  group by 1, 2) c
full join (
  select m.entity_id, m.sub_queue, count(*) filter (where m.state in (0, 5, 6)) as active,
    count(*) filter (where m.state = 1) as locked, sum(m.size) as bytes
  from relevo.message m group by 1, 2) r using (entity_id, sub_queue)
where coalesce(c.active, 0) <> coalesce(r.active, 0)
  or coalesce(c.locked, 0) <> coalesce(r.locked, 0) or coalesce(c.bytes, 0) <> coalesce(r.bytes, 0)
"""
"""Entities whose counters differ from what is there."""


class Ledger:
    """What the senders say was accepted, against what is there."""

    def __init__(self, app: App, cluster: Cluster) -> None:
        self.app = app
        self.cluster = cluster

    async def done(self) -> int:
        try:
            return int(await self.app.database.fetchval("select count(*) from effect"))
        except RelevoError:
            return -1

    def ids(self, event: str, way: str) -> set[str]:
        return {one["id"] for one in self.cluster.records(event) if one["way"] == way}

    async def check(self) -> int:
        """Check every promise; returns how many messages were accepted."""
        rows = await self.app.database.fetch("select message, source from effect")
        times = Counter((row["message"], row["source"]) for row in rows)
        assert {key: n for key, n in times.items() if n != 1} == {}  # none twice (M2)
        done = defaultdict(set)
        for message, source in times:
            done[source].add(message)
        self._check_ways(done)
        outbox = await self.app.database.fetch("select message from outbox")
        assert {row["message"] for row in outbox} == _of("outbox", done["work"])  # M18
        await self._check_poison()
        assert await self.app.database.fetch(RECOUNT) == []  # M29
        return len(self.cluster.records("sent"))

    def _check_ways(self, done: dict[str, set[str]]) -> None:
        """What was accepted is done (M1), and nothing that was not sent."""
        for way, source in {"work": "work", "inbox": "work", "by-hand": "by-hand"}.items():
            found = _of(way, done[source])
            assert self.ids("sent", way) <= found <= self.ids("sending", way)
        assert self.ids("sent", "outbox") <= _of("outbox", done["work"])
        left, even = done["news/subscriptions/left"], done["news/subscriptions/even"]
        batches = {id_.split("/")[0] for id_ in left}
        assert left == {f"{batch}/{n}" for batch in batches for n in range(3)}  # M18
        assert even == {f"{batch}/{n}" for batch in batches for n in (0, 2)}  # M21
        assert self.ids("sent", "news") <= batches <= self.ids("sending", "news")

    async def _check_poison(self) -> None:
        """What always fails is dead once, after all its deliveries (M4)."""
        database = self.app.database
        dead = await database.fetch(
            "select message_id, delivery_count from relevo.message where sub_queue = 1"
        )
        found = {row["message_id"] for row in dead}
        assert len(found) == len(dead)
        assert {row["delivery_count"] for row in dead} <= {programs.DEADLY}
        assert self.ids("sent", "poison") <= found <= self.ids("sending", "poison")
        counts: dict[str, list[int]] = defaultdict(list)
        for row in await database.fetch("select message, deliveries from delivery order by at"):
            counts[row["message"]].append(row["deliveries"])
        for seen in counts.values():
            assert seen == sorted(seen)
            assert seen[-1] < programs.DEADLY


def _of(way: str, ids: Iterable[str]) -> set[str]:
    return {one for one in ids if one.rpartition("-")[0].rpartition("-")[0] == way}


async def storm(app: App, folder: Path, kills: int) -> None:
    for statement in programs.TABLES.split(";"):
        await app.database.write(statement)
    await programs.Post(app).make()
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    url = app.database.endpoint.url
    async with Cluster(url, "tests.messaging.programs:depot", folder, settings=SETTINGS) as cluster:
        ledger = Ledger(app, cluster)
        for name in NAMES:
            await cluster.start(name, wait=False)
        for turn in range(kills):
            wanted = await ledger.done() + dice.randrange(5, 40)

            async def more(wanted: int = wanted) -> bool:
                return await ledger.done() >= wanted

            await cluster.until(more, "there is load")
            if turn % 5 == 4:
                await kill_server(app.database)
            else:
                name = NAMES[turn % 5]
                cluster.nodes[name].kill()
                await cluster.start(name, wait=False)
        cluster.nodes["sender-a"].kill()

        async def drained() -> bool:
            try:
                return bool(await app.database.fetchval(programs.WAITING) == 0)
            except RelevoError:
                return False

        await cluster.until(drained, "all that was sent is done", timeout=90)
        for name in NAMES[:3]:
            cluster.nodes[name].terminate()
        for node in cluster.nodes.values():
            await asyncio.to_thread(node.process.wait)
        accepted = await ledger.check()
    print(f"{kills} kills, {accepted} accepted, 0 lost")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [5, pytest.param(300, marks=pytest.mark.soak)])
async def test_no_kill_loses_or_doubles_a_message(
    kills: int, tmp_path: Path
) -> None:  # M27, M1, M2, M3, M4, M18, M26
    with tempfile.TemporaryDirectory(prefix="relevo-test-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "home"  # a server of its own, whose files are synced
        told = settings.load({"home": home, **SETTINGS}, environ={})
        async with App(settings=told) as app:
            await storm(app, tmp_path, kills)
