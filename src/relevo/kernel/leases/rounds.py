"""A host's round: check its leases, and balance the units that it serves."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from relevo.kernel.leases import balancer
from relevo.kernel.leases.holdings import compare
from relevo.kernel.leases.hosts import instant, owned_rows
from relevo.kernel.leases.load import Streak
from relevo.kernel.leases.saving import report_loads
from relevo.kernel.leases.units import host_topic
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.kernel.leases.life import Life
    from relevo.kernel.leases.model import LeaseConfig
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.wakeups import Wakeups

SQL = catalog.load(__package__)


class BalancerRounds:
    """The state of a host between rounds, over all its lives."""

    def __init__(self, database: Database, wakeups: Wakeups, config: LeaseConfig) -> None:
        self._database = database
        self._wakeups = wakeups
        self._config = config
        self._streaks: dict[int, Streak] = {}
        self._busy_since: dict[int, float] = {}
        self._random = random.Random()  # noqa: S311 - jitter, not a secret

    async def go(self, life: Life) -> float:
        """Go round once; return the seconds until the next time, unless a wake-up comes before."""
        await self._read_holdings(life)
        return await self._tick(life)

    async def _read_holdings(self, life: Life) -> None:
        """Handle a wake-up: read the leases, and start those that were handed over."""
        then = life.keeper.believed
        self._database.metrics.count_lease_statement("holdings")
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
        count = self._database.metrics.count_lease_statement
        count("tick")
        views = await balancer.read_units(self._database, life.incarnation)
        by_load = {view.name for view in views if view.settings.strategy == "load"}
        shared = [lease for lease in life.keeper.leases if lease.unit in by_load]
        await report_loads(self._database, life.incarnation, shared)
        wait = self._config.acquire * self._random.uniform(0.8, 1.2)
        for view in views:
            wait = min(wait, view.next_lapse + 0.02)
            streak = self._streaks.setdefault(view.id, Streak())
            uneven = streak.note(balancer.is_uneven(view), instant(), 0.75 * self._config.acquire)
            if not balancer.plan_unit(view, life.incarnation, self._config.acquire, uneven):
                continue
            outcome = await balancer.fulfil(
                self._database, view.id, life.incarnation, self._config.acquire, uneven
            )
            count("end hosts")
            count("balance", view.name, outcome.statements)
            if outcome.donors:
                streak.reset()
            life.keeper.begin(outcome.gained)
            self._wakeups.send(*(host_topic(donor) for donor in outcome.donors))
            if outcome.busy:
                wait = min(wait, self._config.acquire / 10)
                self._suspect_sleeper(view.id)
            else:
                self._busy_since.pop(view.id, None)
        return wait

    def _suspect_sleeper(self, unit_id: int) -> None:
        """A plan takes milliseconds. The lock is only tried, so no call of ours waits and looks."""
        sleepers = self._database.sleepers
        if instant() - self._busy_since.setdefault(unit_id, instant()) > sleepers.after:
            self._busy_since[unit_id] = instant()
            sleepers.look()
