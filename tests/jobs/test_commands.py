"""Every command in every state, refusals, platform jobs, versions and groups (3.3, 3.4)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest

from relevo.errors import InvalidValue, NotFound
from relevo.jobs import states
from relevo.jobs.commands import Ask, CommandScope, JobCommands
from relevo.jobs.core import codes
from relevo.jobs.core.patches import PatchCommand
from relevo.jobs.errors import JobMissing, JobRefused, PlatformJob, StaleJob
from relevo.jobs.service import JobHandle
from tests.jobs.office import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
STATUSES = (0, 10, 20, 21, 22, 30, 31, 32)
Handle = JobHandle[Any]


class Desk:
    """Brings jobs into a status, and gives commands."""

    def __init__(self, office: Office, worker: Worker) -> None:
        self.office = office
        self.worker = worker
        self.made = 0

    async def job_in(self, status: int, **options: Any) -> Handle:
        """A job in a status; `system` jobs get there as the service moves them."""
        self.made += 1
        name = f"work {self.made}"  # so that this one is claimed, whatever else is ready
        if status == 10:
            options["start"] = await self.office.app.now() + timedelta(hours=1)
        job = await self.office.jobs.submit(name, **options)
        if status in (0, 10):
            return job
        (row,) = await self.worker.work(1, [name])
        if status in (21, 22, 32):
            await self.move(job, "pause" if status == 21 else "cancel")
        ends = {30: "done", 31: "fail", 32: "stop"}
        if status >= 30:
            await self.worker.work(0, settle=[(row, ends[status])])
        assert (await self.office.row(job))["status"] == status
        return job

    async def move(self, job: Handle, event: str) -> None:
        await self.office.database.write(
            "select relevo.move_jobs(array[$1::uuid], array[$2::text])", job.id, event
        )

    async def give(self, job: Handle, command: str, **options: Any) -> int | str:
        """The status then, or the code of the refusal."""
        if command == "postpone":
            options["until"] = await self.office.app.now() + timedelta(days=1)
        try:
            return await self.office.jobs.command(job.id, command, **options)
        except (JobRefused, PlatformJob) as error:
            return codes.shown(error.error_code)


@pytest.fixture
async def desk(office: Office) -> AsyncIterator[Desk]:
    connection = await asyncpg.connect(office.url)
    yield Desk(office, await Worker(connection).join())
    await connection.close()


TABLE: dict[str, tuple[int | str, ...]] = {
    # Ready, Suspended, In Progress, Pausing, Canceling, Succeeded, Failed, Canceled
    "cancel": (32, 32, 22, 22, 22, *["0x80044165"] * 3),
    "pause": ("0x80044167", "0x80044167", 21, 21, "0x80044162", *["0x80044162"] * 3),
    "resume": ("0x80044166", 0, "0x80044166", 20, *["0x80044166"] * 4),
    "postpone": (10, 10, 21, 21, "0x80044162", *["0x80044162"] * 3),
    "rerun": (*["0x80044162"] * 6, 0, 0),
    "delete": (-1, -1, 20, 21, 22, -1, -1, -1),
}


@pytest.mark.parametrize("command", TABLE)
async def test_every_command_in_every_status(desk: Desk, command: str) -> None:  # A2, A3, A4, A10
    for status, expected in zip(STATUSES, TABLE[command], strict=True):
        job = await desk.job_in(status)
        before = await desk.office.row(job)
        assert await desk.give(job, command) == expected, (status, command)
        if expected == -1:
            with pytest.raises(JobMissing):
                await job.get()
            continue
        after = await desk.office.row(job)
        assert after["status"] == (expected if isinstance(expected, int) else status)
        if isinstance(expected, str):
            assert after == before  # refused: nothing of it is left
        if command == "postpone" and isinstance(expected, int):
            assert after["postpone_until"] > before["modified_at"] + timedelta(hours=20)


@pytest.mark.parametrize(("command", "status"), [("cancel", 22), ("pause", 21)])
async def test_a_command_that_already_holds_changes_nothing(
    desk: Desk, command: str, status: int
) -> None:  # 3.3
    job = await desk.job_in(status)
    before = await desk.office.row(job)
    assert await desk.give(job, command) == status
    assert await desk.office.row(job) == before


async def test_resume_clears_the_time_and_the_wait(desk: Desk) -> None:  # 3.3
    job = await desk.job_in(10)
    await desk.office.database.write(
        "update relevo.job set waiting_event = true where id = $1 returning 1", job.id
    )
    await job.resume()
    row = await desk.office.row(job)
    assert (row["status"], row["postpone_until"], row["waiting_event"]) == (0, None, False)


async def test_a_postponed_run_waits_once_it_yields_and_resume_takes_it_back(desk: Desk) -> None:
    job = await desk.job_in(20)  # A9, A10
    until = await desk.office.app.now() + timedelta(hours=1)
    await job.postpone(until)
    await job.resume()
    assert (await desk.office.row(job))["postpone_until"] is None
    await job.postpone(until)
    (held,) = desk.worker.held.values()
    await desk.worker.work(5, settle=[(held, "yield")])
    row = await desk.office.row(job)
    assert (row["status"], row["postpone_until"], row["host"]) == (10, until, None)
    assert await desk.worker.work(5, ["work 1"]) == []  # not before its time


async def test_an_instant_that_is_past_makes_ready_at_the_next_tick(desk: Desk) -> None:  # 3.3
    job = await desk.job_in(0)
    await job.postpone(await desk.office.app.now() - timedelta(days=1))
    assert [row["id"] for row in await desk.worker.work(1, ["work 1"])] == [job.id]


@pytest.mark.parametrize("status", STATUSES)
async def test_jobs_of_the_platform_take_no_orders(desk: Desk, status: int) -> None:  # A12, 3.4
    for command, code in (
        ("cancel", "0x80044F00"), ("pause", "0x80044F01"), ("resume", "0x80044F01"),
        ("delete", "0x80044F02"),
    ):  # fmt: skip
        job = await desk.job_in(status, system=True)
        if command == "delete" and status >= 30:
            assert await desk.give(job, command) == -1
        else:
            assert await desk.give(job, command) == code
            assert (await desk.office.row(job))["status"] == status
    if status in (0, 10, 20, 21):
        job = await desk.job_in(status, system=True)
        assert await desk.give(job, "postpone") == TABLE["postpone"][STATUSES.index(status)]


async def test_the_type_alone_makes_a_job_one_of_the_platform(desk: Desk) -> None:  # A12, 4.3
    job = await desk.office.jobs.submit("work", options={"operation_type": 14})
    assert await desk.give(job, "cancel") == "0x80044F00"


async def test_a_command_for_a_version_that_is_past_is_refused(desk: Desk) -> None:  # 3.3
    for status in (0, 30):
        job = await desk.job_in(status)
        version = (await job.get()).version
        with pytest.raises(StaleJob) as caught:
            await desk.office.jobs.command(job.id, "delete", version=version - 1)
        assert codes.shown(caught.value.error_code) == "0x80060882"
        await desk.office.jobs.command(job.id, "delete", version=version)
        with pytest.raises(JobMissing):
            await job.get()


async def test_of_two_who_know_the_same_version_one_is_refused(desk: Desk) -> None:  # 3.3
    job = await desk.job_in(10)
    version = (await job.get()).version
    until = await desk.office.app.now()
    answers = await asyncio.gather(
        desk.office.jobs.command(job.id, "resume", version=version),
        desk.office.jobs.command(job.id, "postpone", until=until, version=version),
        return_exceptions=True,
    )
    assert [type(one) for one in answers] == [int, StaleJob]


async def test_jobs_out_of_scope_are_as_missing(desk: Desk) -> None:  # A27
    for status in (0, 30):
        job = await desk.job_in(status, owner=uuid4())
        for owners in (frozenset({uuid4()}), frozenset[Any]()):
            with pytest.raises(NotFound) as caught:
                await desk.office.jobs.command(job.id, "cancel", scope=CommandScope(owners))
            assert str(caught.value) == f"there is no job {job.id}"


async def test_what_is_no_command_is_refused(desk: Desk) -> None:  # A3
    job = await desk.job_in(20)
    for word in ("done", "lost", "claim", "", "Cancel"):
        with pytest.raises(InvalidValue):
            await desk.office.jobs.command(job.id, word)
    with pytest.raises(InvalidValue):
        await desk.office.jobs.command(job.id, "postpone")
    assert (await desk.office.row(job))["status"] == 20


async def test_a_deleted_run_vanishes_and_is_asked_to_stop(desk: Desk) -> None:  # A31
    job = await desk.job_in(20)
    await job.delete()
    with pytest.raises(JobMissing):
        await job.get()
    with pytest.raises(JobMissing):
        await job.cancel()
    asked = await desk.worker.connection.fetch(
        "select * from relevo.serve_jobs($1, 'w', 9, '{}', '{}', '{}', '{}')", desk.worker.host
    )
    assert [(row["kind"], row["id"], row["status"]) for row in asked] == [
        ("asked", job.id, states.REMOVED)
    ]
    (held,) = desk.worker.held.values()
    await desk.worker.work(0, settle=[(held, "done")])
    assert await desk.office.database.fetchval("select count(*) from relevo.job") == 0
    assert await desk.office.database.fetchval("select count(*) from relevo.job_history") == 0


async def test_a_deleted_run_whose_host_ends_is_gone(desk: Desk) -> None:  # A31
    job = await desk.job_in(20)
    await job.delete()
    await desk.worker.end()
    assert await desk.office.database.fetchval("select relevo.recover_jobs(10, 3)") == 1
    assert await desk.office.database.fetchval("select count(*) from relevo.job") == 0


async def test_strict_settings_refuse_as_upstream_does(desk: Desk) -> None:  # R2, R4
    app = desk.office.new_app(jobs_strict_states=True, jobs_strict_delete=True)
    async with app:
        for status in STATUSES:
            job = await desk.job_in(status)
            if status < 30:
                with pytest.raises(JobRefused) as caught:
                    await app.jobs.command(job.id, "delete")
                assert codes.shown(caught.value.error_code) == "0x8004416A"
            if status == 10:
                with pytest.raises(JobRefused) as caught:
                    await app.jobs.command(job.id, "postpone", until=await app.now())
                assert codes.shown(caught.value.error_code) == "0x80044162"


async def test_many_commands_at_once_each_have_their_own_answer(desk: Desk) -> None:  # 3.3
    jobs = [await desk.job_in(status) for status in STATUSES * 3]
    answers = await asyncio.gather(*(desk.give(job, "cancel") for job in jobs))
    assert answers == [*TABLE["cancel"]] * 3


async def test_a_command_whose_row_is_being_written_waits_and_holds_up_no_other(
    desk: Desk,
) -> None:  # 3.3
    busy, free, later = [await desk.job_in(0) for _ in range(3)]
    other = await asyncpg.connect(desk.office.url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute("update relevo.job set progress = 0.5 where id = $1", busy.id)
    commands = JobCommands(desk.office.database, desk.office.app.jobs.wakeups, strict=frozenset())
    first = asyncio.ensure_future(commands.give(Ask(id=busy.id, command="cancel")))
    second = asyncio.ensure_future(commands.give(Ask(id=free.id, command="cancel")))
    await desk.office.until_status(free, 32)
    assert await commands.give(Ask(id=later.id, command="cancel")) == 32
    assert not first.done()
    await transaction.commit()
    await other.close()
    assert list(await asyncio.gather(first, second)) == [32, 32]
    await commands.close()


async def test_all_or_none(desk: Desk) -> None:  # A13
    ready, over = await desk.job_in(0), await desk.job_in(30)
    asks = [Ask(id=one.id, command="cancel") for one in (ready, over)]
    with pytest.raises(JobRefused):
        await desk.office.jobs.commands.give_all(asks)
    assert await desk.office.status(ready) == 0
    await desk.office.jobs.commands.give_all(asks[:1])
    assert await desk.office.status(ready) == 32


@pytest.mark.parametrize("status", STATUSES)
async def test_the_pattern_of_what_does_not_recur_cannot_be_changed(
    desk: Desk, status: int
) -> None:  # 7.1, A13
    job = await desk.job_in(status)
    ask = Ask(id=job.id, command="", change=PatchCommand(pattern="FREQ=DAILY"))
    with pytest.raises(JobRefused) as caught:
        await desk.office.jobs.commands.give(ask)
    assert codes.shown(caught.value.error_code) == "0x80044168"
    assert await desk.office.status(job) == status


async def test_commands_say_who_gave_them(desk: Desk) -> None:  # section 2
    user = uuid4()
    job = await desk.job_in(10)
    await desk.office.jobs.command(job.id, "cancel", user=user)
    assert (await desk.office.row(job))["modified_by"] == user
