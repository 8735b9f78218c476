"""Hand-over of hosts and slots, and calls that wait for each other over hosts."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from relevo.errors import NotFound
from tests.actors.hosts.programs import TYPE, Tally

if TYPE_CHECKING:
    from pathlib import Path

    from tests.actors.hosts.site import Site

pytestmark = pytest.mark.anyio
DETECTED_WITHIN = 30.0
"""Far above what it takes, since machines that run tests are busy; deadlines are far above this."""


async def keys_of(site: Site, host: str, count: int) -> list[str]:
    found = []
    for number in range(100):
        if await site.app.actors.owner(site.ref(f"x{number}")) == host:
            found.append(f"x{number}")
            if len(found) == count:
                return found
    raise AssertionError(f"{host} owns nothing")


async def test_a_host_drains_under_load_without_an_error(site: Site) -> None:  # I7
    await site.start("a", "b")
    ledger = site.ledger(actors=6)
    ledger.start(callers=12, kinds=("add", "id"))
    await site.until_called(ledger, 100)
    site.cluster.nodes["a"].terminate()
    await asyncio.to_thread(site.cluster.nodes["a"].process.wait)
    await site.until_called(ledger, 100)
    await ledger.stop()
    assert not ledger.errors
    await ledger.check()
    await site.check()


async def test_calls_that_wait_move_with_their_actor(site: Site) -> None:
    await site.start("a", "b")
    (key,) = await keys_of(site, "a", 1)
    tally: Tally = site.app.actor(Tally, key, type=TYPE)
    first = asyncio.create_task(tally.hold(1.0))
    calls = [asyncio.create_task(tally.add(f"t{number}")) for number in range(20)]
    await asyncio.sleep(0)
    await site.bring(key, "b")
    await first
    assert sorted(await asyncio.gather(*calls)) == list(range(1, 21))
    assert await tally.host() == "b"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moves", [3, pytest.param(200, marks=pytest.mark.soak)])
async def test_calls_of_a_task_keep_their_order_while_their_actor_moves(
    site: Site, moves: int
) -> None:
    await site.start("a", "b")
    tally: Tally = site.app.actor(Tally, "k", type=TYPE)
    await tally.add("first")
    calls: list[asyncio.Task[int]] = []
    stopping, room = asyncio.Event(), asyncio.Semaphore(500)  # fewer than fit into a mailbox

    async def call() -> None:
        """Make calls one after the other, without waiting for their answers."""
        while not stopping.is_set():
            await room.acquire()
            calls.append(asyncio.create_task(tally.add(str(len(calls)))))
            calls[-1].add_done_callback(lambda _: room.release())
            await asyncio.sleep(0.002)

    caller = asyncio.create_task(call())
    for _ in range(moves):
        owner = await site.app.actors.owner(site.ref("k"))
        await site.bring("k", "b" if owner == "a" else "a")
    stopping.set()
    await caller
    assert await asyncio.gather(*calls) == list(range(2, len(calls) + 2))


async def test_chains_cross_hosts_and_come_back(site: Site) -> None:
    await site.start("a", "b")
    (one,), (other,) = await keys_of(site, "a", 1), await keys_of(site, "b", 1)
    proxy: Tally = site.app.actor(Tally, one, type=TYPE)
    assert await proxy.visit(site.app.actor(Tally, other, type=TYPE), "t") == 1
    assert await proxy.counts() == {"t": 1}


@pytest.mark.parametrize("hosts", [("a", "b"), ("a", "a")])
async def test_chains_that_wait_for_each_other_are_told(
    site: Site, hosts: tuple[str, str], tmp_path: Path
) -> None:  # I19
    await site.start("a", "b")
    first = (await keys_of(site, hosts[0], 1))[0]
    second = (await keys_of(site, hosts[1], 2))[1]
    one: Tally = site.app.actor(Tally, first, type=TYPE)
    other: Tally = site.app.actor(Tally, second, type=TYPE)
    began = time.monotonic()
    answers = await asyncio.gather(
        one.with_(timeout=120).cross(other, str(tmp_path)),  # type: ignore[attr-defined]
        other.with_(timeout=120).cross(one, str(tmp_path)),  # type: ignore[attr-defined]
    )
    assert time.monotonic() - began < DETECTED_WITHIN
    told = [answer for answer in answers if answer != "passed"]
    assert len(told) == 1, "one gives way, the other goes on"
    assert f"{TYPE}/s:{first}" in told[0]
    assert f"{TYPE}/s:{second}" in told[0]


async def test_an_unknown_type_is_said_so_at_once(site: Site) -> None:
    await site.start("a")
    with pytest.raises(NotFound, match="nowhere"):
        await site.app.actor(Tally, "x", type="nowhere").add("t")
