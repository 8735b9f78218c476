"""The checks of `relevo doctor`: a table of functions that read the installation.

They change nothing. A warning is worth knowing; a failure needs a repair.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.cli.doctor import actor_checks, job_checks
from relevo.cli.doctor.patient import Finding, Need, Patient, State
from relevo.errors import RelevoError
from relevo.http.access.keyring import SQL as KEY_SQL
from relevo.kernel.leases.service import SKEW_WARN_SECONDS
from relevo.kernel.postgres import catalog, clock, restores
from relevo.kernel.postgres.clock import SHIFT_WARN_SECONDS
from relevo.kernel.postgres.grants import RECORDS, SUBMITTING
from relevo.kernel.postgres.migration import migrate
from relevo.kernel.postgres.migration.migrations import known
from relevo.kernel.sealing import MasterKey
from relevo.kernel.uses import shares
from relevo.limits import HANDLERS_PER_CONNECTION_WARN, MIB

if TYPE_CHECKING:
    from relevo.kernel.leases.model import HostInfo

SQL = catalog.load("relevo.cli")
DISK_WARN_BYTES: Final = 1024 * MIB
DISK_FAIL_BYTES: Final = 128 * MIB
ROUND_TRIP_WARN_SECONDS: Final = 0.02
SHOWN_MAX: Final = 4
"""How many missing rights are shown."""
CONNECTIONS_BESIDE_POOL: Final = 2
"""One for the heartbeat and one for the listener."""


async def database(patient: Patient) -> Finding:
    """Check the round-trip time to the database."""
    started = time.perf_counter()
    for _ in range(5):
        await patient.database.fetchval(SQL.ping)
    seconds = (time.perf_counter() - started) / 5
    endpoint = patient.database.endpoint
    place = f"embedded in {endpoint.embedded.home}" if endpoint.embedded else f"at {endpoint}"
    detail = f"{place}, {seconds * 1_000:.1f} ms away"
    if seconds > ROUND_TRIP_WARN_SECONDS:
        return Finding(
            "warn", detail, "every call waits this long; run hosts close to the database"
        )
    return Finding("ok", detail)


async def version(patient: Patient) -> Finding:
    """Show the version; Relevo does not connect to unsupported ones."""
    return Finding("ok", f"PostgreSQL {patient.server['server_version']}")


async def durability(patient: Patient) -> Finding:
    """Check whether acknowledged work survives a power cut."""
    wanted = ("fsync", "full_page_writes", "synchronous_commit")
    off = [name for name in wanted if patient.server[name] == "off"]
    if off:
        return Finding(
            "fail",
            f"{', '.join(off)} off",
            "a crash of the machine can lose acknowledged work or the whole database; turn it on",
        )
    return Finding("ok", ", ".join(f"{name} {patient.server[name]}" for name in wanted))


async def checksums(patient: Patient) -> Finding:
    """Check whether PostgreSQL detects corrupted pages."""
    if patient.server["data_checksums"] == "on":
        return Finding("ok", "on")
    return Finding(
        "warn", "off", "disk corruption goes unnoticed; stop the server and run pg_checksums -e"
    )


async def schema(patient: Patient) -> Finding:
    """Check whether the schema is that of this version."""
    pending = await migrate.check(patient.database)
    if not pending:
        return Finding("ok", f"up to date ({known()[-1].label})")
    detail = f"pending: {', '.join(pending)}"
    if patient.settings.migrate:
        return Finding("warn", detail, "run `relevo migrate up`, or start a host, which migrates")
    return Finding(
        "fail", detail, "run `relevo migrate up`; hosts with migrate = false do not start"
    )


async def time_of_day(patient: Patient) -> Finding:
    """Compare the clocks of this machine and of the database."""
    reading = await clock.read(patient.database)
    detail = f"this machine {-reading.skew:+.3f} s from the database, shift {reading.shift:.3f} s"
    if abs(reading.skew) > SKEW_WARN_SECONDS:
        return Finding("warn", detail, "synchronise the clocks (NTP); signatures and logs use them")
    if abs(reading.shift) > SHIFT_WARN_SECONDS:
        advice = "the database's clock once fell behind, so Relevo's time runs ahead of it"
        return Finding("warn", detail, advice)
    return Finding("ok", detail)


async def rights(patient: Patient) -> Finding:
    """Show which role of `relevo grants` this is, and which rights it lacks to run a host."""
    me = await patient.database.fetchrow(SQL.role_rights, list(SUBMITTING))
    assert me is not None
    role, schema = f"role {me['role']}", patient.database.schema
    if me["owner"] is None:
        if me["may_create"]:
            return Finding("ok", f"{role} may create the schema {schema} and will own it")
        advice = "run the SQL of `relevo grants` as a superuser, or grant create on the database"
        return Finding("fail", f"{role} may not create the schema {schema}", advice)
    if me["owns"]:
        return Finding("ok", f"{role} is an owner: it migrates and serves")
    lacking = await patient.database.fetch(SQL.missing_rights, list(RECORDS))
    if not lacking:
        return Finding("ok", f"{role} is a host: it serves, and {me['owner']} migrates")
    kinds = [kind for kind, has in (("submitter", me["submits"]), ("reader", me["reads"])) if has]
    missing = [f"{row['privilege']} on {schema}.{row['name']}" for row in lacking]
    more = f" and {len(missing) - SHOWN_MAX} more" if len(missing) > SHOWN_MAX else ""
    return Finding(
        "fail",
        f"{role} is {' and '.join(f'a {kind}' for kind in kinds) or 'no role of Relevo'};"
        f" a host also needs {', '.join(missing[:SHOWN_MAX])}{more}",
        f"run `relevo grants --apply` as {me['owner']}, then use the role of the host",
    )


async def restore(patient: Patient) -> Finding:
    """Whether this is the database that hosts have served so far."""
    found = await restores.served(patient.database)
    if found.is_same is False:
        advice = "the first host that starts says so and goes on; other copies must have no hosts"
        return Finding("warn", "restored, copied or upgraded since hosts last served it", advice)
    at = found.restored_at
    detail = f"restored, copied or upgraded at {at:%Y-%m-%d %H:%M} UTC" if at else "never"
    return Finding("ok", detail)


async def options(patient: Patient) -> Finding:
    """Check for URL parameters that have no effect."""
    address = patient.database.endpoint.address
    left_out = ", ".join(address.left_out)
    if address.unmet:
        advice = (
            "the driver does not support it; use sslmode=verify-full, and remove it from the URL"
        )
        return Finding("warn", f"required but not supported: {', '.join(address.unmet)}", advice)
    return Finding(
        "ok", f"ignored, because they have no effect: {left_out}" if left_out else "all known"
    )


async def pool(patient: Patient) -> Finding:
    """Check whether the server has connections left for another host."""
    used = await patient.database.fetchval(SQL.count_connections)
    most = _connections_max(patient)
    wanted = patient.settings.pool_size + CONNECTIONS_BESIDE_POOL
    detail = f"{most - used} of {most} connections free; a host takes up to {wanted}"
    if most - used < wanted:
        return Finding("warn", detail, "raise max_connections, lower pool_size, or use PgBouncer")
    return Finding("ok", detail)


async def handlers(patient: Patient) -> Finding:
    """Check whether handlers get connections, and whether the server has enough for all hosts."""
    size = patient.settings.pool_size
    row = await patient.database.fetchrow(SQL.count_work)
    assert row is not None
    share = shares(size).most["handlers"]
    held = f"a host holds up to {row['leases']} feed leases"
    detail = f"{share} of {size} connections for handlers; {held}"
    if row["leases"] > share * HANDLERS_PER_CONNECTION_WARN:
        advice = (
            "handlers that open transactions wait for each other; raise pool_size, or add hosts"
        )
        return Finding("warn", detail, advice)
    wanted = row["hosts"] * (size + CONNECTIONS_BESIDE_POOL)
    most = _connections_max(patient)
    if wanted > most:
        detail = f"{row['hosts']} hosts take up to {wanted} connections; the server has {most}"
        return Finding("warn", detail, "raise max_connections, lower pool_size, or use PgBouncer")
    return Finding("ok", detail)


def _connections_max(patient: Patient) -> int:
    server = patient.server
    return int(server["max_connections"]) - int(server["superuser_reserved_connections"])


async def pooler(patient: Patient) -> Finding:
    """Check for a connection pooler."""
    if patient.database.endpoint.pooled:
        advice = "LISTEN does not work through it, so hosts poll; a direct URL reacts faster"
        return Finding("warn", "PgBouncer, or pgbouncer = on", advice)
    return Finding("ok", "none")


async def hosts(patient: Patient) -> Finding:
    """Check for lapsed hosts."""
    all_hosts: list[HostInfo] = []
    while page := await patient.directory.hosts(
        after=(all_hosts[-1].name, all_hosts[-1].incarnation) if all_hosts else None, limit=500
    ):
        all_hosts += page
    live = [host for host in all_hosts if host.live]
    lapsed = [host.name for host in all_hosts if not host.live and host.ended_at is None]
    detail = f"{len(live)} live, {sum(host.draining for host in live)} draining"
    if lapsed:
        advice = "they crashed or cannot reach the database; see their logs"
        return Finding("warn", f"{detail}, {len(lapsed)} lapsed: {', '.join(lapsed)}", advice)
    if not live:
        return Finding("warn", detail, "no host is running; start one with `relevo up`")
    return Finding("ok", detail)


async def leases(patient: Patient) -> Finding:
    """Check for blocked leases."""
    row = await patient.database.fetchrow(SQL.count_leases)
    assert row is not None
    detail = ", ".join(f"{row[name]} {name}" for name in ("leases", "free", "paused", "blocked"))
    if row["blocked"]:
        advice = "`relevo lease list` shows them; fix the cause, then run `relevo lease resume`"
        return Finding("warn", detail, advice)
    return Finding("ok", detail)


async def folder(patient: Patient) -> Finding:
    """Check the owner and the permissions of the data folder."""
    home = patient.home
    if not home.exists():
        return Finding("ok", f"{home} does not exist yet")
    key = home / "secret.key"
    for path, others in ((home, 0o022), (key, 0o077)):
        if not path.exists():
            continue
        info = path.stat()
        mode = stat.S_IMODE(info.st_mode)
        if info.st_uid != os.geteuid():
            advice = "run as its owner, or set RELEVO_HOME to a folder of your own"
            return Finding("fail", f"{path} belongs to uid {info.st_uid}", advice)
        if mode & others:
            return Finding("fail", f"{path} is open to others ({mode:04o})", f"chmod go= {path}")
    return Finding("ok", str(home))


async def disk(patient: Patient) -> Finding:
    """Check the free disk space."""
    place = next(path for path in (patient.home, *patient.home.parents) if path.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free / MIB / 1024:.1f} GiB free at {place}"
    if patient.settings.database_url is not None:
        return Finding("ok", detail)  # the data is on another server
    if free < DISK_FAIL_BYTES:
        return Finding("fail", detail, "free some space now, or the database will stop")
    if free < DISK_WARN_BYTES:
        return Finding("warn", detail, "free some space, or move the data folder")
    return Finding("ok", detail)


async def master_key(patient: Patient) -> Finding:
    """Check whether this machine's master key is the one that seals signing keys."""
    stored = await patient.database.fetchval(KEY_SQL.get_fingerprint)
    secret_key = patient.settings.secret_key
    if secret_key is None and not (patient.home / "secret.key").exists():
        if stored is None:
            return Finding("ok", "not created yet")
        advice = "to run a host here, set RELEVO_SECRET_KEY to that of the other hosts"
        return Finding("warn", "there is none on this machine", advice)
    mine = MasterKey.load(secret_key, patient.home).fingerprint
    if stored not in (None, mine):
        advice = "set RELEVO_SECRET_KEY to that of the other hosts, or copy their secret.key"
        return Finding("fail", "signing keys are sealed with another master key", advice)
    return Finding("ok", f"fingerprint {mine[:8]}…")


