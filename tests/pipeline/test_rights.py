"""In whose name operations are made, and what becomes of them when that user loses its rights."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import Forbidden, NotFound
from relevo.http.access.key_model import NewKey
from relevo.http.access.keys import Keys
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.model import SYSTEM
from relevo.kernel.sealing import MasterKey
from relevo.pipeline import ASYNC, StepContext
from tests.pipeline import process_handlers
from tests.pipeline.bundle import finished, jobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from relevo import App
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio
ALL = {"sync", "async"}


@asynccontextmanager
async def keys_of(app: App) -> AsyncIterator[Keys]:
    keys = Keys(app.database, MasterKey(b"k" * 32))
    try:
        yield keys
    finally:
        await keys.close()


async def user_with(app: App, *roles: str, **options: Any) -> UUID:
    """A user with one key of these roles, or without any."""
    user = await app.users.create_user("Ana")
    if roles:
        async with keys_of(app) as keys:
            await keys.create(NewKey(name="k", roles=roles, user_id=user, **options))
    return user


async def refuse(ctx: StepContext) -> None:
    raise NotFound("this step was to be left out")


async def nothing(ctx: StepContext) -> None:
    """A step whose job alone counts."""


async def test_a_job_whose_owner_was_disabled_meanwhile_fails_its_data_operation(app: App) -> None:
    ana = await user_with(app, "admin")
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.job("load")
    async def load(ctx: Any) -> None:
        await ctx.service.create("order", {"id": "before"})
        began.set()
        await go_on.wait()
        await ctx.service.create("order", {"id": "after"})

    async with app.host():
        job = await app.jobs.submit("load", owner=ana)
        await began.wait()
        await app.users.disable(ana)
        go_on.set()
        assert await app.jobs.end_of(job.id, 30)
    ended = await job.get()
    assert (ended.status_code, ended.error_code) == (states.FAILED, codes.FORBIDDEN)  # 9, 6.3
    assert ended.attempt == 1
    records, _ = await app.service.retrieve_multiple("order")
    assert [one["id"] for one in records] == ["before"]


@pytest.mark.parametrize("handler", ["thread", "process"])
async def test_the_same_holds_for_plain_functions(app: App, handler: str) -> None:
    ana = await user_with(app, "admin")
    await app.users.disable(ana)

    @app.job("thread")
    def plainly(ctx: Any) -> None:
        ctx.service.update("order", "none", {})

    app.job("process", process=True)(process_handlers.missing)
    async with app.host():
        job = await app.jobs.submit(handler, owner=ana)
        assert await app.jobs.end_of(job.id, 60)
    assert (await job.get()).error_code == codes.FORBIDDEN  # 9


async def test_the_step_of_a_user_who_is_disabled_again_and_enabled_goes_on(app: App) -> None:
    ana = await user_with(app, "producer")

    @app.step("Create", "order", mode=ASYNC)
    async def mail(ctx: StepContext) -> None:
        await ctx.service.create("mail", {"id": ctx.target.id})

    await app.service.of(ana).create("order", {"id": "1"})
    await app.users.disable(ana)
    with pytest.raises(Forbidden, match=f"user {ana} is disabled"):
        await app.service.of(ana).create("order", {"id": "2"})
    with pytest.raises(Forbidden):
        await app.service.of(ana).retrieve("order", "1")
    assert len(await jobs(app)) == 1  # A1
    await app.users.disable(ana, disabled=False)
    await app.service.of(ana).create("order", {"id": "2"})
    async with app.host():
        found = await finished(app, count=2)
    assert [one["status"] for one in found] == [30, 30]


async def test_a_step_that_acts_for_a_disabled_user_is_refused_too(app: App) -> None:
    robot = await user_with(app)

    @app.step("Create", "order", run_as=robot)
    async def mail(ctx: StepContext) -> None:
        await ctx.service.create("mail", {})

    await app.service.create("order", {"id": "1"})
    await app.users.disable(robot)
    with pytest.raises(Forbidden, match=f"user {robot} is disabled"):
        await app.service.create("order", {"id": "2"})
    with pytest.raises(NotFound):
        await app.service.retrieve("order", "2")


@pytest.mark.parametrize(
    ("roles", "may"),
    [
        ((), False), (("operator", "producer", "reader"), False), (("job.write:all",), False),
        (("pipeline.bypass:own",), True), (("reader", "pipeline.bypass:all"), True),
        (("admin",), True),
    ],
)  # fmt: skip
async def test_only_who_has_the_right_leaves_out_steps(
    app: App, roles: tuple[str, ...], may: bool
) -> None:
    app.step("Create", "order", name="sync")(refuse)
    app.step("Create", "order", mode=ASYNC, name="async")(nothing)
    service = app.service.of(await user_with(app, *roles))
    if not may:
        with pytest.raises(Forbidden, match=r"needs the right pipeline\.bypass"):
            await service.create("order", {"id": "1"}, bypass=ALL)
        return
    await service.create("order", {"id": "1"}, bypass=ALL)
    async with app.database.transaction() as tx:
        await service.create("order", {"id": "2"}, bypass=ALL, tx=tx)
    assert await jobs(app) == []
    with pytest.raises(NotFound, match="left out"):
        await service.create("order", {"id": "3"})


async def test_a_job_leaves_out_steps_by_the_right_of_its_owner_as_it_is_then(
    app: App, clock: Clock
) -> None:
    app.step("Create", "order", name="sync")(refuse)

    @app.job("load")
    async def load(ctx: Any) -> None:
        await ctx.service.create("order", {}, bypass=ALL)

    app.job("in-process", process=True)(process_handlers.bypassing)
    soon = await clock.now() + timedelta(hours=1)
    ana = await user_with(app, "pipeline.bypass:all", expires_at=soon)
    async with app.host():
        for name in ("load", "in-process"):
            await (await app.jobs.submit(name, owner=ana)).wait(60)
        await (await app.jobs.submit("load")).wait(30)  # nobody's: code that may do everything
        await clock.advance(3_601)  # the key expires, and the right with it
        job = await app.jobs.submit("load", owner=ana)
        assert await app.jobs.end_of(job.id, 30)
    assert (await job.get()).error_code == codes.FORBIDDEN  # 9


async def test_rights_are_those_of_the_keys_that_count(app: App) -> None:
    ana = await app.users.create_user("Ana")
    async with keys_of(app) as keys:
        one = await keys.create(NewKey(name="1", roles=("job.read:unit",), user_id=ana))
        await keys.create(NewKey(name="2", roles=("job.read:own", "producer"), user_id=ana))
        await keys.create(NewKey(name="3", roles=("admin",), scopes=("queue:a",), user_id=ana))
        await keys.create(NewKey(name="4", roles=("admin", "worker:7"), user_id=ana))
        assert await app.users.rights_of(ana) == {"job.read": "unit", "job.submit": "all"}
        await keys.revoke(one.key.id)
        assert await app.users.rights_of(ana) == {"job.read": "own", "job.submit": "all"}
    await app.users.disable(ana)
    assert await app.users.rights_of(ana) == {}
    assert set((await app.users.rights_of(None)).values()) == {"all"}
    assert await app.users.rights_of(SYSTEM) == await app.users.rights_of(None)
