"""A dashboard on a free port over a real database, with one key for each role."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from yarl import URL

from relevo import App, settings
from relevo.dashboard.application import ApiAndDashboard, Dashboard
from relevo.dashboard.live import Samplers
from relevo.http.access.key_model import NewKey
from relevo.http.application import HttpApi
from relevo.http.server import serving
from relevo.http.services import open_services
from tests.dashboard.world import HOSTILE as HOSTILE
from tests.dashboard.world import declare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.testing.databases import TestDatabases


class Answered:
    """An answer that has been read whole."""

    def __init__(self, response: aiohttp.ClientResponse, text: str) -> None:
        self.status = response.status
        self.headers = response.headers
        self.text = text

    @property
    def notice(self) -> str:
        """What has become of the action before."""
        found = re.search(r'<p class="notice" role="status">(.*?)</p>', self.text, re.DOTALL)
        return "" if found is None else found[1]

    @property
    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.text)
        assert found is not None, self.text[:2_000]
        return found[1]


class Browser:
    """Keeps cookies, and sends forms as browsers do."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def get(self, path: str, **headers: str) -> Answered:
        async with self.session.get(URL(self.base + path, encoded=True), headers=headers) as found:
            return Answered(found, await found.text())

    async def post(
        self, path: str, /, *, origin: str | None = "", follow: bool = True, **form: Any
    ) -> Answered:
        sent = self.base if origin == "" else origin
        headers = {} if sent is None else {"Origin": sent}
        async with self.session.post(
            self.base + path, data=form, headers=headers, allow_redirects=follow
        ) as found:
            return Answered(found, await found.text())

    async def sign_in(self, key: str) -> Answered:
        return await self.post("/sign-in", key=key, next="/jobs")


class Desk:
    """A running dashboard, and the keys of all roles."""

    def __init__(self, app: App, dashboard: Dashboard, base: str, keys: dict[str, str]) -> None:
        self.app = app
        self.dashboard = dashboard
        self.base = base
        self.keys = keys

    async def submitted(self, handler: str, **options: Any) -> str:
        return str((await self.app.jobs.submit(handler, **options)).id)

    async def ended(self, handler: str, **options: Any) -> str:
        job = await self.app.jobs.submit(handler, **options)
        await self.app.jobs.end_of(job.id, 20.0)
        return str(job.id)

    @asynccontextmanager
    async def browser(self, role: str | None = None) -> AsyncIterator[Browser]:
        browser = Browser(self.base)
        try:
            if role is not None:
                answer = await browser.sign_in(self.keys[role])
                assert answer.status in (200, 403), answer.text  # of the page behind it
            yield browser
        finally:
            await browser.session.close()


@asynccontextmanager
async def open_desk(url: str, home: Path) -> AsyncIterator[Desk]:
    told = settings.load({"database_url": url, "home": home}, environ={})
    async with App(settings=told) as app:
        declare(app)
        async with open_services(app) as services, app.host():
            dashboard = Dashboard(
                app, services=services, samplers=Samplers(seconds_per_statement=0.1)
            )
            site = ApiAndDashboard(HttpApi(services), dashboard)
            keys = {
                name: (
                    await services.keys.create(NewKey(name=name, roles=(name.split()[0],)))
                ).secret
                for name in ("admin", "operator", "viewer", "viewer 2", "producer")
            }
            async with serving(site, "127.0.0.1", 0) as address:
                yield Desk(app, dashboard, address.url, keys)


@pytest.fixture(scope="module")
async def desk(
    relevo_databases: TestDatabases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    url = relevo_databases.create()
    async with open_desk(url, tmp_path_factory.mktemp("desk")) as opened:
        yield opened
    relevo_databases.drop(url)
