"""SIGKILL of hosts at random and at each fault point: nothing is lost, doubled, torn or above."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from relevo.actors import ActorRef
from relevo.errors import RelevoError
from tests.actors.chaos.ledgers import RELAYS, KitLedger
from tests.actors.chaos.programs import FOLDER, define
from tests.actors.hosts.site import open_site

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.kernel.postgres import Database
    from tests.actors.hosts.site import Site

pytestmark = pytest.mark.anyio
HOSTS = ("a", "b", "c")
RELAY = ActorRef.of("relay", RELAYS[0])
WRITERS = [ActorRef.of("relevo.writer", key) for key in ("direct:x", "stored:y")]
OF_TURNS = (
    "before_turn", "after_turn", "before_turn_commit", "after_turn_commit", "before_output",
    "before_reminder", "during_move",
)  # fmt: skip
OF_FLUSHES = (
    "before_flush", "after_flush", "before_sink_write", "mid_sink_write", "before_sink_sync",
    "before_sink_record", "after_sink_record",
)  # fmt: skip
POINTS = (*OF_TURNS, *OF_FLUSHES)


class Storm:
    """Kills one host after the other, each at a point of its own or between any two."""

    def __init__(self, site: Site, dice: random.Random) -> None:
        self._site = site
        self._dice = dice

    async def kill_at(self, point: str) -> None:
        """Kill the host that is to come to a point; it may have lost its slot by then."""
        about = self._dice.choice(WRITERS) if point in OF_FLUSHES else RELAY
        owner = await self._site.app.actors.owner(about)
        if owner is None:
            return
        faults, process = self._site.cluster.faults, self._site.cluster.nodes[owner].process
        faults.arm(point, "kill", skip=self._dice.randrange(5), process=owner)
        if point == "during_move":
            faults.arm(point, "kill", process=owner)
            with contextlib.suppress(RelevoError):
                await self._site.app.actors.move(about, to=self._dice.choice(HOSTS))
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, 5.0)
        faults.disarm(point)
        await self._replace(owner)

    async def kill_any(self) -> None:
        await self._replace(self._dice.choice(HOSTS))

    async def _replace(self, name: str) -> None:
        self._site.cluster.nodes[name].kill()
        await self._site.cluster.start(name)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", [4, pytest.param(300, marks=pytest.mark.soak)])
async def test_no_kill_costs_a_message_an_event_or_a_permit(
    database: Database, relevo_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:  # I22, I23, I29, I34, I35, I41, I42, I43, I44, I46
    monkeypatch.setenv(FOLDER, str(tmp_path))
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    program = "tests.actors.chaos.programs:everything"
    async with open_site(
        database, relevo_url, program, environment={FOLDER: str(tmp_path)}
    ) as site:
        await site.start(*HOSTS)
        calls = site.ledger(actors=3)
        kit = KitLedger(site.app, define(site.app), tmp_path)
        site.ledgers.append(kit)
        calls.start(callers=3, kinds=("add", "put", "id"))
        await kit.start()
        storm = Storm(site, dice)
        points = dice.sample(POINTS, len(POINTS))
        for number in range(kills):
            await site.until_called(calls, dice.randrange(10, 40))
            if number % 2:
                await storm.kill_any()
            else:
                await storm.kill_at(points[number // 2 % len(points)])
        await kit.stop()
        await calls.stop()
        await calls.check()
        await kit.check(site)
        await site.check()
    print(f"{kills} kills, {calls.calls} calls, {dict(calls.errors)}, {dict(kit.errors)}")
