"""Kills at the moments worth breaking, frozen hosts, cut connections and wrong clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo.errors import MessageLockLost, OutcomeUnknown
from relevo.messaging.core import tokens
from tests.messaging.faults import programs
from tests.messaging.faults.accounts import Ledger
from tests.messaging.faults.programs import effects

if TYPE_CHECKING:
    from pathlib import Path

    from relevo import App
    from relevo.testing import Clock
    from relevo.testing.cluster import Cluster, Node
    from relevo.testing.proxy import Proxy

pytestmark = pytest.mark.anyio
KILLED = {
    "before_accept": "sender-a", "after_message_claim": "host-a", "before_message_settle": "host-b",
    "mid_forward": "host-c", "mid_rerank": "changer-a",
}  # fmt: skip
"""Which process dies at which point; at `mid_dead_letter` it is the one that leads."""


async def until_ended(cluster: Cluster, node: Node) -> None:
    await cluster.until(lambda: node.process.poll() is not None, f"{node.name} ends")


async def test_kills_at_every_point_lose_and_double_nothing(
    post: programs.Post, cluster: Cluster
) -> None:  # M27, M1, M2, M4, M24
    ledger = Ledger(post.app.database, cluster)
    for point, name in KILLED.items():
        cluster.faults.arm(point, "kill", skip=10 if point == "before_accept" else 1, process=name)
        await cluster.start(name, wait=False)
    await cluster.start("sender-b", wait=False)
    await cluster.start("receiver-a", wait=False)
    for name in KILLED.values():
        await until_ended(cluster, cluster.nodes[name])
    cluster.faults.arm("mid_dead_letter", "kill")
    await cluster.start("host-d", wait=False)
    await cluster.faults.reached("mid_dead_letter")
    cluster.faults.disarm("mid_dead_letter")
    for name in ("host-e", "receiver-b"):
        await cluster.start(name, wait=False)
    wanted = await ledger.done() + 10

    async def more() -> bool:
        return await ledger.done() >= wanted

    await cluster.until(more, "those that are left go on")
    cluster.nodes["sender-b"].kill()
    await cluster.until(ledger.drained, "all that was sent is done")
    assert await ledger.check() > 0


async def test_a_delivery_counts_if_its_host_dies_and_only_then(
    post: programs.Post, cluster: Cluster
) -> None:  # M27, M4, M5
    cluster.faults.arm("after_message_claim", "kill", process="host-a")
    for n in range(6):
        await post.work.send(n, message_id=str(n))
    await until_ended(cluster, await cluster.start("host-a", wait=False))
    rows = await post.app.database.fetch("select message_id from relevo.message where state = 1")
    claimed = {row["message_id"] for row in rows}
    assert claimed
    await cluster.start("host-b", wait=False)
    await cluster.until(Ledger(post.app.database, cluster).drained, "all is done")
    assert await effects(post.app, "work") == [(str(n), str(n) in claimed) for n in range(6)]


@pytest.mark.parametrize("entrance", ["postgresql", "pgbouncer"], indirect=True)
async def test_a_host_frozen_past_its_end_settles_nothing(
    post: programs.Post, cluster: Cluster, gate: Path
) -> None:  # M2, M3, M27
    frozen = await cluster.start("host-a")
    await post.app.queue("gated", max_delivery_count=1000).send(b"", message_id="x")
    await cluster.until(lambda: bool(cluster.records("began")), "the handler begins")
    frozen.freeze()
    await cluster.start("host-b")
    await cluster.until(lambda: len(cluster.records("began")) == 2, "another host has it")
    gate.touch()
    frozen.thaw()  # both handlers go on now
    await cluster.until(lambda: bool(cluster.records("ended")), "it is done")
    await post.app.queue("gated").send(b"", message_id="y")
    await cluster.until(lambda: len(cluster.records("ended")) == 2, "all is done")
    assert [one["deliveries"] for one in cluster.records("began") if one["id"] == "x"] == [0, 1]
    assert {one["host"] for one in cluster.records("ended") if one["id"] == "x"} == {"host-b"}
    assert await effects(post.app, "gated") == [("x", 1), ("y", 0)]


async def test_wrong_clocks_of_hosts_decide_nothing(
    post: programs.Post, cluster: Cluster, clock: Clock
) -> None:  # M25, M19, M16
    await cluster.start("host-a", skew=-300.0)
    await cluster.start("host-b", skew=300.0)
    await cluster.start("receiver-a", skew=300.0)
    held = post.app.queue("held", lock_duration=60)
    brief = post.app.queue("brief")
    await held.send(b"")
    (message,) = await held.receive()
    await brief.send(b"", ttl=200)
    due = await clock.now()
    number = await post.work.schedule(b"later", due.replace(year=due.year + 1))
    for n in range(20):
        await post.work.send(n, message_id=str(n))
        await post.by_hand.send(n, message_id=str(n))

    async def done() -> bool:
        return len(await effects(post.app, "work") + await effects(post.app, "by-hand")) == 40

    await cluster.until(done, "all is done")
    assert {count for _, count in await effects(post.app, "by-hand")} == {0}
    assert [one.sequence_number for one in await post.work.peek()] == [number]
    assert len(await brief.peek()) == 1
    await message.complete()
    await clock.advance(201)

    async def expired() -> bool:
        return not await brief.peek()

    await cluster.until(expired, "the message expires")


@pytest.mark.parametrize("direction", ["upstream", "downstream"])
async def test_a_send_whose_connection_is_cut_has_one_outcome(
    post: programs.Post, far: App, proxy: Proxy, direction: str
) -> None:  # M1, M17, M18
    queue = far.queue("once", duplicate_window=600)
    await queue.send(b"first")
    if direction == "upstream":
        proxy.on_bytes("upstream", b"needle", proxy.reset)
    else:
        proxy.on_bytes("upstream", b"needle", lambda: answer_lost(proxy, b"sent"))
    with pytest.raises(OutcomeUnknown):
        await queue.send(b"needle", message_id="n")
    stored = len(await post.app.queue("once").peek()) == 2
    assert stored == (direction == "downstream")
    assert (await queue.send(b"needle", message_id="n")).duplicate == stored
    assert [one.message_id for one in await queue.peek()][1:] == ["n"]


def answer_lost(proxy: Proxy, pattern: bytes) -> None:
    proxy.on_bytes("downstream", pattern, proxy.reset)


@pytest.mark.parametrize("lost", ["statement", "answer"])
async def test_a_settlement_whose_connection_is_cut_has_one_outcome(
    post: programs.Post, far: App, proxy: Proxy, lost: str
) -> None:  # M2, M3
    queue = far.queue("q")
    await queue.send(b"x")
    (message,) = await queue.receive()
    sequence, number = tokens.parts_of(message.lock_token)
    sent = number.to_bytes(8, "big", signed=True)
    answer = sequence.to_bytes(8, "big")
    if lost == "statement":
        proxy.on_bytes("upstream", sent, proxy.reset)
    else:
        proxy.on_bytes("upstream", sent, lambda: answer_lost(proxy, answer))
    await message.complete()
    figures = (await post.app.queue("q").describe()).messages
    assert (figures.completed, figures.active, figures.locked) == (1, 0, 0)
    with pytest.raises(MessageLockLost):
        await message.abandon()


@pytest.mark.parametrize("lost", ["commit", "answer"])
async def test_effects_and_completion_share_their_outcome(
    post: programs.Post, far: App, proxy: Proxy, lost: str
) -> None:  # M2, M18
    queue = far.queue("q")
    await queue.send(b"x", message_id="x")
    (message,) = await queue.receive()
    if lost == "commit":
        proxy.on_bytes("upstream", b"COMMIT;", proxy.reset)
    else:
        proxy.on_bytes("downstream", b"COMMIT\0", proxy.reset)
    with pytest.raises(OutcomeUnknown):
        await programs.effect(message)
    left = await post.app.queue("q").peek()
    assert len(await effects(post.app, "q")) + len(left) == 1
    assert len(left) == (lost == "commit")
