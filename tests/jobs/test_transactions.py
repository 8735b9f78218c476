"""Effects and completion of a job are one commit, whatever a handler does with its transaction."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import Conflict
from relevo.jobs.errors import JobFailed
from tests.jobs.office import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.jobs.office import Office

    Misuse = Callable[[Any], Awaitable[None]]

pytestmark = pytest.mark.anyio
EFFECT = "insert into job_effect values ($1)"


async def effects(office: Office) -> list[str]:
    return [row["id"] for row in await office.database.fetch("select id from job_effect")]


async def left_open(ctx: Any) -> None:
    tx = await ctx.transaction().__aenter__()
    await tx.execute(EFFECT, "misuse")


async def left_open_by_a_task(ctx: Any) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        with suppress(Conflict):
            async with ctx.transaction() as tx:
                await tx.execute(EFFECT, "misuse")
                inside.set()
                while True:
                    await tx.execute("select pg_sleep(0.01)")

    _tasks.append(asyncio.ensure_future(work()))
    await inside.wait()


_tasks: list[Any] = []
_kept: list[Any] = []


async def nested(ctx: Any) -> None:
    async with ctx.transaction() as outer:
        await outer.execute(EFFECT, "misuse")
        async with ctx.transaction() as inner:
            await inner.execute(EFFECT, "misuse")


async def committed_by_hand(ctx: Any) -> None:
    async with ctx.transaction() as tx:
        await tx.execute(EFFECT, "misuse")
        await tx.execute("commit")


async def rolled_back_by_hand(ctx: Any) -> None:
    async with ctx.transaction() as tx:
        await tx.execute(EFFECT, "misuse")
        await tx.execute("rollback")


def plain_commits(ctx: Any) -> Any:
    with ctx.transaction() as tx:
        tx.execute(EFFECT, "misuse")
        tx.execute("commit")


def plain_left_open(ctx: Any) -> Any:
    manager = ctx.transaction()
    manager.__enter__().execute(EFFECT, "misuse")


def plain_left_open_and_kept(ctx: Any) -> Any:
    manager = ctx.transaction()
    manager.__enter__().execute(EFFECT, "misuse")
    _kept.append(manager)


@pytest.mark.parametrize(
    ("misuse", "why"),
    [
        (left_open, "returned inside of"), (left_open_by_a_task, "returned inside of"),
        (nested, "open already"), (committed_by_hand, "not by 'commit'"),
        (rolled_back_by_hand, "not by 'rollback'"), (plain_commits, "not by 'commit'"),
        (plain_left_open, "returned inside of"), (plain_left_open_and_kept, "returned inside of"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)  # fmt: skip
async def test_a_misuse_fails_the_job_and_commits_nothing(
    office: Office, misuse: Misuse, why: str
) -> None:
    await office.database.write("create table if not exists job_effect (id text primary key)")
    await office.database.write("truncate job_effect")
    await office.host({"misuse": misuse})
    job = await office.jobs.submit("misuse")
    with pytest.raises(JobFailed, match=why):
        await job.wait(30)
    assert await effects(office) == []
    await asyncio.gather(*_tasks)
    _tasks.clear()
    _kept.clear()


async def test_a_transaction_is_not_used_after_its_end(office: Office) -> None:
    await office.database.write("create table if not exists job_effect (id text primary key)")
    await office.database.write("truncate job_effect")
    refused: list[str] = []

    async def late(ctx: Any) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(EFFECT, "1")
        with pytest.raises(Conflict, match="this transaction is over"):
            await tx.execute(EFFECT, "late")
        with pytest.raises(Conflict, match="completed by an earlier transaction"):
            async with ctx.transaction() as tx:
                await tx.execute(EFFECT, "late")
        refused.append("late")

    await office.host({"late": late})
    await (await office.jobs.submit("late")).wait(30)
    await until(lambda: bool(refused), "it was refused")
    assert await effects(office) == ["1"]
