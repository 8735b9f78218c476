"""How far behind a unit is: real lag, in changes and in seconds (15). Changes nothing."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue, NotFound, RelevoError
from relevo.feed.model import FeedRange, Mode
from relevo.feed.operating import unit
from relevo.feed.operating.unit import UnitOptions
from relevo.feed.reading import log as reading
from relevo.feed.reading.filters import sql_of
from relevo.kernel import callables
from relevo.kernel.events.model import LOG_NAME
from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import asyncpg

    from relevo.feed.reading.filters import Filter
    from relevo.feed.reading.log import FeedSource
    from relevo.feed.reading.tokens import TokenPlace
    from relevo.kernel.postgres import Database, Transaction
    from relevo.kernel.telemetry.metrics import Metrics

SQL = catalog.load("relevo.feed")
log = get_logger(__name__)
COUNT_MAX = 10_000
"""Changes that are counted one by one per lease; beyond that the figure is extrapolated."""
MEASURE_SECONDS: Final = 20.0
OLD_SECONDS: Final = 60.0
"""Figures older than this many seconds now come from another host."""
FIGURE_COUNT_MAX: Final = 1_000
"""The same for the figures of all units, which the leader publishes."""
UNITS_MAX: Final = 500
ROWS_MAX = 1_000_000
"""Changes that one statement counts at the most."""
COUNTS: Final[dict[Mode, str]] = {
    "latest": SQL.count_pending,
    "all_versions": SQL.count_versions,
    "events": SQL.count_events,
}


class LeaseLag(Struct, frozen=True, kw_only=True):
    """One lease and its lag."""

    lease_token: str
    feed_range: FeedRange
    instance_name: str | None
    estimated_lag: int
    exact: bool
    lag_seconds: float
    """Age of the oldest change that is pending; 0 if none is."""
    position_ts: datetime | None
    """Time of the last change that was processed."""
    attempts: int
    state: str
    stalled_for: float
    """For how many seconds a call runs that takes too long; 0 if none does."""
    properties: dict[str, str]


class TotalLag(Struct, frozen=True, kw_only=True):
    """All leases of a unit together."""

    estimated_lag: int = 0
    exact: bool = True
    lag_seconds: float = 0.0
    leases: int = 0
    lagging: int = 0
    """Leases that have something before them."""
    stalled_for: float = 0.0
    """The longest time for which a call takes too long."""
    initialised: bool = True
    """False if no processor was ever started for the unit."""

    def desired_instances(self, target_lag: int) -> int:
        """Return how many hosts an autoscaler should run so that none lags too far behind.

        More than there are leases with lag would have nothing to do.
        """
        if target_lag < 1:
            raise InvalidValue(f"target_lag is at least 1, not {target_lag}")
        return min(self.lagging, math.ceil(self.estimated_lag / target_lag))


class Estimator:
    """The lag of one unit, whether or not a host serves it."""

    def __init__(
        self,
        database: Database | Transaction,
        container: str,
        name: str,
        leases_in: str,
        *,
        count_max: int | None = None,
    ) -> None:
        self._database = database
        self._container = container
        self._count_max = count_max
        self._unit = f"{leases_in}/{container}/{name}"

    async def current_state(self) -> list[LeaseLag]:
        """Return the lag of every lease; `NotFound` if the unit was never started."""
        found = await self._database.fetchrow(SQL.find_unit, self._unit)
        if found is None:
            raise NotFound(f"no processor was ever started for {self._unit}")
        wanted = msgspec.json.decode(found["settings"], type=UnitOptions).filter
        now: datetime = await self._database.fetchval(SQL.now)
        most = COUNT_MAX if self._count_max is None else self._count_max
        rows = await self._database.fetch(SQL.feed_leases, found["id"])
        # After the leases: ranges that they name by then are known.
        source = await reading.look(self._database, self._container)
        count = _Count(self._database, source, found["mode"], wanted, most)
        pending = await count.behind({row["id"]: _places(source, row) for row in rows})
        return [_lag(row, pending[row["id"]], now) for row in rows]

    async def total(self) -> TotalLag:
        """Return the sums over all leases, and the worst age."""
        states = await self.current_state()
        return TotalLag(
            estimated_lag=sum(state.estimated_lag for state in states),
            exact=all(state.exact for state in states),
            lag_seconds=max((state.lag_seconds for state in states), default=0.0),
            leases=len(states),
            lagging=sum(state.estimated_lag > 0 for state in states),
            stalled_for=max((state.stalled_for for state in states), default=0.0),
        )

    async def watch(self, callback: Callable[[TotalLag], Any], every: float = 5.0) -> None:
        """Call back with the totals every `every` seconds, until canceled.

        Before the first host has made the unit it is told of as not `initialised`. What the
        callback raises, and a database that is away, is logged and ends nothing.
        """
        callables.check(callback, "the callback of an estimator", "lag")
        if not every > 0:
            raise InvalidValue(f"every is a time above 0 s, not {every}")
        while True:
            try:
                await callables.call(callback, await self._total_or_nothing())
            except RelevoError as error:
                log.warning("feed.not_estimated", unit=self._unit, error=str(error))
            except Exception:
                log.exception("feed.estimator_callback_failed", unit=self._unit)
            await asyncio.sleep(every)

    async def _total_or_nothing(self) -> TotalLag:
        try:
            return await self.total()
        except NotFound:
            return TotalLag(initialised=False)


class _Pending(Struct, frozen=True):
    """The pending changes of a lease, or of a part of it."""

    changes: int = 0
    exact: bool = True
    oldest: datetime | None = None

    def __add__(self, other: _Pending) -> _Pending:
        known = [one.oldest for one in (self, other) if one.oldest is not None]
        return _Pending(
            self.changes + other.changes, self.exact and other.exact, min(known, default=None)
        )


class _Count:
    """Counts the changes behind positions, many positions per statement."""

    def __init__(
        self,
        database: Database | Transaction,
        source: FeedSource,
        mode: Mode,
        wanted: Filter | None,
        most: int,
    ) -> None:
        self._database = database
        self._source = source
        self._most = most
        self._statement = sql_of(COUNTS[mode], wanted, mode, 8)
        self._heads: dict[int, int] | None = None

    async def behind(self, leases: Mapping[int, Sequence[TokenPlace]]) -> dict[int, _Pending]:
        """Return the pending changes of leases, given their positions."""
        found = dict.fromkeys(leases, _Pending())
        places = [(lease_id, place) for lease_id in leases for place in leases[lease_id]]
        size = max(1, ROWS_MAX // self._most)
        for first in range(0, len(places), size):
            part = places[first : first + size]
            for row in await self._fetch(part):
                lease_id, place = part[row["n"]]
                found[lease_id] += await self._pending(place, row)
        return found

    async def _fetch(self, places: Sequence[tuple[int, TokenPlace]]) -> Sequence[asyncpg.Record]:
        """Return a row for each place that has anything behind it."""
        lineage, (sql, *arguments) = self._source.ranges.lineage, self._statement
        columns = zip(*(
            (n, lease_id, ",".join(map(str, lineage(one.range_id))), one.lsn, one.low, one.high)
            for n, (lease_id, one) in enumerate(places)
        ), strict=True)  # fmt: skip
        return await self._database.fetch(sql, *map(list, columns), self._most, *arguments)

    async def _pending(self, place: TokenPlace, row: asyncpg.Record) -> _Pending:
        if row["looked_at"] < self._most:
            return _Pending(row["pending"], True, row["oldest"])
        # Extrapolated: as many up to the head as in the counted part.
        head = max(await self._head(place.range_id), row["upto"])
        share = (head - place.lsn) / max(1, row["upto"] - place.lsn)
        return _Pending(round(row["pending"] * share), False, row["oldest"])

    async def _head(self, range_id: int) -> int:
        if self._heads is None:
            self._heads = await reading.heads(self._database, self._source)
        return self._heads.get(range_id, 0)


def _places(source: FeedSource, row: asyncpg.Record) -> tuple[TokenPlace, ...]:
    positions = msgspec.json.decode(row["position"], type=dict[int, int])
    return unit.places_of(source.ranges, Interval(row["epk_min"], row["epk_max"]), positions)


def _lag(row: asyncpg.Record, pending: _Pending, now: datetime) -> LeaseLag:
    stalled = row["stalled_since"]
    return LeaseLag(
        lease_token=row["name"],
        feed_range=FeedRange(Interval(row["epk_min"], row["epk_max"])),
        instance_name=row["owner_name"],
        estimated_lag=pending.changes,
        exact=pending.exact,
        lag_seconds=max(0.0, (now - (pending.oldest or now)).total_seconds()),
        position_ts=row["position_ts"],
        attempts=row["attempts"],
        state=row["state"],
        stalled_for=(now - stalled).total_seconds() if stalled is not None else 0.0,
        properties=msgspec.json.decode(row["properties"]),
    )


class LagFigures:
    """The lag of every unit, as the leading host publishes it."""

    def __init__(self, target_lag: int) -> None:
        self._target_lag = target_lag
        self._measured_at = -math.inf

    async def measure(self, database: Database) -> None:
        """Estimate all units again."""
        totals = []
        for row in await database.fetch(SQL.all_units, UNITS_MAX, LOG_NAME):
            leases_in, _, name = row["unit"].partition(f"/{row['container']}/")
            work = partial(_total, container=row["container"], name=name, leases_in=leases_in)
            try:
                totals.append((row["unit"], await database.read(work)))
            except NotFound:  # gone since
                continue
        metrics = database.metrics
        self._clear(metrics)
        for name, total in totals:
            metrics.feed_pending.labels(unit=name).set(total.estimated_lag)
            desired = total.desired_instances(self._target_lag)
            metrics.feed_desired_hosts.labels(unit=name).set(desired)
        self._measured_at = instant()

    def forget_old(self, metrics: Metrics) -> None:
        """Show nothing that another host has gone on measuring."""
        if instant() - self._measured_at > OLD_SECONDS:
            self._clear(metrics)

    def _clear(self, metrics: Metrics) -> None:
        metrics.feed_pending.clear()
        metrics.feed_desired_hosts.clear()


async def _total(tx: Transaction, *, container: str, name: str, leases_in: str) -> TotalLag:
    """Return the sums of one unit, in one transaction."""
    estimator = Estimator(tx, container, name, leases_in, count_max=FIGURE_COUNT_MAX)
    return await estimator.total()
