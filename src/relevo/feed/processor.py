"""The change feed processor: all hosts of a unit share a container's changes, at least once."""

from __future__ import annotations

import asyncio
import inspect
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import structlog

from relevo import limits
from relevo.core.backoff import Backoff
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
from relevo.feed import context, dead_letters, reading, unit
from relevo.feed import start as starts
from relevo.feed.calls import CallAbandoned, one_by_one
from relevo.feed.health import ProcessorHealth, Symptoms
from relevo.feed.journal import Journal
from relevo.feed.poller import Poller
from relevo.feed.unit import Definition, UnitOptions
from relevo.feed.worker import Worker
from relevo.leases import Membership, UnitSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from relevo.feed.model import Mode
    from relevo.feed.start import Start
    from relevo.leases import Lease, Leases, Unit
    from relevo.postgres import Database, Transaction, Wakeups
    from relevo.supervision import Supervisor

log = structlog.get_logger(__name__)
STORE_ERRORS = (MonitoredError, LeaseStoreError, FeedExpired, FeedRegressed, ContainerRecreated)
Notification = Literal["acquired", "released", "error", "stalled", "dead_lettered"]
NOTIFY_SECONDS_MAX = 30.0
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
        leases: int | None = None,
        follow_splits: bool = True,
        leases_in: str = "leases",
        backoff: Backoff | None = None,
        max_attempts: int | None = None,
        dead_letter: bool = False,
        on_poison: Literal["skip", "halt"] = "skip",
        stall_after: float | None = 300.0,
        delegate_timeout: float | None = None,
        handoff_timeout: float = 30.0,
        weight: float = 1.0,
        min_leases: int = 0,
        max_leases: int | None = None,
        model: Any = Any,
    ) -> None:
        if not name or len(name) > limits.NAME_LENGTH_MAX:
            raise InvalidValue("a processor needs a name; hosts that share it share the work")
        if not 1 <= max_items <= limits.FEED_ITEMS_MAX:
            raise InvalidValue(f"max_items is 1 to {limits.FEED_ITEMS_MAX}, not {max_items}")
        if not poll_interval > 0:
            raise InvalidValue(f"poll_interval must be above 0, not {poll_interval}")
        for option, seconds in (
            ("stall_after", stall_after),
            ("delegate_timeout", delegate_timeout),
        ):
            if seconds is not None and not seconds > 0:
                raise InvalidValue(f"{option} must be above 0, not {seconds}")
        context.wants_context(handler)
        self.limit = dead_letters.check(max_attempts, dead_letter, on_poison)
        self.on_poison = on_poison
        self.stall_after = stall_after
        self.delegate_timeout = delegate_timeout
        self.symptoms = Symptoms()
        self.container = container
        self.name = name
        self.handler = handler
        self.mode: Mode = mode
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.poll_interval = poll_interval
        self.checkpoint = checkpoint
        self.max_unconfirmed = max_unconfirmed
        self.backoff = backoff or Backoff(first=1.0, longest=60.0)
        self.model = model
        self._leases_in = leases_in
        self._settings = UnitSettings(handoff_timeout=handoff_timeout)
        self._membership = Membership(weight=weight, min_leases=min_leases, max_leases=max_leases)
        self._definition = Definition(
            container=container, mode=mode, start=starts.check(start),
            options=UnitOptions(leases=leases, follow_splits=follow_splits),
        )  # fmt: skip
        self._callbacks: dict[str, list[Callable[..., Any]]] = {}
        self._running: _Running | None = None
        self.incarnation: str | None = None

    def on_acquired(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, epoch) when a lease was gained, before its first delivery."""
        return self._listen("acquired", callback)

    def on_released(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, reason) after the last delivery of a lease."""
        return self._listen("released", callback)

    def on_error(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, error) at every failure; the error's type tells its source."""
        return self._listen("error", callback)

    def on_stall(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, `Stall`) when a call takes longer than `stall_after`."""
        return self._listen("stalled", callback)

    def on_dead_lettered(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call back with (token, `DeadLetter`) when a change was given up."""
        return self._listen("dead_lettered", callback)

    def health(self) -> ProcessorHealth:
        """Return whether this host does its part of the work: ok, degraded or failed, and why."""
        running = self._running
        may_act = running is not None and running.leases.may_act
        return self.symptoms.judge(running=running is not None, may_act=may_act)

    @property
    def running(self) -> bool:
        """Whether this host serves the unit."""
        return self._running is not None

    @property
    def poller(self) -> Poller:
        """Who asks for idle leases whether there is anything to read."""
        return self._now.poller

    @property
    def database(self) -> Database:
        """The database of the container and of the leases."""
        return self._now.database

    @property
    def one_by_one(self) -> asyncio.Lock:
        """Held around a call that may kill the process, so that only one is suspected."""
        return one_by_one(self._now.leases)

    @property
    def handler_name(self) -> str:
        """The handler, as dead letters name it."""
        name = getattr(self.handler, "__qualname__", repr(self.handler))
        return f"{getattr(self.handler, '__module__', '')}.{name}"

    @property
    def host_incarnation(self) -> UUID:
        """The present life of this host."""
        return self._now.leases.life.incarnation

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
        if self._running is not None:
            return
        source = await reading.look(database, self.container)
        self.incarnation = source.incarnation
        poller = Poller(database, wakeups, source.container_id, self.mode, self.poll_interval)
        self._running = _Running(database, leases, supervisor, poller)
        try:
            self._running.unit = await leases.join(
                "feed",
                self.unit_name,
                self._hold,
                bootstrap=self._bootstrap,
                settings=self._settings,
                membership=self._membership,
            )
        except BaseException:
            self._running = None
            raise
        supervisor.run(f"feed {self.unit_name}", poller.run)

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
        self._running = None
        return late

    async def tell(self, event: Notification, *details: Any) -> None:
        """Notify; a callback that fails is logged and never stops processing."""
        for callback in self._callbacks.get(event, ()):
            try:
                async with asyncio.timeout(NOTIFY_SECONDS_MAX):
                    answer = callback(*details)
                    if inspect.isawaitable(answer):
                        await answer
            except Exception:
                log.exception("feed.notification_failed", processor=self.name, notification=event)

    def _listen(self, event: Notification, callback: Callable[..., Any]) -> Callable[..., Any]:
        self._callbacks.setdefault(event, []).append(callback)
        return callback

    @property
    def _now(self) -> _Running:
        if self._running is None:
            raise Conflict(f"processor {self.name!r} is not running")
        return self._running

    async def _bootstrap(self, tx: Transaction, unit_id: int) -> None:
        await unit.bootstrap(tx, unit_id, self._definition)

    async def _hold(self, lease: Lease) -> None:
        await self.tell("acquired", lease.name, lease.epoch)
        reason: str | None = None
        self.symptoms.clear(lease.name, "blocked")
        try:
            await self._serve(lease)
        except CallAbandoned:
            reason = "hang"
            await self._abandon(lease)
            raise
        finally:
            self.symptoms.clear(lease.name, "failing", "stalled", "store")
            await self.tell(
                "released", lease.name, reason or lease.release_reason or "handler_error"
            )

    async def _serve(self, lease: Lease) -> None:
        """Work; when a store fails, tell so and begin again from what is stored."""
        chance = random.Random()  # noqa: S311 - jitter, not a secret
        attempt = 0
        while not lease.stopping.is_set():
            try:
                await Worker(self, lease).run()
                return
            except LeaseLost:
                # Not an error: the heartbeat will say so too, and cancel this.
                if not await _set_within(lease.stopping, LOST_SECONDS_MAX):
                    raise
            except HostFenced:
                log.info("feed.fenced", processor=self.name, lease=lease.name)
            except STORE_ERRORS as error:
                log.warning(
                    "feed.postponed", processor=self.name, lease=lease.name, error=str(error)
                )
                self.symptoms.note("store", lease.name, str(error))
                await self.tell("error", lease.name, error)
            await _set_within(lease.stopping, self.backoff.delay(attempt, chance))
            attempt += 1

    async def _abandon(self, lease: Lease) -> None:
        """Let go of a lease whose call never ends: its epoch fences the call, others go on."""
        self.symptoms.abandoned += 1
        log.error("feed.call_abandoned", processor=self.name, lease=lease.name)
        with suppress(RelevoError):
            await Journal(self.database, lease, self.host_incarnation).pass_on()
        lease.ask_to_stop("hang")


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class _Running:
    """What a processor has only while it runs."""

    def __init__(
        self, database: Database, leases: Leases, supervisor: Supervisor, poller: Poller
    ) -> None:
        self.database = database
        self.leases = leases
        self.supervisor = supervisor
        self.poller = poller
        self.unit: Unit | None = None
