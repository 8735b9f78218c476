from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relevo.kernel import supervision
from relevo.kernel.backoff import Backoff
from relevo.kernel.supervision import LoopHealth, Supervisor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


class Work:
    """A loop that does what it is told each time it is started."""

    def __init__(self, *orders: str) -> None:
        self.starts: asyncio.Queue[int] = asyncio.Queue()
        self.ended = asyncio.Event()
        self._orders = iter(orders)
        self._count = 0

    async def __call__(self) -> None:
        self._count += 1
        self.starts.put_nowait(self._count)
        match next(self._orders, "go on"):
            case "die":
                raise RuntimeError("no more paper")
            case "return":
                return
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def started(self, times: int) -> None:
        async with asyncio.timeout(30):
            while await self.starts.get() < times:
                pass


@pytest.fixture
async def supervisor(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor()
    monkeypatch.setattr(supervisor, "_backoff", Backoff(first=0.0))
    yield supervisor
    await supervisor.stop()


async def test_a_loop_runs_until_it_is_stopped(supervisor: Supervisor) -> None:
    work = Work()
    supervisor.run("press", work)
    await work.started(1)
    assert supervisor.health() == [LoopHealth("press", running=True, restarts=0, error=None)]
    await supervisor.stop("press")
    assert work.ended.is_set()
    assert supervisor.health() == []


async def test_a_loop_that_dies_is_started_again_and_that_shows(supervisor: Supervisor) -> None:
    work = Work("die", "die")
    supervisor.run("press", work)
    await work.started(3)
    [health] = supervisor.health()
    assert health.restarts == 2
    assert not health.running
    assert health.error == "RuntimeError: no more paper"


async def test_a_loop_that_ends_by_itself_is_started_again(supervisor: Supervisor) -> None:
    work = Work("return")
    supervisor.run("press", work)
    await work.started(2)
    [health] = supervisor.health()
    assert (health.restarts, health.error) == (1, "ended by itself")


async def test_a_loop_that_runs_well_again_for_a_while_counts_as_well(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "HEALTHY_SECONDS", 0.01)
    work = Work("die")
    supervisor.run("press", work)
    await work.started(2)
    async with asyncio.timeout(30):
        while not supervisor.health()[0].running:
            await asyncio.sleep(0.005)
    assert supervisor.health()[0].restarts == 1


async def test_one_loop_that_dies_leaves_the_others_alone(supervisor: Supervisor) -> None:
    press, binder = Work("die"), Work()
    supervisor.run("press", press)
    supervisor.run("binder", binder)
    await press.started(2)
    assert [(one.name, one.restarts) for one in supervisor.health()] == [
        ("binder", 0),
        ("press", 1),
    ]


async def test_a_name_runs_once(supervisor: Supervisor) -> None:
    supervisor.run("press", Work())
    with pytest.raises(ValueError, match="'press' runs already"):
        supervisor.run("press", Work())


async def test_stopping_what_does_not_run_is_fine(supervisor: Supervisor) -> None:
    await supervisor.stop("press")


async def test_stopping_ends_a_loop_that_waits_to_be_started_again(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_backoff", Backoff(first=1e9, longest=1e9))
    work = Work("die")
    supervisor.run("press", work)
    await work.started(1)
    async with asyncio.timeout(30):
        await supervisor.stop()
