"""A real server on a free port, over a real database, with one bearer key for each role."""

from __future__ import annotations

import asyncio
import functools
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from yarl import URL

from relevo import App, settings
from relevo.http.access.key_model import NewKey
from relevo.http.access.roles import ROLES
from relevo.http.application import HttpApi, RequestBounds
from relevo.http.operations import OPERATIONS
from relevo.http.server import Address, serving
from relevo.http.services import Services, open_services
from relevo.http.tls import server_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from typing import Protocol

    from relevo.http.admission import ConnectionBounds
    from relevo.kernel.operation import Operation

    class Opens(Protocol):
        def __call__(
            self,
            *,
            operations: tuple[Operation, ...] = ...,
            bounds: RequestBounds | None = ...,
            connections: ConnectionBounds | None = ...,
            grace_seconds: int = ...,
            **overrides: Any,
        ) -> AbstractAsyncContextManager[Site]: ...


class Reply:
    """An answer that has been read whole."""

    def __init__(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = body
        self.type = response.content_type
        self._response = response

    @property
    def json(self) -> Any:
        import msgspec

        return msgspec.json.decode(self.body)


class Site:
    """A running server and a client of it."""

    def __init__(
        self,
        services: Services,
        address: Address,
        session: aiohttp.ClientSession,
        secrets: dict[str, str],
    ) -> None:
        self.services = services
        self.address = address
        self.session = session
        self.secrets = secrets

    async def ask(
        self,
        method: str,
        target: str,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        json: Any = None,
        data: Any = None,
    ) -> Reply:
        """Send a request; the target goes over the wire as it is."""
        sent = dict(headers or {})
        if key is not None:
            sent["Authorization"] = f"Bearer {self.secrets.get(key, key)}"
        url = URL(self.address.url + target, encoded=True)
        async with self.session.request(
            method, url, headers=sent, json=json, data=data
        ) as response:
            return Reply(response, await response.read())

    async def raw(self, data: bytes) -> bytes:
        """Send bytes and return everything until the server closes."""
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        try:
            writer.write(data)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def serve_site(
    url: str,
    home: Path,
    *,
    operations: tuple[Operation, ...] = OPERATIONS,
    bounds: RequestBounds | None = None,
    connections: ConnectionBounds | None = None,
    grace_seconds: int = 10,
    **overrides: Any,
) -> AsyncIterator[Site]:
    """Serve an app on a database, with a key for each role."""
    told = settings.load({"database_url": url, "home": home, **overrides}, environ={})
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(App(settings=told))
        services = await stack.enter_async_context(open_services(app))
        api = HttpApi(services, operations=operations, bounds=bounds)
        address = await stack.enter_async_context(
            serving(
                api, "127.0.0.1", 0, tls=server_tls(told), grace_seconds=grace_seconds,
                bounds=connections,
            )
        )  # fmt: skip
        session = await stack.enter_async_context(aiohttp.ClientSession())
        secrets = {
            role: (await services.keys.create(NewKey(name=role, roles=(role,)))).secret
            for role in ROLES
        }
        yield Site(services, address, session, secrets)


@pytest.fixture
def open_site(relevo_url: str, tmp_path: Path) -> Opens:
    """Open a server with the given table and bounds on the test's database."""
    return functools.partial(serve_site, relevo_url, tmp_path)


@pytest.fixture
async def site(open_site: Opens) -> AsyncIterator[Site]:
    """A server with everything as it comes."""
    async with open_site() as site:
        yield site
