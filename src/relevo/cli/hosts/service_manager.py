"""Tells a service manager how the host is: the protocol of systemd for `Type=notify` units."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_SOCKET = "NOTIFY_SOCKET"
_WATCHDOG = "WATCHDOG_USEC"


class ServiceManager:
    """The one that started this process; does nothing if there is none."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        path = environ.get(_SOCKET, "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._watchdog_seconds = int(environ.get(_WATCHDOG) or 0) / 1e6

    def tell(self, message: str) -> None:
        """Send a message, such as `READY=1`; a host does not stop because nobody listens."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(self._address)
            sender.send(message.encode())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Say that the host serves, and again and again that its event loop turns."""
        self.tell("READY=1")
        beats = asyncio.ensure_future(self._beat())
        try:
            yield
        finally:
            beats.cancel()
            self.tell("STOPPING=1")

    async def _beat(self) -> None:
        while self._watchdog_seconds:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / 2)
