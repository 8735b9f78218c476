"""The thin shell around the balancer: read, plan, and only if there is need, lock and write.

Lock order: the unit's balance lock, lease locks (rising ids), lease rows; host rows (rising
incarnation) in a commit of their own before. A fenced transaction takes lease locks only, so the
two never wait in a circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from relevo.kernel import faults
from relevo.kernel.leases import balancing
from relevo.kernel.leases.model import Plan, PlannedLease, UnitMember, UnitSettings
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.postgres.database import Database, Transaction

SQL = catalog.load(__package__)


class BalancedUnit(Struct, frozen=True, kw_only=True):
    """A unit, from one read."""

    id: int
    kind: str
    name: str
    settings: UnitSettings
    members: tuple[UnitMember, ...]
    leases: tuple[PlannedLease, ...]
    next_lapse: float
    """Seconds until the first of the other hosts lapses unless it renews."""

    def ids(self, names: Sequence[str]) -> list[int]:
        """Numbers of leases, in the order in which they are locked."""
        wanted = set(names)
        return sorted(lease.id for lease in self.leases if lease.name in wanted)


class BalanceOutcome(Struct, kw_only=True):
    """The changes of a tick in one unit."""

    gained: list[asyncpg.Record] = []
    donors: set[UUID] = set()
    """Hosts to be woken: they were asked, or a request to them was withdrawn."""
    busy: bool = False
    """Another host is planning for this unit at this moment."""
    statements: int = 1


def read_view(row: asyncpg.Record, me: UUID) -> BalancedUnit:
    """Turn a row of `read_units` into plain data."""
    members = tuple(
        UnitMember(
            host=m[0],
            name=m[1],
            weight=m[2],
            min_leases=m[3],
            max_leases=m[4],
            draining=m[5],
            live=m[6],
        )
        for m in row["members"] or ()
    )
    leases = tuple(
        PlannedLease(
            id=r[0],
            name=r[1],
            owner=r[2],
            takeable=r[3],
            state=r[4],
            handoff_to=r[5],
            handoff_overdue=r[6],
            free_for=(r[7] or 0.0) if r[3] else 0.0,
            moved_ago=r[8],
            load=r[10],
            avoid=r[11],
        )
        for r in row["leases"] or ()
    )
    lapses = [m[7] for m in row["members"] or () if m[0] != me and m[7] > 0]
    lapses += [r[9] for r in row["leases"] or () if r[2] not in (None, me) and r[9] and r[9] > 0]
    return BalancedUnit(
        id=row["id"],
        kind=row["kind"],
        name=row["name"],
        settings=UnitSettings(
            strict=row["strict"], handoff_timeout=row["handoff_timeout"],
            max_moves=row["max_moves"], rest=row["rest"], strategy=row["strategy"],
        ),
        members=members,
        leases=leases,
        next_lapse=min(lapses, default=float("inf")),
    )  # fmt: skip


async def read_units(database: Database, me: UUID) -> list[BalancedUnit]:
    """Read every unit that host `me` serves, in one statement."""
    return [read_view(row, me) for row in await database.fetch(SQL.read_units, me, None)]


def is_uneven(view: BalancedUnit) -> bool:
    """Whether the load of a unit that goes by load is spread badly."""
    return view.settings.strategy == "load" and balancing.is_uneven(view.members, view.leases)


def plan_unit(view: BalancedUnit, me: UUID, interval: float, uneven_ticks: int = 0) -> Plan:
    """Return the plan of host `me` for a unit."""
    return balancing.plan(
        me, f"{view.kind}/{view.name}", view.settings, interval, view.members, view.leases,
        uneven_ticks,
    )  # fmt: skip


async def fulfil(
    database: Database, unit_id: int, me: UUID, interval: float, uneven_ticks: int = 0
) -> BalanceOutcome:
    """Plan again under the unit's lock, and write the plan."""

    async def work(tx: Transaction) -> BalanceOutcome:
        if not await tx.fetchval(SQL.try_lock_unit, unit_id):
            return BalanceOutcome(busy=True)
        row = await tx.fetchrow(SQL.read_units, me, unit_id)
        if row is None:
            return BalanceOutcome(statements=2)
        view = read_view(row, me)
        outcome = await _write(tx, view, plan_unit(view, me, interval, uneven_ticks), me)
        await faults.point("before_balance_commit")
        return outcome

    # A commit of its own: host rows that wait for a unit's fences would hold up all other units.
    await database.write(SQL.end_lapsed_hosts)
    return await database.run(work)


async def _write(tx: Transaction, view: BalancedUnit, todo: Plan, me: UUID) -> BalanceOutcome:
    outcome = BalanceOutcome(statements=2)
    moved = view.ids(todo.take + todo.seize)
    if moved:
        outcome.statements += 1
        await tx.execute(SQL.lock_leases, moved)
    for sql, names in ((SQL.take_leases, todo.take), (SQL.seize_leases, todo.seize)):
        if names:
            outcome.statements += 1
            outcome.gained += await tx.fetch(sql, view.ids(names), me)
    asked: list[tuple[str, Any]] = [
        (SQL.ask_leases, [view.ids(todo.ask), me]),
        (SQL.clear_handoffs, [view.ids(todo.clear)]),
    ]
    for sql, args in asked:
        if args[0]:
            outcome.statements += 1
            outcome.donors |= {row["owner"] for row in await tx.fetch(sql, *args)} - {None}
    return outcome
