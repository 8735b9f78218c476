"""The history of leases, and a check of its invariants.

There are two sources: the database, where a trigger records every change of ownership in commit
order per lease, and the hosts, which record each act with an instant taken *before* they checked
the lease.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Struct

from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relevo.kernel.postgres.database import Database

_INSTALL = """
create schema relevo_trace;
create table relevo_trace.owner_change (
  seq bigint generated always as identity primary key,
  lease_id integer, unit text, name text, strict boolean,
  old_owner uuid, owner uuid, old_epoch bigint, epoch bigint, clean boolean, store_now timestamptz
);
create function relevo_trace.note() returns trigger language plpgsql as $$
begin
  insert into relevo_trace.owner_change
    (lease_id, unit, name, strict, old_owner, owner, old_epoch, epoch, clean, store_now)
  select new.id, u.name, new.name, u.strict,
    old.owner, new.owner, old.epoch, new.epoch, new.clean, relevo.now()
  from relevo.unit u where u.id = new.unit_id;
  return null;
end $$;
create trigger trace after update of owner, epoch on relevo.lease
  for each row execute function relevo_trace.note();
"""


class OwnerChange(Struct, frozen=True, kw_only=True):
    """A change of a lease's ownership, as it was committed."""

    seq: int
    lease_id: int
    unit: str
    name: str
    strict: bool
    old_owner: UUID | None
    owner: UUID | None
    old_epoch: int
    epoch: int
    clean: bool = True
    """Whether the previous owner released it in order; if not, its last work may be repeated."""


class Act(Struct, frozen=True, kw_only=True):
    """An act of a host under a lease: the start of a handler or a turn."""

    at: float
    host: str
    unit: str
    lease: str
    epoch: int


class Violation(AssertionError):
    """An invariant was violated; the message names it and shows the records."""


async def install(database: Database) -> None:
    """Record every change of ownership from now on."""
    await database.run(lambda tx: tx.execute(catalog.own("testing.trace", _INSTALL)))


async def owner_changes(database: Database) -> list[OwnerChange]:
    """Return every change of ownership since `install`, in order per lease."""
    rows = await database.fetch("select * from relevo_trace.owner_change order by seq")
    return [
        OwnerChange(**{name: row[name] for name in OwnerChange.__struct_fields__}) for row in rows
    ]


def acts(records: Iterable[dict[str, Any]]) -> list[Act]:
    """Return the acts among the hosts' records, in the order of time."""
    acted = [
        Act(at=r["at"], host=r["host"], unit=r["unit"], lease=r["lease"], epoch=r["epoch"])
        for r in records
        if r["event"] == "act"
    ]
    return sorted(acted, key=lambda act: act.at)


def check_invariants(changes: Sequence[OwnerChange], acted: Sequence[Act] = ()) -> None:
    """Raise `Violation` if the history of the leases breaks an invariant.

    L1, I2: epochs of a lease strictly grow, and ownership changes only together with the epoch.
    L2: no host acts under an epoch that was never assigned.
    L5, I3, I5, I6: in a strict unit no act of an older epoch starts after one of a younger epoch.
    """
    by_lease: dict[tuple[str, str], list[OwnerChange]] = defaultdict(list)
    for change in changes:
        by_lease[change.unit, change.name].append(change)
    for history in by_lease.values():
        _check_history(history)
    _check_acts(by_lease, acted)


def _check_history(history: Sequence[OwnerChange]) -> None:
    for change in history:
        if change.owner != change.old_owner and change.epoch <= change.old_epoch:
            raise Violation(f"L1: ownership changed without a higher epoch: {change}")
    for before, after in pairwise(history):
        if after.epoch <= before.epoch or after.old_epoch != before.epoch:
            raise Violation(f"I2: epochs did not strictly grow: {before} then {after}")
        if after.old_owner != before.owner:
            raise Violation(f"L1: the owner changed without a record: {before} then {after}")


def _check_acts(by_lease: dict[tuple[str, str], list[OwnerChange]], acted: Sequence[Act]) -> None:
    given = {
        (unit, name): {c.epoch for c in history if c.owner is not None}
        for (unit, name), history in by_lease.items()
    }
    newest: dict[tuple[str, str], Act] = {}
    for act in acted:
        lease = (act.unit, act.lease)
        if act.epoch not in given.get(lease, set()):
            raise Violation(f"L2: acted under an epoch that was never assigned: {act}")
        last = newest.setdefault(lease, act)
        if by_lease[lease][0].strict and act.epoch < last.epoch:
            raise Violation(f"I3: {act} started after {last}")
        if act.epoch > last.epoch:
            newest[lease] = act
