"""Asynchronous steps: their jobs, what these carry, order, exactly-once effects, switching off."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pytest

from relevo.errors import Conflict, Forbidden, NotFound
from relevo.jobs import codes, states
from relevo.jobs.errors import JobCanceled
from relevo.pipeline import ASYNC, POST, PRE_OPERATION, SYNC, Post, Pre, StepContext
from tests.pipeline.bundle import finished, jobs, make

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo import App
    from relevo.jobs.running.context import JobContext

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(relevo_url: str) -> AsyncIterator[App]:
    async with make(relevo_url) as app:
        yield app


async def nothing(ctx: StepContext) -> None:
    """A step whose job alone counts."""


async def test_a_committed_operation_has_a_job_for_each_matching_step(app: App) -> None:
    for name, rank in (("third", 9), ("first", 1), ("second", 1)):
        app.step("Update", "order", mode=ASYNC, rank=rank, name=name)(nothing)
    app.step("Update", "order", mode=ASYNC, filtering=["total"], name="filtered")(nothing)
    app.step("Create", "order", mode=ASYNC, name="other message")(nothing)
    app.step("Update", "mail", mode=ASYNC, name="other table")(nothing)
    await app.service.create("order", {"id": "1"}, bypass={"async"})
    await app.service.update("order", "1", {"status": "paid"})
    assert [one["name"] for one in await jobs(app)] == ["first", "second", "third"]  # A1
    await app.service.update("order", "1", {"total": 1})
    assert len(await jobs(app)) == 7  # A1


async def test_an_operation_that_is_rolled_back_has_no_job(app: App) -> None:
    app.step("Create", "order", mode=ASYNC, name="later")(nothing)

    @app.step("Create", "order", rank=99)
    async def refuse(ctx: StepContext) -> None:
        if ctx.target.get("bad"):
            raise Conflict("bad")

    with pytest.raises(Conflict):
        await app.service.create("order", {"bad": True})

    class Undone(Exception):
        pass

    with pytest.raises(Undone):
        async with app.database.transaction() as tx:
            await app.service.create("order", {}, tx=tx)
            raise Undone
    assert await jobs(app) == []  # A1


async def test_a_nested_operation_that_fails_and_is_caught_leaves_no_job(app: App) -> None:
    app.step("Create", "mail", mode=ASYNC, name="later")(nothing)

    @app.step("Create", "mail", rank=2)
    async def refuse(ctx: StepContext) -> None:
        if ctx.target.id == "bad":
            raise Conflict("bad")

    @app.step("Create", "order")
    async def mails(ctx: StepContext) -> None:
        await ctx.service.create("mail", {"id": "good"})
        with pytest.raises(Conflict):
            await ctx.service.create("mail", {"id": "bad"})

    await app.service.create("order", {})
    assert [one["regarding_id"] for one in await jobs(app)] == ["good"]  # A1


DIES = """
import asyncio, os, signal, sys
from relevo.pipeline import ASYNC
from tests.pipeline.bundle import make

app = make(sys.argv[1])
for name in ("a", "b"):
    @app.step("Create", "order", mode=ASYNC, name=name)
    async def later(ctx): ...

async def main():
    await app.connect()
    async with app.database.transaction() as tx:
        await app.service.create("order", {"id": "1"}, tx=tx)
        if sys.argv[2] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def die(url: str, when: str) -> None:
    """Make an operation in a process that is killed before or right after the commit."""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", DIES, url, when],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL


async def test_the_jobs_are_there_when_the_process_dies_after_the_commit(
    app: App, relevo_url: str
) -> None:
    await die(relevo_url, "after")
    assert (await app.service.retrieve("order", "1"))["id"] == "1"
    assert [one["name"] for one in await jobs(app)] == ["a", "b"]  # A1, A30


async def test_nothing_is_there_when_the_process_dies_before_the_commit(
    app: App, relevo_url: str
) -> None:
    await die(relevo_url, "before")
    with pytest.raises(NotFound):
        await app.service.retrieve("order", "1")
    assert await jobs(app) == []  # A1, A30


