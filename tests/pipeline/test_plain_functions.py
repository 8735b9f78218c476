"""Data operations of plain functions: in threads with a transaction, and from processes."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from relevo.errors import Conflict
from relevo.jobs.core import codes
from relevo.jobs.errors import JobFailed
from relevo.pipeline import ASYNC, StepContext
from tests.pipeline import process_handlers
from tests.pipeline.bundle import QUICK, finished, jobs, make
from tests.pipeline.test_jobs import killed

if TYPE_CHECKING:
    from relevo import App

pytestmark = pytest.mark.anyio


async def keys(app: App, table: str) -> list[str]:
    return sorted(one["id"] for one in (await app.service.retrieve_multiple(table))[0])


async def test_operations_of_a_thread_belong_to_its_transaction(app: App) -> None:
    inside, go_on = threading.Event(), threading.Event()

    @app.step("Create", "order", mode=ASYNC)
    def mail(ctx: StepContext) -> None:
        with ctx.transaction() as tx:
            ctx.service.create("mail", {"id": ctx.target.id})
            ctx.service.update("mail", ctx.target.id, {"sent": True}, tx=tx)
            assert tx.fetchval("select count(*) from relevo.item where id = $1", ctx.target.id)
            if ctx.target.id == "canceled":
                inside.set()
                assert go_on.wait(30)

    async with app.host():
        await app.service.create("order", {"id": "kept"})
        assert [one["status"] for one in await finished(app)] == [30]
        await app.service.create("order", {"id": "canceled"})
        assert await asyncio.to_thread(inside.wait, 30)
        _, job = await jobs(app)
        await app.jobs.handle(job["id"]).cancel()
        go_on.set()
        found = await finished(app, count=2)
    assert [one["status"] for one in found] == [30, 32]  # A11
    assert await keys(app, "mail") == ["kept"]


DYING_HOST = """
import os, signal, sys
from relevo.pipeline import ASYNC
from tests.pipeline.bundle import QUICK, make

app = make(sys.argv[1], **QUICK)

@app.step("Create", "order", mode=ASYNC)
def mail(ctx):
    with ctx.transaction():
        ctx.service.create("mail", {"id": ctx.target.id})
        if sys.argv[2] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

