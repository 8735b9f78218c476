"""Where calls of a stateless type go: to this host if it serves the type, else to another one."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from relevo.actors.calls.delivery import Way, Ways
from relevo.actors.core.calls import MovedTo, Refused
from relevo.actors.transport.errors import NotSent
from relevo.errors import NotFound, OutcomeUnknown
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.actors.calls.ways import ActorWays
    from relevo.actors.core.calls import Answer, Call
    from relevo.actors.definitions import ActorTypes
    from relevo.actors.transport.network import Network
    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.actors")
FRESH_SECONDS: Final = 1.0
"""How old the list of hosts may be."""
AVOID_SECONDS: Final = 2.0
"""How long no call goes to a host that could not take one."""


class StatelessHosts:
    """The hosts of placement groups, and how many calls of this process are under way to each."""

    def __init__(self, database: Database, network: Network) -> None:
        self._database = database
        self._network = network
        self._hosts: dict[str, dict[str, str]] = {}
        """Incarnations of the hosts of placement groups, by address."""
        self._read_at: dict[str, float] = {}
        self._avoided: dict[tuple[str, str], float] = {}
        self._under_way: Counter[str] = Counter()
        self._reads: Group[str, None] = Group("actor hosts", self._read_all)
        self._random = random.Random()  # noqa: S311 - spreads load

    async def pick(self, group: str, type_name: str) -> tuple[str, str] | None:
        """Return the better of two hosts picked at random, None without hosts.

        Returns its address and its incarnation.

        The better one is that with fewer calls of this process under way.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._read_at.get(group, 0.0) + FRESH_SECONDS:
            await self._reads.call(group)
        found = [
            address for address in self._hosts[group]
            if address != self._network.address
            and now >= self._avoided.get((type_name, address), 0.0)
        ]  # fmt: skip
        two = self._random.sample(found, min(2, len(found)))
        address = min(two, key=self._under_way.__getitem__, default=None)
        return None if address is None else (address, self._hosts[group][address])

    async def call(self, type_name: str, address: str, call: Call) -> Answer:
        """Send a call to a host; it gets none for a while if it could not take this one."""
        self._under_way[address] += 1  # before anything is awaited: the next pick counts it
        try:
            peers = await self._network.peers()
            answer = await peers.call(address, call)
        except (NotSent, OutcomeUnknown):
            self._avoid(type_name, address)
            raise
        finally:
            self._under_way[address] -= 1
        is_strange = isinstance(answer, Refused) and (answer.code, answer.executed) == (
            NotFound.code, True,
        )  # fmt: skip
        if isinstance(answer, MovedTo) or is_strange:  # it stops, or does not define the type
            self._avoid(type_name, address)
            return MovedTo(0)
        return answer

    async def has_ended(self, address: str, incarnation: str) -> bool:
        """Whether a host does not take calls any longer, or has begun a new life."""
        peers = await self._network.peers()
        try:
            return (await peers.connection(address)).identity.incarnation != incarnation
        except NotSent:
            return True

    async def close(self) -> None:
        """Finish the reads under way."""
        await self._reads.close()

    def _avoid(self, type_name: str, address: str) -> None:
        until = asyncio.get_running_loop().time() + AVOID_SECONDS
        self._avoided[type_name, address] = until

    async def _read_all(self, groups: Sequence[str]) -> list[None]:
        for group in dict.fromkeys(groups):
            rows = await self._database.fetch(SQL.hosts_of_group, group)
            self._hosts[group] = {row["address"]: str(row["incarnation"]) for row in rows}
            now = self._read_at[group] = asyncio.get_running_loop().time()
            self._avoided = {one: until for one, until in self._avoided.items() if until > now}
        return [None] * len(groups)


class StatelessWays(Ways):
    """The ways of the calls of one stateless type: any host is right, and there is no owner."""

    def __init__(
        self, type_name: str, types: ActorTypes, ways: ActorWays, hosts: StatelessHosts
    ) -> None:
        self._type = type_name
        self._types = types
        self._ways = ways
        self._hosts = hosts

    async def slots(self, type_name: str) -> tuple[str, int]:
        """Return the placement group of the type; raises `NotFound`, `NoHost` if none served it."""
        group, _ = await self._ways.slots(type_name)
        return group, 1

    def is_joining(self, type_name: str) -> bool:
        """Whether this process serves the placement group of the type, or is about to."""
        return self._ways.is_joining(type_name)

    def here(self, call: Call) -> asyncio.Future[Answer] | None:
        """Run a call on this host, if it serves the type."""
        runtime, definition = self._ways.runtime, self._types.by_name.get(self._type)
        if runtime is not None and definition is not None and runtime.stateless.takes(definition):
            return runtime.deliver(call)
        return None

    async def find(self, group: str, slot: int) -> Way | None:
        """Return the way to another host that serves the type."""
        host = await self._hosts.pick(group, self._type)
        if host is None:
            return None
        return Way(partial(self._hosts.call, self._type, host[0]), 0, host)

    def learn(self, group: str, slot: int, moved: MovedTo) -> None:
        """Nothing is known of a host but that it did not take a call."""

    async def has_ended(self, group: str, slot: int, way: Way) -> bool:
        """Whether the host to which a way led has ended since."""
        return way.host is not None and await self._hosts.has_ended(*way.host)

    async def changed(self, group: str, seconds: float) -> None:
        """Wait until hosts of a group may have changed, at most so long."""
        await self._ways.changed(group, seconds)
