"""Imports: parse, transform, write, parts, row errors, undo (8.3)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.dataverse.bulk import engine, import_files
from relevo.errors import InvalidValue
from relevo.jobs import states
from relevo.jobs.errors import JobFailed
from relevo.pipeline.model import PRE_OPERATION, SYNC

if TYPE_CHECKING:
    from relevo import App
    from tests.dataverse.bulk.conftest import Warehouse

pytestmark = pytest.mark.anyio

CSV = """Name,Town,Salesman
Ana,Madrid,s1@x.org
"Bob, the second",,s2@x.org
short,row
Eve,Paris,nobody@x.org
"""


async def test_a_csv_becomes_items_by_three_jobs_of_one_token(
    app: App, warehouse: Warehouse
) -> None:
    staff = app.container("staff", "/id")
    await staff.create({"id": "u1", "mail": "s1@x.org"})
    await staff.create({"id": "u2", "mail": "s2@x.org"})
    customers = app.container("customers", "/city")
    async with app.host():
        id_, job = await app.bulk.import_(
            customers, CSV,
            columns={"Name": "name", "Town": "city", "Salesman": "owner"},
            defaults={"city": "Lisbon"}, lookups={"owner": ("staff", "mail")},
        )  # fmt: skip
        assert await job.wait(60) == {"success": 2, "failure": 0}
        errors = await app.bulk.import_errors(id_)
    found = {item.body["name"]: item.body async for item in customers.query()}
    assert found["Ana"]["owner"] == "u1"
    assert (found["Bob, the second"]["city"], found["Bob, the second"]["owner"]) == ("Lisbon", "u2")
    assert set(errors) == {3, 4}
    assert "2 cells" in errors[3]
    assert "no item of 'staff'" in errors[4]
    rows = await app.database.fetch(
        "select operation_type, status, token from relevo.jobs order by sequence"
    )
    assert [row["operation_type"] for row in rows] == [3, 4, 5, 17]
    assert {row["status"] for row in rows} == {30}
    assert len({row["token"] for row in rows[:3]}) == 1


async def test_json_lines_are_imported_and_an_import_can_be_undone(
    app: App, warehouse: Warehouse
) -> None:
    things = app.container("things", "/id")
    await things.create({"id": "old", "n": 0})
    lines = '{"id": "a", "n": 1}\n\n{"id": "b", "n": 2}\n[1]\n{"id": "old", "n": 3}\n'
    async with app.host():
        id_, job = await app.bulk.import_(things, lines, format="jsonl")
        assert await job.wait(60) == {"success": 2, "failure": 1}
        assert (await job.get()).friendly == "1 of 3 rows could not be imported"
        assert set(await app.bulk.import_errors(id_)) == {3, 4}
        await things.delete("b", "b")  # somebody was faster
        undone = await app.bulk.undo_import(id_)
        assert await undone.wait(60) == {"success": 2, "failure": 0}
        again = await app.bulk.undo_import(id_)
        assert await again.wait(60) == {"success": 0, "failure": 0}
    assert [(item.id, item.body["n"]) async for item in things.query()] == [("old", 0)]


async def test_rows_of_a_table_go_through_the_pipeline_both_ways(
    app: App, warehouse: Warehouse
) -> None:
    app.table("order", warehouse.orders)
    seen: list[str] = []

    @app.step("Create", "order", stage=PRE_OPERATION, mode=SYNC)
    async def check(ctx: Any) -> None:
        if ctx.target["city"] == "Atlantis":
            raise InvalidValue("there is no Atlantis")

    @app.step("Delete", "order", stage=PRE_OPERATION, mode=SYNC)
    async def note(ctx: Any) -> None:
        seen.append(ctx.target.id)

    async with app.host():
        id_, job = await app.bulk.import_(
            warehouse.orders, "id,city,n\na,Madrid,1\nb,Atlantis,2\nc,Paris,3\n"
        )
        assert await job.wait(60) == {"success": 2, "failure": 1}
        assert "Atlantis" in (await app.bulk.import_errors(id_))[2]
        assert await (await app.bulk.undo_import(id_)).wait(60) == {"success": 2, "failure": 0}
    assert sorted(seen) == ["a", "c"]
    assert await warehouse.left() == set()


async def test_large_imports_are_written_in_parts(
    app: App, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relevo.dataverse.bulk.imports.PART_ROWS", 300)
    things = app.container("things", "/id")
    text = "id,n\n" + "".join(f"i{n},{n}\n" for n in range(1_000))
    async with app.host():
        _, job = await app.bulk.import_(things, text)
        assert await job.wait(90) == {"success": 1_000, "failure": 0}
    assert await app.database.fetchval(
        "select count(*) from relevo.jobs where operation_type = 17"
    ) == 4  # fmt: skip
    assert len([item async for item in things.query()]) == 1_000


async def test_an_import_that_replaces_is_undone_where_it_created(
    app: App, warehouse: Warehouse
) -> None:
    things = app.container("things", "/id")
    await things.create({"id": "old", "n": 0})
    lines = '{"id": "old", "n": 1}\n{"id": "new", "n": 2}\n{"id": "new", "n": 3}\n'
    async with app.host():
        id_, job = await app.bulk.import_(things, lines, format="jsonl", kind="upsert")
        assert await job.wait(60) == {"success": 3, "failure": 0}
        found = {item.id: item.body["n"] async for item in things.query()}
        assert found == {"old": 1, "new": 3}
        undone = await app.bulk.undo_import(id_)
        assert await undone.wait(60) == {"success": 1, "failure": 0}
        told = (await undone.get()).friendly
        assert told == "2 rows replaced existing items, which are kept"
    assert [(item.id, item.body["n"]) async for item in things.query()] == [("old", 1)]


@pytest.mark.parametrize(
    ("content", "told"), [(b"\xff\xfe\x00", "not utf-8"), (b"a,a\n", "repeated")]
)
async def test_a_file_that_cannot_be_read_fails_the_whole_import(
    app: App, warehouse: Warehouse, content: bytes, told: str
) -> None:
    things = app.container("things", "/id")
    async with app.host():
        _, job = await app.bulk.import_(things, content)
        with pytest.raises(JobFailed, match=told):
            await job.wait(60)
        rows = await app.database.fetch("select status, friendly from relevo.jobs")
    assert [row["status"] for row in rows] == [states.FAILED] * 3
    assert all(told in row["friendly"] for row in rows)


async def test_an_import_that_is_canceled_at_a_step_writes_nothing(
    app: App, warehouse: Warehouse
) -> None:
    things = app.container("things", "/id")
    _, job = await app.bulk.import_(things, "id\n1\n", name="Goods")
    first = await app.database.fetchval("select id from relevo.jobs order by sequence limit 1")
    await app.jobs.handle(first).cancel()
    async with app.host():
        with pytest.raises(JobFailed, match="Goods: parse was canceled"):
            await job.wait(60)
    assert [item.id async for item in things.query()] == []


class Stop:
    """Holds children behind their first chunk until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken, self.go_on = asyncio.Event(), asyncio.Event()
        ordinary, stop = engine.BulkRun._take, self

        async def take(self: Any, *args: Any) -> Any:
            at = await ordinary(self, *args)
            if self._part is not None:
                stop.taken.set()
                await stop.go_on.wait()
            return at

        monkeypatch.setattr(engine.BulkRun, "_take", take)


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:
    monkeypatch.setattr("relevo.dataverse.bulk.imports.PART_ROWS", 500)
    return Stop(monkeypatch)


