"""Handlers with `process=True`: they run elsewhere, are told things, and can be killed."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from relevo.errors import HandlerError, InvalidValue
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.errors import JobFailed
from relevo.jobs.host import JobsPart
from relevo.jobs.running import ledger
from relevo.jobs.running.processes import CALL
from relevo.kernel.running.processes import HandlerProcess
from relevo.testing.cluster import Cluster
from tests.jobs import process_handlers
from tests.support.parts import serve

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from relevo import App
    from relevo.jobs.model import Job
    from relevo.testing.recorder import Recorder

pytestmark = pytest.mark.anyio


def register(app: App, *, timeout: float | None = None) -> None:
    for function in (
        process_handlers.add, process_handlers.count, process_handlers.linger,
        process_handlers.hang, process_handlers.deaf, process_handlers.end,
        process_handlers.unanswerable, process_handlers.mute,
    ):  # fmt: skip
        app.job(function.__name__, process=True, timeout=timeout, retry_on=())(function)


async def program(app: App, record: Recorder) -> None:
    """What the host processes of these tests run."""
    del record
    register(app)
    await serve(app, JobsPart)


async def appears(path: Path) -> int:
    async with asyncio.timeout(30):
        while not path.exists():
            await asyncio.sleep(0.01)
    return int(path.read_text())


async def ends(pid: int) -> None:
    """Wait until a process is gone, or a corpse that nobody has buried yet."""
    async with asyncio.timeout(30):
        while _runs(pid):
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


async def until(app: App, job_id: UUID, *statuses: int) -> Job:
    async with asyncio.timeout(30):
        while (job := await app.jobs.get(job_id)).status_code not in statuses:
            await asyncio.sleep(0.01)
    return job


async def test_a_handler_runs_in_another_process_that_serves_the_next_job_too(app: App) -> None:
    register(app)
    async with app.host():
        first = await (await app.jobs.submit("add", {"a": 1})).wait(30)
        second = await (await app.jobs.submit("add", {"a": 2, "b": 5})).wait(30)
    assert (first["sum"], second["sum"]) == (2, 7)
    assert first["pid"] != os.getpid()
    assert first["pid"] == second["pid"]
    await ends(first["pid"])


async def test_progress_and_state_of_a_coroutine_are_stored(app: App) -> None:
    register(app)
    async with app.host():
        job = await app.jobs.submit("count", {"to": 5})
        assert await job.wait(30) == 5
        stored = await job.get()
    assert (stored.saved, stored.progress) == (4, 1.0)


async def test_lambdas_and_local_functions_are_refused_when_they_are_registered(app: App) -> None:
    def local(ctx: Any) -> None: ...

    for function in (local, lambda ctx: None):
        with pytest.raises(InvalidValue, match="top of a module"):
            app.job("local", process=True)(function)


@pytest.mark.parametrize(
    ("how", "status", "code", "text"),
    [
        ("fail", states.FAILED, codes.stored(0x80041234), "there is no such customer"),
        ("retry", states.WAITING, None, "later"),
        ("suspend", states.WAITING, None, "repair it"),
        ("network", states.WAITING, codes.REMOTE_FAILED, None),
        ("error", states.FAILED, codes.HANDLER_FAILED, None),
        ("several", states.FAILED, codes.HANDLER_REFUSED, "the worse"),
        ("die", states.FAILED, codes.HANDLER_FAILED, None),
        ("unspeakable", states.FAILED, codes.HANDLER_FAILED, None),
    ],
)
async def test_what_a_handler_raises_decides_as_if_it_ran_here(
    app: App, how: str, status: int, code: int | None, text: str | None
) -> None:
    register(app)
    async with app.host():
        job = await app.jobs.submit("end", {"how": how})
        found = await until(app, job.id, status)
    assert (found.error_code, found.friendly) == (code, text)
    if how == "error":
        assert "process_handlers.py" in (found.message or "")  # the trace of the other process


@pytest.mark.parametrize("how", ["text", "group", "fields", "stdout"])
async def test_an_error_that_cannot_be_told_fails_the_job_and_not_the_process(
    app: App, how: str
) -> None:
    register(app)
    async with app.host():
        pid = (await (await app.jobs.submit("add", {"a": 1})).wait(30))["pid"]
        job = await app.jobs.submit("mute", {"how": how})
        wanted = states.SUCCEEDED if how == "stdout" else states.FAILED
        found = await until(app, job.id, states.SUCCEEDED, states.FAILED)
        assert (await (await app.jobs.submit("add", {"a": 1})).wait(30))["pid"] == pid
    assert found.status_code == wanted
    if how in ("text", "group"):
        assert "Unspeakable" in (found.message or "")


async def test_a_process_that_cannot_go_on_ends_whatever_threads_are_left() -> None:
    worker = await HandlerProcess.start()
    order = {
        "run": 1, "call": CALL, "handler": "tests.jobs.process_handlers:leave_thread", "main": None,
        "id": str(uuid4()), "name": "n", "attempt": 1, "data": {}, "details": {}, "owner": None,
        "state": None,
    }  # fmt: skip
    try:
        await worker.send(order)
        assert (await worker.receive())["kind"] == "done"
        await worker.send({"call": "an order without its number"})
        async with asyncio.timeout(30):
            with pytest.raises(HandlerError, match="code 1"):
                await worker.receive()
    finally:
        await worker.kill()


async def test_a_result_that_is_no_json_fails_the_job_and_not_the_process(app: App) -> None:
    register(app)
    async with app.host():
        with pytest.raises(JobFailed):
            await (await app.jobs.submit("unanswerable", {})).wait(30)
        assert (await (await app.jobs.submit("add", {"a": 1})).wait(30))["sum"] == 2


async def test_a_pause_reaches_the_handler_at_its_next_checkpoint(app: App, tmp_path: Path) -> None:
    register(app)
    async with app.host():
        job = await app.jobs.submit("linger", {"folder": str(tmp_path)})
        await appears(tmp_path / "started")
        await job.pause()
        paused = await until(app, job.id, states.WAITING)
        assert paused.saved["pid"] != os.getpid()  # A10
        await job.cancel()


async def test_a_canceled_handler_that_reaches_checkpoints_stops_there(
    app: App, tmp_path: Path
) -> None:
    register(app)
    async with app.host():
        job = await app.jobs.submit("linger", {"folder": str(tmp_path)})
        await appears(tmp_path / "started")
        await job.cancel()
        assert (await until(app, job.id, *states.COMPLETED)).status_code == states.CANCELED  # A11


async def test_a_canceled_handler_that_hears_nothing_is_killed_after_its_grace(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "CANCEL_GRACE", 0.2)
    register(app)
    async with app.host():
        job = await app.jobs.submit("hang", {"folder": str(tmp_path)})
        pid = await appears(tmp_path / "started")
        other = await appears(tmp_path / "grandchild")
        await job.cancel()
        assert (await until(app, job.id, *states.COMPLETED)).status_code == states.CANCELED  # A11
        await ends(pid)
        await ends(other)  # and what it started


async def test_a_time_limit_kills_whatever_the_handler_does(app: App, tmp_path: Path) -> None:
    register(app, timeout=3.0)
    app.job("warm", process=True)(process_handlers.multiply)
    async with app.host():
        await (await app.jobs.submit("warm", {"a": 1})).wait(60)  # its process has started
        job = await app.jobs.submit("deaf", {"folder": str(tmp_path)})
        pid = await appears(tmp_path / "started")
        found = await until(app, job.id, states.WAITING)
        assert (found.error_code, found.retries) == (codes.TIME_LIMIT, 1)
        await ends(pid)


_former: list[Any] = []


def keeps_context(ctx: Any) -> int:
    """Leave the context to the next job of this process."""
    _former.append(ctx)
    return os.getpid()


def hears_former(ctx: Any) -> dict[str, Any]:
    """Say what a fork of the former job would, which does not know that it is over."""
    former = _former[0]._run
    stored = former.signed("checkpoint", progress=0.1, state="former")
    for message in (stored, former.signed("done", value="former")):
        former.pipe.send(message)
    ctx.progress(0.5)  # which is answered after both
    former.pipe.send(stored)
    return {"pid": os.getpid()}


async def test_what_comes_late_from_a_former_run_is_not_taken_for_the_next(app: App) -> None:
    for function in (keeps_context, hears_former):
        app.job(function.__name__, process=True)(function)
    register(app)
    async with app.host():
        pid = await (await app.jobs.submit("keeps_context")).wait(30)
        job = await app.jobs.submit("hears_former")
        assert await job.wait(30) == {"pid": pid}
        assert (await job.get()).saved is None
        # And the process serves the next job, though an answer to another lies before the order.
        after = await (await app.jobs.submit("add", {"a": 1})).wait(30)
    assert (after["sum"], after["pid"]) == (2, pid)


SCRIPT = """
import asyncio, os
import relevo

app = relevo.App()

@app.job("double", process=True)
def double(ctx, n: int):
    return [2 * n, os.getpid()]

async def main():
    async with app.host():
        value, pid = await (await double.submit(n=21)).wait(30)
        assert value == 42
        assert pid != os.getpid()

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_handlers_of_a_script_are_found_in_it(relevo_url: str, tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(SCRIPT)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), env={**os.environ, "RELEVO_DATABASE_URL": relevo_url},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    written, _ = await process.communicate()
    assert process.returncode == 0, written.decode()


async def test_the_process_ends_with_its_host(relevo_url: str, tmp_path: Path, app: App) -> None:
    async with Cluster(relevo_url, f"{__name__}:program", tmp_path) as cluster:
        node = await cluster.start("a")
        await app.jobs.submit("deaf", {"folder": str(tmp_path)})
        pid = await appears(tmp_path / "started")
        node.kill()
        await ends(pid)
