"""The official clients, sync and async, called the same way against a running host."""

from __future__ import annotations

import functools
import inspect
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import azure.communication.jobrouter as sync_clients
import azure.communication.jobrouter.aio as async_clients
import pytest
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError

from relevo import App, settings
from relevo.http.access.key_model import NewKey
from relevo.http.application import HttpApi
from relevo.http.server import serving
from relevo.http.services import open_services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.router.watching import OpenOffer

PATIENCE = 20.0
FLAVOURS = {"sync": sync_clients, "async": async_clients}


class Official:
    """One official client; `await client.get_job("j")` whichever flavour it is."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            if inspect.iscoroutinefunction(inspect.unwrap(method)):
                return await method(*arguments, **options)
            return await anyio.to_thread.run_sync(functools.partial(method, *arguments, **options))

        return call

    async def pages(self, name: str, **options: Any) -> list[list[Any]]:
        """Return every page of a list."""
        listed = getattr(self.inner, name)(**options)
        if hasattr(listed, "__aiter__"):
            return [[one async for one in page] async for page in listed.by_page()]
        return await anyio.to_thread.run_sync(
            lambda: [[one for one in page] for page in listed.by_page()]  # noqa: C416
        )

    async def ids(self, name: str, **options: Any) -> list[str]:
        """Return the ids of a list."""
        return [one.id for page in await self.pages(name, **options) for one in page]

    async def refused(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Return the error that a call ends in."""
        with pytest.raises(HttpResponseError) as caught:
            await getattr(self, name)(*arguments, **options)
        return caught.value


class Scene:
    """A host that matches, and both official clients of it."""

    def __init__(self, app: App, *, admin: Official, router: Official) -> None:
        self.app = app
        self.admin = admin
        self.router = router

    async def offer(self, worker_id: str, continuation: str | None = None) -> OpenOffer:
        """Wait for an offer to a worker."""
        page = await self.app.router.watching.read(worker_id, continuation, PATIENCE)
        assert page.items, f"nobody offered anything to {worker_id!r}"
        return page.items[0]

    async def assignment(self, worker_id: str) -> tuple[str, str]:
        """Wait for an offer and accept it; return the job and the assignment."""
        found = await self.offer(worker_id)
        taken = await self.router.accept_job_offer(worker_id, str(found.offer_id))
        return taken.job_id, taken.assignment_id

    async def happens(self, name: str, **data: Any) -> dict[str, Any]:
        """Wait for an event of the log; return its data."""
        at = None
        with anyio.fail_after(PATIENCE):
            while True:
                page = await self.app.events.read(at, wait=1.0)
                at = page.continuation
                for one in page.events:
                    if one.type == f"relevo.router.{name}" and data.items() <= one.data.items():
                        found: dict[str, Any] = one.data
                        return found


@asynccontextmanager
async def scene(flavour: str, database_url: str, home: Path) -> AsyncIterator[Scene]:
    """Open a host with a port, and clients of a flavour with a signing key."""
    told = settings.load({"database_url": database_url, "home": home}, environ={})
    clients = FLAVOURS[flavour]
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(App(settings=told))
        services = await stack.enter_async_context(open_services(app))
        await stack.enter_async_context(app.host())
        address = await stack.enter_async_context(serving(HttpApi(services), "127.0.0.1", 0))
        new = NewKey(name="official", kind="signing", roles=("admin",))
        secret = (await services.keys.create(new)).secret
        opened = []
        for kind in (clients.JobRouterAdministrationClient, clients.JobRouterClient):
            inner = kind(address.url, AzureKeyCredential(secret))
            if hasattr(inner, "__aenter__"):
                await stack.enter_async_context(inner)
            else:
                stack.callback(inner.close)
            opened.append(Official(inner))
        yield Scene(app, admin=opened[0], router=opened[1])
