"""Slots outlast whatever handlers do to them, and keep their runs apart."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import pytest

from relevo.jobs.core import codes
from relevo.jobs.model import Lane

if TYPE_CHECKING:
    from relevo import App
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Panic(BaseException):
    """As libraries written in other languages raise it."""


async def narrow(office: Office, **handlers: Any) -> App:
    """A host with a lane of one slot, in which all handlers are."""
    app = office.new_app(drain_seconds=0.1)
    app.jobs.configure(Lane(name="narrow", slots=1))
    for name, function in handlers.items():
        app.job(name, lane="narrow", timeout=0.3)(function)
    return await office.serve(app)


async def returns(ctx: Any) -> str:
    return TENANT.get()


async def panics(ctx: Any) -> None:
    raise Panic("of another language")


def panics_in_a_thread(ctx: Any) -> None:
    raise Panic("of another language")


async def cancels_itself(ctx: Any) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize("handler", [panics, panics_in_a_thread, cancels_itself])
async def test_a_job_that_ends_in_any_way_fails_and_its_slot_goes_on(
    office: Office, handler: Any
) -> None:  # 6.3
    await narrow(office, bad=handler, good=returns)
    bad = [await office.jobs.submit("bad") for _ in range(2)]
    good = await office.jobs.submit("good")
    assert await good.wait(20) == "nobody"
    for job in bad:
        row = await job.get()
        assert (row.status_code, row.attempt, row.error_code) == (31, 1, codes.HANDLER_FAILED)


async def test_a_slot_whose_handler_swallowed_its_own_cancel_still_ends_others_in_time(
    office: Office,
) -> None:  # 6.2
    async def swallows(ctx: Any) -> None:
        try:
            await cancels_itself(ctx)
        except asyncio.CancelledError:
            return

    async def stays(ctx: Any) -> None:
        await asyncio.Event().wait()

    await narrow(office, swallows=swallows, stays=stays, good=returns)
    done = await office.jobs.submit("swallows")
    late = await office.jobs.submit("stays")
    assert await (await office.jobs.submit("good")).wait(20) == "nobody"
    await done.wait(20)
    assert (await late.get()).error_code == codes.TIME_LIMIT  # the time limit; tried once more


async def test_what_a_handler_sets_in_its_context_is_not_seen_by_the_next(office: Office) -> None:
    async def sets(ctx: Any) -> str:
        TENANT.set("ana")
        await asyncio.sleep(0)
        return TENANT.get()

    await narrow(office, sets=sets, good=returns)
    first, second = await office.jobs.submit("sets"), await office.jobs.submit("good")
    assert await first.wait(20) == "ana"
    assert await second.wait(20) == "nobody"


async def test_a_handler_that_will_not_be_cancelled_does_not_hold_up_the_end(
    office: Office,
) -> None:  # 6.1
    entered, go = asyncio.Event(), asyncio.Event()

    async def stubborn(ctx: Any) -> None:
        entered.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    app = office.new_app(drain_seconds=0.1)
    app.job("stubborn")(stubborn)
    job = await office.jobs.submit("stubborn")
    async with app.host():
        await entered.wait()
    assert await office.status(job) == 0  # given back (S17)
    go.set()