__all__ = ["CHECKS", "Check", "Finding", "Patient", "State", "examine"]
Examine = Callable[[Patient], Awaitable[Finding]]


class Check(Struct, frozen=True):
    """A named check, and what it needs."""

    name: str
    examine: Examine
    needs: Need = "nothing"


CHECKS: Final = (
    Check("database", database, "database"),
    Check("version", version, "database"),
    Check("durability", durability, "database"),
    Check("checksums", checksums, "database"),
    Check("schema", schema, "database"),
    Check("rights", rights, "database"),
    Check("url", options, "database"),
    Check("pool", pool, "database"),
    Check("pooler", pooler, "database"),
    Check("restored", restore, "schema"),
    Check("clock", time_of_day, "schema"),
    Check("hosts", hosts, "schema"),
    Check("leases", leases, "schema"),
    Check("handlers", handlers, "schema"),
    Check("jobs", job_checks.unserved, "schema"),
    Check("actor slots", actor_checks.slots, "schema"),
    Check("actor hosts", actor_checks.addresses, "schema"),
    Check("master key", master_key, "schema"),
    Check("folder", folder),
    Check("disk", disk),
)


async def examine(check: Check, patient: Patient) -> Finding:
    """Run a check; an exception becomes a failed finding."""
    if check.needs not in patient.has:
        return Finding("skip", f"there is no {check.needs} to check")
    try:
        return await check.examine(patient)
    except RelevoError as error:
        return Finding("fail", error.message)
    except Exception as error:
        return Finding("fail", f"{type(error).__name__}: {error}")
