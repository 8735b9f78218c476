"""Who writes while hosts are in trouble."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from relevo.errors import RelevoError
from relevo.store import Upsert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.feed import FeedContainer


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