async def test_a_job_carries_its_columns_and_a_context_that_is_only_data(app: App) -> None:
    user = uuid4()

    @app.step("Update", "order", stage=PRE_OPERATION)
    async def share(ctx: StepContext) -> None:
        ctx.shared_variables["by"] = "phone"

    step = app.step(
        "Update", "order", mode=ASYNC, name="notify", images=[Pre("status"), Post("status")],
        auto_delete=True,
    )  # fmt: skip
    step(nothing)
    await app.service.create("order", {"id": "1", "status": "new"})
    await app.service.of(user).update("order", "1", {"status": "paid"})
    (job,) = await jobs(app)
    found = app.pipeline.registry.step("notify")
    assert {name: job[name] for name in (
        "handler", "status", "operation_type", "message_name", "regarding_type", "regarding_id",
        "extension", "depth", "token", "chain", "auto_delete", "owner", "created_by", "lane",
    )} == {
        "handler": "step:notify", "status": 0, "operation_type": 1, "message_name": "Update",
        "regarding_type": "order", "regarding_id": "1", "extension": str(found.id), "depth": 1,
        "token": None, "chain": None, "auto_delete": True, "owner": user, "created_by": user,
        "lane": "plugin",
    }  # fmt: skip
    data: dict[str, Any] = msgspec.json.decode(job["data"])
    assert data["version"] == 1
    assert data["input"] == {"target": {"id": "1", "status": "paid"}}
    assert (data["pre"], data["post"]) == ({"status": "new"}, {"status": "paid"})
    assert data["shared_variables"] == {"by": "phone"}
    assert data["correlation"] == str(job["correlation"])
    assert data["user"] == data["initiating_user"] == str(user)


async def test_a_step_runs_as_a_job_with_the_context_of_its_operation(app: App) -> None:
    seen: dict[str, Any] = {}

    @app.step("Update", "order", mode=ASYNC, images=[Pre("status")], configuration="c", secure="s")
    async def notify(ctx: StepContext) -> None:
        seen["facts"] = (
            ctx.message, ctx.table, ctx.stage, ctx.depth, ctx.attempt,
            ctx.configuration, ctx.secure, ctx.tx,
        )  # fmt: skip
        if ctx.pre["status"] != ctx.target["status"]:
            await ctx.service.create("mail", {"id": "m", "order": ctx.target.id})

    @app.step("Create", "mail", mode=ASYNC)
    def send(ctx: StepContext) -> None:
        ctx.service.update("mail", ctx.target.id, {"sent": True})
        seen["mail"] = ctx.depth

    await app.service.create("order", {"id": "1", "status": "new"})
    async with app.host():
        await app.service.update("order", "1", {"status": "paid"})
        first, second = await finished(app, count=2)
    assert seen == {"facts": ("Update", "order", 40, 1, 1, "c", "s", None), "mail": 2}
    assert (first["status"], second["status"]) == (30, 30)
    assert second["correlation"] == first["correlation"]
    assert await app.service.retrieve("mail", "m") == {"id": "m", "order": "1", "sent": True}


async def test_jobs_of_one_record_run_one_after_the_other_if_the_step_says_so(app: App) -> None:
    order: list[str] = []
    running: set[str] = set()

    @app.step("Update", "order", mode=ASYNC, serialize="record")
    async def slow(ctx: StepContext) -> None:
        assert ctx.target.id not in running
        running.add(ctx.target.id)
        await ctx.checkpoint(progress=0.5)
        running.remove(ctx.target.id)
        order.append(f"{ctx.target.id}{ctx.target['n']}")

    for key in "ab":
        await app.service.create("order", {"id": key})
        for n in range(5):
            await app.service.update("order", key, {"n": n})
    assert {one["chain"] for one in await jobs(app)} == {"rorder/a", "rorder/b"}
    assert {one["token"] for one in await jobs(app)} == {None}
    async with app.host():
        found = await finished(app, count=10)
    assert {one["status"] for one in found} == {30}
    for key in "ab":
        assert [one for one in order if one[0] == key] == [f"{key}{n}" for n in range(5)]


