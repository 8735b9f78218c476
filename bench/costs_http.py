"""Calls over HTTP for `bench.costs`: `python -m bench.costs_http URL HOME` is their server.

It serves the API, and one operation more: a bare insert, answered by an empty JSON.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
from msgspec import Struct

from relevo import App, settings
from relevo.http.access.key_model import NewKey
from relevo.http.application import HttpApi
from relevo.http.operations import OPERATIONS
from relevo.http.server import serving
from relevo.http.services import Services, open_services
from relevo.kernel import telemetry
from relevo.kernel.operation import Operations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

TEXT: Final = "x" * 180
INSERT: Final = "insert into public.bench_row (body) values ($1)"
VERSION: Final = {"api-version": "2023-11-01"}
operation = Operations()


class Nothing(Struct, frozen=True):
    """An empty answer."""


class BareRow(Struct, frozen=True):
    """What is inserted."""

    text: str


@operation("bench.insert", "POST /v1/bench", "jobs:submit", errors=())
async def insert(services: Services, _: Any, command: BareRow) -> Nothing:
    """Insert one row."""
    await services.app.database.write(INSERT, command.text)
    return Nothing()


async def main(url: str, home: str) -> None:
    """Serve until standard input ends."""
    telemetry.configure_logs("json", "warning")
    chosen = settings.load(
        {"database_url": url, "home": home, "requests_per_second": 1_000_000}, environ={}
    )
    async with App(settings=chosen) as app, open_services(app) as services:
        api = HttpApi(services, operations=(*OPERATIONS, *operation))
        async with serving(api, "127.0.0.1", 0, grace_seconds=1) as address:
            key = await services.keys.create(NewKey(name="bench", roles=("admin",)))
            print(msgspec.json.encode([address.url, key.secret]).decode(), flush=True)
            await asyncio.to_thread(sys.stdin.readline)


@asynccontextmanager
async def http_calls(
    url: str, home: Path
) -> AsyncIterator[dict[str, tuple[Callable[[int], Awaitable[object]], int]]]:
    """Start the server; yield calls of it, and the process whose CPU counts."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.costs_http", url, str(home),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    assert server.stdin is not None
    address, secret = msgspec.json.decode(await server.stdout.readline())
    headers = {"Authorization": f"Bearer {secret}"}
    try:
        async with aiohttp.ClientSession(address, headers=headers) as session:

            async def post(path: str, body: dict[str, Any]) -> None:
                async with session.post(path, json=body) as answer:
                    assert answer.status < 300, await answer.text()
                    await answer.read()

            async def route(number: int) -> None:
                path, body = f"/routing/jobs/http-{number}", {"channelId": "c", "queueId": "bench"}
                async with session.patch(path, params=VERSION, json=body) as answer:
                    assert answer.status == 201, await answer.text()
                    await answer.read()

            job = {"handler": "nobody", "data": {"text": TEXT}}
            calls: dict[str, Callable[[int], Awaitable[object]]] = {
                "HTTP, empty JSON after a bare insert": lambda _: post("/v1/bench", {"text": TEXT}),
                "HTTP, job by POST /v1/jobs": lambda _: post("/v1/jobs", job),
                "HTTP, router job by Microsoft's surface": route,
            }
            yield {name: (call, server.pid) for name, call in calls.items()}
    finally:
        server.stdin.close()
        await server.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
