"""The state of a cluster when a wait times out: sessions, locks, hosts and leases.

It is read once, when the test gives up, so that successful waits cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.binding import DEFAULT, bound

if TYPE_CHECKING:
    from collections.abc import Sequence

CONNECT_SECONDS_MAX: Final = 5.0
TEXT_MAX: Final = 160

_QUESTIONS: Final = {
    "sessions": """
        select pid, state, wait_event_type || ':' || wait_event as waits_for,
               pg_blocking_pids(pid) as blocked_by, now() - xact_start as in_transaction,
               now() - state_change as so_since, query
        from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()
        order by xact_start nulls last""",
    "locks": """
        select pid, locktype, mode, granted, classid, objid, relation::regclass as relation
        from pg_locks where locktype in ('advisory', 'transactionid', 'tuple') or not granted
        order by granted, pid""",
    "hosts": """
        select name, incarnation, lease_until - relevo.now() as left, ended_at, end_reason, draining
        from relevo.host order by name, started_at""",
    "members": """
        select u.name as unit, h.name as host, m.draining, m.joined_at
        from relevo.member m join relevo.unit u on u.id = m.unit_id
        join relevo.host h on h.incarnation = m.host order by 1, 2""",
    "leases": """
        select u.name as unit, l.id, l.name, h.name as owner, l.owner as incarnation, l.epoch,
               l.state, t.name as handoff_to, l.handoff_until - relevo.now() as handoff_left,
               l.free_since, l.moved_at, l.clean, l.position
        from relevo.lease l join relevo.unit u on u.id = l.unit_id
        left join relevo.host h on h.incarnation = l.owner
        left join relevo.host t on t.incarnation = l.handoff_to order by 1, 2""",
    "feed leases": "select * from relevo.feed_lease order by 1",
}


async def describe(database_url: str, schema: str = DEFAULT) -> str:
    """Return sessions, locks, hosts and leases of a database as text; never raises."""
    try:
        connection = await asyncpg.connect(database_url, timeout=CONNECT_SECONDS_MAX)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return f"cannot query the database: {error!r}"
    try:
        parts = []
        for title, question in _QUESTIONS.items():
            sql = bound(catalog.own("testing.scene", question), schema)
            try:
                rows = await connection.fetch(sql, timeout=CONNECT_SECONDS_MAX)
            except (OSError, asyncpg.PostgresError, TimeoutError) as error:
                parts.append(f"== {title}\n{error!r}")
            else:
                parts.append(f"== {title}\n{_table(rows)}")
        return "\n".join(parts)
    finally:
        connection.terminate()


def _table(rows: Sequence[asyncpg.Record]) -> str:
    return "\n".join(
        "  " + " | ".join(
            f"{name}={' '.join(str(value).split())[:TEXT_MAX]}"
            for name, value in row.items()
            if value is not None
        )
        for row in rows
    )  # fmt: skip
