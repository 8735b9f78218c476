"""Relevo inside a Starlette or FastAPI application, or any other one on ASGI.

import relevo
from fastapi import FastAPI
from relevo.integrations.starlette import StarletteIntegration

app = relevo.App()
integration = StarletteIntegration(app)
web = FastAPI(lifespan=integration.lifespan)   # starts Relevo, and drains it at the end
web.mount("/relevo", integration.http_api)     # the HTTP API, at /relevo/v1/…
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from relevo.errors import Closed
from relevo.http.application import HttpApi
from relevo.http.services import open_services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from relevo.app import App
    from relevo.http.application import Message, Receive, Send
    from relevo.kernel.postgres import Transaction


class StarletteIntegration:
    """Runs a `relevo.App` as long as a web application runs.

    With `serve=False` the application is only a client: other processes run the handlers.
    `lifespan` is a lifespan of your own; it begins when Relevo runs, and ends before it stops.
    """

    def __init__(
        self,
        app: App,
        *,
        serve: bool = True,
        lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
    ) -> None:
        self.app = app
        self._serve = serve
        self._inner = lifespan
        self._api: HttpApi | None = None

    @asynccontextmanager
    async def lifespan(self, web: Any) -> AsyncIterator[Any]:
        """Connect, serve if asked to, and at the end let running work finish (`drain_seconds`)."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.app.host() if self._serve else self.app)
            services = await stack.enter_async_context(open_services(self.app))
            if self.app.settings.access_key is not None:
                await services.keys.ensure_first(self.app.settings.access_key)
            self._api = api = HttpApi(services)
            try:
                if self._inner is None:
                    yield None
                else:
                    async with self._inner(web) as state:
                        yield state
            finally:
                self._api = None
                api.stop()

    async def transaction(self) -> AsyncIterator[Transaction]:
        """Give a transaction of the request: committed after its handler, rolled back if it raises.

        For FastAPI: `Depends(integration.transaction, scope="function")`. The scope makes the
        commit come before the answer.
        """
        async with self.app.database.transaction() as tx:
            yield tx

    async def http_api(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request of the HTTP API (ASGI), under the prefix where it is mounted."""
        if scope["type"] != "http":
            return
        if self._api is None:
            raise Closed(
                "the HTTP API is mounted, but Relevo does not run; pass integration.lifespan as the"
                " lifespan of the web application"
            )
        await self._api(_without_prefix(scope), receive, send)


def _without_prefix(scope: Message) -> Message:
    """The scope with the path below the mount; the target stays whole, for signatures and links."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string", b"")
    prefix = quote(scope.get("root_path", "")).encode()
    below = raw.removeprefix(prefix) if prefix else raw
    return {
        **scope,
        "raw_path": below or b"/",
        "target": scope.get("target") or (raw + b"?" + query if query else raw),
    }
