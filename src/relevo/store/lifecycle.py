"""Create, split and drop containers; remove expired items and those of dropped containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo import limits
from relevo.errors import Conflict, InvalidValue, NotFound, Unavailable
from relevo.kernel.postgres import catalog
from relevo.store.model import ContainerInfo
from relevo.store.ranges import Interval, Range, RangeMap, initial

if TYPE_CHECKING:
    import asyncpg

    from relevo.kernel.postgres import Database, Transaction
    from relevo.store.model import ContainerOptions

SQL = catalog.load(__package__)
ATTEMPTS_MAX: Final = 5
"""How often a step starts again because ranges or containers changed meanwhile."""
STALE: Final = ("RV001", "RV002")
"""SQLSTATEs of a statement whose range was split, or whose container was dropped, meanwhile."""

RANGE_WRITES_PER_SECOND_MAX: Final = 2_000.0
"""Writers of one range wait for each other; above this rate two ranges are better than one."""
SUSTAINED_SECONDS: Final = 60.0
"""How long a range must be written that fast before it is cut."""


class BusyRange(Struct, frozen=True):
    """A range that is written faster than one range should be."""

    container: str
    range_id: int


class FoundContainer(Struct, frozen=True):
    """A container and its ranges, as one statement showed them."""

    info: ContainerInfo
    ranges: RangeMap


async def find(database: Database, name: str) -> FoundContainer | None:
    """Return the container of that name, if there is one."""
    rows = await database.fetch(SQL.find_container, name)
    if not rows:
        return None
    ranges = RangeMap(
        Range(
            id=row["range_id"],
            interval=Interval(row["epk_min"], row["epk_max"]),
            parents=tuple(row["parents"]),
            sealed_lsn=row["sealed_lsn"],
        )
        for row in rows
    )
    return FoundContainer(_info(rows[0]), ranges)


async def find_or_create(database: Database, name: str, wanted: ContainerOptions) -> FoundContainer:
    """Return the container of that name; creates a missing one if the caller gave its options."""
    for _ in range(ATTEMPTS_MAX):
        found = await find(database, name)
        if found is not None:
            return found
        if wanted.partition_key is None:
            raise NotFound(
                f"there is no container named {name!r}; give a partition_key such as '/city', and"
                " it is made when it is first used"
            )
        parts = initial(wanted.ranges)
        # The loser of a race, or a caller whose answer was lost, finds the winner's container.
        await database.write(
            SQL.create_container,
            name,
            wanted.partition_key,
            wanted.ttl,
            wanted.versions,
            wanted.previous_images,
            [part.low for part in parts],
            [part.high for part in parts],
            idempotent=True,
        )
    raise Unavailable(f"container {name!r} is created and dropped repeatedly; try again")


async def list_all(database: Database, after: str, limit: int) -> list[ContainerInfo]:
    """Return containers whose name comes after `after`, in order."""
    return [_info(row) for row in await database.fetch(SQL.list_containers, after, limit)]


async def drop(database: Database, info: ContainerInfo) -> bool:
    """Forget a container; waits for writes under way. False if it was gone already."""

    async def forget(tx: Transaction) -> bool | None:
        ids = [row["id"] for row in await tx.fetch(SQL.open_ranges, info.id)]
        if not ids:
            return False
        if not await tx.fetchval(SQL.lock_ranges, ids):
            return None  # one was split, or all are gone
        await tx.execute(SQL.drop_container, info.id)
        return True

    for _ in range(ATTEMPTS_MAX):
        done = await database.run(forget)
        if done is not None:
            return done
    raise Unavailable(f"the ranges of container {info.name!r} kept being split; try again")


async def split(
    database: Database, found: FoundContainer, range_id: int, at: str | None
) -> list[int]:
    """Seal a range and put two children in its place; return their ids."""
    known = found.ranges.by_id.get(range_id)
    if known is None:
        raise NotFound(f"container {found.info.name!r} has no range {range_id}")
    if len(found.ranges.open) >= limits.RANGES_PER_CONTAINER_MAX:
        raise Conflict(
            f"container {found.info.name!r} has {len(found.ranges.open)} open ranges, and there may"
            f" be at most {limits.RANGES_PER_CONTAINER_MAX}"
        )
    cut = known.interval.split(2)[1].low if at is None else _checked_cut(at, known.interval)

    async def seal(tx: Transaction) -> list[int]:
        if not await tx.fetchval(SQL.lock_ranges, [range_id]):
            raise Conflict(
                f"range {range_id} of container {found.info.name!r} was split already; its"
                " children are in ranges()"
            )
        return [row["id"] for row in await tx.fetch(SQL.split_range, range_id, cut)]

    return await database.run(seal)


async def busy_ranges(database: Database, per_second: float, seconds: float) -> list[BusyRange]:
    """Return the open ranges that got at least so many items per second all the time."""
    rows = await database.fetch(SQL.busy_ranges, seconds, round(per_second * seconds))
    return [BusyRange(row["container"], row["range_id"]) for row in rows]


async def purge_expired(database: Database, limit: int) -> tuple[int, list[int]]:
    """Remove up to `limit` expired items; return how many, and containers whose feeds changed."""

    async def purge(tx: Transaction) -> tuple[int, list[int]]:
        rows = await tx.fetch(SQL.lock_expired, limit)
        ranges = [row["range_id"] for row in rows if row["range_id"] is not None]
        if not rows or not await tx.fetchval(SQL.lock_ranges, ranges):
            return 0, []  # nothing, or a split came between: next time
        columns = ([row[n] for row in rows] for n in range(4))
        done = (await tx.fetch(SQL.purge_items, *columns))[0]
        return done["purged"], done["changed"]

    return await database.run(purge)


async def purge_dropped(database: Database, limit: int) -> int:
    """Remove up to `limit` items and as many versions that dropped containers left."""
    items = await database.write(SQL.purge_dropped_items, limit, idempotent=True)
    versions = await database.write(SQL.purge_dropped_versions, limit, idempotent=True)
    await database.write(SQL.forget_dropped, idempotent=True)
    total: int = items[0]["count"] + versions[0]["count"]
    return total


def _info(row: asyncpg.Record) -> ContainerInfo:
    return ContainerInfo(
        id=row["id"],
        name=row["name"],
        incarnation=str(row["incarnation"]),
        partition_key=tuple(row["partition_key"]),
        ttl=row["default_ttl"],
        versions=row["retention"],
        previous_images=row["previous_images"],
        created_at=row["created_at"],
    )


def _checked_cut(at: str, interval: Interval) -> str:
    if (
        len(at) % 2
        or not set(at) <= set("0123456789ABCDEF")
        or not interval.low < at < interval.high
    ):
        raise InvalidValue(
            f"a range is cut at a hash between {interval.low!r} and {interval.high!r}, in"
            f" upper-case hex digits, not {at!r}",
            pointer="at",
        )
    return at
