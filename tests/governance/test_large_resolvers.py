"""Resolvers with many tenants: nobody reads or writes more of them than a call is about."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo import App, Cells
from relevo.governance.actors import stored_catalogue
from relevo.governance.actors.stored_catalogue import StoredCatalogue, StoredPartition
from relevo.governance.calls.resolver_calls import RESOLVER_TYPE, ResolverCalls
from relevo.governance.core.assignments import Assignment, Partition

if TYPE_CHECKING:
    from relevo.governance import Resolver

pytestmark = pytest.mark.anyio
COUNT = 100_000
FIRST = "tenant-000000"


async def fill(app: App, dbs: Resolver) -> None:
    """Store tenants, each with a partition of its own, as the resolver does."""
    actor = app.actors.proxy(ResolverCalls, dbs.name, type=RESOLVER_TYPE)
    await dbs.add_resource("db1", "data of db1")
    await dbs.add_resource("db2")
    await dbs.add_partition(FIRST, on="db1")
    await dbs.pin(FIRST, FIRST)
    assert await app.actors.deactivate(actor)
    id_ = await app.database.fetchval(
        "select actor from relevo.actor_entry where map = 'partitions' and key = $1", FIRST
    )
    examples = {
        "partitions": StoredPartition(Partition(FIRST, "db1", 3), 1),
        "entities": Assignment(FIRST, 4, pinned=True),
    }
    for map_, example in examples.items():
        before, *middle, after = msgspec.msgpack.encode(example).split(FIRST.encode())
        assert not middle
        await app.database.write(
            "insert into relevo.actor_entry (actor, map, key, value)"
            " select $1, $2, name, $3::bytea || convert_to(name, 'utf8') || $4::bytea"
            " from (select 'tenant-' || lpad(n::text, 6, '0') as name"
            "   from generate_series(1, $5::integer) as n) as names",
            id_, map_, before, after, COUNT - 1,
        )  # fmt: skip
    value = await app.database.fetchval(
        "select value from relevo.actor_entry where map = 'resources' and key = 'db1'"
    )
    stored = msgspec.msgpack.decode(value, type=stored_catalogue.StoredResource)
    full = msgspec.structs.replace(stored, partitions=COUNT, entities=COUNT)
    await app.database.write(
        "update relevo.actor_entry set value = $1 where map = 'resources' and key = 'db1'",
        msgspec.msgpack.encode(full),
    )


class Written:
    """What transactions have written since the last look."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._since = 0

    async def bytes(self) -> int:
        """Return the bytes of entries and documents of actors."""
        row = await self._app.database.fetchrow(
            "select (select coalesce(sum(octet_length(value)), 0) from relevo.actor_entry"
            "     where xmin::text::bigint >= $1)"
            " + (select coalesce(sum(octet_length(document)), 0) from relevo.actor"
            "     where xmin::text::bigint >= $1),"
            " pg_snapshot_xmax(pg_current_snapshot())::text::bigint",
            self._since,
        )  # fmt: skip
        assert row is not None
        found, self._since = row
        return int(found)


def in_memory() -> int:
    catalogues = [one.catalogue for one in gc.get_objects() if isinstance(one, StoredCatalogue)]
    return max(len(one.partitions) + len(one.entities) for one in catalogues)


async def test_a_change_of_a_large_resolver_reads_and_writes_no_more_than_of_a_small_one(
    relevo_url: str,
) -> None:
    app = App(relevo_url)
    dbs = app.governance.resolver("tenants", assign="explicit", max_stale=60.0)
    cells = Cells(app, "tenants", max_stale=60.0)
    async with app, app.host():
        await fill(app, dbs)
        written = Written(app)
        await written.bytes()

        view = await dbs.view()
        assert (view.partitions, view.entities) == (COUNT, COUNT)
        old = await dbs.resolve("tenant-000777")
        assert old.resource.data == "data of db1"
        assert await cells.cell_of("tenant-000778") == "db1"
        assert [one.tenants for one in await cells.list()] == [COUNT, 0]
        assert await written.bytes() < 2_000  # who keeps answers

        assert await cells.place("new") == "db2"  # the roomiest
        assert await written.bytes() < 2_000
        await dbs.move(partition="tenant-000777", to="db2")
        assert await written.bytes() < 4_000
        new = await dbs.resolve("tenant-000777")
        assert (new.resource.name, new.generation > old.generation) == ("db2", True)
        await dbs.add_resource("db1", "other data of db1")
        assert await written.bytes() < 1_000  # although each tenant learns of it
        assert (await dbs.resolve("tenant-000778")).resource.data == "other data of db1"
        assert in_memory() < 20

        names = []
        async for partition in dbs.partitions():
            names.append(partition.name)
            if len(names) == 1_200:
                break
        assert names == ["new", *(f"tenant-{number:06}" for number in range(1_199))]
        assert [one.name async for one in dbs.partitions(resource="db2")] == [
            "new", "tenant-000777",
        ]  # fmt: skip
        assert await written.bytes() == 0


async def test_readers_that_were_away_learn_what_they_have_missed(
    relevo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_catalogue, "NOTICES_MAX", 3)
    apps = [App(relevo_url, host_name=name) for name in ("a", "b")]
    dbs = [app.governance.resolver("tenants", max_stale=3_600.0) for app in apps]
    async with apps[0], apps[0].host(), apps[1], apps[1].host():
        for resource in ("db1", "db2"):
            await dbs[0].add_resource(resource)
        for number in range(10):
            await dbs[0].add_partition(f"p{number}", on="db1")
        known = {name: await dbs[1].resolve(name) for name in map(str, range(50))}
        for number in range(10):
            await dbs[0].move(partition=f"p{number}", to="db2", switch=True)
        await dbs[0].merge("p8", into="p9")
        actor: Any = apps[0].actors.proxy(ResolverCalls, "tenants", type=RESOLVER_TYPE)
        assert await apps[0].actors.deactivate(actor)  # only what is stored is left
        await dbs[1].resolve("a new one")
        await dbs[1]._refresh()
        for name, before in known.items():
            after = await dbs[1].resolve(name)
            assert after.resource.name == "db2"
            assert after.partition == before.partition.replace("p8", "p9")
            assert after.generation > before.generation  # I40
