"""The SQL that gives four roles what each of them needs, and nothing else.

owner      migrates: the schema and everything in it is its
host       serves; it reads and writes rows, and cannot change tables
submitter  submits jobs, puts items and sends messages by functions, inside its own transactions; it
           reads nothing
reader     reads the views for reports, in which nobody's data are

The names of the roles are recorded with the rights, so that a migration renews them itself: what it
creates, or creates again, has the rights that PostgreSQL gives by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.binding import quoted
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.kernel.postgres.database import Database, Transaction

SQL = catalog.load(__package__)
log = get_logger(__name__)
KINDS: Final = ("owner", "host", "submitter", "reader")
SUBMITTING: Final = (
    "submit_job", "submit_jobs_in", "submit_unique_jobs_in", "put_item", "send_message",
    "arrive_messages", "send_actor_messages",
)  # fmt: skip
"""The functions for callers' own transactions."""
RECORDS: Final = ("migration", "migration_step", "function", "granted_role")
"""Tables that only the owner writes."""
_ROWS: Final = "select, insert, update, delete"


class SchemaFacts(Struct, frozen=True):
    """What there is that statements depend on."""

    schema: str
    owner: str | None
    """Who owns the schema; None if it does not exist."""
    is_filled: bool
    """Whether it has its tables and functions."""
    views: tuple[str, ...]
    roles: frozenset[str]
    """Those of the wanted roles that exist."""


async def look(
    source: Database | Transaction, schema: str, roles: Mapping[str, str]
) -> SchemaFacts:
    """Read what statements for these roles depend on."""
    row = await source.fetchrow(SQL.schema_facts, list(roles.values()))
    assert row is not None
    return SchemaFacts(
        schema=schema, owner=row["owner"], is_filled=row["is_filled"],
        views=tuple(row["views"]), roles=frozenset(row["roles"]),
    )  # fmt: skip


async def renew(tx: Transaction, schema: str) -> None:
    """Give the recorded roles their rights again; the last step of a migration's transaction."""
    roles = {row["kind"]: row["name"] for row in await tx.fetch(SQL.recorded_roles)}
    if not roles:
        return
    facts = await look(tx, schema, roles)
    missing = sorted(roles[kind] for kind in KINDS[1:] if roles[kind] not in facts.roles)
    if missing:  # restored into a server without them
        log.warning("grants.not_renewed", missing=missing, remedy="run `relevo grants --apply`")
        return
    await execute(tx, statements(facts, roles | {"owner": facts.owner or roles["owner"]}))


async def execute(tx: Transaction, made: Sequence[str]) -> None:
    """Execute statements for roles."""
    for statement in made:
        await tx.execute(catalog.own("grants", statement))


def statements(facts: SchemaFacts, roles: Mapping[str, str]) -> list[str]:
    """Return the statements that give each role its rights, whatever it had before."""
    named = {kind: _identifier(name) for kind, name in roles.items()}
    missing = [
        f"create role {named[kind]} login"
        for kind in KINDS
        if roles[kind] not in facts.roles and roles[kind] != facts.owner
    ]
    schema = quoted(facts.schema)
    owner, host, submitter, reader = (named[kind] for kind in KINDS)
    if facts.owner is None:
        # Who is no superuser must be a member of the owner to act in its name.
        missing.append(f"grant {owner} to current_user")
        missing.append(f"create schema {schema} authorization {owner}")
    defaults = f"alter default privileges for role {owner} in schema {schema} grant"
    made = [
        *missing,
        f"grant usage on schema {schema} to {host}, {submitter}, {reader}",
        f"grant {_ROWS} on all tables in schema {schema} to {host}",
        f"grant usage, select on all sequences in schema {schema} to {host}",
        f"grant execute on all functions in schema {schema} to {host}",
        f"{defaults} {_ROWS} on tables to {host}",
        f"{defaults} usage, select on sequences to {host}",
        f"{defaults} execute on functions to {host}",
    ]
    if not facts.is_filled:
        return made
    records = ", ".join(f"{schema}.{name}" for name in RECORDS)
    named_roles = ", ".join(f"('{kind}', {_literal(roles[kind])})" for kind in KINDS)
    calls = ", ".join(f"{schema}.{name}" for name in SUBMITTING)
    views = ", ".join(f"{schema}.{name}" for name in facts.views)
    return [
        *made,
        f"revoke insert, update, delete on {records} from {host}",
        f"revoke execute on all functions in schema {schema} from public",
        f"grant execute on function {calls} to {submitter}",
        f"grant select on {views} to {reader}",
        f"insert into {schema}.granted_role (kind, name) values {named_roles}"  # noqa: S608 - shown
        " on conflict (kind) do update set name = excluded.name",
    ]


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
