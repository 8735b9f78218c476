"""What a run writes after its job was run elsewhere: nothing, whatever it was about to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.jobs.errors import JobCanceled
from relevo.pipeline import PRE_OPERATION
from relevo.testing.cluster import Cluster
from tests.jobs.office import PARCELS, until
from tests.jobs.test_hosts import SETTINGS, Building

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.jobs.service import JobHandle
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
KINDS = ("in loop", "in thread", "in process")


@pytest.fixture
async def desk(office: Office, tmp_path: Path) -> AsyncIterator[Building]:
    async with Cluster(
        office.url, "tests.jobs.programs:desk", tmp_path, settings=SETTINGS
    ) as cluster:
        yield Building(office, cluster, tmp_path / "open")


async def letters(desk: Building, job: JobHandle[Any]) -> list[int]:
    """Which attempts of a job have left a record."""
    rows = await desk.office.database.fetch(
        "select i.body from relevo.item i join relevo.container c on c.id = i.container_id"
        " where c.name = 'letter'"
    )
    found = [msgspec.json.decode(row["body"]) for row in rows]
    return sorted(one["attempt"] for one in found if one["job"] == str(job.id))


async def frozen_and_woken(desk: Building, kind: str, point: str) -> JobHandle[Any]:
    """Freeze a host inside of `ctx.service.create`, have the job done elsewhere, and wake it."""
    desk.cluster.faults.arm(point, "stop", process="a")
    a = await desk.cluster.start("a")
    job = await desk.office.jobs.submit(kind)
    await desk.cluster.faults.reached(point)
    await desk.cluster.start("b")
    await job.wait(40)
    assert (await job.get()).host_name == "b"
    a.thaw()
    if kind != "in process":
        await desk.cluster.until(lambda: bool(a.records("over")), "the run of a is over")
    await desk.until_reborn(a)
    return job


@pytest.mark.parametrize("kind", KINDS)
async def test_a_host_frozen_before_an_operation_leaves_no_second_record(
    desk: Building, kind: str
) -> None:  # A5
    job = await frozen_and_woken(desk, kind, "before_operation")
    assert await letters(desk, job) == [2]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_host_frozen_before_the_commit_leaves_no_second_record(
    desk: Building, kind: str
) -> None:  # A5
    job = await frozen_and_woken(desk, kind, "before_operation_commit")
    assert await letters(desk, job) == [2]


@pytest.mark.parametrize("own", [True, False])
async def test_an_operation_is_fenced_by_the_claim_not_by_the_attempt(
    office: Office, own: bool
) -> None:  # A5
    app = office.new_app()
    app.table("letter")
    refused: list[BaseException] = []

    @app.step("Create", "letter", stage=PRE_OPERATION)
    async def claimed_anew(ctx: Any) -> None:
        await office.database.write(
            "update relevo.job set claim = claim + 1 where host is not null returning id"
        )

    @app.job("work")
    async def work(ctx: Any) -> None:
        letter = {"id": str(ctx.id)}
        try:
            if own:
                await ctx.service.create("letter", letter)
            else:
                async with app.database.transaction() as tx:
                    await ctx.service.create("letter", letter, tx=tx)
        except JobCanceled as error:
            refused.append(error)
            raise

    await office.serve(app)
    job = await office.jobs.submit("work")
    await until(lambda: bool(refused), "the operation is refused")
    found, _ = await app.service.retrieve_multiple("letter", [("id", "=", str(job.id))])
    assert found == []


async def test_a_statement_of_a_run_is_fenced_too(office: Office) -> None:  # A5
    refused: list[BaseException] = []

    async def work(ctx: Any, stale: bool) -> None:
        if stale:
            await office.database.write(
                "update relevo.job set claim = claim + 1 where host is not null returning id"
            )
        try:
            await ctx.write("insert into relevo.job_event (event, key) values ('fence', $1)", "k")
        except JobCanceled as error:
            refused.append(error)
            raise

    await office.host({"work": work})
    await (await office.jobs.submit("work", {"stale": False})).wait(20)
    await office.jobs.submit("work", {"stale": True})
    await until(lambda: bool(refused), "the statement is refused")
    sql = "select count(*) from relevo.job_event where event = 'fence'"
    assert await office.database.fetchval(sql) == 1


async def test_jobs_that_travel_in_a_parcel_make_operations(office: Office) -> None:
    app = office.new_app()
    app.table("letter")
    together = 8

    @app.job("work")
    async def work(ctx: Any) -> None:
        await ctx.service.create("letter", {"id": str(ctx.id)})

    await office.database.write(PARCELS.format(2))
    try:
        jobs = await office.jobs.submit_many("work", [{}] * together)
        await office.serve(app)
        for job in jobs:
            await job.wait(20)
    finally:
        await office.database.write(PARCELS.format(100))
    found, _ = await app.service.retrieve_multiple("letter")
    assert {str(job.id) for job in jobs} <= {one["id"] for one in found}
