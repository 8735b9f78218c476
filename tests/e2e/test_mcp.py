"""An AI agent as a worker: the official client of its protocol, a real process, a real host."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest

from tests.e2e.conftest import PRESET

mcp = pytest.importorskip("mcp")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.e2e.conftest import Site

pytestmark = pytest.mark.anyio
QUEUE = {"distributionPolicyId": "fair"}
WORKER = {
    "queues": ["kitchen"], "capacity": 100, "availableForOffers": True,
    "channels": [{"channelId": "pizza", "capacityCostPerJob": 50}],
}  # fmt: skip


class Agent:
    """An agent that calls tools."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Any:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        text = result.content[0].text
        return json.loads(text) if text != "done" else None

    async def refused(self, tool: str, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.content
        return str(result.content[0].text)


@asynccontextmanager
async def agent(site: Site, key: str) -> AsyncIterator[Agent]:
    """Start `relevo mcp` as an agent's program does, and talk to it."""
    started = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "relevo.cli", "mcp"],
        env={"RELEVO_URL": site.host.url, "RELEVO_KEY": key},
    )  # fmt: skip
    async with mcp.Client(started) as client:
        yield Agent(client)


async def run(site: Site, *words: str) -> Any:
    """Run a command of an operator, beside the loop of the test."""
    done = await anyio.to_thread.run_sync(lambda: site.run(*words, "-o", "json"))
    assert done.code == 0, done
    return done.json


async def test_an_agent_takes_an_offer_and_completes_the_job(site: Site) -> None:
    for *words, body in (
        ("distribution-policy", "create", "fair", "{}"),
        ("queue", "create", "kitchen", json.dumps(QUEUE)),
        ("job", "create", "order-1", '{"channelId": "pizza", "queueId": "kitchen"}'),
    ):
        await run(site, "router", *words, body)
    async with agent(site, PRESET) as cook:
        await cook.call("register_worker", id="ada", patch=WORKER)
        offers = await cook.call("wait_for_offers", worker="ada", wait_seconds=20)
        (offer,) = offers["items"]
        taken = await cook.call("accept_offer", id="ada", offerId=offer["offer_id"])
        job = await cook.call("read_router_job", id="order-1")
        assert job["status"] == "assigned"
        assigned = {"id": "order-1", "assignmentId": taken["assignmentId"]}
        await cook.call("complete_router_job", **assigned, note="made with care")
        await cook.call("close_router_job", **assigned, dispositionCode="eaten")
        explained = await cook.call("explain_router_job", id="order-1")
        assert explained["status"] == "closed"
    shown = await run(site, "router", "job", "show", "order-1")
    assert (shown["status"], shown["dispositionCode"]) == ("closed", "eaten")


async def test_an_agent_submits_a_job_and_asks_why_it_waits(site: Site) -> None:
    async with agent(site, PRESET) as clerk:
        job = await clerk.call("submit_job", handler="unheard-of", data={"n": 1})
        explained = await clerk.call("explain_job", id=job["id"])
        assert "unheard-of" in json.dumps(explained)
        waited = await clerk.call("wait_for_job", id=job["id"], wait_seconds=0)
        assert "data" not in waited or waited["data"] is None


async def test_tools_are_described_and_bad_calls_are_refused_by_name(site: Site) -> None:
    made = await run(site, "key", "create", "--name", "guest", "--role", "viewer")
    async with agent(site, made["secret"]) as guest:
        tools = {tool.name: tool for tool in (await guest.client.list_tools()).tools}
        accept = tools["accept_offer"].input_schema
        assert set(accept["properties"]) == set(accept["required"]) == {"id", "offerId"}
        assert tools["read_job"].annotations.read_only_hint
        assert not tools["submit_job"].annotations.read_only_hint
        assert "forbidden" in await guest.refused("submit_job", handler="mail", data={})
        assert "'size'" in await guest.refused("read_job", id="x", size=1)
        assert "id" in await guest.refused("read_job", id="no uuid")
        assert "there is no tool 'delete_all'" in await guest.refused("delete_all")


async def test_each_call_of_an_agent_is_in_the_audit(site: Site) -> None:
    made = await run(site, "key", "create", "--name", "watched", "--role", "viewer")
    async with agent(site, made["secret"]) as guest:
        await guest.call("list_router_queues")
        assert "forbidden" in await guest.refused("submit_job", handler="mail", data={})
    by = made["key"]["id"]
    listed = await run(site, "audit", "list", "--caller", "agent", "--by", by)
    assert [(one["operation"], one["outcome"]) for one in listed["items"]] == [
        ("jobs.submit", "forbidden"), ("router.queues.overview", "done"),
    ]  # fmt: skip