LARGE = "id,n\n" + "".join(f"i{n:05},{n}\n" for n in range(1_200))


async def written(app: App) -> int:
    return len([item async for item in app.container("things", "/id").query()])


async def test_a_running_import_is_in_progress_and_says_how_far_it_is(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    async with app.host():
        _, job = await app.bulk.import_(app.container("things", "/id"), LARGE)
        await asyncio.wait_for(stop.taken.wait(), 60)
        found = await job.get()
        assert (found.status_code, found.completed_at) == (states.IN_PROGRESS, None)
        stop.go_on.set()
        assert await job.wait(60) == {"success": 1_200, "failure": 0}
        children = await app.jobs.query().where(type=17).order_by("sequence")
    assert [one.name for one in children] == [f"Import: write: part {n}" for n in (1, 2, 3)]
    assert [one.result["success"] for one in children] == [500, 500, 200]
    assert await app.bulk.counts(job.id) == (1_200, 0)


async def test_a_canceled_import_ends_after_its_child_and_writes_no_further(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    async with app.host():
        _, job = await app.bulk.import_(app.container("things", "/id"), LARGE)
        await asyncio.wait_for(stop.taken.wait(), 60)
        await job.cancel()
        (child,) = await app.jobs.query().where(type=17)
        part = app.jobs.handle(child.id)
        await warehouse.until(part, lambda one: one.status_code == states.CANCELING)
        stop.go_on.set()
        found = await warehouse.until(job, lambda one: one.status_code == states.CANCELED)
        ended = await part.get()
        assert ended.status_code == states.CANCELED
        assert ended.completed_at is not None
        assert found.completed_at is not None
        assert ended.completed_at <= found.completed_at
        assert await app.jobs.query().where(type=17).count() == 1
        # What was committed with the chunk stays, and can be undone.
        assert await written(app) == 200
        assert await app.bulk.counts(job.id) == (200, 0)


async def test_a_canceled_import_writes_only_the_rows_it_has_begun_with(
    app: App, warehouse: Warehouse
) -> None:
    waits = """select count(*) from pg_stat_activity
               where datname = current_database() and wait_event_type = 'Lock'"""
    await app.container("things", "/id").describe()
    async with app.host():
        async with app.database.transaction() as tx:  # holds the first row of the import
            await tx.execute("""select relevo.put_item('things', '{"id": "i00000"}')""")
            _, job = await app.bulk.import_(app.container("things", "/id"), LARGE)
            async with asyncio.timeout(60):
                while not await app.database.fetchval(waits):
                    await asyncio.sleep(0.01)
            assert (await job.get()).status_code == states.IN_PROGRESS
            await job.cancel()
        await warehouse.until(job, lambda one: one.status_code == states.CANCELED)
        for child in await app.jobs.query().where(type=17):
            part = app.jobs.handle(child.id)
            await warehouse.until(part, lambda one: one.completed_at is not None)
    assert await written(app) < 1_200


async def test_a_paused_import_holds_its_child_and_a_resumed_one_lets_it_go(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    async with app.host():
        _, job = await app.bulk.import_(app.container("things", "/id"), LARGE)
        await asyncio.wait_for(stop.taken.wait(), 60)
        await job.pause()
        await warehouse.until(job, lambda one: one.status_code == states.WAITING)
        stop.go_on.set()
        (child,) = await app.jobs.query().where(type=17)
        part = app.jobs.handle(child.id)
        await warehouse.until(part, lambda one: one.status_code == states.WAITING)
        assert await written(app) == 200
        await job.resume()
        assert await job.wait(60) == {"success": 1_200, "failure": 0}
    assert await written(app) == 1_200


async def test_children_of_an_import_end_whose_parent_is_deleted_while_it_is_paused(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    async with app.host():
        _, job = await app.bulk.import_(app.container("things", "/id"), LARGE)
        await asyncio.wait_for(stop.taken.wait(), 60)
        await job.pause()
        await warehouse.until(job, lambda one: one.status_code == states.WAITING)
        stop.go_on.set()
        (child,) = await app.jobs.query().where(type=17)
        part = app.jobs.handle(child.id)
        await warehouse.until(part, lambda one: one.status_code == states.WAITING)
        await app.jobs.command(job.id, "delete")
        await warehouse.until(part, lambda one: one.status_code == states.CANCELED)
    assert await written(app) == 200


def test_rows_of_a_file_are_numbered_and_quoted_cells_may_have_line_ends() -> None:
    found = list(
        import_files.rows(b'\xef\xbb\xbfa;b\r\n1;"x\r\ny"\r\n\r\n2;3;4\r\n', "csv", "utf-8", ";")
    )
    assert [(one.number, one.raw) for one in found] == [(1, {"a": "1", "b": "x\r\ny"}), (2, None)]
    with pytest.raises(InvalidValue, match="repeated column names"):
        list(import_files.rows(b"a,a\n1,2\n", "csv", "utf-8", ","))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kind": "delete"}, "create or upsert"),
        ({"format": "xls"}, "format"),
        ({"encoding": "klingon"}, "encoding 'klingon'"),
        ({"encoding": "rot13"}, "encoding 'rot13'"),
        ({"delimiter": ""}, "delimiter"),
        ({"delimiter": "||"}, "delimiter"),
        ({"delimiter": '"'}, "delimiter"),
        ({"columns": ["a"]}, "columns"),
        ({"columns": {"a": 1}}, "columns"),
        ({"defaults": {"a": object()}}, "object"),
        ({"defaults": ["a"]}, "defaults"),
        ({"defaults": {"a": "\0"}}, "null character"),
        ({"lookups": {"a": ("staff", 1)}}, "lookups"),
    ],
)
async def test_options_of_an_import_are_checked_at_once(
    app: App, warehouse: Warehouse, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidValue, match=told):
        await app.bulk.import_(warehouse.orders, "a\n1\n", **options)
    assert await app.jobs.query().count() == 0
