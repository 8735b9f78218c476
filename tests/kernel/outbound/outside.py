"""A host of the outside world, on loopback: it answers as told and remembers what it was asked."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asked(Struct):
    """A request that has come in."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Outside:
    """Answers requests by the handler of their path; what it was asked is in `asked`."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.port = 0
        self._handlers: dict[str, Handler] = {}

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def at(self, path: str, handler: Handler) -> None:
        self._handlers[path] = handler

    def answers(self, path: str, *answers: Any) -> None:
        """Answer in turn, the last one for ever: a status, a response, or a JSON value with 200."""
        waiting = list(answers)

        async def handler(_: web.Request) -> web.StreamResponse:
            answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if isinstance(answer, Status):
                return web.Response(status=answer.status, body=answer.body)
            return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

        self.at(path, handler)

    def paths(self) -> list[str]:
        return [one.path for one in self.asked]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(request.path, request.headers.copy(), await request.read()))
        return await self._handlers[request.path](request)


class Status(Struct, frozen=True):
    """An answer that is only a status and bytes."""

    status: int
    body: bytes = b""


@asynccontextmanager
async def outside(trust: ssl.SSLContext | None = None) -> AsyncIterator[Outside]:
    """Run such a host on a free port."""
    host = Outside()
    application = web.Application(client_max_size=16 * 1024 * 1024)
    application.router.add_route("*", "/{tail:.*}", host.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
        await site.start()
        host.port = runner.addresses[0][1]
        yield host
    finally:
        await runner.cleanup()


class Names(AbstractResolver):
    """A name server with the answers of a test: each look-up takes the next, the last for ever."""

    def __init__(self, **names: list[list[str]]) -> None:
        self.names = {name.replace("_", "."): list(turns) for name, turns in names.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily | int = 0
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        turns = self.names[host]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in (turns.pop(0) if len(turns) > 1 else turns[0])
        ]

    async def close(self) -> None:
        pass
