"""The checks of `relevo doctor` on actors: room for the locks of slots, and ways between hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.cli.doctor.patient import SQL, Finding

if TYPE_CHECKING:
    from relevo.cli.doctor.patient import Patient


async def slots(patient: Patient) -> Finding:
    """Check whether PostgreSQL's lock table has room for a lock for each slot of actors."""
    groups = await patient.database.fetch(SQL.actor_groups)
    if not groups:
        return Finding("ok", "no placement group of actors")
    total = sum(row["slots"] for row in groups)
    server = patient.server
    room = int(server["max_locks_per_transaction"]) * (
        int(server["max_connections"]) + int(server["max_prepared_transactions"])
    )
    named = ", ".join(f"{row['name']} {row['slots']}" for row in groups[:8])
    detail = f"{total} slots ({named}); the lock table has room for {room} locks"
    if total > room // 2:
        advice = "commits of actors hold a lock per slot; raise max_locks_per_transaction"
        return Finding("warn" if total <= room else "fail", detail, advice)
    return Finding("ok", detail)


async def addresses(patient: Patient) -> Finding:
    """Check whether hosts that serve the same placement group can reach each other."""
    members = await patient.database.fetch(SQL.actor_members)
    if not members:
        return Finding("ok", "no host serves actors")
    hosts = {row["host"] for row in members}
    detail = f"{len(hosts)} hosts serve {len({row['placement_group'] for row in members})} groups"
    if len(hosts) == 1:
        return Finding("ok", detail)
    silent = sorted({row["host"] for row in members if row["address"] is None})
    if silent:
        advice = "other hosts cannot call their actors; set actors_listen and restart them"
        return Finding("fail", f"{detail}; without an address: {', '.join(silent[:4])}", advice)
    local = {row["host"] for row in members if str(row["address"]).startswith(("unix:", "/"))}
    if local and local != hosts:
        advice = "a Unix socket is reached on its own machine only; set actors_listen on all hosts"
        return Finding("warn", f"{detail}; on Unix sockets: {', '.join(sorted(local)[:4])}", advice)
    return Finding("ok", detail)
