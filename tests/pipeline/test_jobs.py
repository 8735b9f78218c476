"""Asynchronous steps: their jobs, what these carry, order, exactly-once effects."""

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

from relevo.errors import Conflict, NotFound
from relevo.jobs.errors import JobCanceled
from relevo.pipeline import ASYNC, POST, PRE_OPERATION, Post, Pre, StepContext
from relevo.pipeline.service import PipelinePart
from tests.pipeline.bundle import QUICK, finished, jobs, make

if TYPE_CHECKING:
    from relevo import App
    from relevo.jobs.running.context import JobContext

pytestmark = pytest.mark.anyio


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


async def killed(program: str, url: str, when: str) -> None:
    """Run a program that kills itself before or right after a commit."""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program, url, when],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL


async def test_the_jobs_are_there_when_the_process_dies_after_the_commit(
    app: App, relevo_url: str
) -> None:
    await killed(DIES, relevo_url, "after")
    assert (await app.service.retrieve("order", "1"))["id"] == "1"
    assert [one["name"] for one in await jobs(app)] == ["a", "b"]  # A1, A30


async def test_nothing_is_there_when_the_process_dies_before_the_commit(
    app: App, relevo_url: str
) -> None:
    await killed(DIES, relevo_url, "before")
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
        "lane": "default",
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
            await ctx.service.create("mail", {"id": ctx.target.id})
            await ctx.service.update("mail", ctx.target.id, {"sent": True}, tx=tx)
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


DYING_HOST = """
import os, signal, sys
from relevo.pipeline import ASYNC
from tests.pipeline.bundle import QUICK, make

app = make(sys.argv[1], **QUICK)

@app.step("Create", "order", mode=ASYNC)
async def mail(ctx):
    async with ctx.transaction():
        await ctx.service.create("mail", {"order": ctx.target.id})
        if sys.argv[2] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

app.run()
"""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_effects_are_those_of_once_when_a_host_dies_around_the_commit(
    app: App, relevo_url: str, when: str
) -> None:
    other = make(relevo_url, **QUICK)
    for one in (app, other):

        @one.step("Create", "order", mode=ASYNC)
        async def mail(ctx: StepContext) -> None:
            async with ctx.transaction():
                await ctx.service.create("mail", {"order": ctx.target.id})

    await app.service.create("order", {"id": "1"})
    await killed(DYING_HOST, relevo_url, when)
    async with other.host():
        (job,) = await finished(app)
    assert (job["status"], job["crashes"]) == (30, 1 if when == "before" else 0)
    found, _ = await app.service.retrieve_multiple("mail")
    assert [one["order"] for one in found] == ["1"]  # A30


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


async def test_secure_configuration_is_stored_sealed_and_never_told(app: App) -> None:
    app.step("Create", "order", mode=ASYNC, name="later", configuration="open", secure="hidden")(
        nothing
    )
    await app.parts.of(PipelinePart).declare()
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
