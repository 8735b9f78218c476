"""A processor on a host: joins its unit, runs one worker per lease, and stops in order."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.errors import (
    Conflict,
    ContainerRecreated,
    FeedExpired,
    FeedRegressed,
    HostFenced,
    LeaseLost,
    LeaseStoreError,
    MonitoredError,
    RelevoError,
)
from relevo.feed.operating import unit
from relevo.feed.operating.unit import UnitDeleted
from relevo.feed.processing import parking
from relevo.feed.processing.calls import Observer, one_by_one
from relevo.feed.processing.journal import Checkpoints, LeaseJournal
from relevo.feed.processing.memory_leases import MemoryLeases
from relevo.feed.processing.worker import LeaseWorker
from relevo.feed.reading import bounds
from relevo.feed.reading import log as reading
from relevo.feed.reading.poller import Poller
from relevo.kernel import error_text
from relevo.kernel.leases import Membership, UnitSettings
from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog
from relevo.kernel.running.calls import CallAbandoned
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from relevo.feed.model import Change
    from relevo.feed.processing.processor import Notification, Processor, Symptom
    from relevo.feed.reading.log import FeedSource
    from relevo.kernel.leases import Lease, Leases, Unit
    from relevo.kernel.postgres import Database, Transaction, Wakeups
    from relevo.kernel.supervision import Supervisor

SQL = catalog.load("relevo.feed")
log = get_logger(__name__)
STORE_ERRORS = (MonitoredError, LeaseStoreError, FeedExpired, FeedRegressed, ContainerRecreated)
JOINS_MAX = 5
"""How often a host joins again because the unit was deleted in between."""
LOST_SECONDS_MAX = 60.0
"""How long a worker whose write was refused waits for the heartbeat to report the lost lease."""


async def start(
    processor: Processor, database: Database, wakeups: Wakeups, leases: Leases,
    supervisor: Supervisor,
) -> None:  # fmt: skip
    """Serve a processor's unit on this host; returns when the unit is registered and bootstrapped.

    Relevo delivers every change that is committed afterwards. Starting twice does nothing.
    """
    async with processor._starting:
        if processor._running is not None:
            return
        looked_at, source = instant(), await reading.look(database, processor.container)
        running = RunningProcessor(
            processor, database, wakeups, leases, supervisor, source, looked_at
        )
        processor._running = running
        try:
            await running.join()
        except BaseException:
            processor._running = None
            raise
        processor.not_started = None


async def stop(processor: Processor, timeout: float = 30.0) -> list[Lease]:
    """Let running handlers end, release the leases and leave; return the leases that were cut off.

    Stopping twice, or before the start, does nothing. A stopped processor can start again.
    """
    running = processor._running
    if running is None or running.unit is None:
        return []
    late = await running.leave(timeout)
    processor._running = None
    leases_in = processor.settings.leases_in
    if isinstance(leases_in, MemoryLeases):
        await leases_in.keep(running.database, running.wakeups, processor.container, processor.name)
    return late


class RunningProcessor:
    """A processor while a host runs it; shared by its workers."""

    def __init__(
        self, processor: Processor, database: Database, wakeups: Wakeups, leases: Leases,
        supervisor: Supervisor, source: FeedSource, looked_at: float,
    ) -> None:  # fmt: skip
        self.processor = processor
        self.settings = processor.settings
        self.pace = processor.pace
        self.symptoms = processor.symptoms
        self.name = processor.name
        self.container = processor.container
        self.handler = processor.handler
        self.with_context = processor.with_context
        self.filter = processor.filter
        self.limit = processor.limit
        self.backoff = processor.backoff
        self.database = database
        self.wakeups = wakeups
        self.leases = leases
        self.incarnation = source.incarnation
        """That of the container when the processor started; another one is another container."""
        self.poller = Poller(
            database, wakeups, source.container_id, self.settings.mode, self.settings.poll_interval
        )
        self.checkpoints = Checkpoints(database, processor.unit_name)
        self.unit: Unit | None = None
        self.bound: dict[int, int] | None = None
        """LSN by range up to which this run reads; None is without end."""
        self._supervisor = supervisor
        self._source = source
        self._looked_at = looked_at
        self._looking = asyncio.Lock()

    async def join(self) -> None:
        """Join the unit, and begin to poll for changes."""
        settings, unit_name = self.settings, self.processor.unit_name
        for attempt in range(JOINS_MAX):
            try:
                self.unit = await self.leases.join(
                    "feed", unit_name, self._hold, bootstrap=self._bootstrap,
                    settings=UnitSettings(
                        handoff_timeout=settings.handoff_timeout, strategy=settings.strategy
                    ),
                    membership=Membership(
                        weight=settings.weight, min_leases=settings.min_leases,
                        max_leases=settings.max_leases,
                    ),
                )  # fmt: skip
                break
            except UnitDeleted:
                if attempt + 1 == JOINS_MAX:
                    raise
        self._supervisor.run(f"feed {unit_name}", self.poller.run)

    async def leave(self, timeout: float) -> list[Lease]:
        """Release the leases and leave the unit; return the leases that were cut off."""
        assert self.unit is not None
        late = await self.leases.leave(self.unit, timeout)
        await self._supervisor.stop(f"feed {self.processor.unit_name}")
        await self.checkpoints.close()
        return late

    async def completed(self) -> None:
        """Return when every lease of the unit, on any host, has reached the end of the run."""
        assert self.unit is not None
        with self.wakeups.signal(self.unit.topic) as woken:
            while self.processor._running is self and self.bound is not None:
                if await bounds.reached(self.database, self.unit.id, self.container, self.bound):
                    return
                await woken.wait(self.settings.poll_interval)
        raise Conflict(f"processor {self.name!r} was stopped before its run was completed")

    def lease_completed(self) -> None:
        """Wake the callers of `completed` on all hosts."""
        if self.unit is not None:
            self.wakeups.send(self.unit.topic)

    def observer(self, lease: Lease, changes: Sequence[Change[Any]] = ()) -> Observer:
        """Return the observer of a call for a lease: metrics, spans and failures in a row."""
        return Observer(self.database.metrics, self.leases, lease, changes)

    async def admit(self, lease: Lease, changes: Sequence[Change[Any]]) -> list[Change[Any]]:
        """Return the changes that may be delivered; the others are parked behind dead letters."""
        if self.settings.on_poison != "block_key":
            return list(changes)
        return await parking.park(
            self.database, lease, self.host_incarnation, changes, self.handler_name
        )

    @property
    def one_by_one(self) -> asyncio.Lock:
        """Held around a call that may kill the process, so that only one change is suspected."""
        return one_by_one(self.leases)

    @property
    def handler_name(self) -> str:
        """The handler's qualified name, as dead letters show it."""
        named = self.handler if hasattr(self.handler, "__qualname__") else type(self.handler)
        return f"{named.__module__}.{named.__qualname__}"

    @property
    def host_incarnation(self) -> UUID:
        """The present life of this host."""
        return self.leases.life.incarnation

    async def source(self, since: float) -> FeedSource:
        """Return the container as it was at an instant not before `since`."""
        async with self._looking:
            if self._looked_at < since:
                at = instant()
                self._source = await reading.look(self.database, self.container)
                self._looked_at = at
        return self._source

    async def notify(self, event: Notification, *details: Any) -> None:
        """Call the callbacks of an event; one that fails is logged and never stops processing."""
        if event == "stalled":
            await self._note_stall(details[0])
        await self.processor.notifications.send(event, *details)

    async def _note_stall(self, token: str) -> None:
        """Let estimators everywhere see it; it ends with the next checkpoint, or the epoch."""
        for lease in self.processor.leases:
            if lease.name == token:
                fence = lease.fence.lease_id, lease.epoch, self.host_incarnation
                with suppress(RelevoError):
                    await self.database.write(SQL.note_stall, *fence, self.settings.stall_after)

    async def _bootstrap(self, tx: Transaction, unit_id: int) -> None:
        processor, leases_in = self.processor, self.settings.leases_in
        definition = processor.definition
        if isinstance(leases_in, MemoryLeases) and leases_in.state is not None:
            definition = msgspec.structs.replace(definition, start=leases_in.state)
        await unit.bootstrap(tx, unit_id, definition)
        if self.bound is None or processor.until is None:
            self.bound = await bounds.begin(
                tx, unit_id, self.container, self.settings.mode, processor.until, self.filter
            )

    async def _hold(self, lease: Lease) -> None:
        await self.notify("acquired", lease.name, lease.epoch)
        reason: str | None = None
        observer = self.observer(lease)
        self.symptoms.clear(lease.name, "blocked")
        try:
            await self._serve(lease)
        except CallAbandoned:
            reason = "hang"
            await self._abandon(lease)
            raise
        finally:
            self.symptoms.clear(lease.name, "failing", "stalled", "store", "unreadable")
            observer.close()
            await self.notify(
                "released", lease.name, reason or lease.release_reason or "handler_error"
            )

    async def _serve(self, lease: Lease) -> None:
        """Work; when a store fails, report it and begin again from the stored position."""
        chance = random.Random()  # noqa: S311 - jitter, not a secret
        attempt, expired = 0, False
        while not lease.stopping.is_set():
            try:
                await LeaseWorker(self, lease, again=attempt > 0).run()
                return
            except LeaseLost:
                # Not an error: the heartbeat reports it too, and cancels this.
                if not await _set_within(lease.stopping, LOST_SECONDS_MAX):
                    raise
            except HostFenced:
                log.info("feed.fenced", processor=self.name, lease=lease.name)
            except CallAbandoned:
                raise
            except Exception as raised:
                error = raised if isinstance(raised, STORE_ERRORS) else _unexpected(raised)
                log.warning(
                    "feed.postponed", processor=self.name, lease=lease.name, error=str(error),
                    exc_info=raised if error is not raised else None,
                )  # fmt: skip
                where: Symptom = "store" if isinstance(error, LeaseStoreError) else "unreadable"
                self.symptoms.note(where, lease.name, str(error))
                if not (expired and isinstance(error, FeedExpired)):  # reported once
                    await self.notify("error", lease.name, error)
                expired = isinstance(error, FeedExpired)
            await _set_within(lease.stopping, self.backoff.delay(attempt, chance))
            attempt += 1

    async def _abandon(self, lease: Lease) -> None:
        """Release a lease whose call never ends: its epoch fences the call, others go on."""
        self.symptoms.abandoned += 1
        log.error("feed.call_abandoned", processor=self.name, lease=lease.name)
        with suppress(RelevoError):
            await LeaseJournal(self.database, lease, self.host_incarnation).pass_on()
        lease.ask_to_stop("hang")


def _unexpected(raised: Exception) -> LeaseStoreError:
    """Wrap an unexpected error: the lease is not worked on for now."""
    error = LeaseStoreError(f"the lease cannot be worked on: {error_text.shown(raised)}")
    error.__cause__ = raised
    return error


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
