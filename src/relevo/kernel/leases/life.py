"""One life of a host: an incarnation with its heartbeat, deadline and leases.

A life that has ended never acts again: its deadline is gone, its keeper starts nothing. What comes
after is another life, with everything new.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import uuid
from typing import TYPE_CHECKING

import asyncpg
import msgspec
from msgspec import Struct

from relevo.errors import Conflict, HostSuperseded
from relevo.kernel.leases.hosts import Beat, Deadline, Heart, instant
from relevo.kernel.leases.keeper import Keeper
from relevo.kernel.leases.model import LeaseConfig
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from relevo.kernel.leases.held import Lease
    from relevo.kernel.leases.hosts import EndReason
    from relevo.kernel.leases.units import Unit
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.wakeups import Wakeups

SQL = catalog.load(__package__)
log = get_logger(__name__)
REGISTER_ATTEMPTS = 5


class Identity(Struct, frozen=True, kw_only=True):
    """The objects shared by all lives of a host."""

    name: str
    config: LeaseConfig
    address: str | None
    labels: dict[str, str]


class Life:
    """From a registration to its end."""

    def __init__(
        self,
        incarnation: UUID,
        identity: Identity,
        database: Database,
        wakeups: Wakeups,
        units: Mapping[int, Unit],
        on_beat: Callable[[Life, Beat], None],
    ) -> None:
        self.incarnation = incarnation
        self.deadline = Deadline()
        self.ended: asyncio.Future[EndReason] = asyncio.get_running_loop().create_future()
        self.keeper = Keeper(database, wakeups, incarnation, self.deadline, units)
        self.heart = Heart(
            database.endpoint,
            incarnation,
            identity.name,
            identity.config,
            self.deadline,
            believed=lambda: self.keeper.believed,
            on_beat=lambda beat: on_beat(self, beat),
            on_end=self._end,
        )

    def _end(self, reason: EndReason) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    async def abandon(self) -> None:
        """Drop everything: the store says that this life has ended."""
        self.deadline.end()
        self.keeper.abandon("expired")
        await self.heart.stop()
        await self.keeper.close()

    async def drain(self, timeout: float) -> list[Lease]:
        """Let holders end and release everything; return the leases that were cut off."""
        late = await self.keeper.stop("shutdown", timeout)
        self.deadline.end()
        self.keeper.abandon("shutdown")
        await self.heart.stop()
        await self.keeper.close()
        return late


async def begin(
    identity: Identity,
    database: Database,
    wakeups: Wakeups,
    units: Mapping[int, Unit],
    on_beat: Callable[[Life, Beat], None],
    *,
    after: UUID | None = None,
) -> Life:
    """Register and start to renew. `after` is the incarnation that lapsed, for a life that follows.

    The first life of a process ends a namesake; a later one gives way to it (`HostSuperseded`).
    """
    life = Life(uuid.uuid4(), identity, database, wakeups, units, on_beat)
    values = (
        life.incarnation,
        identity.name,
        identity.config.expiration,
        identity.address,
        msgspec.json.encode(identity.labels).decode(),
        importlib.metadata.version("relevo"),
    )
    sent = instant()
    for _ in range(REGISTER_ATTEMPTS):
        try:
            if after is None:
                await database.write(SQL.register_host, *values, idempotent=True)
            elif not await database.write(SQL.register_again, *values, after, idempotent=True):
                raise HostSuperseded(f"another process lives as {identity.name!r} by now")
            break
        except asyncpg.UniqueViolationError:
            continue  # a namesake registered in between
    else:
        raise Conflict(f"too many processes register as {identity.name!r} at the same time")
    life.deadline.renew(sent + identity.config.expiration - identity.config.margin)
    life.heart.start()
    log.info("host.started", host=identity.name, incarnation=str(life.incarnation))
    return life
