"""Cells: each tenant in one database, and moves to another one during which nobody uses it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo import App, Cells, settings
from relevo.errors import Conflict, InUse, Moving, NotFound, SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio


@pytest.fixture
def urls(relevo_databases: TestDatabases) -> Iterator[list[str]]:
    made = [relevo_databases.create() for _ in range(2)]
    yield made
    for url in made:
        relevo_databases.drop(url)


@pytest.fixture
async def app(relevo_url: str, tmp_path: Path) -> AsyncIterator[App]:
    chosen = settings.load({"database_url": relevo_url, "home": tmp_path / "home"}, environ={})
    app = App(settings=chosen)
    app.governance.resolver("another")  # so that hosts serve the kit
    async with app, app.host():
        yield app


async def write(cells: Cells[App], tenant: str, number: int) -> None:
    async with cells.use(tenant) as cell:
        notes = cell.container("notes", "/tenant")
        await notes.create({"id": f"{tenant}-{number}", "tenant": tenant})


async def notes_of(cell: App, tenant: str) -> set[str]:
    notes = cell.container("notes", "/tenant")
    return {item.id async for item in notes.query(partition_key=tenant)}


async def copy(tenant: str, source: App, target: App) -> None:
    notes = target.container("notes", "/tenant")
    async for item in source.container("notes", "/tenant").query(partition_key=tenant):
        await notes.upsert({"id": item.id, "tenant": tenant})


async def test_tenants_stay_in_their_cells_until_they_are_moved(app: App, urls: list[str]) -> None:
    cells = Cells(app, "tenants", max_stale=1.0)
    await cells.add("one", urls[0])
    await cells.add("two", urls[1])
    for number in range(3):
        for tenant in ("acme", "globex"):
            await write(cells, tenant, number)
    where = {tenant: await cells.cell_of(tenant) for tenant in ("acme", "globex")}
    assert set(where.values()) == {"one", "two"}, "new tenants go where there is room"
    assert [one.tenants for one in await cells.list()] == [1, 1]

    target = "two" if where["acme"] == "one" else "one"
    using, overlaps, stop = set[str](), list[str](), asyncio.Event()

    async def use_it() -> None:
        number = 100
        while not stop.is_set():
            async with cells.use("acme") as cell:
                address = str(cell.settings.database_url)
                using.add(address)
                overlaps.extend(using - {address})
                await cell.container("notes", "/tenant").create(
                    {"id": f"acme-{number}", "tenant": "acme"}
                )
                number += 1
                using.discard(address)
            await asyncio.sleep(0)

    async def checked_copy(tenant: str, source: App, target: App) -> None:
        overlaps.extend(using)
        await copy(tenant, source, target)
        overlaps.extend(using)

    user = asyncio.create_task(use_it())
    await cells.move("acme", to=target, copy=checked_copy)
    stop.set()
    await user
    assert overlaps == []  # I40
    assert await cells.cell_of("acme") == target
    async with cells.use("acme") as cell:
        found = await notes_of(cell, "acme")
    assert {"acme-0", "acme-1", "acme-2", "acme-100"} <= found
    async with cells.use("globex") as cell:
        assert await notes_of(cell, "globex") == {f"globex-{number}" for number in range(3)}


async def test_a_copy_that_fails_leaves_a_tenant_where_it_was(app: App, urls: list[str]) -> None:
    cells = Cells(app, "tenants", max_stale=1.0, max_pause=0.2)
    await cells.add("one", urls[0])
    await write(cells, "acme", 1)
    await cells.add("two", urls[1])

    async def fail(*_: object) -> None:
        with pytest.raises(Moving):
            await write(cells, "acme", 2)
        raise OSError("the copy failed")

    with pytest.raises(OSError, match="the copy failed"):
        await cells.move("acme", to="two", copy=fail)
    await write(cells, "acme", 3)
    async with cells.use("acme") as cell:
        assert await notes_of(cell, "acme") == {"acme-1", "acme-3"}
    assert await cells.cell_of("acme") == "one"


async def test_a_cell_is_drained_and_removed(app: App, urls: list[str]) -> None:
    cells = Cells(app, "tenants", max_stale=1.0)
    await cells.add("one", urls[0])
    for tenant in ("a", "b", "c"):
        await write(cells, tenant, 1)
    with pytest.raises(Conflict, match="no cell that takes tenants"):
        await cells.drain("one", copy=copy)
    await cells.add("two", urls[1])
    assert await cells.drain("one") == 3
    await write(cells, "d", 1)
    assert await cells.cell_of("d") == "two"
    with pytest.raises(InUse):
        await cells.remove("one")
    assert await cells.drain("one", copy=copy) == 0
    for tenant in ("a", "b", "c", "d"):
        async with cells.use(tenant) as cell:
            assert await notes_of(cell, tenant) == {f"{tenant}-1"}
    await cells.remove("one")
    assert [(one.name, one.tenants) for one in await cells.list()] == [("two", 4)]


async def test_processes_that_place_a_tenant_at_the_same_time_agree(
    app: App, urls: list[str], relevo_url: str
) -> None:
    other = App(settings=settings.load(
        {"database_url": relevo_url, "home": app.settings.home}, environ={}
    ))  # fmt: skip
    catalogues = [Cells(app, "tenants", max_stale=1.0), Cells(other, "tenants", max_stale=1.0)]
    async with other:
        await catalogues[0].add("one", urls[0])
        await catalogues[1].add("two", urls[1])
        for number in range(10):
            placed = await asyncio.gather(*(
                cells.place(f"tenant-{number}") for cells in catalogues for _ in range(3)
            ))  # fmt: skip
            assert len(set(placed)) == 1
        with pytest.raises(Conflict, match="move it to"):
            await catalogues[0].place("tenant-0", on="one")
            await catalogues[0].place("tenant-0", on="two")
    with pytest.raises(NotFound):
        await catalogues[0].move("nobody", to="one", copy=copy)


async def test_addresses_are_stored_encrypted(
    app: App, urls: list[str], relevo_url: str, tmp_path: Path
) -> None:
    cells = Cells(app, "tenants", max_stale=1.0)
    await cells.add("one", urls[0])
    await cells.add("one", urls[0])
    rows = await app.database.fetch("select document from relevo.actor where document is not null")
    assert rows
    assert all(urls[0].encode() not in row["document"] for row in rows)
    app.vault._key = None
    (app.settings.home / "secret.key").rename(tmp_path / "lost.key")
    with pytest.raises(SettingsError, match="the same secret_key"):
        async with cells.use("acme"):
            pass
