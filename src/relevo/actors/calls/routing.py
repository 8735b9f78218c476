"""The routes of placement groups, read from the store and kept fresh while they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.actors.core.routing import Route, RouteTable, route_topic
from relevo.errors import RelevoError
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.wakeups import Wakeups

SQL = catalog.load("relevo.actors")
KIND: Final = "actors"
"""Of the units whose leases are slots."""
POLL_SECONDS: Final = 1.0
"""How old a route may be where wake-ups are not heard."""
LISTENING_SECONDS: Final = 10.0
"""How old it may be where they are: a wake-up can be lost."""
log = get_logger(__name__)


class Routes:
    """Where the slots of placement groups are; callers share one read.

    `run` keeps the groups fresh that were asked for; a supervisor's loop runs it. `on_host` hears
    of the hosts that own slots: name, incarnation, and when that registered; `on_change` of a
    group in which slots have new epochs.
    """

    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        on_host: Callable[[str, str, int], None] = lambda *_: None,
        on_change: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._wakeups = wakeups
        self._on_host = on_host
        self._on_change = on_change
        self._tables: dict[str, RouteTable] = {}
        self._signal = wakeups.signal()
        self._reads: Group[str, None] = Group("actor routes", self._read_all)

    def table(self, group: str) -> RouteTable:
        """Return what is known of a placement group, from now on kept fresh; no I/O."""
        return self._tables.setdefault(group, RouteTable())

    async def route(self, group: str, slot: int, *, above: int = -1) -> Route:
        """Return the route of a slot, read anew if it has no address or no epoch above `above`."""
        table = self.table(group)
        route = table.route(slot)
        if route.address is None or route.epoch <= above:
            await self.refresh(group)
            route = table.route(slot)
        return route

    async def refresh(self, group: str) -> None:
        """Read a group; the read begins after this call, and concurrent calls share it."""
        self.table(group)
        await self._reads.call(group)

    async def run(self) -> None:
        """Read the groups in use at wake-ups, and each second where none are heard."""
        with self._signal:
            while True:
                listening = self._wakeups.listening
                await self._signal.wait(LISTENING_SECONDS if listening else POLL_SECONDS)
                for group in list(self._tables):
                    try:
                        await self.refresh(group)
                    except RelevoError as error:
                        log.warning("actors.routes_not_read", group=group, error=str(error))

    async def close(self) -> None:
        """Finish the reads under way."""
        await self._reads.close()

    async def _read_all(self, groups: Sequence[str]) -> list[None]:
        for group in dict.fromkeys(groups):
            await self._read(group)
        return [None] * len(groups)

    async def _read(self, group: str) -> None:
        rows = await self._database.fetch(SQL.read_routes, KIND, group)
        if rows:
            self._signal.listen(route_topic(rows[0]["unit_id"]))
        is_news = self.table(group).read(
            (
                int(row["name"]),
                Route(row["epoch"], row["address"], row["host"], row["in_order_from"]),
            )
            for row in rows
        )
        hosts = {row["host"]: row for row in rows if row["host"] is not None}
        for host, row in hosts.items():
            self._on_host(host, str(row["owner"]), row["since"])
        if is_news:
            self._on_change(group)
