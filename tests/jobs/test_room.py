"""Running jobs make room for urgent ones: they yield at a checkpoint and go on later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.errors import InvalidValue
from relevo.jobs.model import Lane
from relevo.jobs.running.room import RULES
from relevo.kernel.running.preempting import RunningWork, choose_victims
from tests.jobs.office import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo import App
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio

ASK = "select relevo.ask_for_room($1, '{work}', $2::uuid[], $3::uuid[], $4::bigint[], $5)"
AGAIN = 10.0


class Drawing:
    """Jobs draw frame after frame until they are told to finish; urgent ones are quick."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.finish = asyncio.Event()

    async def slow(self, ctx: Any) -> Any:
        frame = ctx.state or 0
        self.begun.append((ctx.name, frame))
        while not self.finish.is_set():
            frame += 1
            await ctx.checkpoint(state=frame)
        return ctx.name

    async def quick(self, ctx: Any) -> Any:
        self.begun.append((ctx.name, 0))
        self.finish.set()  # so that nothing else ends before it
        return ctx.name


@pytest.fixture
def drawing() -> Drawing:
    return Drawing()


async def studio(office: Office, drawing: Drawing, slots: int) -> App:
    """A host with a lane in which jobs make room."""
    app = office.new_app()
    app.jobs.configure(Lane(name="studio", slots=slots, priority=True, preempt=True))
    app.job("slow", lane="studio")(drawing.slow)
    app.job("quick", lane="studio")(drawing.quick)
    return await office.serve(app)


async def test_a_running_job_makes_room_for_an_urgent_one_and_goes_on_from_its_state(
    office: Office, drawing: Drawing
) -> None:
    await studio(office, drawing, 1)
    film = await office.jobs.submit("slow", name="film", priority=1, lane="studio")
    await office.until_status(film, 20)
    next_film = await office.jobs.submit("slow", name="next film", priority=1, lane="studio")
    portrait = await office.jobs.submit("quick", name="portrait", priority=9, lane="studio")
    assert await portrait.wait(20) == "portrait"
    assert (await film.wait(20), await next_film.wait(20)) == ("film", "next film")
    names = [name for name, _ in drawing.begun]
    assert names == ["film", "portrait", "film", "next film"]  # the order of the lane is kept
    assert drawing.begun[2][1] > 0
    row = await office.row(film)
    assert (row["status"], row["retries"], row["crashes"], row["attempt"]) == (30, 0, 0, 2)
    assert row["details"] == '{"preempted": 1}'


async def test_a_running_job_makes_room_for_jobs_that_were_submitted_together(
    office: Office, drawing: Drawing
) -> None:
    await studio(office, drawing, 1)
    film = await office.jobs.submit("slow", name="film", priority=1, lane="studio")
    await office.until_status(film, 20)
    portraits = await office.jobs.submit_many(
        "quick", [{} for _ in range(120)], priority=9, lane="studio"
    )
    assert await office.database.fetchval("select count(*) from relevo.job_parcel") == 1
    for job in portraits:
        await job.wait(20)
    await film.wait(20)
    assert (await office.row(film))["attempt"] == 2


async def test_a_job_that_made_room_often_enough_is_left_alone(
    office: Office, drawing: Drawing
) -> None:
    """The other one yields, though its priority is higher."""
    await studio(office, drawing, 2)
    spared = await office.jobs.submit("slow", name="spared", priority=0, lane="studio")
    await office.until_status(spared, 20)
    await office.database.write(
        "update relevo.job set details = jsonb_build_object('preempted', $2::integer)"
        " where id = $1 returning id",
        spared.id, RULES.max_preemptions,
    )  # fmt: skip
    other = await office.jobs.submit("slow", name="other", priority=1, lane="studio")
    await office.until_status(other, 20)
    urgent = await office.jobs.submit("quick", name="urgent", priority=9, lane="studio")
    for job in (urgent, spared, other):
        await job.wait(20)
    assert [(await office.row(job))["attempt"] for job in (spared, other)] == [1, 2]


@pytest.fixture
async def workers(office: Office) -> AsyncIterator[tuple[Worker, Worker]]:
    connections = [await asyncpg.connect(office.url) for _ in range(2)]
    a, b = [await Worker(one).join() for one in connections]
    yield a, b
    for one in connections:
        await one.close()


async def ask(worker: Worker, waiting: Any, victim: dict[str, Any], patience: float = AGAIN) -> int:
    """How many jobs make room."""
    found = await worker.connection.fetch(
        ASK, worker.host, [waiting.id], [victim["id"]], [victim["claim"]], patience
    )
    return len(found)


async def test_one_job_makes_room_for_each_that_waits_on_whatever_host(
    office: Office, workers: tuple[Worker, Worker]
) -> None:
    a, b = workers
    for _ in range(2):
        await office.jobs.submit("work", priority=1)
    [one], [other] = await a.work(1), await b.work(1)
    waiting = await office.jobs.submit("work", priority=9)
    assert await ask(a, waiting, one) == 1
    assert await ask(b, waiting, other) == 0
    assert await ask(b, waiting, other, patience=-1.0) == 1  # nobody made room for long


async def test_a_request_that_comes_late_changes_nothing(
    office: Office, workers: tuple[Worker, Worker]
) -> None:
    """The victim has ended, or the job that waited has begun."""
    a, _ = workers
    for _ in range(2):
        await office.jobs.submit("work", priority=1)
    ended, running = await a.work(2)
    waiting = await office.jobs.submit("work", priority=9)
    await a.work(settle=[(ended, "done")])
    assert await ask(a, waiting, ended) == 0
    assert await a.work(1) != []
    assert await ask(a, waiting, running) == 0
    assert (await office.row(running["id"]))["details"] is None


async def test_a_job_that_completes_instead_has_not_made_room(
    office: Office, workers: tuple[Worker, Worker]
) -> None:
    a, _ = workers
    for _ in range(2):
        await office.jobs.submit("work", priority=1)
    one, other = await a.work(2)
    first, second = [await office.jobs.submit("work", priority=p) for p in (7, 9)]
    assert await ask(a, first, one) == 1
    assert await ask(a, second, other) == 1
    await a.work(settle=[(one, "done"), (other, "yield")])
    assert (await office.row(one["id"]))["status"] == 30
    assert "preempted" not in (await office.row(one["id"]))["details"]
    row = await office.row(other["id"])
    assert (row["status"], row["details"]) == (0, '{"preempted": 1}')
    assert [row["id"] for row in await a.work(3)] == [second.id, first.id, other["id"]]


async def test_a_lane_in_the_order_of_submission_cannot_preempt(office: Office) -> None:
    with pytest.raises(InvalidValue, match="priority=True"):
        office.new_app().jobs.configure(Lane(name="studio", preempt=True))


def test_near_priorities_and_short_runs_are_left_alone() -> None:
    running = [RunningWork("young", 0, 0.5), RunningWork("near", 5, 60.0)]
    assert choose_victims([7, 9], running, RULES) == [None, running[1]]