app.run()
"""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_effects_of_a_thread_are_those_of_once_when_its_host_dies_around_the_commit(
    app: App, relevo_url: str, when: str
) -> None:
    other = make(relevo_url, **QUICK)
    for one in (app, other):

        @one.step("Create", "order", mode=ASYNC)
        def mail(ctx: StepContext) -> None:
            with ctx.transaction():
                ctx.service.create("mail", {"id": ctx.target.id})

    await app.service.create("order", {"id": "1"})
    await killed(DYING_HOST, relevo_url, when)
    async with other.host():
        (job,) = await finished(app)
    assert (job["status"], job["crashes"]) == (30, 1 if when == "before" else 0)
    assert await keys(app, "mail") == ["1"]  # A30


async def test_an_operation_that_fails_in_a_threads_transaction_is_undone_alone(app: App) -> None:
    @app.step("Create", "mail")
    def refuse(ctx: StepContext) -> None:
        if ctx.target.id == "bad":
            raise Conflict("bad")

    @app.job("load")
    def load(ctx: Any) -> None:
        with ctx.transaction():
            ctx.service.create("mail", {"id": "good"})
            with pytest.raises(Conflict):
                ctx.service.create("mail", {"id": "bad"})
            as_other = ctx.service.of(None)
            as_other.create("mail", {"id": "other"})

    async with app.host():
        await (await app.jobs.submit("load")).wait(30)
    assert await keys(app, "mail") == ["good", "other"]


async def test_a_process_makes_every_data_operation(app: App) -> None:
    owner = uuid4()
    app.step("Create", "order", mode=ASYNC, name="later")(_nothing)

    @app.message("Shout")
    async def shout(ctx: StepContext) -> dict[str, Any]:
        return {"text": ctx.input["text"].upper()}

    app.job("everything", process=True)(process_handlers.everything)
    async with app.host():
        job = await app.jobs.submit("everything", owner=owner)
        found = await job.wait(60)
        (queued,) = await finished(app, "later")
    assert found.pop("pid") != os.getpid()
    assert found == {
        "key": "1", "record": {"id": "1", "total": 7}, "records": [{"id": "1", "total": 7}],
        "token": None, "related": [["mail", "m"]], "tuples": True, "left": [], "said": "HOLA",
    }  # fmt: skip
    assert (queued["depth"], queued["owner"]) == (2, owner)  # as of a job in this process: A14


async def test_a_coroutine_in_a_process_awaits_them(app: App) -> None:
    app.job("awaited", process=True)(process_handlers.awaited)
    async with app.host():
        found = await (await app.jobs.submit("awaited")).wait(60)
    assert found == [f"a{n}" for n in range(5)]


async def test_a_process_is_told_errors_as_what_they_are(app: App) -> None:
    app.job("refused", process=True)(process_handlers.refused)
    app.job("missing", process=True)(process_handlers.missing)
    async with app.host():
        found = await (await app.jobs.submit("refused")).wait(60)
        job = await app.jobs.submit("missing")
        with pytest.raises(JobFailed):
            await job.wait(60)
    kinds = [one.partition(":")[0] for one in found]
    assert kinds == ["NotFound", *["InvalidValue"] * 2, *["Conflict"] * 2, "AttributeError"]
    assert "ctx.transaction is not available with process=True" in found[4]
    assert (await job.get()).error_code == codes.NOT_FOUND  # 6.3


async def test_after_a_cancel_request_the_service_of_a_process_refuses(app: App) -> None:
    await app.service.create("order", {"id": "1"})
    app.job("waits", process=True)(process_handlers.waits)
    async with app.host():
        job = await app.jobs.submit("waits")
        async with asyncio.timeout(30):
            while "n" not in await app.service.retrieve("order", "1"):
                await asyncio.sleep(0.01)
        await job.cancel()
        with pytest.raises(JobFailed):
            await job.wait(30)
    assert (await job.get()).status_code == 32  # 6.2, A11


_go_on = threading.Event()
_leftover: list[tuple[threading.Thread, list[str]]] = []
"""What a job left behind in its process, for the next one there."""


def leaves_a_thread(ctx: Any, asks: str) -> int:
    """Return before its thread, which asks its host for something later, or all the time."""
    heard: list[str] = []

    def work() -> None:
        try:
            while asks == "always":
                ctx.service.retrieve("order", "1")
            assert _go_on.wait(30)
            ctx.service.update("order", "1", {"by": "leftover"})
        except Exception as error:
            heard.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=work, daemon=True)
    _leftover.append((thread, heard))
    thread.start()
    return os.getpid()


def meets_a_thread(ctx: Any) -> dict[str, Any]:
    """Let the thread of the former job go on, and say what it came to."""
    (thread, heard), *_ = _leftover
    _go_on.set()
    thread.join(30)
    return {
        "heard": heard, "read": ctx.service.retrieve("order", "2")["id"], "pid": os.getpid(),
    }  # fmt: skip


@pytest.mark.parametrize("asks", ["later", "always"])
async def test_a_thread_that_outlives_its_job_does_nothing_in_the_name_of_the_next(
    app: App, asks: str
) -> None:  # 9
    for key in ("1", "2"):
        await app.service.create("order", {"id": key})
    app.job("leaves", process=True)(leaves_a_thread)
    app.job("meets", process=True)(meets_a_thread)
    async with app.host():
        pid = await (await app.jobs.submit("leaves", {"asks": asks}, owner=uuid4())).wait(60)
        found = await (await app.jobs.submit("meets")).wait(60)
    assert (found["pid"], found["read"]) == (pid, "2")
    (heard,) = found["heard"]
    assert heard.startswith("Conflict: the run of this context is over")
    assert "by" not in await app.service.retrieve("order", "1")


async def _nothing(ctx: StepContext) -> None:
    """A step whose job alone counts."""
