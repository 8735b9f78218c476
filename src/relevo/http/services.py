"""The services that handlers get: the app, and the access keys of the HTTP layer."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.app import App
from relevo.http.access.keys import Keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Services(Struct, frozen=True):
    """Handed to every handler."""

    app: App
    keys: Keys

    @property
    def page_bytes(self) -> int:
        """How large a page of a list may be."""
        return self.app.settings.page_bytes


@asynccontextmanager
async def open_services(app: App) -> AsyncIterator[Services]:
    """Open the services of handlers, for HTTP and the CLI; the app must be connected.

    Raises `SettingsError` if the master key is not that of this installation.
    """
    keys = Keys(app.database, await app.vault.key())
    await keys.check_master_key()
    try:
        yield Services(app, keys)
    finally:
        await keys.close()
