"""What was written, what was delivered, and whether the one follows from the other."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from relevo.errors import RelevoError
from relevo.store import Upsert

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relevo.feed import FeedContainer
    from relevo.feed.model import Mode
    from relevo.postgres import Database

GRACE_SECONDS = 1.0
"""So long after its trouble ended a host may still take the step that the trouble interrupted."""

POSITIONS = """
create table relevo_trace.position (
  seq bigint generated always as identity primary key,
  lease_id integer, epoch bigint, position jsonb
);
create function relevo_trace.note_position() returns trigger language plpgsql as $$
begin
  insert into relevo_trace.position (lease_id, epoch, position)
  values (new.id, new.epoch, new.position);
  return null;
end $$;
create trigger trace_position after update of position on relevo.lease
  for each row execute function relevo_trace.note_position();
"""

Delivered = tuple[str, int, int, int | None]
"""Id, LSN, ordinal and version of a change."""


class Writers:
    """Writes items with rising versions, and remembers what was acknowledged."""

    def __init__(self, containers: Sequence[FeedContainer[Any]], seed: int) -> None:
        self._rng = random.Random(seed)
        self._stopping = asyncio.Event()
        self._versions: Counter[str] = Counter()
        self.acknowledged: set[tuple[str, int]] = set()
        """Id and LSN of each write that was confirmed to its caller."""
        self.containers = containers

    async def run(self, writers: int = 4, pause: float = 0.01) -> None:
        """Write until `stop`; each writer has its own keys, so that their versions rise."""
        async with asyncio.TaskGroup() as group:
            for number in range(writers):
                container = self.containers[number % len(self.containers)]
                keys = [f"{number}-{n}" for n in range(8)]
                group.create_task(self._write(container, keys, pause))

    def stop(self) -> None:
        self._stopping.set()

    async def _write(self, container: FeedContainer[Any], keys: list[str], pause: float) -> None:
        while not self._stopping.is_set():
            key = self._rng.choice(keys)
            try:
                if self._rng.random() < 0.1:
                    await self._write_group(container, key)
                elif self._rng.random() < 0.05 and self._versions[f"{key}-0"]:
                    await container.delete(f"{key}-0", key)
                else:
                    item = await container.upsert(self._next(key, 0))
                    self.acknowledged.add((item.id, item.lsn))
            except RelevoError:
                continue  # not acknowledged: it may have happened or not
            finally:
                await asyncio.sleep(pause)

    async def _write_group(self, container: FeedContainer[Any], key: str) -> None:
        """Several items in one transaction: one group (2.6)."""
        steps = [Upsert(self._next(key, n)) for n in range(3)]
        for item in await container.batch(key, steps):
            assert item is not None
            self.acknowledged.add((item.id, item.lsn))

    def _next(self, key: str, number: int) -> dict[str, Any]:
        item_id = f"{key}-{number}"
        self._versions[item_id] += 1
        return {"id": item_id, "key": key, "version": self._versions[item_id]}


async def committed(container: FeedContainer[Any], mode: Mode) -> set[Delivered]:
    """Read the whole feed, with writers stopped: the truth that deliveries are held against."""
    return {
        (c.id, c.lsn, c.ordinal, None if c.current is None else c.item["version"])
        async for page in container.read_changes(mode=mode)
        for c in page.changes
    }


class Trouble(Struct):
    """A time in which a host was frozen, cut off or killed."""

    host: str
    began: float
    ended: float = float("inf")
    killed: bool = False


class Call(Struct):
    """One call of a handler, as its host noted it."""

    host: str
    lease: str
    epoch: int
    began: float
    changes: list[Delivered]
    ended: float = float("inf")
    returned: bool = False


def calls(traces: Iterable[Sequence[dict[str, Any]]], troubles: Sequence[Trouble]) -> list[Call]:
    """Put together what each life of a host recorded; a killed one ended its calls by that."""
    found: list[Call] = []
    for records in traces:
        open_calls: dict[int, Call] = {}
        for r in records:
            if r["event"] == "call":
                changes = [(c[0], c[1], c[2], c[3]) for c in r["changes"]]
                open_calls[r["number"]] = Call(r["host"], r["lease"], r["epoch"], r["at"], changes)
                found.append(open_calls[r["number"]])
            elif r["event"] in ("returned", "cut"):
                ended = open_calls.pop(r["number"])
                ended.ended, ended.returned = r["at"], r["event"] == "returned"
        for call in open_calls.values():
            call.ended = min(
                (t.began for t in troubles
                 if t.killed and t.host == call.host and t.began >= call.began),
                default=call.ended,
            )  # fmt: skip
    return sorted(found, key=lambda call: call.began)


def check_no_overlap(found: Sequence[Call], troubles: Sequence[Trouble]) -> None:
    """P2: one call at a time per lease, but for zombies: hosts in trouble under an old epoch."""
    by_lease: dict[str, list[Call]] = defaultdict(list)
    for call in found:
        by_lease[call.lease].append(call)
    for history in by_lease.values():
        for index, later in enumerate(history):
            for earlier in history[max(0, index - 20) : index]:
                if earlier.epoch > later.epoch:
                    assert _troubled(later, troubles), (earlier, later)
                elif earlier.ended > later.began:
                    assert earlier.epoch < later.epoch, (earlier, later)
                    assert _troubled(earlier, troubles), (earlier, later)


def _troubled(call: Call, troubles: Sequence[Trouble]) -> bool:
    return any(
        t.host == call.host and t.began <= call.ended and call.began <= t.ended + GRACE_SECONDS
        for t in troubles
    )


def check_order(found: Sequence[Call], mode: Mode) -> None:
    """F4: of one item, versions never go backwards; what is delivered again was delivered before.

    An epoch may deliver a stretch again (its checkpoint was not confirmed), but never in another
    order; in latest-version mode not even that shows an older version.
    """
    newest: dict[tuple[str, int, str], int] = {}
    seen: set[tuple[str, int, str, int]] = set()
    for call in found:
        for item_id, lsn, _, _ in call.changes:
            of = (call.lease, call.epoch, item_id)
            if lsn < newest.get(of, 0):
                assert mode == "all_versions", (call, lsn, newest[of])
                assert (*of, lsn) in seen, (call, lsn, newest[of])
            newest[of] = max(lsn, newest.get(of, 0))
            seen.add((*of, lsn))


def check_groups(found: Sequence[Call], truth: Iterable[Delivered]) -> None:
    """F5: a group is never split over two calls."""
    sizes = Counter(lsn for _, lsn, _, _ in truth)
    for call in found:
        for lsn, size in Counter(lsn for _, lsn, _, _ in call.changes).items():
            assert size == sizes[lsn], (call, lsn, sizes[lsn])


async def check_positions(database: Database) -> None:
    """L3: positions never move backwards."""
    histories: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in await database.fetch("select * from relevo_trace.position order by seq"):
        for range_id, lsn in msgspec.json.decode(row["position"]).items():
            histories[row["lease_id"], range_id].append(lsn)
    for of, history in histories.items():
        assert all(before <= after for before, after in pairwise(history)), (of, history)
