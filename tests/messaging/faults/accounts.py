"""The ledger of chaos tests: what senders say was accepted, against what is there."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from relevo.errors import RelevoError
from tests.messaging.faults import programs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.kernel.postgres import Database
    from relevo.testing.cluster import Cluster

RECOUNT = """
select coalesce(c.entity_id, r.entity_id), coalesce(c.sub_queue, r.sub_queue), c.active, r.active,
  c.locked, r.locked, c.bytes, r.bytes, c.fairness_keys, f.fairness_keys
from (
  select d.entity_id, d.sub_queue, sum(d.active) as active, sum(d.locked) as locked,
    sum(d.bytes) as bytes, sum(d.fairness_keys) as fairness_keys
  from (select * from relevo.message_delta union all select * from relevo.message_count) d
  group by 1, 2) c
full join (
  select m.entity_id, m.sub_queue, count(*) filter (where m.state in (0, 5, 6)) as active,
    count(*) filter (where m.state = 1) as locked, sum(m.size) as bytes
  from relevo.message m group by 1, 2) r using (entity_id, sub_queue)
full join (
  select o.entity_id, 0::smallint as sub_queue, count(*) as fairness_keys
  from relevo.message_fairness o group by 1) f using (entity_id, sub_queue)
where coalesce(c.fairness_keys, 0) <> coalesce(f.fairness_keys, 0)
  or coalesce(c.active, 0) <> coalesce(r.active, 0)
  or coalesce(c.locked, 0) <> coalesce(r.locked, 0) or coalesce(c.bytes, 0) <> coalesce(r.bytes, 0)
"""
"""Entities whose counters differ from what is there."""

WAYS = {"work": "work", "inbox": "work", "by-hand": "by-hand", "chats": "chats"}
"""How messages are sent, and where they end up."""


class Ledger:
    """What the senders say was accepted, against what is there."""

    def __init__(self, database: Database, cluster: Cluster) -> None:
        self.database = database
        self.cluster = cluster

    async def done(self) -> int:
        try:
            return int(await self.database.fetchval("select count(*) from effect"))
        except RelevoError:
            return -1

    async def drained(self) -> bool:
        """Whether nothing waits except dead letters."""
        try:
            return bool(await self.database.fetchval(programs.WAITING) == 0)
        except RelevoError:
            return False

    def ids(self, event: str, way: str) -> set[str]:
        return {one["id"] for one in self.cluster.records(event) if one["way"] == way}

    async def check(self) -> int:
        """Check every promise; returns how many messages were accepted."""
        rows = await self.database.fetch("select message, source from effect")
        times = Counter((row["message"], row["source"]) for row in rows)
        assert {key: n for key, n in times.items() if n != 1} == {}  # none twice (M2)
        done = defaultdict(set)
        for message, source in times:
            done[source].add(message)
        self._check_ways(done)
        outbox = await self.database.fetch("select message from outbox")
        assert {row["message"] for row in outbox} == _of("outbox", done["work"])  # M18
        await self._check_poison()
        await self._check_sessions()
        assert await self.database.fetch(RECOUNT) == []  # M29
        return len(self.cluster.records("sent"))

    def _check_ways(self, done: dict[str, set[str]]) -> None:
        """What was accepted is done (M1), and nothing that was not sent."""
        for way, source in WAYS.items():
            found = _of(way, done[source])
            assert self.ids("sent", way) <= found <= self.ids("sending", way)
        assert self.ids("sent", "outbox") <= _of("outbox", done["work"])
        left, even = done["news/subscriptions/left"], done["news/subscriptions/even"]
        batches = {id_.split("/")[0] for id_ in left}
        assert left == {f"{batch}/{n}" for batch in batches for n in range(3)}  # M18
        assert even == {f"{batch}/{n}" for batch in batches for n in (0, 2)}  # M21
        assert self.ids("sent", "news") <= batches <= self.ids("sending", "news")

    async def _check_sessions(self) -> None:
        """Each session was served in order (M20)."""
        last: dict[str, int] = {}
        for row in await self.database.fetch(
            "select message from effect where source = 'chats' order by at"
        ):
            _, sender, number = row["message"].rsplit("-", 2)
            assert int(number) > last.get(sender, -1)
            last[sender] = int(number)

    async def _check_poison(self) -> None:
        """What always fails is dead once, after all its deliveries (M4)."""
        dead = await self.database.fetch(
            "select message_id, delivery_count from relevo.message where sub_queue = 1"
        )
        found = {row["message_id"] for row in dead}
        assert len(found) == len(dead)
        assert {row["delivery_count"] for row in dead} <= {programs.DEADLY}
        assert self.ids("sent", "poison") <= found <= self.ids("sending", "poison")
        counts: dict[str, list[int]] = defaultdict(list)
        for row in await self.database.fetch(
            "select message, deliveries from delivery order by at"
        ):
            counts[row["message"]].append(row["deliveries"])
        for seen in counts.values():
            assert seen == sorted(seen)
            assert seen[-1] < programs.DEADLY


def _of(way: str, ids: Iterable[str]) -> set[str]:
    return {one for one in ids if one.rpartition("-")[0].rpartition("-")[0] == way}
