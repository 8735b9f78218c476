"""A server with jobs in every state, and a client that speaks to its Dataverse surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from relevo.http.access.key_model import NewKey
from tests.http.conftest import open_site, site

if TYPE_CHECKING:
    from uuid import UUID

    from tests.http.conftest import Reply, Site

__all__ = ["open_site", "site"]
BASE = "/api/data/v9.2"


class Dataverse:
    """Asks the surface in the name of a key."""

    def __init__(self, site: Site, key: str = "admin", base: str = BASE) -> None:
        self.site = site
        self.key = key
        self.base = base

    async def ask(self, method: str, path: str, **options: Any) -> Reply:
        """Send a request; the path is encoded as a client would."""
        target = f"{self.base}/{quote(path, safe='/$=&?,()@:;*-._~!')}".replace("'", "%27")
        return await self.site.ask(method, target, key=self.key, **options)

    async def rows(self, path: str, **options: Any) -> list[dict[str, Any]]:
        """Return the rows of an answer that must be there."""
        reply = await self.ask("GET", path, **options)
        assert reply.status == 200, reply.body
        found: list[dict[str, Any]] = reply.json["value"]
        return found

    async def row(self, job: UUID | str, query: str = "") -> dict[str, Any]:
        """Return a job."""
        reply = await self.ask("GET", f"asyncoperations({job}){query}")
        assert reply.status == 200, reply.body
        found: dict[str, Any] = reply.json
        return found

    async def key_with(self, *roles: str, user: UUID | None = None) -> Dataverse:
        """Return the same for a new key with these roles."""
        made = await self.site.services.keys.create(
            NewKey(name="-".join(roles)[:90], roles=roles, user_id=user)
        )
        return Dataverse(self.site, made.secret, self.base)

    async def submit(self, handler: str = "work", data: Any = None, **options: Any) -> UUID:
        """Submit a job and return its key."""
        return (await self.site.services.app.jobs.submit(handler, data, **options)).id

    async def force(self, status: int, *ids: UUID) -> None:
        """Bring jobs that nobody runs into a status, by way of the moves that lead there."""
        database = self.site.services.app.database
        events = {20: ["claim"], 30: ["claim", "done"], 31: ["claim", "fail"], 32: ["cancel"]}
        for event in events.get(status, []):
            if event == "claim":
                await database.write(
                    "update relevo.job set status = 20, host = gen_random_uuid(), claim = 1,"
                    " host_name = 'alpha', attempt = attempt + 1, started_at = relevo.now()"
                    " where id = any ($1::uuid[])",
                    list(ids),
                )
                continue
            await database.write(
                "select * from relevo.move_jobs($1::uuid[], $2::text[])",
                list(ids),
                [event] * len(ids),
            )


def code(reply: Reply) -> str:
    """The code in an error; also looks at its form."""
    assert set(reply.json) == {"error"}, reply.body
    assert set(reply.json["error"]) == {"code", "message"}
    assert reply.headers["OData-Version"] == "4.0"
    assert reply.headers["x-ms-service-request-id"]
    found: str = reply.json["error"]["code"]
    return found


@pytest.fixture
def dataverse(site: Site) -> Dataverse:
    """The surface, for an administrator."""
    return Dataverse(site)
