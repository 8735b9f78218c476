"""Runs a host in this process: leases, loops, the handlers of a program, and the API."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.app import App
from relevo.cli.hosts.draining import drain_notes
from relevo.cli.hosts.service_manager import ServiceManager
from relevo.cli.hosts.signals import StopSignals
from relevo.dashboard.application import ApiAndDashboard, Dashboard
from relevo.errors import HostSuperseded
from relevo.http.admission import ConnectionBounds
from relevo.http.application import HttpApi
from relevo.http.server import GRACE_SECONDS, Address, serving
from relevo.http.services import Services, open_services
from relevo.http.tls import server_tls
from relevo.kernel.networks import Networks, is_loopback
from relevo.kernel.postgres.embedded.server import EmbeddedServer
from relevo.kernel.serving import run as run_process
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    import ssl

log = get_logger(__name__)
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


class Announcement(Struct, frozen=True, kw_only=True):
    """The facts about a host that has just started to serve."""

    url: str
    host: str
    """Its name in `relevo host list`."""
    version: str
    database: str
    """The location of the data, without a password."""
    embedded: bool
    sign_in: str | None
    """A link that signs in to the dashboard once, on a host that listens on loopback only."""
    first_key: str | None
    """The secret of the first access key if it was created just now; it is never shown again."""
    preset_key: bool

    def __repr__(self) -> str:
        return f"Announcement(url={self.url!r}, host={self.host!r}, first_key=…)"


class Hosting(Struct, frozen=True, kw_only=True):
    """How to run a host: with or without the API, and a task beside it."""

    started: Callable[[App, Announcement | None], None]
    """Called when everything runs, with the facts about the API if it is served."""
    http: bool = True
    meanwhile: Callable[[App], Coroutine[Any, Any, None]] | None = None
    """Runs while the host serves; its end or failure does not stop the host, and is logged."""


def run(app: App, hosting: Hosting) -> None:
    """Serve an app until a signal; return when the host has drained.

    Raises `HostSuperseded` if another process takes over this host's name.
    """
    app.serve_bulk()
    run_process(_host(app, hosting))


async def _host(app: App, hosting: Hosting) -> None:
    with StopSignals() as signals:
        try:
            await _serve(app, hosting, signals)
        except asyncio.CancelledError:
            if not signals.asked.is_set():
                raise


async def _serve(app: App, hosting: Hosting, signals: StopSignals) -> None:
    tls = server_tls(app.settings) if hosting.http else None
    async with AsyncExitStack() as stack:
        signals.farewell = EmbeddedServer.leave_all  # else a server would keep running unused
        await stack.enter_async_context(app)
        stopping = asyncio.Event()
        await stack.enter_async_context(drain_notes(app, stopping))
        http = await stack.enter_async_context(AsyncExitStack())
        api = await _open_api(app, tls, stack, http) if hosting.http else None
        async with app.host():
            announcement = None if api is None else await api.announced(app)
            signals.starting = False
            hosting.started(app, announcement)
            async with ServiceManager().serving():
                await _until_stopped(app, signals, hosting.meanwhile)
            stopping.set()
            await http.aclose()


class _Api(Struct, frozen=True):
    services: Services
    dashboard: Dashboard
    address: Address

    async def announced(self, app: App) -> Announcement:
        # The first key is created last: it is shown only once, so a failed start must not lose it.
        preset = app.settings.access_key
        first_key = None if preset else await self.services.keys.ensure_first(None)
        return _announcement(app, self.address, first_key, await self._sign_in())

    async def _sign_in(self) -> str | None:
        if not is_loopback(self.address.host):
            return None
        return f"{self.address.url}/sign-in?code={await self.dashboard.link_code()}"


async def _open_api(
    app: App, tls: ssl.SSLContext | None, stack: AsyncExitStack, http: AsyncExitStack
) -> _Api:
    """Serve the API until `http` is closed; its services last as long as `stack`."""
    settings = app.settings
    services = await stack.enter_async_context(open_services(app))
    if settings.access_key is not None:  # clients may use it as soon as the port is open
        await services.keys.ensure_first(settings.access_key)
    dashboard = Dashboard(app, services=services)
    server = serving(
        ApiAndDashboard(HttpApi(services), dashboard),
        settings.host,
        settings.port,
        tls=tls,
        grace_seconds=int(min(GRACE_SECONDS, settings.drain_seconds)),
        bounds=ConnectionBounds.of_process(
            own=settings.pool_size,
            trusted=Networks.parse("trusted_proxies", settings.trusted_proxies),
        ),
    )
    address = await http.enter_async_context(server)
    app.settings = msgspec.structs.replace(settings, address=settings.address or reachable(address))
    return _Api(services, dashboard, address)


async def _until_stopped(
    app: App,
    signals: StopSignals,
    meanwhile: Callable[[App], Coroutine[Any, Any, None]] | None,
) -> None:
    superseded = asyncio.ensure_future(app.leases.superseded.wait())
    asked = asyncio.ensure_future(signals.asked.wait())
    beside = [] if meanwhile is None else [asyncio.ensure_future(_logged(meanwhile(app)))]
    try:
        await asyncio.wait({superseded, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (superseded, asked, *beside):
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    if app.leases.superseded.is_set():
        raise HostSuperseded(
            f"another process took over as host {app.leases.name!r}, so this one has stopped; give"
            " each host its own name with --name"
        )


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("host.view_failed")


def reachable(address: Address) -> str:
    """Return the URL under which other machines reach an address."""
    if address.host in _EVERY_ADDRESS:
        return msgspec.structs.replace(address, host=socket.gethostname()).url
    return address.url


def _announcement(
    app: App, address: Address, first_key: str | None, sign_in: str | None
) -> Announcement:
    endpoint = app.database.endpoint
    home = endpoint.embedded.home if endpoint.embedded else None
    return Announcement(
        url=reachable(address),
        host=app.leases.name,
        version=version("relevo"),
        database=str(home or endpoint),
        embedded=home is not None,
        sign_in=sign_in,
        first_key=first_key,
        preset_key=app.settings.access_key is not None,
    )
