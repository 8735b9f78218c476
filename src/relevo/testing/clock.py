"""Time travel: moves `relevo.now()` of a database, for every process that uses it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from relevo.errors import InvalidValue
from relevo.kernel.postgres import catalog, clock
from relevo.kernel.postgres.wakeups import EVERYBODY

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database, Transaction

_KEEP_HOSTS: Final = catalog.own("testing.keep_hosts", """
update relevo.host set lease_until = lease_until + $1
where ended_at is null and lease_until > relevo.now()
""")  # fmt: skip
_SHIFT: Final = catalog.own(
    "testing.shift", "update relevo.clock set shift = shift + $1::interval returning 1"
)
_WAKE: Final = catalog.own("testing.wake", "select pg_notify('relevo', $1)")


class Clock:
    """Controls the time of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> datetime:
        """Return the current `relevo.now()`."""
        return await clock.now(self._database)

    async def advance(self, by: float | timedelta, *, hosts_lapse: bool = False) -> datetime:
        """Move the time forward by seconds and wake every waiting loop; return the new time.

        Running hosts keep their leases, as if they had renewed meanwhile, unless `hosts_lapse`.
        """
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise InvalidValue(f"time can only move forward, not by {step}")

        async def move(tx: Transaction) -> None:
            if not hosts_lapse:
                await tx.execute(_KEEP_HOSTS, step)
            await tx.execute(_SHIFT, step)

        await self._database.run(move)
        await self._database.fetch(_WAKE, f"clock\n{EVERYBODY}")
        return await self.now()

    async def server_falls_behind(self, by: float) -> None:
        """Simulate a failover to a server whose clock is `by` seconds behind."""
        await self._database.write(_SHIFT, -timedelta(seconds=by))
