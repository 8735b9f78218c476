"""What handlers work with: the app below, and the keys that this layer adds to it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from relevo.api.keys import Keys
from relevo.api.sealing import MasterKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from relevo.leases.directory import Directory
    from relevo.postgres.database import Database
    from relevo.settings import Settings
    from relevo.telemetry.metrics import Metrics


class Health(Protocol):
    """Whether a host can do its work, and if not, why."""

    @property
    def ok(self) -> bool:
        """Whether it can."""

    @property
    def reasons(self) -> Sequence[str]:
        """What stands in the way."""


class AppView(Protocol):
    """The part of `relevo.app.App` that the API uses."""

    @property
    def database(self) -> Database:
        """The store."""

    @property
    def settings(self) -> Settings:
        """What the process was told."""

    @property
    def metrics(self) -> Metrics:
        """The figures of this app."""

    @property
    def directory(self) -> Directory:
        """Hosts and leases, as operators see them."""

    def health(self) -> Health:
        """Whether the app can do its work."""


class Services(Struct, frozen=True):
    """Handed to every handler."""

    app: AppView
    keys: Keys


@asynccontextmanager
async def open_services(app: AppView) -> AsyncIterator[Services]:
    """Give what handlers need, for HTTP and for the CLI in process.

    Raises `SettingsError` if the master key is not that of this installation.
    """
    settings = app.settings
    keys = Keys(app.database, MasterKey.load(settings.secret_key, settings.home))
    await keys.check_master_key()
    try:
        yield Services(app, keys)
    finally:
        await keys.close()
