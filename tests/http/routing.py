"""Short words for `/routing` on the wire, for the tests of jobs and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from tests.http.conftest import Reply, Site

V = "api-version=2023-11-01"
PREVIEW = "api-version=2024-01-18-preview"
VOICE = {"channelId": "voice", "capacityCostPerJob": 1}
WORKER = {"queues": ["q"], "channels": [VOICE], "availableForOffers": True}
JOB = {"channelId": "voice", "queueId": "q"}
NOBODY = "00000000-0000-4000-8000-000000000000"
PATIENCE = 20


class Wire:
    """A client that sends what it is told, as one of the site's keys."""

    def __init__(self, site: Site, key: str = "admin", version: str = V) -> None:
        self.site = site
        self.key = key
        self.version = version

    def as_(self, key: str) -> Wire:
        return Wire(self.site, key, self.version)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a request below `/routing`; bytes go as they are."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else None
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        path, _, query = path.partition("?")
        target = f"/routing/{path}?{self.version}{'&' if query else ''}{query}"
        json = None if data is not None else body
        return await self.site.ask(method, target, key=self.key, headers=sent, json=json, data=data)

    async def get(self, path: str) -> Reply:
        return await self.ask("GET", path)

    async def post(self, path: str, body: Any = None) -> Reply:
        return await self.ask("POST", path, body)

    async def patch(self, path: str, body: Any = None, **headers: str) -> Reply:
        return await self.ask("PATCH", path, {} if body is None else body, **headers)

    async def delete(self, path: str) -> Reply:
        return await self.ask("DELETE", path)

    async def queue(self) -> None:
        """Make queue `q`."""
        await self.patch("distributionPolicies/d")
        await self.patch("queues/q", {"distributionPolicyId": "d"})

    async def offers(self, worker: str, **query: Any) -> Reply:
        """Wait for offers to a worker."""
        told = {"worker": worker, "wait_seconds": PATIENCE, **query}
        text = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in told.items())
        return await self.site.ask("GET", f"/v1/router/offers?{text}", key=self.key)

    async def offer(self, worker: str) -> str:
        """Wait for an offer to a worker; return its id."""
        items = (await self.offers(worker)).json["items"]
        assert items, f"nobody offered anything to {worker}"
        found: str = items[0]["offer_id"]
        return found

    async def accept(self, worker: str) -> str:
        """Wait for an offer to a worker, accept it, and return the assignment."""
        offer = await self.offer(worker)
        reply = await self.post(f"workers/{quote(worker, safe='')}/offers/{offer}:accept")
        assert reply.status == 200, reply.body
        found: str = reply.json["assignmentId"]
        return found
