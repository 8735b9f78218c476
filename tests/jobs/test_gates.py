"""Claims that stay flat, lanes, caps of owners and the order of starts (4.1, 4.4)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from relevo.jobs import states
from relevo.jobs.host import JobsPart
from relevo.jobs.model import Lane
from tests.jobs.office import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
ANA, BEN = uuid4(), uuid4()


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


async def configure(office: Office, **lane: Any) -> None:
    """Let an app that serves the lane come up, and go."""
    app = office.new_app()
    app.jobs.registry.configure(Lane(**{"name": "default", **lane}))
    async with app:
        await app.parts.of(JobsPart).declare()


def owners(rows: list[Any]) -> list[UUID]:
    return [row["owner"] for row in rows]


async def test_the_table_of_the_database_is_that_of_the_code(office: Office) -> None:  # A3
    rows = await office.database.fetch(
        "select from_status, event, to_status from relevo.job_transition"
    )
    moves = {
        (row.from_status, row.event, row.to_status)
        for row in states.sql_rows()
        if row.to_status is not None
    }
    assert {tuple(row) for row in rows} == moves


async def buffers(worker: Worker, room: int) -> int:
    """How many pages a claim touches; it is rolled back."""
    transaction = worker.connection.transaction()
    await transaction.start()
    plan = await worker.connection.fetch(
        "explain (analyze, buffers, timing off, costs off) select * from"
        " relevo.serve_jobs($1, 'w', 1, '{default}', array[$2::integer], '{default}', '{work}')",
        worker.host,
        room,
    )
    await transaction.rollback()
    text = "\n".join(line[0] for line in plan)
    return sum(map(int, re.findall(r"shared hit=(\d+)", text.split("Planning")[0])))


async def test_a_chain_of_100000_costs_the_claims_of_others_nothing(
    office: Office, worker: Worker
) -> None:  # 4.2, 4.4
    for _ in range(20):
        await office.jobs.submit("work")
    await buffers(worker, 10)  # plans are made
    alone = await buffers(worker, 10)
    await office.database.write(
        "insert into relevo.job (id, rank, created_at, modified_at, status, lane, handler, name,"
        " data, token, chain, chained) select relevo.uuid7(), 0, relevo.now(), relevo.now(), 0,"
        " 'default', 'work', 'work', '{}', 'x', 'tx', true from generate_series(1, 100000)"
        " returning 1"
    )
    await office.jobs.submit("work", token="x")  # notes the chain: its head is let through
    claimed = await worker.work(1)
    assert claimed[0]["chain"] == "tx"
    await buffers(worker, 10)
    assert await buffers(worker, 10) <= alone + 50
    # The chain itself goes on one by one.
    again = await worker.work(1, settle=[(claimed[0], "done")])
    assert again[0]["chain"] == "tx"
    assert again[0]["id"] != claimed[0]["id"]


async def test_jobs_start_in_the_order_of_their_submits(
    office: Office, worker: Worker
) -> None:  # A8
    made = [(await office.jobs.submit("work")).id for _ in range(20)]
    order = [row["id"] for _ in range(4) for row in await worker.work(5)]
    assert order == made


async def test_order_holds_across_handlers_of_a_lane(office: Office, worker: Worker) -> None:  # A8
    made = [(await office.jobs.submit(name)).id for name in ("a", "b", "b", "a", "c", "a", "b")]
    first = await worker.work(3, handlers=("a", "b", "c"))
    rest = await worker.work(10, handlers=("a", "b", "c"))
    assert [row["id"] for row in first + rest] == made


async def test_a_resumed_job_keeps_its_place(office: Office, worker: Worker) -> None:  # A8, 4.1
    first, second = await office.jobs.submit("work"), await office.jobs.submit("work")
    await first.postpone(await office.app.now() + timedelta(hours=1))
    await first.resume()
    assert [row["id"] for row in await worker.work(2)] == [first.id, second.id]


async def test_priority_orders_a_lane_that_says_so(office: Office, worker: Worker) -> None:  # 4.1
    await configure(office, priority=True)
    low = await office.jobs.submit("work", priority=0)
    usual = await office.jobs.submit("work")
    high = await office.jobs.submit("work", priority=9)
    assert [row["id"] for row in await worker.work(5)] == [high.id, usual.id, low.id]


async def test_a_minute_of_waiting_counts_as_one_step_of_priority(
    office: Office, worker: Worker, clock: Clock
) -> None:  # 4.1
    await configure(office, priority=True)
    old = await office.jobs.submit("work", priority=4)
    await clock.advance(61)
    new = await office.jobs.submit("work", priority=5)
    assert [row["id"] for row in await worker.work(5)] == [old.id, new.id]


async def test_priority_means_nothing_elsewhere(office: Office, worker: Worker) -> None:  # 4.1
    low = await office.jobs.submit("work", priority=0)
    high = await office.jobs.submit("work", priority=9)
    assert [row["id"] for row in await worker.work(5)] == [low.id, high.id]


async def test_lanes_do_not_wait_for_each_other(office: Office, worker: Worker) -> None:  # 4.1
    worker.lanes = {"work": "default", "load": "bulk"}
    for _ in range(3):
        await office.jobs.submit("work")
    bulk = await office.jobs.submit("load", lane="bulk")
    claimed = await worker.work(2, handlers=("work", "load"))
    assert sorted(row["lane"] for row in claimed) == ["bulk", "default", "default"]
    assert bulk.id in {row["id"] for row in claimed}


async def test_a_host_claims_only_what_it_has_a_handler_for(
    office: Office, worker: Worker
) -> None:  # 4.3
    await office.jobs.submit("unknown")
    known = await office.jobs.submit("work")
    assert [row["id"] for row in await worker.work(5)] == [known.id]


async def test_an_owner_has_no_more_than_the_cap_at_once(
    office: Office, worker: Worker
) -> None:  # 4.1, 4.4
    await configure(office, max_running_per_owner=2)
    for owner in (ANA, ANA, ANA, BEN):
        await office.jobs.submit("work", owner=owner)
    await office.jobs.submit("work")  # nobody's
    claimed = await worker.work(10)
    assert owners(claimed) == [ANA, ANA, BEN, None]
    ended = next(row for row in claimed if row["owner"] == ANA)
    assert await worker.work(10) == []
    await worker.work(10, settle=[(ended, "done")])
    more = list(worker.held.values())[-1:]
    assert owners(more) == [ANA]


@pytest.mark.parametrize("event", ["retry", "suspend", "fail", "return"])
async def test_whatever_ends_a_run_frees_the_place_of_its_owner(
    office: Office, worker: Worker, event: str
) -> None:  # 4.4
    await configure(office, max_running_per_owner=1)
    first = await office.jobs.submit("work", owner=ANA)
    second = await office.jobs.submit("work", owner=ANA)
    (run,) = await worker.work(10)
    claimed = await worker.work(10, settle=[(run, event)], delays=[3600.0])
    claimed += await worker.work(10)
    # What was returned is the first in line again.
    assert [row["id"] for row in claimed] == [first.id if event == "return" else second.id]


async def test_a_suspended_job_takes_no_place_of_its_owner(
    office: Office, worker: Worker, clock: Clock
) -> None:  # 4.4, S3
    await configure(office, max_running_per_owner=1)
    first = await office.jobs.submit(
        "work", owner=ANA, start=await clock.now() + timedelta(hours=1)
    )
    second = await office.jobs.submit("work", owner=ANA)
    (run,) = await worker.work(10)
    assert run["id"] == second.id
    await clock.advance(3601)
    assert await worker.work(10) == []
    claimed = await worker.work(10, settle=[(run, "done")]) + await worker.work(10)
    assert [row["id"] for row in claimed] == [first.id]


async def test_caps_and_chains_hold_together(office: Office, worker: Worker) -> None:  # A7, 4.4
    await configure(office, max_running_per_owner=1)
    for owner, token in ((ANA, "x"), (BEN, "x"), (ANA, "y"), (BEN, "y")):
        await office.jobs.submit("work", owner=owner, token=token)
    order = []
    claimed = await worker.work(10) + await worker.work(10)
    while claimed:
        assert len({row["owner"] for row in worker.held.values()}) == len(worker.held)
        assert len({row["chain"] for row in worker.held.values()}) == len(worker.held)
        order += claimed
        claimed = await worker.work(10, settle=[(worker.held[claimed[0]["id"]], "done")])
        claimed += await worker.work(10)
        claimed = claimed or list(worker.held.values())
        order = list({row["id"]: row for row in order}.values())
    assert len(order) == 4


async def test_a_raised_cap_lets_more_through(office: Office, worker: Worker) -> None:  # 4.4
    await configure(office, max_running_per_owner=1)
    for _ in range(4):
        await office.jobs.submit("work", owner=ANA)
    assert len(await worker.work(10)) == 1
    await configure(office, max_running_per_owner=3)
    assert len(await worker.work(10)) == 2
    await configure(office, max_running_per_owner=None)
    assert len(await worker.work(10)) == 1


async def test_a_cap_that_comes_later_holds_those_that_wait(
    office: Office, worker: Worker
) -> None:  # 4.4
    for _ in range(4):
        await office.jobs.submit("work", owner=ANA)
    await configure(office, max_running_per_owner=2)
    assert len(await worker.work(10)) == 2
    await configure(office, max_running_per_owner=1)
    run, other = worker.held.values()
    assert await worker.work(10, settle=[(run, "done")]) == []
    assert len(await worker.work(10, settle=[(other, "done")])) == 1


async def test_a_host_that_does_not_serve_a_lane_leaves_it_as_it_is(office: Office) -> None:  # 4.1
    await configure(office, max_running_per_owner=2, events="all")
    app = office.new_app("api")
    async with app:
        await app.parts.of(JobsPart).declare()
    row = await office.database.fetchrow("select * from relevo.job_lane where name = 'default'")
    assert row is not None
    assert (row["events"], row["owner_cap"]) == ("all", 2)