async def test_effects_in_ctx_transaction_happen_with_the_completion_or_not_at_all(
    app: App,
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    @app.step("Create", "order", mode=ASYNC)
    async def mail(ctx: StepContext) -> None:
        async with ctx.transaction() as tx:
            await ctx.service.create("mail", {"id": ctx.target.id}, tx=tx)
            if ctx.target.id == "canceled":
                asked.set()
                await go_on.wait()

    async with app.host():
        await app.service.create("order", {"id": "kept"})
        assert [one["status"] for one in await finished(app)] == [30]
        await app.service.create("order", {"id": "canceled"})
        await asked.wait()
        _, job = await jobs(app)
        await app.jobs.handle(job["id"]).cancel()
        go_on.set()
        found = await finished(app, count=2)
    assert [one["status"] for one in found] == [30, 32]  # A11
    assert [one["id"] for one in (await app.service.retrieve_multiple("mail"))[0]] == ["kept"]


async def test_after_a_cancel_request_the_service_of_the_attempt_refuses(app: App) -> None:
    began, canceled = asyncio.Event(), asyncio.Event()
    raised: list[BaseException] = []

    @app.step("Create", "order", mode=ASYNC)
    async def mail(ctx: StepContext) -> None:
        await ctx.service.create("mail", {"id": "before"})
        began.set()
        await canceled.wait()
        try:
            await ctx.service.create("mail", {"id": "after"})
        except JobCanceled as error:
            raised.append(error)
            raise

    async with app.host():
        await app.service.create("order", {"id": "1"})
        await began.wait()
        (job,) = await jobs(app)
        await app.jobs.handle(job["id"]).cancel()
        canceled.set()
        (job,) = await finished(app)
    assert len(raised) == 1
    assert job["status"] == 32
    assert [one["id"] for one in (await app.service.retrieve_multiple("mail"))[0]] == ["before"]


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


async def test_jobs_of_other_handlers_have_a_service_too_one_deeper(app: App) -> None:
    app.step("Create", "order", mode=ASYNC, name="later")(nothing)
    owner = uuid4()

    @app.job("load")
    async def load(ctx: JobContext) -> None:
        await ctx.service.create("order", {"id": "a"})

    @app.job("load-plainly")
    def load_plainly(ctx: JobContext) -> None:
        ctx.service.create("order", {"id": "b"})

    async with app.host():
        await (await app.jobs.submit("load", owner=owner)).wait(timeout=30)
        await (await app.jobs.submit("load-plainly", owner=owner)).wait(timeout=30)
        found = await finished(app, "later", 2)
    assert [(one["depth"], one["owner"]) for one in found] == [(2, owner), (2, owner)]


async def test_a_step_may_act_in_the_name_of_another(app: App) -> None:
    robot, ana = uuid4(), uuid4()
    seen: list[Any] = []

    @app.step("Create", "order", run_as=robot)
    async def mail(ctx: StepContext) -> None:
        seen.append((ctx.user, ctx.initiating_user))
        await ctx.service.create("mail", {})

    @app.step("Create", "mail", mode=ASYNC)
    async def send(ctx: StepContext) -> None:
        seen.append((ctx.user, ctx.initiating_user))

    async with app.host():
        await app.service.of(ana).create("order", {})
        (job,) = await finished(app)
    assert seen == [(robot, ana), (robot, ana)]
    assert (job["owner"], job["created_by"]) == (robot, ana)


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
    await app.pipeline.start()
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
    await app.pipeline.start()  # another start of a host does not switch it on
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
    await app.pipeline.start()
    async with app.database.transaction() as tx:
        await app.service.create("order", {}, tx=tx)
        assert await app.pipeline.disable("later") == 0
    assert [one["status"] for one in await jobs(app)] == [states.READY]
    await app.pipeline.sweep()
    assert [one["status"] for one in await jobs(app)] == [states.CANCELED]  # S20


async def test_secure_configuration_is_stored_sealed_and_never_told(app: App) -> None:
    app.step("Create", "order", mode=ASYNC, name="later", configuration="open", secure="hidden")(
        nothing
    )
    await app.pipeline.start()
    (row,) = await app.pipeline.steps()
    assert (row["configuration"], row["has_secure"]) == ("open", True)
    assert "hidden" not in str(dict(row))
    sealed = await app.database.fetchval("select secure from relevo.pipeline_step")
    key = await app.vault.key()
    assert b"hidden" not in sealed
    assert key.open(sealed, f"pipeline_step:{row['id']}") == b"hidden"


async def test_the_key_of_a_step_follows_from_its_name(app: App) -> None:
    app.step("Create", "order", stage=POST, name="notify")(nothing)
    assert str(app.pipeline.registry.step("notify").id) == "c0330364-9a48-5535-90bc-1c0c51e0af4a"


async def test_a_success_of_a_step_with_auto_delete_leaves_no_row(app: App) -> None:
    ran = asyncio.Event()

    @app.step("Create", "order", mode=ASYNC, auto_delete=True)
    async def forget(ctx: StepContext) -> None:
        ran.set()

    async with app.host():
        await app.service.create("order", {})
        await ran.wait()
    assert await jobs(app) == []  # A21
