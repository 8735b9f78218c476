"""A host: registering, serving units, balancing, and the end of its life.

A part joins a unit with a holder and everything else follows: the balancer gains leases, a task per
lease runs the holder, a request to hand over stops it, and the lease goes on to the next host.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, cast

from relevo import limits
from relevo.errors import (
    Conflict,
    DatabaseUnavailable,
    HostSuperseded,
    InvalidValue,
    LeaseLost,
    OutcomeUnknown,
    RelevoError,
)
from relevo.kernel.backoff import Backoff
from relevo.kernel.leases.holdings import compare
from relevo.kernel.leases.hosts import Beat, instant
from relevo.kernel.leases.life import Identity, Life, begin
from relevo.kernel.leases.model import LeaseConfig, Membership, UnitSettings
from relevo.kernel.leases.naming import checked_labels, checked_name, default_host_name
from relevo.kernel.leases.rounds import BalancerRounds
from relevo.kernel.leases.states import HOST, HostState
from relevo.kernel.leases.units import Bootstrap, Unit, enter, host_topic
from relevo.kernel.leases.write_probe import Probed, WriteProbe
from relevo.kernel.postgres import catalog
from relevo.kernel.supervision import Draining
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from relevo.kernel.leases.held import Holder, Lease
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.wakeups import Wakeups
    from relevo.kernel.supervision import Supervisor

SQL = catalog.load(__package__)
log = get_logger(__name__)
SKEW_WARN_SECONDS = 2.0
COURTESY_SECONDS = 5.0
"""How long a stopping host tries to say so; it has to stop either way."""
AVOID_SECONDS = 60.0
"""How long a lease keeps away from a host on which its work failed."""


class Leases:
    """The leases of one host.

    >>> leases = Leases(database, wakeups, supervisor)  # doctest: +SKIP
    >>> await leases.start()  # doctest: +SKIP
    >>> await leases.join("feed", "billing", holder, leases=["a", "b"])  # doctest: +SKIP
    """

    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        supervisor: Supervisor,
        *,
        config: LeaseConfig | None = None,
        name: str | None = None,
        address: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._database = database
        self._wakeups = wakeups
        self._supervisor = supervisor
        self.config = config or LeaseConfig()
        self._identity = Identity(
            name=checked_name(name or default_host_name()),
            config=self.config,
            address=address,
            labels=checked_labels(labels or {}),
        )
        self.state: HostState = "new"
        self.skew = 0.0
        self._units: dict[int, Unit] = {}
        self._rounds = BalancerRounds(database, wakeups, self.config)
        self._write_probe = WriteProbe(database)
        self._life: Life | None = None
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._told = wakeups.signal()
        self.superseded = asyncio.Event()
        self._stops_at: float | None = None
        """When holders are cut off, while it stops."""

    @property
    def name(self) -> str:
        """The host's name, unique among those that live."""
        return self._identity.name

    @property
    def stopping(self) -> Draining | None:
        """What `stop` waits for; None while it does not run."""
        if self._stops_at is None:
            return None
        held = Counter(lease.unit for lease in self.held)
        work = tuple(f"holder of {unit} ({count} leases)" for unit, count in held.items())
        return Draining(work, self._stops_at)

    @property
    def draining(self) -> bool:
        """Whether the host was asked to hand over all it owns."""
        return self.state == "draining"

    @property
    def life(self) -> Life:
        """The present incarnation; raises while there is none."""
        if self.superseded.is_set():
            raise HostSuperseded(
                f"another process registered as {self.name!r}; this one has stopped its work and"
                " does not come back by itself: give each process its own name"
            )
        if self._life is None:
            raise Conflict("the host is not running; start it first")
        return self._life

    async def probe_writes(self) -> Probed:
        """Say whether the database takes writes of this host; raises if it is not running."""
        return await self._write_probe.check(self.life.incarnation)

    def lives(self, life: Life) -> bool:
        """Whether a life is the present one, and within its self-fencing deadline."""
        return self._life is life and not life.deadline.passed

    @property
    def margin(self) -> float:
        """Seconds until this host must stop unless it renews its life; negative past that."""
        return -1.0 if self._life is None else self._life.deadline.left

    @property
    def may_act(self) -> bool:
        """Whether the host lives and is within its self-fencing deadline."""
        return self._life is not None and not self._life.deadline.passed

    @property
    def held(self) -> list[Lease]:
        """The leases this host holds at this moment."""
        return self._life.keeper.leases if self._life else []

    async def start(self) -> None:
        """Register, begin to renew and to balance; returns when registration is committed."""
        if self._life is not None:
            return
        self._life = await self._begin_life()
        self._become("register")
        self._supervisor.run("leases.watch", self._watch)
        self._supervisor.run("leases.tick", self._tick_loop)
        self._supervisor.run("leases.balance", self._balance)

    async def stop(self, timeout: float = 30.0) -> list[Lease]:
        """Drain: let holders end, release everything, end the host.

        Returns the leases whose holders had to be cut off. Stopping twice does nothing.
        """
        if self._life is None:
            return []
        await self._supervisor.stop("leases.watch")  # from here on no other life begins
        await self._supervisor.stop("leases.balance")
        life, self._stops_at = self._life, time.monotonic() + timeout
        await self._try_write(SQL.mark_host_draining, life.incarnation)
        late = await life.drain(timeout)
        await self._try_write(SQL.end_host, life.incarnation)
        self._wakeups.send(*(unit.topic for unit in self._units.values()))
        await self._supervisor.stop("leases.tick")
        self._told.__exit__()
        self._told = self._wakeups.signal()
        self._units.clear()
        self._life = self._stops_at = None
        if not self.superseded.is_set():
            self._become("stop")
        return late

    async def join(
        self,
        kind: str,
        name: str,
        holder: Holder,
        *,
        leases: Sequence[str] = (),
        bootstrap: Bootstrap | None = None,
        settings: UnitSettings | None = None,
        membership: Membership | None = None,
    ) -> Unit:
        """Serve a unit: be counted in it, and run `holder` for each of its leases that comes here.

        The unit and missing leases are made; settings other than the stored ones are refused. A
        part that keeps more with its leases makes them itself in `bootstrap`.
        """
        if not (leases or bootstrap) or len(leases) > limits.LEASES_PER_UNIT_MAX:
            raise InvalidValue(f"a unit has 1 to {limits.LEASES_PER_UNIT_MAX} leases")
        unit = Unit(
            kind=kind,
            name=checked_name(name),
            settings=settings or UnitSettings(),
            membership=membership or Membership(),
            holder=holder,
            lease_names=tuple(leases),
            bootstrap=bootstrap,
        )
        await self._enter(unit, self.life)
        return unit

    async def pass_on(self, lease: Lease, seconds: float = AVOID_SECONDS) -> bool:
        """Let another host have a lease whose work fails here; False if there is none to have it.

        This host is not given it for so many seconds, as long as others live.
        """
        return await self.life.keeper.savings.pass_on(lease, seconds)

    async def leave(self, unit: Unit, timeout: float = 30.0) -> list[Lease]:
        """Stop to serve a unit; its leases go to the others. Returns those that were cut off."""
        life = self.life
        self._units.pop(unit.id, None)  # a life that begins meanwhile does not enter it again
        await self._database.write(SQL.drain_member, unit.id, life.incarnation, idempotent=True)
        late = await life.keeper.stop("shutdown", timeout, unit)
        await self._database.write(SQL.delete_member, unit.id, life.incarnation, idempotent=True)
        self._wakeups.send(unit.topic)
        return late

    async def _begin_life(self, after: UUID | None = None) -> Life:
        life = await begin(
            self._identity, self._database, self._wakeups, self._units, self._on_beat, after=after
        )
        self._told.listen(host_topic(life.incarnation))
        return life

    async def _enter(self, unit: Unit, life: Life) -> None:
        """Create the unit if needed, join it, and take back leases of an earlier life."""
        try:
            rows = await self._database.run(
                lambda tx: enter(tx, unit, self._units, life.incarnation, self.name),
                idempotent=True,
            )
        except BaseException:
            if unit.served_by is None:
                self._units.pop(unit.id, None)
            raise
        unit.served_by = life.incarnation
        life.keeper.begin(rows)
        self._told.listen(unit.topic)
        self._wakeups.send(unit.topic)

    async def _watch(self) -> None:
        """Begin a new life when the present one has lapsed; stay down when it was superseded."""
        while True:
            life = self._life
            assert life is not None
            if not life.ended.done():
                await self._enter_all(life)
            reason = await asyncio.shield(life.ended)
            log.warning("host.ended", host=self.name, reason=reason)
            await life.abandon()
            try:
                if reason == "superseded":
                    raise HostSuperseded(f"another process registered as {self.name!r}")
                if HOST.may(self.state, "lapse"):  # else a new life was tried for before
                    self._become("lapse")
                self._life = await self._begin_life(after=life.incarnation)
                self._become("register")
            except HostSuperseded as error:
                log.error("host.superseded", host=self.name, error=str(error))
                self._become("supersede")
                self.superseded.set()
                await asyncio.Event().wait()

    async def _enter_all(self, life: Life) -> None:
        """Join the units of the previous life; the watcher handles a life that ends meanwhile."""
        for unit in list(self._units.values()):
            if unit.served_by != life.incarnation:
                try:
                    await self._enter(unit, life)
                except LeaseLost:
                    return

    async def _tick_loop(self) -> None:
        """Shows the heartbeat's thread that the event loop is alive."""
        while True:
            if self._life is not None:
                self._life.heart.loop_ticked_at = instant()
            await asyncio.sleep(0.5)

    def _become(self, event: str) -> None:
        self.state = cast(HostState, HOST.next(self.state, event))

    def _on_beat(self, life: Life, beat: Beat) -> None:
        event = "drain" if beat.draining else "resume"
        if HOST.may(self.state, event):
            self._become(event)
        self._database.metrics.count_lease_statement("heartbeat")
        self._database.metrics.heartbeat_delay_seconds.observe(beat.delay)
        if abs(beat.skew) > SKEW_WARN_SECONDS >= abs(self.skew):
            log.warning("clock.skew", host=self.name, seconds=round(beat.skew, 2))
        self.skew = beat.skew
        changes = compare(life.keeper.believed, beat.then, beat.owned)
        life.keeper.apply(changes)
        if changes.gained:
            self._told.set()  # the balance loop reads them

    async def _balance(self) -> None:
        backoff, failures = Backoff(first=0.2, longest=5.0), 0
        while True:
            life = self._life
            wait = self.config.acquire
            try:
                if life is not None and not life.deadline.passed and not life.ended.done():
                    wait = await self._rounds.go(life)
                else:
                    wait = self.config.renew / 4
                failures = 0
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                log.warning("balance.postponed", error=str(error))
                wait, failures = backoff.delay(failures, self._random), failures + 1
            await self._told.wait(wait)

    async def _try_write(self, sql: str, incarnation: UUID) -> None:
        """A courtesy while stopping: without it the host lapses by itself."""
        try:
            async with asyncio.timeout(COURTESY_SECONDS):
                await self._database.write(sql, incarnation, idempotent=True)
        except (RelevoError, TimeoutError) as error:
            log.warning("host.stop_unseen", error=str(error) or "no answer in time")
