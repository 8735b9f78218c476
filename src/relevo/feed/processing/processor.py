"""The change feed processor: all hosts of a unit share a container's changes, at least once."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import structlog

from relevo import limits
from relevo.errors import (
    Conflict,
    ContainerRecreated,
    FeedExpired,
    FeedRegressed,
    HostFenced,
    InvalidValue,
    LeaseLost,
    LeaseStoreError,
    MonitoredError,
    RelevoError,
)
from relevo.feed.operating import dead_letters, unit
from relevo.feed.operating.unit import Definition, Hold, UnitDeleted, UnitOptions
from relevo.feed.processing import context, memory, parking
from relevo.feed.processing.calls import one_by_one
from relevo.feed.processing.checkpoints import Checkpoints
from relevo.feed.processing.health import ProcessorHealth, Symptom, Symptoms
from relevo.feed.processing.journal import Journal
from relevo.feed.processing.memory import MemoryLeases
from relevo.feed.processing.notifications import Notification, Notifications
from relevo.feed.processing.observing import Observer
from relevo.feed.processing.pacing import CheckpointEvery, Pace
from relevo.feed.processing.worker import Worker
from relevo.feed.reading import bounds, filters
from relevo.feed.reading import log as reading
from relevo.feed.reading import start as starts
from relevo.feed.reading.poller import Poller
from relevo.kernel import error_text
from relevo.kernel.backoff import Backoff
from relevo.kernel.leases import Membership, UnitSettings
from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog
from relevo.kernel.running.calls import CallAbandoned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta
    from uuid import UUID

    from relevo.feed.model import Change, Mode
    from relevo.feed.reading.bounds import Until
    from relevo.feed.reading.filters import Filter, Given
    from relevo.feed.reading.log import Source
    from relevo.feed.reading.start import Start
    from relevo.kernel.leases import Lease, Leases, Unit
    from relevo.kernel.leases.model import Strategy
    from relevo.kernel.postgres import Database, Transaction, Wakeups
    from relevo.kernel.supervision import Supervisor

SQL = catalog.load("relevo.feed")
log = structlog.get_logger(__name__)
STORE_ERRORS = (MonitoredError, LeaseStoreError, FeedExpired, FeedRegressed, ContainerRecreated)
JOINS_MAX = 5
"""How often a host joins anew because the unit was deleted under it."""
LOST_SECONDS_MAX = 60.0
"""How long a worker whose write was refused waits to be told that its lease is lost."""


class Processor:
    """Delivers the changes of one container to a handler.

    `handler(changes)` or `handler(ctx, changes)`, a coroutine or a plain function, is called with
    batches in order, one at a time per lease. What it has returned from is checkpointed; what it
    raised on is delivered again. `start` counts only when the unit is made.
    """

    def __init__(
        self,
        container: str,
        name: str,
        handler: Callable[..., Any],
        *,
        start: Start = "now",
        mode: Mode = "latest",
        max_items: int = limits.FEED_ITEMS_DEFAULT,
        max_bytes: int = limits.FEED_BYTES_MAX,
        poll_interval: float = 1.0,
        checkpoint: Literal["auto", "manual"] = "auto",
        max_unconfirmed: int = 10,
        checkpoint_every: CheckpointEvery | None = None,
        prefetch: int = 1,
        lanes: int = 1,
        lane_window: int = limits.FEED_LANE_WINDOW,
        atomic_groups: bool = False,
        until: Until | None = None,
        raw: bool = False,
        leases: int | None = None,
        follow_splits: bool = True,
        leases_in: str | MemoryLeases = "leases",
        filter: Given | None = None,  # noqa: A002
        hold: timedelta | int | None = None,
        on_start_mismatch: Literal["warn", "ignore", "error"] = "warn",
        backoff: Backoff | None = None,
        max_attempts: int | None = None,
        dead_letter: bool = False,
        on_poison: Literal["skip", "block_key", "halt"] = "skip",
        stall_after: float | None = 300.0,
        delegate_timeout: float | None = None,
        handoff_timeout: float = 30.0,
        strategy: Strategy = "equal",
        weight: float = 1.0,
        min_leases: int = 0,
        max_leases: int | None = None,
        model: Any = Any,
    ) -> None:
        if not name or len(name) > limits.NAME_LENGTH_MAX:
            raise InvalidValue("a processor needs a name; hosts that share it share the work")
        if checkpoint_every is not None and checkpoint != "auto":
            raise InvalidValue("checkpoint_every is for automatic checkpoints, not for manual ones")
        _check_seconds(
            poll_interval=poll_interval, stall_after=stall_after, delegate_timeout=delegate_timeout
        )
        self.with_context = context.wants_context(handler, f"the handler of {name!r}")
        self.limit = dead_letters.check(max_attempts, dead_letter, on_poison)
        self.on_poison = on_poison
        self.stall_after = stall_after
        self.delegate_timeout = delegate_timeout
        self.symptoms = Symptoms()
        self.container = container
        self.name = name
        self.handler = handler
        self.mode: Mode = mode
        self.pace = Pace(
            max_items=max_items, max_bytes=max_bytes, prefetch=prefetch, lanes=lanes,
            lane_window=lane_window, atomic_groups=atomic_groups, every=checkpoint_every,
        )  # fmt: skip
        self.raw = raw
        self.bound: dict[int, int] | None = None
        """LSN by range up to which this run reads; None is without end."""
        self.poll_interval = poll_interval
        self.checkpoint = checkpoint
        self._until = None if until is None else bounds.check(until)
        self.max_unconfirmed = max_unconfirmed
        self.backoff = backoff or Backoff(first=1.0, longest=60.0)
        self.model = model
        self._leases_in = memory.name_of(leases_in)
        self._memory = leases_in if isinstance(leases_in, MemoryLeases) else None
        self._settings = UnitSettings(handoff_timeout=handoff_timeout, strategy=strategy)
        self._membership = Membership(weight=weight, min_leases=min_leases, max_leases=max_leases)
        self._definition = Definition(
            container=container, mode=mode, start=starts.check(start),
            options=UnitOptions(
                leases=leases, follow_splits=follow_splits, filter=filters.check(filter, mode)
            ),
            on_start_mismatch=on_start_mismatch, hold=Hold.of(hold),
            block_keys=on_poison == "block_key",
        )  # fmt: skip
        self._notifications = Notifications(name)
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self.not_started: str | None = None
        """Why its host could not serve it."""
        self.incarnation: str | None = None

    def on_acquired(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, epoch) when a lease was gained, before its first delivery."""
        return self._notifications.listen("acquired", callback)

    def on_released(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, reason) after the last delivery of a lease."""
        return self._notifications.listen("released", callback)

    def on_error(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, error) at every failure; the error's type tells its source."""
        return self._notifications.listen("error", callback)

    def on_stall(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, `Stall`) when a call takes longer than `stall_after`."""
        return self._notifications.listen("stalled", callback)

    def on_dead_lettered(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, `DeadLetter`) when a change was given up."""
        return self._notifications.listen("dead_lettered", callback)

    def on_completed(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, positions) when a lease has reached the end of a bounded run."""
        return self._notifications.listen("completed", callback)

    def run_until(self, until: Until) -> None:
        """Let the next start be a run that ends there, as with `until`."""
        if self._running is not None:
            raise Conflict(f"processor {self.name!r} is running; say so before it starts")
        self._until = bounds.check(until)

    async def completed(self) -> None:
        """Return when every lease of the unit, on whatever host, has reached `until`."""
        if self._until is None:
            raise Conflict(f"processor {self.name!r} has no end; give it until=…")
        running = self._now
        assert running.unit is not None
        with running.wakeups.signal(running.unit.topic) as told:
            while self._running is running and self.bound is not None:
                if await bounds.reached(
                    running.database, running.unit.id, self.container, self.bound
                ):
                    return
                await told.wait(self.poll_interval)
        raise Conflict(f"processor {self.name!r} was stopped before its run was completed")

    def lease_completed(self) -> None:
        """Wake whoever waits for the end of the run, on all hosts."""
        running = self._now
        if running.unit is not None:
            running.wakeups.send(running.unit.topic)

    def health(self) -> ProcessorHealth:
        """Return whether this host does its part of the work: ok, degraded or failed, and why."""
        running = self._running
        if running is None:
            return self.symptoms.judge(running=False, may_act=False, why=self.not_started)
        return self.symptoms.judge(running=True, may_act=running.leases.may_act)

    @property
    def running(self) -> bool:
        """Whether this host serves the unit."""
        return self._running is not None

    @property
    def poller(self) -> Poller:
        """Who asks for idle leases whether there is anything to read."""
        return self._now.poller

    @property
    def checkpoints(self) -> Checkpoints:
        """Who stores the positions of all leases of this host."""
        return self._now.checkpoints

    @property
    def database(self) -> Database:
        """The database of the container and of the leases."""
        return self._now.database

    def observer(self, lease: Lease, changes: Sequence[Change[Any]] = ()) -> Observer:
        """Who notes what comes of a call that is made for a lease, and where the lease stands."""
        return Observer(self._now.database.metrics, self._now.leases, lease, changes)

    async def admit(self, lease: Lease, changes: Sequence[Change[Any]]) -> list[Change[Any]]:
        """Return the changes that may be delivered; the others are parked behind dead letters."""
        if self.on_poison != "block_key":
            return list(changes)
        return await parking.park(
            self.database, lease, self.host_incarnation, changes, self.handler_name
        )

    @property
    def one_by_one(self) -> asyncio.Lock:
        """Held around a call that may kill the process, so that only one is suspected."""
        return one_by_one(self._now.leases)

    @property
    def handler_name(self) -> str:
        """The handler, as dead letters name it."""
        named = self.handler if hasattr(self.handler, "__qualname__") else type(self.handler)
        return f"{named.__module__}.{named.__qualname__}"

    @property
    def host_incarnation(self) -> UUID:
        """The present life of this host."""
        return self._now.leases.life.incarnation

    @property
    def filter(self) -> Filter | None:
        """Which changes the unit is for; None is all."""
        return self._definition.options.filter

    @property
    def leases(self) -> list[Lease]:
        """What this host holds of the unit."""
        if self._running is None:
            return []
        return [one for one in self._running.leases.held if one.unit == self.unit_name]

    @property
    def unit_name(self) -> str:
        """Name of the unit in the lease tables."""
        return f"{self._leases_in}/{self.container}/{self.name}"

    async def start(
        self, database: Database, wakeups: Wakeups, leases: Leases, supervisor: Supervisor
    ) -> None:
        """Serve the unit on this host; returns when it is registered and bootstrapped.

        Every change that is committed afterwards is delivered.
        """
        async with self._starting:
            if self._running is not None:
                return
            await self._start(database, wakeups, leases, supervisor)
            self.not_started = None

    async def _start(
        self, database: Database, wakeups: Wakeups, leases: Leases, supervisor: Supervisor
    ) -> None:
        looked_at, source = instant(), await reading.look(database, self.container)
        self.incarnation = source.incarnation
        poller = Poller(database, wakeups, source.container_id, self.mode, self.poll_interval)
        self.bound = None
        checkpoints = Checkpoints(database, self.unit_name)
        self._running = _Running(
            database, wakeups, leases, supervisor, poller, checkpoints, source, looked_at
        )
        try:
            self._running.unit = await self._join(leases)
        except BaseException:
            self._running = None
            raise
        supervisor.run(f"feed {self.unit_name}", poller.run)

    async def _join(self, leases: Leases) -> Unit:
        for attempt in range(JOINS_MAX):
            try:
                return await leases.join(
                    "feed",
                    self.unit_name,
                    self._hold,
                    bootstrap=self._bootstrap,
                    settings=self._settings,
                    membership=self._membership,
                )
            except UnitDeleted:
                if attempt + 1 == JOINS_MAX:
                    raise
        raise AssertionError("unreachable")

    async def stop(self, timeout: float = 30.0) -> list[Lease]:
        """Let running handlers end, release the leases, leave; return those that were cut off.

        Stopping twice, or before start, does nothing; start after stop works.
        """
        if self._running is None or self._running.unit is None:
            return []
        running = self._running
        assert running.unit is not None
        late = await running.leases.leave(running.unit, timeout)
        await running.supervisor.stop(f"feed {self.unit_name}")
        await running.checkpoints.close()
        self._running = None
        if self._memory is not None:
            await self._memory.keep(running.database, running.wakeups, self.container, self.name)
        return late

    async def source(self, since: float) -> Source:
        """Return the container as a look showed it that is not older than an instant."""
        running = self._now
        async with running.looking:
            if running.looked_at < since:
                at = instant()
                running.source = await reading.look(running.database, self.container)
                running.looked_at = at
        return running.source

    async def tell(self, event: Notification, *details: Any) -> None:
        """Notify; a callback that fails is logged and never stops processing."""
        if event == "stalled":
            await self._note_stall(details[0])
        await self._notifications.tell(event, *details)

    async def _note_stall(self, token: str) -> None:
        """Let estimators everywhere see it; it ends with the next checkpoint, or the epoch."""
        for lease in self.leases:
            if lease.name == token:
                fence = lease.fence.lease_id, lease.epoch, self.host_incarnation
                with suppress(RelevoError):
                    await self.database.write(SQL.note_stall, *fence, self.stall_after)

    @property
    def _now(self) -> _Running:
        if self._running is None:
            raise Conflict(f"processor {self.name!r} is not running")
        return self._running

    async def _bootstrap(self, tx: Transaction, unit_id: int) -> None:
        wanted = self._definition
        if self._memory is not None and self._memory.state is not None:
            wanted = msgspec.structs.replace(wanted, start=self._memory.state)
        await unit.bootstrap(tx, unit_id, wanted)
        if self.bound is None or self._until is None:
            self.bound = await bounds.begin(
                tx, unit_id, self.container, self.mode, self._until, self.filter
            )

    async def _hold(self, lease: Lease) -> None:
        await self.tell("acquired", lease.name, lease.epoch)
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
            await self.tell(
                "released", lease.name, reason or lease.release_reason or "handler_error"
            )

    async def _serve(self, lease: Lease) -> None:
        """Work; when a store fails, tell so and begin again from what is stored."""
        chance = random.Random()  # noqa: S311 - jitter, not a secret
        attempt, expired = 0, False
        while not lease.stopping.is_set():
            try:
                await Worker(self, lease, again=attempt > 0).run()
                return
            except LeaseLost:
                # Not an error: the heartbeat will say so too, and cancel this.
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
                if not (expired and isinstance(error, FeedExpired)):  # told once
                    await self.tell("error", lease.name, error)
                expired = isinstance(error, FeedExpired)
            await _set_within(lease.stopping, self.backoff.delay(attempt, chance))
            attempt += 1

    async def _abandon(self, lease: Lease) -> None:
        """Let go of a lease whose call never ends: its epoch fences the call, others go on."""
        self.symptoms.abandoned += 1
        log.error("feed.call_abandoned", processor=self.name, lease=lease.name)
        with suppress(RelevoError):
            await Journal(self.database, lease, self.host_incarnation).pass_on()
        lease.ask_to_stop("hang")


def _unexpected(raised: Exception) -> LeaseStoreError:
    """What is told of an error that nobody foresaw: the lease is worked on no further for now."""
    error = LeaseStoreError(f"the lease cannot be worked on: {error_text.shown(raised)}")
    error.__cause__ = raised
    return error


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class _Running:
    """What a processor has only while it runs."""

    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        leases: Leases,
        supervisor: Supervisor,
        poller: Poller,
        checkpoints: Checkpoints,
        source: Source,
        looked_at: float,
    ) -> None:
        self.database = database
        self.wakeups = wakeups
        self.leases = leases
        self.supervisor = supervisor
        self.poller = poller
        self.checkpoints = checkpoints
        self.unit: Unit | None = None
        self.source = source
        self.looked_at = looked_at
        self.looking = asyncio.Lock()


def _check_seconds(**given: float | None) -> None:
    for option, seconds in given.items():
        if seconds is not None and not seconds > 0:
            raise InvalidValue(f"{option} must be above 0, not {seconds}")
