"""Keeps the leases of one incarnation: a task per lease runs its holder until it must let go."""

from __future__ import annotations

import asyncio
import random
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from relevo.errors import LeaseLost, RelevoError
from relevo.kernel import faults
from relevo.kernel.backoff import Backoff
from relevo.kernel.leases.held import Lease
from relevo.kernel.leases.model import Fence, Load
from relevo.kernel.leases.saving import Given, Savings
from relevo.kernel.leases.units import host_topic
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    import asyncpg

    from relevo.kernel.leases.held import Holder, ReleaseReason
    from relevo.kernel.leases.holdings import Changes, Owned
    from relevo.kernel.leases.hosts import Deadline
    from relevo.kernel.leases.units import Unit
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.wakeups import Wakeups

log = get_logger(__name__)
ABORT_SECONDS = 10.0
"""How long a canceled holder may take to end before its lease goes on all the same."""


class _Held:
    def __init__(self, unit: Unit, lease: Lease) -> None:
        self.unit = unit
        self.lease = lease
        self.work: asyncio.Task[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.cut_off = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None
        self.giving_up = False

    def cut(self) -> None:
        """Cancel the holder; it has `ABORT_SECONDS` to end."""
        self.cut_off.set()
        if self.work is not None:
            self.work.cancel()

    def cut_later(self, seconds: float) -> None:
        """Cut off in so many seconds, unless the request is withdrawn before."""
        if self.timer is None:
            self.timer = asyncio.get_running_loop().call_later(seconds, self.cut)

    def recall(self) -> None:
        """Continue: the request for the lease was withdrawn."""
        if self.lease.recall() and self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Keeper:
    """The leases that one incarnation holds, and the tasks that work on them."""

    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        incarnation: UUID,
        deadline: Deadline,
        units: Mapping[int, Unit],
    ) -> None:
        self._database = database
        self._wakeups = wakeups
        self._deadline = deadline
        self._units = units
        self._held: dict[int, _Held] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._closed = False
        self.believed: Mapping[int, int] = MappingProxyType({})
        """Lease id to epoch; replaced, never changed, so that other threads may read it."""
        self.savings = Savings(database, incarnation)

    @property
    def leases(self) -> list[Lease]:
        """The leases held now."""
        return [held.lease for held in self._held.values()]

    def apply(self, changes: Changes) -> None:
        """Act on the database's view; the caller handles `gained`, which needs a read."""
        for lease_id in changes.lost:
            self._lose(lease_id, "rewind" if lease_id in changes.rewound else "lost")
        for owned in changes.asked:
            self._ask(owned)
        for lease_id in changes.recalled:
            if lease_id in self._held:
                self._held[lease_id].recall()

    def begin(self, rows: Sequence[asyncpg.Record]) -> None:
        """Start to work on leases that are this host's now; an ended life starts nothing."""
        for row in () if self._closed else rows:
            unit = self._units.get(row["unit_id"])
            known = self._held.get(row["id"])
            if unit is None:
                self._hand_back(row)
                continue
            if known is not None and known.lease.epoch >= row["epoch"]:
                continue
            if known is not None:
                rewound = row["epoch"] == known.lease.epoch + 1
                self._lose(row["id"], "rewind" if rewound else "lost")
            fence = Fence(row["id"], row["epoch"], unit.name, row["name"])
            position = msgspec.json.decode(row["position"])
            lease = Lease(
                fence, position, self._deadline, clean=row["clean"], save=self.savings.save,
                load=Load(row["busy"], row["changes_s"], row["bytes_s"]),
            )  # fmt: skip
            held = self._held[row["id"]] = _Held(unit, lease)
            held.task = asyncio.get_running_loop().create_task(self._hold(held), name=repr(lease))
            log.debug("lease.acquired", unit=unit.name, lease=lease.name, epoch=lease.epoch)
        self._publish()

    async def stop(
        self, reason: ReleaseReason, timeout: float, unit: Unit | None = None
    ) -> list[Lease]:
        """Let every holder finish, then release; return those whose holders were cut off."""
        stopping = [h for h in self._held.values() if unit is None or h.unit is unit]
        for held in stopping:
            held.lease.ask_to_stop(reason)
        tasks = [held.task for held in stopping if held.task is not None]
        if not tasks:
            return []
        await asyncio.wait(tasks, timeout=timeout)
        late = [held for held in stopping if held.task is not None and not held.task.done()]
        for held in late:
            held.cut()
        if late:
            await asyncio.wait([h.task for h in late if h.task], timeout=ABORT_SECONDS)
        return [held.lease for held in late]

    def abandon(self, reason: ReleaseReason) -> None:
        """Drop everything at once: the incarnation has ended and may write nothing more."""
        self._closed = True
        for lease_id in list(self._held):
            self._lose(lease_id, reason)

    async def close(self) -> None:
        """Wait for tasks that were cut off, bounded, and for grouped writes."""
        if self._ending:
            await asyncio.wait(list(self._ending.values()), timeout=ABORT_SECONDS)
        await self.savings.close()

    def _hand_back(self, row: asyncpg.Record) -> None:
        """Release leases that were handed to this host after it left the unit."""
        given = Given(row["id"], row["epoch"], f"number {row['unit_id']}")
        task = asyncio.get_running_loop().create_task(self.savings.give_up(given))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _ask(self, owned: Owned) -> None:
        held = self._held.get(owned.id)
        if held is None or held.lease.epoch != owned.epoch:
            return
        reason: ReleaseReason = "handoff" if owned.state == "active" else owned.state
        held.lease.ask_to_stop(reason)
        if held.unit.settings.strict:
            # No host seizes from a live one in a strict unit, so the owner stops itself in time.
            left = owned.handoff_left
            seconds = held.unit.settings.handoff_timeout if left is None else max(0.0, left)
            held.cut_later(seconds)

    def _lose(self, lease_id: int, reason: ReleaseReason) -> None:
        held = self._held.get(lease_id)
        if held is None or held.giving_up:
            return  # leases that are being released are expected to be gone
        del self._held[lease_id]
        lease = held.lease
        lease.over = True
        lease.ask_to_stop("split" if lease.dissolving else reason)
        held.cut()
        if held.task is not None and not held.task.done():
            self._ending[lease_id] = held.task
        if not lease.dissolving:
            self._database.metrics.lease_lost.inc()
            log.info("lease.lost", unit=held.unit.name, lease=lease.name, epoch=lease.epoch)
        self._publish()

    def _publish(self) -> None:
        self.believed = MappingProxyType({i: h.lease.epoch for i, h in self._held.items()})

    async def _hold(self, held: _Held) -> None:
        """Run the holder, then release the lease, unless it was lost."""
        lease, lease_id = held.lease, held.lease.fence.lease_id
        earlier = self._ending.pop(lease_id, None)
        if earlier is not None:
            await asyncio.wait([earlier], timeout=ABORT_SECONDS)
        held.work = asyncio.get_running_loop().create_task(
            self._work(held.unit.holder, lease), name=f"holder of {lease!r}"
        )
        if held.cut_off.is_set():
            held.work.cancel()
        clean = await self._until_ended(held)
        if self._ending.get(lease_id) is held.task:
            del self._ending[lease_id]
        if lease.over:
            return
        held.giving_up = lease.over = True
        await faults.point("mid_handoff")
        if not lease.dissolving:  # else others have taken its place, and there is nothing to give
            await self._give_up(held, clean=clean)
        if self._held.get(lease_id) is held:
            del self._held[lease_id]
            self._publish()

    async def _until_ended(self, held: _Held) -> bool:
        """Wait for the holder; one that ignores its cancellation is left behind, fenced."""
        assert held.work is not None
        cut = asyncio.ensure_future(held.cut_off.wait())
        await asyncio.wait([held.work, cut], return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if not held.work.done():
            await asyncio.wait([held.work], timeout=ABORT_SECONDS)
        if held.timer is not None:
            held.timer.cancel()
        if not held.work.done():
            log.error("holder.ignores_cancellation", unit=held.unit.name, lease=held.lease.name)
            return False
        return not held.work.cancelled() and held.work.exception() is None

    async def _work(self, holder: Holder, lease: Lease) -> None:
        """Run the holder until it was asked to stop; one that fails before is run again."""
        backoff, attempt = Backoff(first=0.2, longest=10.0), 0
        while not lease.over:
            try:
                await holder(lease)
                if lease.stopping.is_set():
                    return
                log.warning("holder.ended_by_itself", unit=lease.unit, lease=lease.name)
            except LeaseLost:
                log.info("holder.lease_lost", unit=lease.unit, lease=lease.name, epoch=lease.epoch)
            except Exception:
                if lease.stopping.is_set():
                    raise
                log.exception("holder.failed", unit=lease.unit, lease=lease.name)
            try:
                async with asyncio.timeout(backoff.delay(attempt, self._random)):
                    await lease.stopping.wait()
                return
            except TimeoutError:
                attempt += 1

    async def _give_up(self, held: _Held, *, clean: bool) -> None:
        lease = held.lease
        given = Given(lease.fence.lease_id, lease.epoch, lease.unit, clean=clean)
        try:
            successor = await self.savings.give_up(given)
        except RelevoError as error:
            # The next heartbeat shows whether it is still ours; then its holder starts again.
            log.info("lease.not_released", unit=lease.unit, lease=lease.name, error=str(error))
            return
        if successor is not None:
            self._database.metrics.lease_handoffs.labels(unit=lease.unit).inc()
        self._wakeups.send(held.unit.topic if successor is None else host_topic(successor))
