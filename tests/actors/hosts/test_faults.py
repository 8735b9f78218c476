"""Hosts that are killed, frozen and cut off."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from relevo.errors import OutcomeUnknown

if TYPE_CHECKING:
    from tests.actors.hosts.ledger import Ledger
    from tests.actors.hosts.site import Site

pytestmark = pytest.mark.anyio
KINDS = ("add", "put", "id")
UNKNOWN = frozenset({"OutcomeUnknown", "ActivationLost", "DeadlineExceeded"})


async def until_served(site: Site, ledger: Ledger) -> None:
    """Wait until each actor has answered a call, sent by the routes as they are now."""
    await site.read_routes()
    for key in ledger.keys:
        await ledger.tally(key).with_(timeout=60).counts()  # type: ignore[attr-defined]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", [4, pytest.param(300, marks=pytest.mark.soak)])
async def test_no_kill_loses_or_doubles_a_turn(
    site: Site, kills: int
) -> None:  # I2, I3, I4, I6, I22, I27, I28, I31
    await site.start("a", "b", "c")
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    ledger = site.ledger(actors=6)
    ledger.start(callers=9, kinds=KINDS)
    for _ in range(kills):
        await site.until_called(ledger, dice.randrange(20, 60))
        name = dice.choice("abc")
        point = dice.choice(
            ("", "before_turn", "after_turn", "before_turn_commit", "after_turn_commit",
             "before_output")
        )  # fmt: skip
        if point:
            site.cluster.faults.arm(point, "kill", skip=dice.randrange(20), process=name)
            await asyncio.to_thread(_wait, site, name)
            site.cluster.faults.disarm(point)
        site.cluster.nodes[name].kill()
        await site.cluster.start(name)
    await ledger.stop()
    await until_served(site, ledger)
    await ledger.check()
    await site.check()
    assert ledger.succeeded
    print(f"{kills} kills, {ledger.calls} calls, errors: {dict(ledger.errors)}")


def _wait(site: Site, name: str) -> None:
    """Wait a while for the end of a process that is to reach a point; it may own no slot."""
    process = site.cluster.nodes[name].process
    try:
        process.wait(5.0)
    except Exception:
        return


async def test_a_frozen_host_gives_nothing_out_after_its_end(site: Site) -> None:  # I3, I5, I6
    await site.start("a", "b")
    ledger = site.ledger(actors=6, timeout=20.0)
    ledger.start(callers=6, kinds=KINDS)
    for _ in range(2):
        await site.until_called(ledger, 50)
        site.cluster.nodes["a"].freeze()
        await site.until_shared("b")
        await until_served(site, ledger)
        site.cluster.nodes["a"].thaw()
        await site.until_shared("a", "b")
    await ledger.stop()
    await ledger.check()
    await site.check()
    assert set(ledger.errors) <= {*UNKNOWN, "CommitFailed"}


async def test_a_frozen_turn_ends_without_effect(site: Site) -> None:  # I4, I5, I6, I24
    await site.start("a", "b")
    key = "k0"
    ledger = site.ledger(actors=1, timeout=30.0)
    for point in ("after_turn", "before_turn_commit", "before_output"):
        await site.bring(key, "a")
        assert await ledger.tally(key).host() == "a"  # in memory: hooks pass the points, too
        site.cluster.faults.arm(point, "stop", process="a")
        call = asyncio.create_task(ledger.once(key, f"add-{point}"))
        await site.cluster.faults.reached(point)
        await site.until_owned(key, "b")
        assert await ledger.tally(key).host() == "b"
        site.cluster.faults.disarm(point)
        site.cluster.nodes["a"].thaw()
        await call
    await ledger.check()
    assert not ledger.succeeded[key], "a result left a host after its end"
    assert len(ledger.unknown[key] | ledger.not_run[key]) == 3


async def test_a_host_without_its_database_stops_answering(site: Site) -> None:  # I3, I5
    await site.start("a", "b")
    ledger = site.ledger(actors=6, timeout=20.0)
    ledger.start(callers=6, kinds=KINDS)
    site.cluster.nodes["a"].partition()
    await site.until_shared("b")
    await until_served(site, ledger)
    site.cluster.nodes["a"].heal()
    await site.until_shared("a", "b")
    await ledger.stop()
    await ledger.check()
    await site.check()
    assert set(ledger.errors) <= {*UNKNOWN, "CommitFailed"}


async def test_a_lost_connection_leaves_outcomes_open_and_runs_nothing_twice(
    site: Site,
) -> None:  # I27, I28, I31
    await site.start("a")
    ledger = site.ledger(actors=4)
    ledger.start(callers=8, kinds=KINDS)
    for _ in range(10):
        await site.until_called(ledger, 20)
        for connection in (await site.app.actors.network.peers()).connections:
            connection.abort(OutcomeUnknown("cut by the test"))
    await ledger.stop()
    await ledger.check()
    assert set(ledger.errors) == {"OutcomeUnknown"}
    assert ledger.unknown
