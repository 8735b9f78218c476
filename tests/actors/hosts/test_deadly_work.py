"""Work that ends the process of its host, and connections that only look like that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import OutcomeUnknown, PoisonCall
from tests.actors.hosts.programs import TYPE, Tally

if TYPE_CHECKING:
    from pathlib import Path

    from tests.actors.hosts.site import Site

pytestmark = pytest.mark.anyio


def tally(site: Site, key: str, **options: object) -> Tally:
    proxy: Any = site.app.actor(Tally, key, type=TYPE)
    called: Tally = proxy.with_(timeout=60.0, **options)
    return called


async def test_calls_survive_more_lost_connections_than_a_poisonous_one_may_lose_hosts(
    site: Site, tmp_path: Path
) -> None:
    await site.start("a")
    opened = tmp_path / "open"
    calls = [
        asyncio.create_task(called.wait_for(str(opened)))
        for called in (tally(site, "k0"), tally(site, "k1", call_id="once"))
    ]
    peers = await site.app.actors.network.peers()

    def are_sent() -> bool:
        sent = [one._outgoing._pending for one in peers.connections if one._outgoing]
        return sum(map(len, sent)) == len(calls)

    for _ in range(5):
        await site.cluster.until(are_sent, "both calls are sent")
        for connection in peers.connections:
            connection.abort(OutcomeUnknown("cut by the test"))
    opened.touch()
    assert await asyncio.gather(*calls) == ["a", "a"]
    assert site.cluster.nodes["a"].process.poll() is None


async def test_a_call_that_ends_its_host_twice_is_not_made_again(site: Site) -> None:  # I31
    await site.start("a", "b", "c")
    with pytest.raises(PoisonCall, match="lost its host 2 times in a row while fall ran") as raised:
        await tally(site, "k0").fall()
    assert raised.value.executed is None
    codes = [node.process.poll() for node in site.cluster.nodes.values()]
    assert sorted(codes, key=str) == [9, 9, None]
    assert await tally(site, "k0").total() == 0


@pytest.mark.parametrize("kind", ["message", pytest.param("reminder", marks=pytest.mark.soak)])
async def test_due_work_that_ends_its_hosts_becomes_a_dead_letter(site: Site, kind: str) -> None:
    await site.start("a", "b")
    nodes = site.cluster.nodes
    bystander = tally(site, "k1")

    def dead() -> list[str]:
        return [name for name in nodes if nodes[name].process.poll() == 9]

    if kind == "message":
        await site.app.actors.send(tally(site, "k0")).fall()
    else:
        await tally(site, "k0").remind()

    async def buried() -> bool:
        return bool((await site.app.actors.letters.list()).items)

    async def fallen_or_buried() -> bool:
        return bool(dead()) or await buried()

    falls = 0
    while not await buried():
        await site.cluster.until(fallen_or_buried, f"fall {falls + 1}, or a dead letter")
        for name in dead():
            falls += 1
            await site.cluster.start(name)
            await site.app.actors.send(bystander).add(f"t{falls}")
    # The first attempt is noted, too, if it was sent before its slot had begun on its host.
    assert falls in (2, 3)
    [letter] = (await site.app.actors.letters.list()).items
    assert (letter.kind, letter.actor, letter.error) == (
        kind, f"{TYPE}/s:k0", "at least 2 hosts in a row were lost while it ran"
    )  # fmt: skip

    async def others_were_handled() -> bool:
        return await bystander.total() == falls

    await site.cluster.until(others_were_handled, "messages to others were handled")
    assert (await bystander.counts()) == {f"t{fall}": 1 for fall in range(1, falls + 1)}
    assert not dead()
    assert len(site.cluster.records("fall")) == falls
    assert await tally(site, "k0").total() == 0
