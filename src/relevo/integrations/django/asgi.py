"""The dashboard inside a Django project that is served over ASGI.

application = with_dashboard(get_asgi_application())  # asgi.py; pages at /relevo/
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from relevo.app import App
from relevo.dashboard import Dashboard
from relevo.integrations.django import named_app

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.http.streaming import Message, Receive, Send

    Application = Callable[[Any, Any, Any], Awaitable[Any]]

PREFIX: Final = "/relevo"


def with_dashboard(application: Application, *, prefix: str = PREFIX) -> DashboardBeside:
    """Return an ASGI application that has the dashboard under a prefix, and yours elsewhere.

    It shows the database of the App that the setting `RELEVO_APP` names. Visitors sign in with an
    access key or at the OpenID Connect issuer of its settings: Django's sessions do not count.
    """
    return DashboardBeside(application, prefix)


class DashboardBeside:
    """Connects at the server's start, or at the first request where it does not say that."""

    def __init__(self, application: Application, prefix: str) -> None:
        self._application = application
        self._prefix = "/" + prefix.strip("/")
        self._opening = asyncio.Lock()
        self._app: App | None = None
        self._dashboard: Dashboard | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and self._is_ours(scope):
            root = scope.get("root_path", "").rstrip("/")
            inner = {**scope, "root_path": root + self._prefix}
            await (await self._opened())(inner, receive, send)
        else:
            await self._application(scope, receive, send)

    def _is_ours(self, scope: Message) -> bool:
        path = str(scope["path"]).removeprefix(scope.get("root_path", "").rstrip("/"))
        return path == self._prefix or path.startswith(f"{self._prefix}/")

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._opened()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _opened(self) -> Dashboard:
        """Return the dashboard, with an App of its own: the named one belongs to `client()`."""
        async with self._opening:
            if self._dashboard is None:
                self._app = await App(settings=named_app().settings).__aenter__()
                self._dashboard = Dashboard(self._app)
            return self._dashboard

    async def close(self) -> None:
        """Disconnect, for servers that know no lifespan."""
        if self._app is not None:
            await self._app.__aexit__(None, None, None)
            self._app = self._dashboard = None
