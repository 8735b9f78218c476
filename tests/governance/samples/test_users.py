"""A user actor that keeps its resolution, and a resolver that may move its partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo import App
from relevo.actors import Actor, Interface

if TYPE_CHECKING:
    from relevo import Resolution

pytestmark = pytest.mark.anyio


class UserState(Struct):
    name: str = ""
    country: str = ""
    age: int = 0
    resolution: str = ""
    """The resource of the last use, and its generation."""
    generation: int = 0


class User(Interface):
    async def update_profile(self, name: str, country: str, age: int) -> None: ...
    async def resolution(self) -> tuple[str, int]: ...


class Databases:
    """The restricted resources: rows by database and user."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, tuple[str, str, int]]] = defaultdict(dict)
        self.in_use: dict[str, int] = defaultdict(int)
        self.late: list[str] = []
        """Users that were written to a database while another one had their partition."""

    async def save(self, found: Resolution, row: tuple[str, str, int]) -> None:
        name = found.resource.data["database"]
        self.in_use[f"{found.partition}@{name}"] += 1
        for other in self.rows:
            if other != name and self.in_use[f"{found.partition}@{other}"]:
                self.late.append(found.entity)
        await asyncio.sleep(0)
        self.rows[name][found.entity] = row
        self.in_use[f"{found.partition}@{name}"] -= 1

    async def copy(self, partition: str, source: str, target: str) -> None:
        assert not any(count for at, count in self.in_use.items() if at.startswith(partition))
        users = [user for user in self.rows[source] if partition_of(user) == partition]
        for user in users:
            self.rows[target][user] = self.rows[source].pop(user)
            await asyncio.sleep(0)


def partition_of(user: str) -> str:
    return f"part-{int(user.removeprefix('user-')) % 4}"


def define(app: App, databases: Databases) -> Any:
    resolver = app.governance.resolver("users", assign=partition_of, max_stale=4.0)

    @app.actor("user", implements=User)
    class UserActor(Actor[UserState]):
        async def update_profile(self, name: str, country: str, age: int) -> None:
            async with resolver.use(str(self.ctx.key)) as found:
                await databases.save(found, (name, country, age))
            state = self.state
            state.name, state.country, state.age = name, country, age
            state.resolution, state.generation = found.resource.name, found.generation

        async def resolution(self) -> tuple[str, int]:
            return self.state.resolution, self.state.generation

    return resolver


async def test_users_keep_their_resolution_until_their_partition_moves(relevo_url: str) -> None:
    databases, apps = Databases(), [App(relevo_url, host_name=name) for name in ("a", "b")]
    resolvers = [define(app, databases) for app in apps]
    users = [f"user-{number}" for number in range(40)]
    async with apps[0], apps[0].host(), apps[1], apps[1].host():
        for name in ("db1", "db2"):
            await resolvers[0].add_resource(name, {"database": name})
        for number in range(4):
            await resolvers[0].add_partition(f"part-{number}", on=f"db{number % 2 + 1}")

        async def update_all(age: int) -> None:
            await asyncio.gather(*(
                apps[age % 2].actor(User, user).update_profile(user, "PT", age) for user in users
            ))  # fmt: skip

        await update_all(1)
        before = {user: await apps[0].actor(User, user).resolution() for user in users}
        asked = turns_of_resolver(apps)
        assert asked > 0
        await update_all(2)
        # Only the timers of the two hosts ask, and no user does.
        assert turns_of_resolver(apps) - asked < len(users)

        ages = iter(range(3, 1_000))
        moving = asyncio.create_task(
            resolvers[1].move(partition="part-0", to="db2", copy=databases.copy)
        )
        while not moving.done():
            await update_all(next(ages))
        await moving
        last = next(ages)
        await update_all(last)

        after = {user: await apps[1].actor(User, user).resolution() for user in users}
    for user in users:
        moved = partition_of(user) == "part-0"
        assert after[user][0] == ("db2" if moved else before[user][0])
        assert (after[user][1] > before[user][1]) == moved  # generations of moved users grow
        at = [name for name, rows in databases.rows.items() if user in rows]
        assert at == [after[user][0]], "each user is in one database"  # I39
        assert databases.rows[at[0]][user] == (user, "PT", last)
    assert databases.late == []  # I40


def turns_of_resolver(apps: list[App]) -> float:
    """Return how often the resolver was asked."""
    labels = {"type": "relevo.resolver", "method": "resolve", "outcome": "done"}
    name = "relevo_actor_turns_total"
    return sum(app.metrics.registry.get_sample_value(name, labels) or 0.0 for app in apps)
