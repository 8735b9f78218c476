"""Consumers over HTTP: seen, paused and resumed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.messaging.http.conftest import Wire

if TYPE_CHECKING:
    from relevo.messaging import Received
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio


async def test_consumers_are_shown_paused_and_resumed(wire: Wire, site: Site) -> None:
    app = site.services.app
    handled = asyncio.Queue[str]()

    @app.queue("q").on_messages("cooks", concurrency=3)
    async def cook(message: Received) -> None:
        handled.put_nowait(message.body)

    await wire.refused("GET", "consumers/cooks", None, 404, "not_found")
    async with app.host(name="a"):
        await wire.send("queues/q", "first")
        assert await handled.get() == "first"
        (shown,) = (await wire.get("consumers"))["items"]
        assert (shown["name"], shown["sources"], shown["state"]) == ("cooks", ["q"], "running")
        assert shown["definition"]["concurrency"] == 3
        assert [one["host"] for one in shown["hosts"]] == ["a"]
        paused = await wire.post("consumers/cooks:pause", {"reason": "quiet hours"})
        assert (paused["state"], paused["reason"]) == ("paused", "quiet hours")
        sent = await wire.send("queues/q", "second")
        path = f"queues/q/messages/{sent['sequence_number']}:explain"
        assert (await wire.post(path))["reason"] == "paused"
        resumed = await wire.post("consumers/cooks:resume")
        assert (resumed["state"], resumed["reason"]) == ("running", None)
        assert await handled.get() == "second"
    await wire.refused("POST", "consumers/none:pause", {}, 404, "not_found")


async def test_an_operator_runs_consumers_and_queues_but_sees_no_message(site: Site) -> None:
    operator, worker = Wire(site, "operator"), Wire(site, "worker")
    await operator.put("queues/q")
    await operator.ask("POST", "queues/q/messages", {"body": "x"}, status=403)
    await Wire(site, "producer").send("queues/q", "secret")
    await operator.ask("GET", "queues/q/messages", status=403)
    await operator.ask("POST", "queues/q/messages:claim", {}, status=403)
    assert (await operator.get("queues/q"))["messages"]["active"] == 1
    (message,) = await worker.claim("queues/q")
    await worker.settle("queues/q", message, "dead-letter")
    await worker.ask("POST", "queues/q/dead-letters:redrive", {}, status=403)
    assert await operator.post("queues/q/dead-letters:redrive") == {"count": 1}
    assert await operator.post("queues/q/messages:purge") == {"count": 1}
    await Wire(site, "viewer").get("queues/q")
    await Wire(site, "viewer").get("queues/q/messages", 403)
