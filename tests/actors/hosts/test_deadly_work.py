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
