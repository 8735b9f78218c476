"""A server with queues, and a client of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.http.conftest import open_site, site

if TYPE_CHECKING:
    from tests.http.conftest import Reply, Site

__all__ = ["open_site", "site"]


class Wire:
    """Asks in the name of a key; a status that is not the expected one fails."""

    def __init__(self, site: Site, key: str = "admin") -> None:
        self.site = site
        self.key = key

    async def ask(
        self, method: str, path: str, body: Any = None, *, status: int = 200, **headers: str
    ) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = await self.site.ask(method, f"/v1/{path}", key=self.key, json=body, headers=sent)
        assert reply.status == status, (method, path, reply.status, reply.body)
        return reply

    async def put(self, path: str, body: Any = None, status: int = 201, **headers: str) -> Any:
        return (await self.ask("PUT", path, body or {}, status=status, **headers)).json

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        reply = await self.ask("POST", path, body or {}, status=status)
        return reply.json if reply.body else None

    async def get(self, path: str, status: int = 200) -> Any:
        return (await self.ask("GET", path, status=status)).json

    async def refused(self, method: str, path: str, body: Any, status: int, code: str) -> Any:
        """Return the problem of a request that must be refused."""
        problem = (await self.ask(method, path, body, status=status)).json
        assert problem["code"] == code, problem
        return problem

    async def send(self, path: str, body: Any = "x", **fields: Any) -> Any:
        return await self.post(f"{path}/messages", {"body": body, **fields}, 201)

    async def claim(self, path: str, **options: Any) -> list[Any]:
        found: list[Any] = (await self.post(f"{path}/messages:claim", options))["items"]
        return found

    async def settle(self, path: str, message: Any, verb: str, **options: Any) -> None:
        await self.post(f"{path}/locks/{message['lock_token']}:{verb}", options, 204)


@pytest.fixture
def wire(site: Site) -> Wire:
    return Wire(site)
