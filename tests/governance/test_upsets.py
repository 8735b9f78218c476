"""The kit while its hosts are killed, frozen and cut off, in processes of their own."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from itertools import accumulate, cycle, pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

from relevo import App
from relevo.testing.cluster import Cluster
from tests.governance import programs
from tests.kernel.postgres.servers import pgbouncer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from relevo.governance import Resolver
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio
HOSTS = ("mover", "a", "b")
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 1.0, "pool_size": 8}
KINDS = ("use", "copy", "permit", "token")
BODIES = """
    select id, kind, subject, place, extract(epoch from began)::float8 as began,
      coalesce(extract(epoch from at)::float8, 'infinity') as ended
    from public.notes left join public.ends using (host)
"""
KEYS = 4


class Body(Struct, frozen=True):
    """A use of something, from its note in the store until its end, or that of its host."""

    kind: str
    subject: str
    place: str
    began: float
    ended: float


class Upsets:
    """Hosts that use the kit, and what befalls them."""

    def __init__(self, database: Database, cluster: Cluster) -> None:
        self._database = database
        self._cluster = cluster

    async def start(self) -> None:
        for name in HOSTS:
            await self._cluster.start(name, peer=True)

    async def befall(self, what: str, name: str) -> None:
        node = self._cluster.nodes[name]
        match what:
            case "kill":
                node.kill()
                await self._cluster.start(name, peer=True)
            case "freeze":
                node.freeze()
                await self._until_ended(name)
                node.thaw()
            case "partition":
                node.partition()
                await self._until_ended(name)
                node.heal()
            case "cut":  # other hosts do not reach it, the database does
                node.peer.cut()
                await self._until_noted(30)
                node.peer.heal()
        await self.until_used()

    async def until_used(self) -> None:
        """Wait until all hosts have used the kit, and all of the kit has been used, from now on."""
        since = await self._noted()

        async def used() -> bool:
            row = await self._database.fetchrow(
                "select count(distinct kind), count(distinct name) from public.notes"
                " join relevo.host on incarnation = host where id > $1",
                since,
            )
            return row is not None and tuple(row) == (len(KINDS), len(HOSTS))

        await self._cluster.until(used, "the kit is used")

    async def _until_noted(self, uses: int) -> None:
        since = await self._noted()

        async def noted() -> bool:
            return await self._noted() >= since + uses

        await self._cluster.until(noted, "some use the kit")

    async def _noted(self) -> int:
        found: int = await self._database.fetchval("select coalesce(max(id), 0) from public.notes")
        return found

    async def bodies(self) -> list[Body]:
        """Return what hosts have done, in the order in which it began."""
        left = {one["number"]: one["time"] for one in self._cluster.records("left")}
        found = [
            Body(
                row["kind"], row["subject"], row["place"], row["began"],
                min(row["ended"], left.get(row["id"], row["ended"])),
            )
            for row in await self._database.fetch(BODIES)
        ]  # fmt: skip
        # A note that was on its way when its host was cut off may arrive after the host's end.
        return sorted((one for one in found if one.began < one.ended), key=lambda one: one.began)

    async def _until_ended(self, name: str) -> None:
        async def ended() -> bool:
            living = await self._database.fetchval(
                "select count(*) from relevo.host where name = $1 and ended_at is null", name
            )
            return bool(living == 0)

        await self._cluster.until(ended, f"the end of {name} is noted")


async def prepare(users: Resolver) -> None:
    for resource in programs.RESOURCES:
        await users.add_resource(resource)
    for partition in programs.PARTITIONS:
        await users.add_partition(partition, on="db1")


def check_moves(bodies: Sequence[Body]) -> None:
    """Uses of the two resources of a partition never overlap, nor do uses and copies."""
    assert {one.place for one in bodies if one.kind == "use"} == set(programs.RESOURCES)
    for subject in programs.PARTITIONS:
        of_it = [one for one in bodies if one.subject == subject]
        for index, one in enumerate(of_it):
            for later in of_it[index + 1 :]:
                if later.began < one.ended:
                    assert one.place == later.place, (one, later)  # I40


def check_pool(bodies: Sequence[Body]) -> None:
    permits = [one for one in bodies if one.kind == "permit"]
    steps = [(one.began, 1) for one in permits] + [(one.ended, -1) for one in permits]
    running = list(accumulate(change for _, change in sorted(steps)))
    assert 0 < max(running) <= programs.SIZE  # I44


def check_limit(bodies: Sequence[Body]) -> None:
    """No more than the rate admits from the first to the last, each second and its part."""
    began = [one.began for one in bodies if one.kind == "token"]
    allowed = programs.RATE.amount * (began[-1] - began[0] + 2 * programs.RATE.per)
    assert 0 < len(began) <= allowed  # I46


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("upsets", "pooled"),
    [
        (2, False),
        pytest.param(60, False, marks=pytest.mark.soak),
        pytest.param(60, True, marks=pytest.mark.soak),
    ],
)
async def test_nothing_overlaps_while_hosts_are_killed_frozen_and_cut_off(
    database: Database, relevo_url: str, tmp_path: Path, upsets: int, pooled: bool
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    for statement in (*programs.TABLES, programs.NOTES):
        await database.write(statement)
    app = App(relevo_url)
    kinds = cycle(dice.sample(("kill", "freeze", "partition", "cut"), 4))
    with ExitStack() as stack:
        url = stack.enter_context(pgbouncer(relevo_url)) if pooled else relevo_url
        async with Cluster(
            url, "tests.governance.programs:users", tmp_path, settings=QUICK
        ) as all_:
            happening = Upsets(database, all_)
            await happening.start()
            async with app:
                await prepare(app.governance.resolver("users", **programs.RULES))
            await happening.until_used()
            for what in (next(kinds) for _ in range(upsets)):
                await happening.befall(what, dice.choice(HOSTS))
            bodies = await happening.bodies()
    check_moves(bodies)
    check_pool(bodies)
    check_limit(bodies)


async def test_waiting_keys_are_served_in_turns_also_after_the_pools_host_was_killed(
    relevo_url: str, tmp_path: Path
) -> None:
    app, grants = App(relevo_url), list[str]()
    pool = app.governance.pool("narrow", size=1)
    counted = asyncio.Condition()

    async def borrow(key: str) -> None:
        while True:
            async with pool.lease(key, timeout=60):
                grants.append(key)
                async with counted:
                    counted.notify_all()

    async def until_each_has(more: int) -> None:
        since = len(grants)
        async with asyncio.timeout(60), counted:
            await counted.wait_for(lambda: all(grants[since:].count(key) >= more for key in keys))

    keys = [f"key-{number}" for number in range(KEYS)]
    async with Cluster(
        relevo_url, "tests.governance.programs:serving", tmp_path, settings=QUICK
    ) as cluster, app:  # fmt: skip
        for name in ("a", "b"):
            await cluster.start(name)
        borrowers = [asyncio.create_task(borrow(key)) for key in keys for _ in range(3)]
        await until_each_has(5)
        killed_at = len(grants)
        owner = await app.actors.owner(pool.proxy)
        assert owner is not None
        cluster.nodes[owner].kill()
        await until_each_has(5)
        for one in borrowers:
            one.cancel()
        await asyncio.gather(*borrowers, return_exceptions=True)
    before, after = grants[:killed_at], grants[killed_at:]
    back = max(after.index(key) for key in keys)  # from here on all wait again
    for served in (before[before.index(keys[-1]) :], after[back:]):
        for key in keys:
            places = [index for index, one in enumerate(served) if one == key]
            assert all(next_ - at <= 2 * KEYS for at, next_ in pairwise(places))  # I45
