"""A pool made of actors: each stands for a resource, and the pool grows by adding actors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct, field

from relevo import App
from relevo.actors import Actor, Deferred, Interface, method

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio


class Connection(Interface):
    """A connection that takes one query at a time."""

    async def query(self, text: str) -> str: ...


class ConnectionPool(Interface):
    """One actor in front of the connections, which gives out the one that is free."""

    async def add(self, connection: Connection) -> int: ...
    async def take(self) -> Connection: ...
    async def put_back(self, connection: Connection) -> None: ...
    @method(read_only=True)
    async def size(self) -> int: ...


class PoolState(Struct):
    connections: list[Connection] = field(default_factory=list)


class Server:
    """The restricted resource: what runs at once, in all and by connection."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.most = 0
        self.used: set[str] = set()
        self.gate = asyncio.Event()

    async def run(self, connection: str) -> None:
        assert connection not in self.running, "a connection takes one query at a time"
        self.running.add(connection)
        self.used.add(connection)
        self.most = max(self.most, len(self.running))
        await self.gate.wait()
        self.running.discard(connection)


def define(app: App, server: Server) -> None:
    @app.actor("connection", implements=Connection, persist="volatile")
    class ConnectionActor(Actor[None]):
        async def query(self, text: str) -> str:
            await server.run(str(self.ctx.key))
            return text

    @app.actor("connection-pool", implements=ConnectionPool)
    class ConnectionPoolActor(Actor[PoolState]):
        async def on_activate(self) -> None:
            self.free = list(self.state.connections)
            self.waiting: list[Deferred[Connection]] = []

        async def add(self, connection: Connection) -> int:
            if connection not in self.state.connections:
                self.state.connections.append(connection)
                self.give(connection)
            return len(self.state.connections)

        async def take(self) -> Any:
            if self.free:
                return self.free.pop(0)
            self.waiting.append(self.defer())
            return self.waiting[-1]

        async def put_back(self, connection: Connection) -> None:
            self.give(connection)

        async def size(self) -> int:
            return len(self.state.connections)

        def give(self, connection: Connection) -> None:
            if self.waiting:
                self.waiting.pop(0).resolve(connection)
            else:
                self.free.append(connection)


async def until(server: Server, running: int) -> None:
    async with asyncio.timeout(20):
        while len(server.running) < running:
            await asyncio.sleep(0.002)


async def names(app: App, keys: Sequence[str], pool: Any) -> None:
    for key in keys:
        await pool.add(app.actor(Connection, key))


async def test_a_pool_coordinated_by_one_actor_grows_by_adding_actors(relevo_url: str) -> None:
    app, server = App(relevo_url), Server()
    define(app, server)
    async with app, app.host():
        pool = app.actor(ConnectionPool, "db1")
        await names(app, ["c1", "c2"], pool)

        async def query(number: int) -> str:
            connection = await pool.take()
            try:
                return await connection.query(str(number))
            finally:
                await pool.put_back(connection)

        queries = [asyncio.create_task(query(number)) for number in range(30)]
        await until(server, 2)
        assert server.most == 2
        await names(app, ["c3", "c4", "c5"], pool)  # callers that wait get them at once
        await until(server, 5)
        server.gate.set()
        assert await asyncio.gather(*queries) == [str(number) for number in range(30)]
        assert server.most == 5
        assert server.used == {"c1", "c2", "c3", "c4", "c5"}
        await app.actors.deactivate(pool)
        assert await pool.size() == 5, "the pool knows its actors after it left memory"


async def test_a_pool_coordinated_by_its_callers_grows_with_its_number_of_actors(
    relevo_url: str,
) -> None:
    app, server = App(relevo_url), Server()
    define(app, server)
    async with app, app.host():
        for size in (2, 5):
            server.gate.clear()
            server.most = 0
            queries = [
                asyncio.create_task(app.actor(Connection, f"c{number % size}").query("x"))
                for number in range(30)
            ]
            await until(server, size)
            server.gate.set()
            await asyncio.gather(*queries)
            assert server.most == size
