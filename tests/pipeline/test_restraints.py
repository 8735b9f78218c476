"""What keeps steps from running: depth, bypass, switching off."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from relevo.errors import Forbidden
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.pipeline import ASYNC, SYNC, StepContext
from relevo.pipeline.service import PipelinePart
from tests.pipeline.bundle import finished, jobs, make

if TYPE_CHECKING:
    from relevo import App
    from relevo.jobs import JobContext

pytestmark = pytest.mark.anyio


async def nothing(ctx: StepContext) -> None:
    """A step whose job alone counts."""


async def test_a_chain_of_causes_ends_at_depth_8_with_a_failed_job(app: App) -> None:
    @app.step("Update", "order", mode=ASYNC)
    async def again(ctx: StepContext) -> None:
        await ctx.service.update("order", "1", {"n": ctx.depth + 1})

    await app.service.create("order", {"id": "1"})
    async with app.host():
        await app.service.update("order", "1", {"n": 1})
        found = await finished(app, count=8)
    assert [one["depth"] for one in found] == [1, 2, 3, 4, 5, 6, 7, 8]  # A14
    assert len({one["correlation"] for one in found}) == 1
    assert [one["status"] for one in found] == [30] * 7 + [31]
    assert (found[-1]["error_code"], found[-1]["attempt"]) == (codes.LOOP_DETECTED, 1)
    assert (await app.service.retrieve("order", "1"))["n"] == 8  # A14: no trace of the ninth


async def test_a_job_that_swallows_the_refusal_has_failed_all_the_same(app: App) -> None:
    app.pipeline.depth_max = 1

    @app.step("Create", "order", mode=ASYNC)
    async def again(ctx: StepContext) -> None:
        with pytest.raises(Exception, match="depth 2"):
            await ctx.service.create("order", {})

    async with app.host():
        await app.service.create("order", {})
        (job,) = await finished(app)
    assert (job["status"], job["error_code"]) == (31, codes.LOOP_DETECTED)  # A14


@pytest.mark.parametrize("plain", [False, True])
async def test_a_refusal_in_another_name_cannot_be_swallowed_either(app: App, plain: bool) -> None:
    app.pipeline.depth_max = 1

    async def again(ctx: StepContext) -> None:
        with pytest.raises(Exception, match="depth 2"):
            await ctx.service.of(None).create("order", {})

    def again_in_thread(ctx: StepContext) -> None:
        with pytest.raises(Exception, match="depth 2"):
            ctx.service.of(None).create("order", {})

    app.step("Create", "order", mode=ASYNC, name="again")(again_in_thread if plain else again)
    async with app.host():
        await app.service.create("order", {})
        (job,) = await finished(app)
    assert (job["status"], job["error_code"]) == (31, codes.LOOP_DETECTED)  # A14


@pytest.mark.parametrize("completes", [False, True])
async def test_a_plain_job_cannot_swallow_a_refusal_either(app: App, completes: bool) -> None:
    app.pipeline.depth_max = 2

    @app.step("Create", "mail")
    async def deeper(ctx: StepContext) -> None:
        await ctx.service.create("order", {})

    @app.job("again")
    async def again(ctx: JobContext) -> None:
        async with ctx.transaction() if completes else nullcontext():
            await ctx.service.create("order", {"id": "1"})
            with pytest.raises(Exception, match="depth 3"):
                await ctx.service.create("mail", {})

    async with app.host():
        await app.jobs.submit("again")
        (job,) = await finished(app)
        found, _ = await app.service.retrieve_multiple("order")
    assert (job["status"], job["error_code"]) == (31, codes.LOOP_DETECTED)  # A14
    assert len(found) == (0 if completes else 1)


async def test_synchronous_steps_that_cause_each_other_are_refused_too(app: App) -> None:
    depths: list[int] = []

    @app.step("Update", "order", mode=SYNC)
    async def again(ctx: StepContext) -> None:
        depths.append(ctx.depth)
        await ctx.service.update("order", "1", {"n": ctx.depth})

    await app.service.create("order", {"id": "1"})
    with pytest.raises(Exception, match="depth 9"):
        await app.service.update("order", "1", {"n": 0})
    assert depths == [1, 2, 3, 4, 5, 6, 7, 8]  # A14
    assert "n" not in await app.service.retrieve("order", "1")


async def test_counting_begins_again_when_the_window_has_passed(app: App) -> None:
    depths: list[int] = []

    @app.step("Update", "order", mode=ASYNC)
    async def again(ctx: StepContext) -> None:
        depths.append(ctx.depth)
        if ctx.target["n"] < 3:
            await ctx.service.update("order", "1", {"n": ctx.target["n"] + 1})

    await app.service.create("order", {"id": "1"})
    await app.service.update("order", "1", {"n": 1})
    await app.database.write(
        "update relevo.job set correlation_at = correlation_at - '2 h'::interval"
    )
    async with app.host():
        await finished(app, count=3)
    assert depths == [1, 1, 2]  # A14


async def test_steps_are_left_out_for_those_who_may(app: App) -> None:
    ran: list[str] = []
    app.step("Create", "order", mode=ASYNC, name="later")(nothing)

    @app.step("Create", "order")
    async def now(ctx: StepContext) -> None:
        ran.append(ctx.target.id)

    await app.service.create("order", {"id": "1"}, bypass={"sync"})
    await app.service.create("order", {"id": "2"}, bypass={"async"})
    await app.service.create("order", {"id": "3"}, bypass={"sync", "async"})
    assert ran == ["2"]
    assert [one["regarding_id"] for one in await jobs(app)] == ["1"]
    user = app.service.of(uuid4())
    with pytest.raises(Forbidden, match="needs the right"):
        await user.create("order", {"id": "4"}, bypass={"sync"})
    allowed = app.service.of(uuid4(), rights={"pipeline.bypass"})
    await allowed.create("order", {"id": "5"}, bypass={"sync", "async"})


async def test_a_disabled_step_runs_nowhere_and_its_waiting_jobs_are_canceled(
    app: App, relevo_url: str
) -> None:
    for one in (app, host := make(relevo_url)):
        one.step("Create", "order", mode=ASYNC, name="later", serialize="record")(nothing)
        one.step("Create", "order", mode=ASYNC, name="other")(nothing)
    await app.parts.of(PipelinePart).declare()
    for key in "ab":
        await app.service.create("order", {"id": key})
    first, _, second, _ = await jobs(app)
    assert first["name"] == second["name"] == "later"
    await app.database.write(
        "select relevo.move_jobs(array[$1::uuid], array['postpone'],"
        " postpones => array[now() + '1 h'::interval])", second["id"],
    )  # fmt: skip
    assert await app.pipeline.disable("later") == 2
    assert [one["status"] for one in await jobs(app, "later")] == [states.CANCELED] * 2  # S20
    assert [one["status"] for one in await jobs(app, "other")] == [states.READY] * 2  # A32
    await app.service.create("order", {"id": "c"})
    assert len(await jobs(app, "later")) == 2
    await app.parts.of(PipelinePart).declare()  # another start of a host does not switch it on
    rows = {one["name"]: one["enabled"] for one in await app.pipeline.steps()}
    assert rows == {"later": False, "other": True}
    await app.pipeline.enable("later")
    await app.service.create("order", {"id": "d"})
    async with host.host():
        found = await finished(app, "later", 3)
    assert [one["status"] for one in found] == [32, 32, 30]


async def test_what_a_late_operation_queues_for_a_disabled_step_is_canceled_later(
    app: App,
) -> None:
    app.step("Create", "order", mode=ASYNC, name="later")(nothing)
    await app.parts.of(PipelinePart).declare()
    async with app.database.transaction() as tx:
        await app.service.create("order", {}, tx=tx)
        assert await app.pipeline.disable("later") == 0
    assert [one["status"] for one in await jobs(app)] == [states.READY]
    await app.parts.of(PipelinePart).sweep()
    assert [one["status"] for one in await jobs(app)] == [states.CANCELED]  # S20
