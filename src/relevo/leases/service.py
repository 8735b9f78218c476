"""One host: registering, serving units, balancing, and what happens when its life ends.

A part joins a unit with a holder and everything else follows: the balancer gains leases, a task per
lease runs the holder, a request to hand over stops it, and the lease goes on to the next host.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
from typing import TYPE_CHECKING

import structlog

from relevo import limits
from relevo.core.backoff import Backoff
from relevo.errors import (
    Conflict,
    DatabaseUnavailable,
    HostSuperseded,
    InvalidValue,
    LeaseLost,
    OutcomeUnknown,
    RelevoError,
    SettingsError,
)
from relevo.leases import balancer
from relevo.leases.holdings import compare
from relevo.leases.hosts import Beat, instant, owned_rows
from relevo.leases.keeper import Bootstrap, Unit, host_topic
from relevo.leases.life import Identity, Life, begin
from relevo.leases.model import LeaseConfig, Membership, UnitSettings
from relevo.postgres import catalog, locks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    import asyncpg

    from relevo.leases.held import Holder, Lease
    from relevo.postgres.database import Database, Transaction
    from relevo.postgres.wakeups import Wakeups
    from relevo.supervision import Supervisor

SQL = catalog.load(__package__)
log = structlog.get_logger(__name__)
SKEW_WARN_SECONDS = 2.0
COURTESY_SECONDS = 5.0
"""How long a stopping host tries to say so; it has to stop either way."""


def default_host_name() -> str:
    """Machine, process and a random part: unique without being asked."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


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
            name=_checked_name(name or default_host_name()),
            config=self.config,
            address=address,
            labels=_checked_labels(labels or {}),
        )
        self.draining = False
        self.skew = 0.0
        self._units: dict[int, Unit] = {}
        self._life: Life | None = None
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._told = wakeups.signal()
        self.superseded = asyncio.Event()

    @property
    def name(self) -> str:
        """The host's name, unique among those that live."""
        return self._identity.name

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
        self._supervisor.run("leases.watch", self._watch)
        self._supervisor.run("leases.tick", self._tick_loop)
        self._supervisor.run("leases.balance", self._balance)

    async def stop(self, timeout: float = 30.0) -> list[Lease]:
        """Drain: let holders end, release everything, end the host.

        Returns the leases whose holders had to be cut off. Stopping twice does nothing.
        """
        if self._life is None:
            return []
        await self._supervisor.stop("leases.watch")  # from here on nobody begins another life
        await self._supervisor.stop("leases.balance")
        life = self._life
        await self._try_write(SQL.mark_host_draining, life.incarnation)
        late = await life.drain(timeout)
        await self._try_write(SQL.end_host, life.incarnation)
        self._wakeups.send(*(unit.topic for unit in self._units.values()))
        await self._supervisor.stop("leases.tick")
        self._told.__exit__()
        self._told = self._wakeups.signal()
        self._units.clear()
        self._life = None
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
            name=_checked_name(name),
            settings=settings or UnitSettings(),
            membership=membership or Membership(),
            holder=holder,
            lease_names=tuple(leases),
            bootstrap=bootstrap,
        )
        await self._enter(unit, self.life)
        return unit

    async def leave(self, unit: Unit, timeout: float = 30.0) -> list[Lease]:
        """Stop to serve a unit; its leases go to the others. Returns those that were cut off."""
        life = self.life
        self._units.pop(unit.id, None)  # a life that begins meanwhile does not enter it again
        await self._database.write(SQL.drain_member, unit.id, life.incarnation, idempotent=True)
        late = await life.keeper.stop("left", timeout, unit)
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
        """Make the unit if need be, join it, and take back what an earlier life still holds."""

        async def work(tx: Transaction) -> list[asyncpg.Record]:
            wanted = unit.settings
            await tx.execute(SQL.stay_awake)
            await tx.execute(
                SQL.insert_unit, unit.kind, unit.name, wanted.strict,
                wanted.handoff_timeout, wanted.max_moves, wanted.rest,
            )  # fmt: skip
            row = await tx.fetchrow(SQL.find_unit, unit.kind, unit.name)
            assert row is not None
            stored = UnitSettings(**{k: v for k, v in row.items() if k != "id"})
            if stored != wanted:
                raise SettingsError(
                    f"unit {unit.kind}/{unit.name} exists with {stored}; this host asks for"
                    f" {wanted}. All hosts of a unit need the same settings"
                )
            unit.id = row["id"]
            self._units[unit.id] = unit  # before the commit: a grant that is read at once finds it
            await tx.execute(SQL.lock_unit, locks.UNIT, unit.id)
            await tx.execute(SQL.insert_leases, unit.id, list(unit.lease_names))
            if unit.bootstrap is not None:
                await unit.bootstrap(tx, unit.id)
            asked = unit.membership
            joined = await tx.fetchval(
                SQL.insert_member, unit.id, life.incarnation, asked.weight,
                asked.min_leases, asked.max_leases,
            )  # fmt: skip
            if joined is None:
                raise LeaseLost(f"host {self.name!r} has ended meanwhile and can join nothing")
            mine = await tx.fetch(SQL.namesake_leases, unit.id, self.name, life.incarnation)
            if not mine:
                return []
            ids = sorted(row["id"] for row in mine)
            await tx.execute(SQL.lock_leases, ids)
            return await tx.fetch(SQL.take_leases, ids, life.incarnation)

        try:
            rows = await self._database.run(work, idempotent=True)
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
                self._life = await self._begin_life(after=life.incarnation)
            except HostSuperseded as error:
                log.error("host.superseded", host=self.name, error=str(error))
                self.superseded.set()
                await asyncio.Event().wait()

    async def _enter_all(self, life: Life) -> None:
        """Join what the life before had joined; a life that ends meanwhile is the watcher's."""
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

    def _on_beat(self, life: Life, beat: Beat) -> None:
        self.draining = beat.draining
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
                    await self._read_holdings(life)
                    wait = await self._tick(life)
                else:
                    wait = self.config.renew / 4
                failures = 0
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                log.warning("balance.postponed", error=str(error))
                wait, failures = backoff.delay(failures, self._random), failures + 1
            await self._told.wait(wait)

    async def _read_holdings(self, life: Life) -> None:
        """Look at once at what a wake-up may be about, and begin with what was handed over."""
        then = life.keeper.believed
        rows = await self._database.fetch(SQL.holdings, life.incarnation)
        if not rows:
            return  # ended or lapsed; the heartbeat says so
        changes = compare(life.keeper.believed, then, owned_rows(rows))
        life.keeper.apply(changes)
        if changes.gained:
            gained = await self._database.fetch(
                SQL.read_leases, list(changes.gained), life.incarnation
            )
            life.keeper.begin(gained)

    async def _tick(self, life: Life) -> float:
        """Balance every unit this host serves; return the seconds until the next tick."""
        views = await balancer.read_units(self._database, life.incarnation)
        wait = self.config.acquire * self._random.uniform(0.8, 1.2)
        for view in views:
            wait = min(wait, view.next_lapse + 0.02)
            if not balancer.plan_unit(view, life.incarnation, self.config.acquire):
                continue
            outcome = await balancer.fulfil(
                self._database, view.id, life.incarnation, self.config.acquire
            )
            life.keeper.begin(outcome.gained)
            self._wakeups.send(*(host_topic(donor) for donor in outcome.donors))
            if outcome.busy:
                wait = min(wait, self.config.acquire / 10)
        return wait

    async def _try_write(self, sql: str, incarnation: UUID) -> None:
        """A courtesy while stopping: without it the host lapses by itself."""
        try:
            async with asyncio.timeout(COURTESY_SECONDS):
                await self._database.write(sql, incarnation, idempotent=True)
        except (RelevoError, TimeoutError) as error:
            log.warning("host.stop_unseen", error=str(error) or "no answer in time")


def _checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    if len(labels) > limits.LABELS_MAX:
        raise InvalidValue(f"a host has at most {limits.LABELS_MAX} labels, not {len(labels)}")
    for name, value in labels.items():
        if max(len(name.encode()), len(value.encode())) > limits.LABEL_BYTES_MAX:
            raise InvalidValue(
                f"the label {name[:40]!r} is too long; names and values have at most"
                f" {limits.LABEL_BYTES_MAX} bytes"
            )
    return dict(labels)


def _checked_name(name: str) -> str:
    if not name or len(name) > limits.NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidValue(
            f"the name {name[:40]!r} must have 1 to {limits.NAME_LENGTH_MAX} printable characters"
        )
    return name
