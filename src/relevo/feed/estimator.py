"""How far behind a unit is: real lag, in changes and in seconds (15). Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from relevo.errors import NotFound
from relevo.feed import reading
from relevo.feed.model import FeedRange
from relevo.postgres import catalog
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from datetime import datetime

    import asyncpg

    from relevo.feed.reading import Source
    from relevo.postgres import Database

SQL = catalog.load(__package__)
COUNT_MAX = 10_000
"""Changes that are counted one by one per lease; beyond that the figure is a lower bound."""


class LeaseLag(Struct, frozen=True, kw_only=True):
    """One lease and what it has before it."""

    lease_token: str
    feed_range: FeedRange
    instance_name: str | None
    estimated_lag: int
    exact: bool
    lag_seconds: float
    attempts: int
    state: str


class TotalLag(Struct, frozen=True, kw_only=True):
    """All leases of a unit together."""

    estimated_lag: int
    exact: bool
    lag_seconds: float
    leases: int


class Estimator:
    """Estimates the lag of one unit, whether or not a host serves it."""

    def __init__(self, database: Database, container: str, name: str, leases_in: str) -> None:
        self._database = database
        self._container = container
        self._unit = f"{leases_in}/{container}/{name}"

    async def current_state(self) -> list[LeaseLag]:
        """Return the lag of every lease; `NotFound` if the unit was never started."""
        source = await reading.look(self._database, self._container)
        unit_id = await self._database.fetchval(SQL.find_unit_id, self._unit)
        if unit_id is None:
            raise NotFound(f"no processor was ever started for {self._unit}")
        now: datetime = await self._database.fetchval(SQL.now)
        rows = await self._database.fetch(SQL.feed_leases, unit_id)
        return [await self._lag(source, row, now) for row in rows]

    async def total(self) -> TotalLag:
        """Return the sums over all leases, and the worst age."""
        states = await self.current_state()
        return TotalLag(
            estimated_lag=sum(one.estimated_lag for one in states),
            exact=all(one.exact for one in states),
            lag_seconds=max((one.lag_seconds for one in states), default=0.0),
            leases=len(states),
        )

    async def _lag(self, source: Source, row: asyncpg.Record, now: datetime) -> LeaseLag:
        interval = Interval(row["epk_min"], row["epk_max"])
        positions = {int(k): v for k, v in msgspec.json.decode(row["position"]).items()}
        pending, oldest = 0, now
        for one in source.ranges.over(interval):
            lineage = source.ranges.lineage(one.id)
            known = [positions[i] for i in lineage if i in positions]
            part = one.interval.intersect(interval)
            found = await self._database.fetchrow(
                SQL.count_pending, lineage, known[0] if known else 0, part.low, part.high, COUNT_MAX
            )
            assert found is not None
            pending += found["pending"]
            oldest = min(oldest, found["oldest"] or now)
        return LeaseLag(
            lease_token=row["name"],
            feed_range=FeedRange(interval),
            instance_name=row["owner_name"],
            estimated_lag=pending,
            exact=pending < COUNT_MAX,
            lag_seconds=(now - oldest).total_seconds(),
            attempts=row["attempts"],
            state=row["state"],
        )
