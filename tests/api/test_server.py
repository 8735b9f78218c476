"""Starting, stopping and the wire: what the server does around the application."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from relevo.api.problem import Answer
from relevo.api.server import serve, serving
from relevo.errors import SettingsError

if TYPE_CHECKING:
    from relevo.api.http import HttpApi
    from relevo.errors import RelevoError

pytestmark = pytest.mark.anyio


class Application:
    """Keeps the scopes it is called with; `/wait` is answered when let through."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = False

    async def __call__(self, scope: Any, _: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["path"] == "/wait":
            self.entered.set()
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    def refuse(self, _: bytes, error: RelevoError) -> Answer:
        return Answer(error.status, (), b"")

    def stop(self) -> None:
        """There are no streams to end."""


def application() -> tuple[Application, HttpApi]:
    made: Any = Application()
    return made, made


async def exchange(port: int, target: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a%2Fb/8%3Aacs:x?c=%2F&d=/+%20", b"/a%2Fb/8%3Aacs:x"),
        (b"/a?", b"/a"),
        (b"//a//b?x=1?y", b"//a//b"),
        (b"/%c3%A9/..//./", b"/%c3%A9/..//./"),
    ],
)
async def test_path_and_target_arrive_as_they_were_on_the_wire(target: bytes, path: bytes) -> None:
    app, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        await exchange(address.port, target)
    assert app.scopes[0]["raw_path"] == path
    assert app.scopes[0]["target"] == target


async def test_port_0_takes_a_free_one_and_says_which() -> None:
    _, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        assert address.port > 0
        assert address.url == f"http://127.0.0.1:{address.port}"
        assert b"done" in await exchange(address.port, b"/")
    with pytest.raises(ConnectionRefusedError):
        await exchange(address.port, b"/")


async def test_a_port_that_is_taken_is_refused_by_name() -> None:
    _, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        with pytest.raises(SettingsError, match=rf"127\.0\.0\.1 port {address.port}.*--port"):
            async with serving(api, "127.0.0.1", address.port):
                pass


async def test_a_host_that_does_not_exist_is_refused_by_name() -> None:
    _, api = application()
    with pytest.raises(SettingsError, match=r"no\.such\.host\.invalid"):
        async with serving(api, "no.such.host.invalid", 0):
            pass


async def test_stopping_lets_requests_in_flight_end_and_takes_no_new_ones() -> None:
    app, api = application()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        stopping = asyncio.Event()
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            async with serving(api, "127.0.0.1", 0) as address:
                started.set_result(address.port)
                await stop.wait()
                stopping.set()

        server = group.create_task(run())
        port = await started

        async def ask() -> bytes:
            async with session.get(f"http://127.0.0.1:{port}/wait") as response:
                return await response.read()

        waiting = group.create_task(ask())
        await app.entered.wait()
        stop.set()
        await stopping.wait()
        while True:  # until the listener is closed: a connection may still be taken before that
            try:
                await exchange(port, b"/")
            except OSError:
                break
        assert not waiting.done()
        app.open.set()
        assert await waiting == b"done"
        await server


async def test_requests_that_outlast_the_grace_are_cut_off() -> None:
    app, api = application()
    async with aiohttp.ClientSession() as session:

        async def ask(port: int) -> int:
            async with session.get(f"http://127.0.0.1:{port}/wait") as response:
                return response.status

        async with serving(api, "127.0.0.1", 0, grace_seconds=0) as address:
            waiting = asyncio.create_task(ask(address.port))
            await app.entered.wait()
        assert await waiting == 500
    assert app.cancelled


async def test_serve_runs_until_it_is_cancelled() -> None:
    _, api = application()
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(api, "127.0.0.1", 0, on_started=lambda address: started.set_result(address.port))
    )
    port = await started
    assert b"done" in await exchange(port, b"/")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ConnectionRefusedError):
        await exchange(port, b"/")


async def test_signals_stay_with_the_caller() -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    _, api = application()
    async with serving(api, "127.0.0.1", 0):
        assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_slow_body_after_an_early_answer_does_not_keep_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relevo.api.server.LINGER_SECONDS", 0.05)
    _, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx")
        assert b"done" in await reader.read()  # ends only because the server closes
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: "])
async def test_a_head_that_does_not_arrive_is_given_up(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relevo.limits.REQUEST_SECONDS_MAX", 0.05)
    _, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()


async def test_a_connection_is_kept_for_the_next_request() -> None:
    app, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
            await reader.readuntil(b"done\r\n0\r\n\r\n")
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n")
        for _ in range(2):
            await reader.readuntil(b"done\r\n0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    assert len(app.scopes) == 5
