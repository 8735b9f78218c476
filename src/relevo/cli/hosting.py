"""Runs one host in this process: the API on its port, leases and loops behind it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from relevo.api.admission import ConnectionBounds
from relevo.api.http import HttpApi
from relevo.api.server import GRACE_SECONDS, Address, serving
from relevo.api.services import open_services
from relevo.api.tls import server_tls
from relevo.app import App
from relevo.cli.signals import StopSignals
from relevo.core.networks import Networks
from relevo.errors import HostSuperseded
from relevo.serving import run as run_process
from relevo.telemetry import configure_logs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.settings import Settings

_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


class Announcement(Struct, frozen=True, kw_only=True):
    """What there is to know about a host that has just begun to serve."""

    url: str
    host: str
    """Its name, as `relevo host list` shows it."""
    version: str
    database: str
    """Where the data is, without a password."""
    embedded: bool
    first_key: str | None
    """The secret of the first access key if it was made just now: the only sight of it."""
    preset_key: bool

    def __repr__(self) -> str:
        return f"Announcement(url={self.url!r}, host={self.host!r}, first_key=…)"


def run(
    settings: Settings,
    announce: Callable[[Announcement], None],
    *,
    define: Callable[[App], None] | None = None,
    also: Callable[[App], Awaitable[None]] | None = None,
) -> None:
    """Serve until a signal; returns when the host has drained.

    `define` may give the app handlers before it serves. `announce` is told when everything runs,
    `also` may join further units before that. Raises `HostSuperseded` if another process takes
    over this host's name.
    """
    configure_logs(settings.log_format, settings.log_level)
    app = App(settings=settings)
    app.serve_bulk()
    if define is not None:
        define(app)
    run_process(_host(app, announce, also))


async def _host(
    app: App,
    announce: Callable[[Announcement], None],
    also: Callable[[App], Awaitable[None]] | None,
) -> None:
    with StopSignals() as signals:
        try:
            await _serve(app, announce, also, signals)
        except asyncio.CancelledError:
            if not signals.asked.is_set():
                raise


async def _serve(
    app: App,
    announce: Callable[[Announcement], None],
    also: Callable[[App], Awaitable[None]] | None,
    signals: StopSignals,
) -> None:
    told = app.settings
    tls = server_tls(told)
    bounds = ConnectionBounds.of_process(
        own=told.pool_size, trusted=Networks.parse("trusted_proxies", told.trusted_proxies)
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app)
        embedded = app.database.endpoint.embedded
        if embedded is not None:
            signals.farewell = embedded.leave  # else it would go on without anybody to use it
        services = await stack.enter_async_context(open_services(app))
        if told.access_key is not None:  # who was given it may come as soon as anybody answers
            await services.keys.ensure_first(told.access_key)
        http = await stack.enter_async_context(AsyncExitStack())
        grace = int(min(GRACE_SECONDS, told.drain_seconds))
        server = serving(
            HttpApi(services), told.host, told.port, tls=tls, grace_seconds=grace, bounds=bounds
        )
        address = await http.enter_async_context(server)
        app.settings = msgspec.structs.replace(told, address=told.address or reachable(address))
        async with app.host():
            if also is not None:
                await also(app)
            # Made last, for it is shown once: a start that fails must not take it along.
            first_key = None if told.access_key else await services.keys.ensure_first(None)
            signals.starting = False
            announce(_announcement(app, address, first_key))
            await _until_stopped(app, signals)
            await http.aclose()


async def _until_stopped(app: App, signals: StopSignals) -> None:
    superseded = asyncio.ensure_future(app.leases.superseded.wait())
    asked = asyncio.ensure_future(signals.asked.wait())
    try:
        await asyncio.wait({superseded, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        superseded.cancel()
        asked.cancel()
    if app.leases.superseded.is_set():
        raise HostSuperseded(
            f"another process took over as host {app.leases.name!r}, so this one has stopped; give"
            " each its own name with --name"
        )


def reachable(address: Address) -> str:
    """Return the URL under which others reach what listens there."""
    if address.host in _EVERY_ADDRESS:
        return msgspec.structs.replace(address, host=socket.gethostname()).url
    return address.url


def _announcement(app: App, address: Address, first_key: str | None) -> Announcement:
    endpoint = app.database.endpoint
    home = endpoint.embedded.home if endpoint.embedded else None
    return Announcement(
        url=reachable(address),
        host=app.leases.name,
        version=version("relevo"),
        database=str(home or endpoint),
        embedded=home is not None,
        first_key=first_key,
        preset_key=app.settings.access_key is not None,
    )
