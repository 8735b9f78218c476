"""The store: containers of items on one database, and their housekeeping."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from relevo import limits
from relevo.errors import Closed, InvalidValue
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, PerConnection, Service
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import Question
from relevo.kernel.postgres.repeating import until_fewer
from relevo.store import lifecycle
from relevo.store.container import Container
from relevo.store.model import ContainerInfo, ContainerOptions, options
from relevo.store.open_container import OpenContainer
from relevo.store.writes import LockWaits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta

    from relevo.kernel.part import Connection
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load(__package__)
T = TypeVar("T")
PURGE_ROWS: Final = 500
"""Rows that housekeeping removes in one transaction."""
PURGE_ROUNDS_MAX: Final = 20
"""Transactions that one turn of a duty may take; the next turn does the rest."""


class Store(Service):
    """All containers of a database.

    >>> store = Store(Connection(database, wakeups))  # doctest: +SKIP
    >>> orders = store.container("orders", partition_key="/city")  # doctest: +SKIP
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._in_use = PerConnection(connection, _InUse)

    @overload
    def container(
        self,
        name: str,
        partition_key: str | Sequence[str] | None = None,
        *,
        model: None = None,
        ttl: float | timedelta | None = None,
        versions: timedelta | None = None,
        previous_images: bool = False,
        ranges: int = limits.RANGES_PER_CONTAINER,
    ) -> Container[dict[str, Any]]: ...

    @overload
    def container(
        self,
        name: str,
        partition_key: str | Sequence[str] | None = None,
        *,
        model: type[T],
        ttl: float | timedelta | None = None,
        versions: timedelta | None = None,
        previous_images: bool = False,
        ranges: int = limits.RANGES_PER_CONTAINER,
    ) -> Container[T]: ...

    def container(
        self,
        name: str,
        partition_key: str | Sequence[str] | None = None,
        *,
        model: Any = None,
        ttl: float | timedelta | None = None,
        versions: timedelta | None = None,
        previous_images: bool = False,
        ranges: int = limits.RANGES_PER_CONTAINER,
    ) -> Container[Any]:
        """Return a handle, without I/O; the container is created when it is first used.

        `partition_key` is a path such as `/city`, or up to three for a hierarchical key. Without it
        the container must exist, and given options must equal those it has.

        `model` types the items (msgspec, dataclass, pydantic). `ttl` is the number of seconds after
        the last write when an item expires, unless it has a `ttl` member of its own; with -1 only
        items with that member expire. `versions` keeps all versions and deletes that long for the
        feed, and `previous_images` adds the former item to each. `ranges` is the number of parts
        that the feed starts with.
        """
        wanted = options(
            partition_key,
            ttl=ttl,
            versions=versions,
            previous_images=previous_images,
            ranges=ranges,
        )
        return Container(self, name, wanted, model)

    async def containers(
        self, after: str = "", limit: int = limits.PAGE_ROWS_DEFAULT
    ) -> list[ContainerInfo]:
        """Return at most `limit` containers by name, after the name `after`."""
        if not 1 <= limit <= limits.PAGE_ROWS_MAX:
            raise InvalidValue(f"limit is 1 to {limits.PAGE_ROWS_MAX}, not {limit}")
        return await lifecycle.list_all(self.database, after, limit)

    async def open(self, name: str, wanted: ContainerOptions) -> OpenContainer:
        """Return the container of that name, opened; handles call this."""
        return await self._in_use().open(name, wanted)

    async def drop(self, name: str) -> bool:
        """Remove a container and all its items; False if there is none of that name."""
        found = await lifecycle.find(self.database, name)
        if found is None or not await lifecycle.drop(self.database, found.info):
            return False
        opened = self._in_use().containers.get(name)
        if opened is not None and opened.info.id == found.info.id:
            opened.gone = True
        self.wakeups.send(f"feed:{found.info.id}")
        return True

    async def purge_expired(self, limit: int = PURGE_ROWS) -> int:
        """Remove up to `limit` expired items, as changes in the feeds that keep versions."""
        purged, changed = await lifecycle.purge_expired(self.database, limit)
        self.wakeups.send(*(f"feed:{container_id}" for container_id in changed))
        return purged

    async def purge_dropped(self, limit: int = PURGE_ROWS) -> int:
        """Remove up to `limit` items, and as many versions, that dropped containers left."""
        return await lifecycle.purge_dropped(self.database, limit)


class _InUse:
    """The open containers of one connection."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._opening = asyncio.Lock()
        self._room = LockWaits()
        self._closed = False
        self.containers: dict[str, OpenContainer] = {}

    async def open(self, name: str, wanted: ContainerOptions) -> OpenContainer:
        """Return the container of that name; opens it, or creates it, on first use."""
        opened = self.containers.get(name)
        if opened is not None and not opened.gone:
            return opened
        async with self._opening:
            opened = self.containers.get(name)
            if opened is None or opened.gone:
                if self._closed:
                    raise Closed("the store is closed and takes no further calls")
                found = await lifecycle.find_or_create(self._database, name, wanted)
                opened = OpenContainer(self._database, self._wakeups, found, self._room)
                self.containers[name] = opened
        return opened

    async def close(self) -> None:
        """Finish accepted writes; refuse new ones, and those that wait for other transactions."""
        self._closed = True
        self._room.close()
        for opened in self.containers.values():
            await opened.close()


class StorePart(Part[Store]):
    """Keeps the store tidy."""

    def duties(self) -> list[Duty]:
        """Return the housekeeping duties of the store."""

        def purging(step: Callable[[], Awaitable[int]]) -> Callable[[], Awaitable[int]]:
            return lambda: until_fewer(PURGE_ROWS, step, rounds=PURGE_ROUNDS_MAX)

        return [
            Duty(
                "purge expired items", 5.0, purging(self.service.purge_expired),
                Question(SQL.expired_items),
            ),
            Duty(
                "purge dropped containers", 15.0, purging(self.service.purge_dropped),
                Question(SQL.dropped_containers),
            ),
        ]  # fmt: skip

    async def close(self) -> None:
        """Finish accepted writes; refuse new ones."""
        await self.service._in_use().close()
