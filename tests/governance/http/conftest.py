"""A server whose app uses nothing of the kit itself; one for all tests of a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.http.conftest import serve_site
from tests.messaging.http.conftest import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.testing.databases import TestDatabases
    from tests.http.conftest import Site


class Bench:
    """What the tests of a module share."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.app = site.services.app

    def wire(self, key: str = "admin") -> Wire:
        return Wire(self.site, key)

    async def events_of(self, subject: str) -> list[tuple[str, Any]]:
        """Return the events about a subject: their types, and the key that asked."""
        page = await self.app.events.read()
        return [
            (one.type.removeprefix("relevo."), msgspec.json.decode(one.body).get("by"))
            for one in page.events
            if one.subject == subject
        ]


@pytest.fixture(scope="module")
async def bench(
    relevo_databases: TestDatabases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bench]:
    url = relevo_databases.create()
    home = tmp_path_factory.mktemp("home")
    async with serve_site(url, home) as site, site.services.app.host(name="alpha"):
        yield Bench(site)
    relevo_databases.drop(url)
