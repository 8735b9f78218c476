"""Resolvers: each entity its own resource, and moves during which nothing overlaps."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.errors import Conflict, InUse, InvalidValue, NotFound, StaleResolution
from relevo.governance.calls.resolver_calls import RESOLVER_TYPE, ResolverCalls
from relevo.governance.core.windows import Rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.testing import Clock

pytestmark = pytest.mark.anyio
COUNT = 10_000 if "RELEVO_EXAMPLES" in os.environ else 1_000


async def test_users_over_regions_by_a_function(relevo_url: str) -> None:
    def assign(user: str) -> str:
        region, number = user.split("-")
        return f"{region}-{int(number) % 4}"

    app = App(relevo_url)
    dbs = app.governance.resolver("orders", assign=assign)
    async with app, app.host():
        for region in ("eu", "us"):
            await dbs.add_resource(f"server-{region}", {"dsn": f"server_{region}"})
            for number in range(4):
                await dbs.add_partition(f"{region}-{number}", on=f"server-{region}")
        users = [f"{'eu' if one % 2 else 'us'}-{one}" for one in range(COUNT)]
        for start in range(0, COUNT, 500):
            found = await asyncio.gather(*map(dbs.resolve, users[start : start + 500]))
            for user, resolution in zip(users[start:], found, strict=False):  # I39
                assert resolution.entity == user
                assert resolution.partition == assign(user)
                assert resolution.resource.data == {"dsn": f"server_{user[:2]}"}


async def test_uses_of_old_and_new_resource_never_overlap(relevo_url: str) -> None:
    apps = [App(relevo_url, host_name=name) for name in ("a", "b")]
    dbs = [app.governance.resolver("orders", max_stale=2.0) for app in apps]
    running: dict[str, int] = {"db1": 0, "db2": 0}
    seen: list[str] = []
    generations: list[int] = []
    copied: list[tuple[str, str, str]] = []
    stop, used = asyncio.Event(), asyncio.Condition()

    async def until(condition: Callable[[], bool]) -> None:
        async with used:
            await used.wait_for(condition)

    async def use(number: int) -> None:
        while not stop.is_set():
            async with dbs[number % 2].use(f"user-{number}") as resolution:
                name = resolution.resource.name
                running[name] += 1
                assert not all(running.values())  # I40
                seen.append(name)
                async with used:
                    used.notify_all()
                await asyncio.sleep(0.005)
                running[name] -= 1

    async def copy(partition: str, source: str, target: str) -> None:
        assert not any(running.values())  # I40
        copied.append((partition, source, target))

    async def fail(partition: str, source: str, target: str) -> None:
        raise OSError("the copy failed")

    async with apps[0], apps[0].host(), apps[1], apps[1].host():
        await dbs[0].add_resource("db1")
        await dbs[0].add_resource("db2")
        await dbs[0].add_partition("eu-0", on="db1")
        users = [asyncio.create_task(use(number)) for number in range(6)]
        generations.append((await dbs[0].resolve("user-0")).generation)
        async with asyncio.timeout(60):
            await until(lambda: len(seen) >= 20)
            await dbs[0].move(partition="eu-0", to="db2", copy=copy)
            await until(lambda: seen[-1] == "db2")
            generations.append((await dbs[0].resolve("user-0")).generation)
            with pytest.raises(OSError, match="copy failed"):
                await dbs[1].move(partition="eu-0", to="db1", copy=fail)
            count = len(seen)
            await until(lambda: len(seen) >= count + 10)
            generations.append((await dbs[0].resolve("user-0")).generation)
        assert seen[-1] == "db2"
        stop.set()
        await asyncio.gather(*users)
        with pytest.raises(InUse):
            await dbs[0].remove("db2")
        await dbs[0].remove("db1")
        with pytest.raises(NotFound):
            await dbs[0].move(partition="eu-0", to="db9")
    assert copied == [("eu-0", "db1", "db2")]
    assert generations == sorted(set(generations))


async def test_rebalancing_and_pins(relevo_url: str) -> None:
    app = App(relevo_url)
    dbs = app.governance.resolver("orders", assign="least_loaded")
    async with app, app.host():
        await dbs.add_resource("db1")
        for number in range(4):
            await dbs.add_partition(f"p{number}", on="db1")
        for number in range(8):
            await dbs.resolve(f"user-{number}")
        await dbs.add_resource("db2")
        plan = await dbs.plan_rebalance()
        assert {one.target for one in plan} == {"db2"}
        await dbs.apply(plan)
        partitions = [one async for one in dbs.partitions()]
        assert [one.resource for one in partitions].count("db1") == 2
        assert [one async for one in dbs.partitions(resource="db2")] == [
            one for one in partitions if one.resource == "db2"
        ]
        entity = await dbs.resolve("user-0")
        other = next(one for one in partitions if one.resource != entity.resource.name)
        with pytest.raises(Conflict):
            await dbs.pin("user-0", other.name)
        await dbs.pin("new", other.name)
        assert (await dbs.resolve("new")).partition == other.name


async def test_partitions_are_split_and_merged_and_entities_move_alone(relevo_url: str) -> None:
    app = App(relevo_url)
    dbs = app.governance.resolver("orders", assign="range", max_stale=1.0)
    async with app, app.host():
        await dbs.add_resource("db1")
        await dbs.add_resource("db2")
        await dbs.add_partition("low", on="db1", low="a")
        before = {name: await dbs.resolve(name) for name in ("ana", "bob", "eva", "zoe")}
        assert await dbs.split("low", into="high", at="e") == 2
        assert (await dbs.resolve("new")).partition == "high"
        await dbs.move(partition="high", to="db2")
        await dbs.move(entity="bob", to="db2")
        found = {name: await dbs.resolve(name) for name in before}
        assert {name: one.resource.name for name, one in found.items()} == {
            "ana": "db1", "bob": "db2", "eva": "db2", "zoe": "db2",
        }  # fmt: skip
        assert all(found[name].generation > before[name].generation for name in before)  # I40
        assert (await dbs.resolve("bobby")).resource.name == "db1"  # nobody joins bob
        assert await dbs.merge(found["bob"].partition, into="high") == 1
        assert (await dbs.resolve("bob")).partition == "high"
        with pytest.raises(Conflict):
            await dbs.merge("high", into="low")
        await dbs.move(resource="db2", to="db1")
        await dbs.remove("db2")
        assert {(await dbs.resolve(name)).resource.name for name in before} == {"db1"}
        with pytest.raises(InvalidValue):
            await dbs.move(to="db1")
        with pytest.raises(InvalidValue):
            await dbs.move(to="db1", entity="ana", partition="low")
        with pytest.raises(NotFound):
            await dbs.move(resource="db9", to="db1")


async def test_an_entity_that_moves_is_not_used_on_both_resources(relevo_url: str) -> None:
    apps = [App(relevo_url, host_name=name) for name in ("a", "b")]
    dbs = [app.governance.resolver("orders", max_stale=1.0) for app in apps]
    async with apps[0], apps[0].host(), apps[1], apps[1].host():
        await dbs[0].add_resource("db1")
        await dbs[0].add_resource("db2")
        await dbs[0].add_partition("all", on="db1")
        await dbs[0].resolve("bob")
        async with dbs[1].use("bob") as old:
            moving = asyncio.create_task(dbs[0].move(entity="bob", to="db2"))
            async with asyncio.timeout(30):
                while not (await dbs[0].view()).moves:
                    await asyncio.sleep(0.01)
            async with dbs[0].use("eva") as other:  # nobody else waits
                assert other.resource.name == "db1"
            assert not moving.done()  # I40
            assert old.resource.name == "db1"
        await moving
        async with dbs[1].use("bob") as new:
            assert (new.resource.name, new.generation > old.generation) == ("db2", True)


async def test_a_move_goes_on_without_the_process_that_began_it(relevo_url: str) -> None:
    apps = [App(relevo_url, host_name=name) for name in ("a", "b")]
    dbs = [app.governance.resolver("orders", max_stale=1.0) for app in apps]
    async with apps[1], apps[1].host():
        async with apps[0], apps[0].host():
            await dbs[0].add_resource("db1")
            await dbs[0].add_resource("db2")
            await dbs[0].add_partition("eu", on="db1")
            async with dbs[1].use("bob"):
                moving = asyncio.create_task(dbs[0].move(partition="eu", to="db2"))
                async with asyncio.timeout(30):
                    while not (moves := (await dbs[1].view()).moves):
                        await asyncio.sleep(0.01)
                moving.cancel()
        resolver = apps[1].actors.proxy(ResolverCalls, "orders", type=RESOLVER_TYPE)
        await resolver.await_move("eu", moves[0].generation, 20.0)  # its host has ended, too
        assert not (await dbs[1].view()).moves
        assert (await dbs[1].resolve("bob")).resource.name == "db2"


async def test_a_move_whose_copying_process_dies_is_taken_over_or_undone(
    relevo_url: str, clock: Clock
) -> None:
    app = App(relevo_url)
    dbs = app.governance.resolver("orders", max_stale=1.0)
    copied: list[str] = []

    async def copy(partition: str, source: str, target: str) -> None:
        copied.append(f"{partition} from {source} to {target}")

    async with app, app.host():
        await dbs.add_resource("db1")
        await dbs.add_resource("db2")
        await dbs.add_partition("eu", on="db1")
        resolver = app.actors.proxy(ResolverCalls, "orders", type=RESOLVER_TYPE)
        assert await resolver.begin_move("eu", "db2", False, True)  # and it dies
        with pytest.raises(Conflict, match="being moved"):
            await dbs.move(partition="eu", to="db2")  # this one does not copy
        await dbs.move(partition="eu", to="db2", copy=copy)
        assert copied == ["eu from db1 to db2"]
        before = await dbs.resolve("bob")
        assert await resolver.begin_move("eu", "db1", False, True)  # and it dies
        await clock.advance(60)
        async with asyncio.timeout(60):
            while (await dbs.view()).moves:
                await asyncio.sleep(0.05)
        after = await dbs.resolve("bob")
        assert after.resource.name == before.resource.name == "db2"
        assert after.generation > before.generation


async def test_gates_of_a_resource_refuse_users_from_before_a_switch(relevo_url: str) -> None:
    first, second = (App(relevo_url, host_name=name) for name in ("a", "b"))
    dbs = [app.governance.resolver("orders", assign="explicit") for app in (first, second)]
    pool = first.governance.pool("db1", size=9, coordination="client")
    limit = first.governance.limit("db1", rates=[Rate(100, per=60)])
    guards = {
        "db1": first.governance.guard("db1", pool=pool, limit=limit),
        "db2": first.governance.guard("db2"),
    }
    async with first, second, first.host(), second.host():
        await dbs[0].add_resource("db1")
        await dbs[0].add_resource("db2")
        await dbs[0].attach("db1", pool, limit)
        for partition in ("p", "q"):
            await dbs[0].add_partition(partition, on="db1")
            await dbs[0].pin(f"user-{partition}", partition)
        old, other = await dbs[0].resolve("user-p"), await dbs[0].resolve("user-q")
        async with guards["db1"].enter(resolution=old):
            pass
        await dbs[1].move(partition="p", to="db2", switch=True)  # the first app has not heard of it

        async def refused() -> bool:
            try:
                async with pool.lease(resolution=old):
                    return False
            except StaleResolution:
                return True

        async with asyncio.timeout(20):
            while not await refused():
                await asyncio.sleep(0.01)
        with pytest.raises(StaleResolution, match="'orders/p' was resolved in generation"):
            await limit.acquire(resolution=old)
        async with guards["db1"].enter(resolution=other):  # of another partition
            pass
        gate = lambda resolution: guards[resolution.resource.name]  # noqa: E731
        async with dbs[0].use("user-p", gate=gate) as resolution:
            assert resolution.resource.name == "db2"
        stale: Any = OldGuard(guards["db1"], old)
        with pytest.raises(StaleResolution):  # resolved once more, and still refused
            async with dbs[0].use("user-p", gate=lambda _: stale):
                raise AssertionError("it was let in")


class OldGuard:
    """A guard that is always shown the same resolution."""

    def __init__(self, guard: Any, resolution: Any) -> None:
        self._guard, self._resolution = guard, resolution

    def enter(self, *, resolution: Any) -> Any:
        del resolution
        return self._guard.enter(resolution=self._resolution)
