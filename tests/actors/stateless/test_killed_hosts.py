"""Stateless types on real processes, one of which is killed while it runs calls."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.actors import Actor, Interface, method
from relevo.errors import OutcomeUnknown, PoisonCall
from relevo.testing.cluster import Cluster

if TYPE_CHECKING:
    from relevo.testing.recorder import Recorder

pytestmark = pytest.mark.anyio
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 1.0, "actors_slots": 2}
CALLERS = 20


class Mill(Interface):
    @method(idempotent=True)
    async def grind(self, number: int) -> int: ...
    async def grind_once(self, number: int) -> int: ...
    @method(idempotent=True)
    async def fall(self) -> None: ...


async def program(app: App, record: Recorder) -> None:
    @app.stateless("mill", implements=Mill, max_local=4)
    class MillActor(Actor[None]):
        async def grind(self, number: int) -> int:
            record("ground", number=number)
            await asyncio.sleep(0.005)
            return number

        async def grind_once(self, number: int) -> int:
            return await self.grind(number)

        async def fall(self) -> None:
            os._exit(9)


async def test_calls_outlive_a_host_and_say_so_if_they_may_have_run(relevo_url: str) -> None:
    with tempfile.TemporaryDirectory(prefix="rel-") as folder:  # paths of sockets are short
        told = {**QUICK, "home": f"{folder}/home"}
        client = App(settings=settings.load({**told, "database_url": relevo_url}, environ={}))
        async with (
            Cluster(
                relevo_url, f"{__name__}:program", Path(folder), settings=told
            ) as cluster,
            client,
        ):  # fmt: skip
            nodes = [await cluster.start(name) for name in ("a", "b")]
            mill: Any = client.stateless(Mill, type="mill")
            stop, done = asyncio.Event(), Counter[str]()
            failed: list[int] = []

            async def call(caller: int) -> None:
                number = caller
                while not stop.is_set():
                    number += 2 * CALLERS
                    if caller % 2:
                        assert await mill.grind(number) == number
                        done["repeated"] += 1
                        continue
                    try:
                        assert await mill.grind_once(number) == number
                        done["once"] += 1
                    except OutcomeUnknown:
                        failed.append(number)

            async with asyncio.TaskGroup() as group:
                for caller in range(CALLERS):
                    group.create_task(call(caller))
                await cluster.until(
                    lambda: all(len(node.records("ground")) > 100 for node in nodes), "load"
                )
                nodes[0].kill()
                before = Counter(done)
                await cluster.until(
                    lambda: all(done[kind] > before[kind] + 200 for kind in ("repeated", "once")),
                    "calls go on",
                )
                stop.set()
            await cluster.start("a")
            with pytest.raises(PoisonCall, match="lost its host 2 times in a row"):
                await mill.with_(timeout=60.0).fall()
            ground = [one["number"] for node in nodes for one in node.records("ground")]
    times = Counter(ground)
    assert {number for number in times if not number % 2 and times[number] > 1} == set()  # I27
    assert len(failed) <= CALLERS / 2, "only what was under way to the host is not known"
