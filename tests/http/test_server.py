"""Starting, stopping and the wire: what the server does around the application."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import signal
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relevo import limits
from relevo.errors import Overloaded, RateLimited, SettingsError
from relevo.http.admission import ConnectionBounds, PeerLog, RequestShares
from relevo.http.answers import Answer
from relevo.http.server import serve, serving
from tests.support.logs import capture_logs

if TYPE_CHECKING:
    from relevo.errors import RelevoError
    from relevo.http.application import HttpApi

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
        body = b"x" * (16 * limits.MIB) if scope["path"] == "/large" else b"done"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    def refuse(self, _: bytes, error: RelevoError) -> Answer:
        return Answer(error.status, (), error.message.encode())

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
    monkeypatch.setattr("relevo.http.protocol.LINGER_SECONDS", 0.05)
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


HEAD = b"GET / HTTP/1.1\r\nHost: h\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (HEAD + b"X-Endless: ", b"x"),
        (HEAD, b"X-Many: y\r\n"),
        (b"GET /", b"x"),
        (b"", b"\r\n"),
        (HEAD + b"\r\n", b"\r\n"),
        (CHUNKED + b"1\r\nx\r\n0\r\nX-Trailer: ", b"x"),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"X-Trailer: y\r\n"),
        (CHUNKED + b"1;extension=", b"x"),
    ],
    ids=["header", "headers", "target", "lines", "lines between", "trailer", "trailers", "chunk"],
)
async def test_what_is_no_body_is_bounded_in_bytes_as_it_arrives(begin: bytes, more: bytes) -> None:
    _, api = application()
    piece = more * (4_096 // len(more))
    async with serving(api, "127.0.0.1", 0) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(begin)
        reading = asyncio.create_task(reader.read())
        while not reading.done():  # only the server ends this
            writer.write(piece)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            await asyncio.sleep(0)
        writer.close()
        if reading.exception() is None:
            assert b"HTTP/1.1 431 " in reading.result()


async def test_garbage_after_a_valid_request_is_refused_behind_its_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        with capture_logs() as lines, caplog.at_level(logging.INFO):
            for _ in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
                app.entered.clear()
                app.open.clear()
                writer.write(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n\x00garbage\r\n\r\n")
                await app.entered.wait()
                app.open.set()
                answer = await reader.read()
                first, _, second = answer.partition(b"done\r\n0\r\n\r\n")
                assert first.startswith(b"HTTP/1.1 200 ")
                assert second.startswith(b"HTTP/1.1 400 ")
                writer.close()
    refused = [line for line in lines if line["event"] == "http.refused"]
    assert 1 <= len(refused) < 20  # one per peer and second
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_broken_body_is_refused_at_once_and_its_handler_does_not_wait_for_the_rest() -> (
    None
):
    app, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(CHUNKED.replace(b"POST /", b"POST /wait") + b"no size\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        app.open.set()
        writer.close()


def test_a_peer_gets_a_line_per_second_and_the_next_one_counts_the_others() -> None:
    now = 100.0
    peers = PeerLog(clock=lambda: now)
    with capture_logs() as lines:
        for _ in range(5):
            peers.note("192.0.2.1", "http.refused", reason="garbage")
        peers.note("2001:db8::1", "http.refused", reason="garbage")
        peers.note("2001:db8::2", "http.refused", reason="garbage")  # of the same subscriber
        now += 1.0
        peers.note("192.0.2.1", "http.refused", reason="garbage")
    told = [(line["peer"], line.get("more", 0)) for line in lines]
    assert told == [("192.0.2.1", 0), ("2001:db8::/64", 0), ("192.0.2.1", 4)]


def hung_up(peer: socket.socket) -> None:
    """Wait until the other side is gone, without reading anything."""
    poll = select.poll()
    poll.register(peer, 0)
    assert poll.poll(60_000), "the server keeps a peer that does not read"


@pytest.mark.parametrize("requests", [1, 40])
@pytest.mark.parametrize("closing", [b"", b"Connection: close\r\n"])
async def test_a_peer_that_does_not_read_its_answers_is_dropped(
    requests: int,
    closing: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("relevo.limits.UNSENT_SECONDS_MAX", 0.1)
    _, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        peer = socket.create_connection(("127.0.0.1", address.port))
        request = b"GET /large HTTP/1.1\r\nHost: h\r\n" + closing + b"\r\n"
        peer.sendall(request * requests)
        await asyncio.to_thread(hung_up, peer)
        peer.close()
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_peer_that_reads_slowly_gets_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relevo.limits.UNSENT_SECONDS_MAX", 0.6)
    monkeypatch.setattr("relevo.limits.UNSENT_BYTES_MIN", 1)
    _, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        size = 0
        while data := await reader.read(2 * limits.MIB):
            size += len(data)
            await asyncio.sleep(0.02)
        assert size > 16 * limits.MIB
        writer.close()


async def test_the_worst_go_when_too_much_waits_for_peers_that_read_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relevo.limits.UNSENT_BYTES_MAX", limits.MIB)
    _, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        peer = socket.create_connection(("127.0.0.1", address.port))
        peer.sendall(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.to_thread(hung_up, peer)
        assert b"done" in await exchange(address.port, b"/")
        peer.close()


async def test_requests_sent_ahead_are_bounded_and_those_within_the_bound_are_answered() -> None:
    app, api = application()
    async with serving(api, "127.0.0.1", 0) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        request = b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"
        writer.write(request * (2 * limits.PIPELINED_REQUESTS_MAX))
        app.open.set()
        answer = await reader.read()
        writer.close()
    assert answer.count(b"HTTP/1.1 200 ") == limits.PIPELINED_REQUESTS_MAX + 1
    assert answer.count(b"HTTP/1.1 429 ") == 1
    assert b"send the others when answers have come" in answer


def test_the_bound_on_connections_leaves_descriptors_for_probes_and_for_the_host_itself() -> None:
    for descriptors in (256, 1_024, 65_536):
        bounds = ConnectionBounds.within(descriptors, own=10)
        taken = bounds.most + bounds.probes + bounds.backlog
        assert descriptors - taken >= 10 + limits.DESCRIPTORS_KEPT
        assert bounds.per_address <= bounds.most // 2
    with pytest.raises(SettingsError, match=r"may open 64 files.*ulimit -n"):
        ConnectionBounds.within(64, own=10)


async def test_no_address_takes_all_connections_and_probes_are_answered_beyond_the_bound() -> None:
    app, api = application()
    bounds = ConnectionBounds(most=4, per_address=2, probes=2, backlog=16)
    async with serving(api, "127.0.0.1", 0, bounds=bounds) as address:
        idle = [await asyncio.open_connection("127.0.0.1", address.port) for _ in range(12)]
        assert b"connection: close" in await exchange(address.port, b"/")
        assert "connections of one address" in app.scopes[0]["crowded"]
        for _, writer in idle[:2]:  # the others were dropped
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        for reader, _ in idle[:2]:
            await reader.readuntil(b"done\r\n0\r\n\r\n")
        assert all("crowded" not in scope for scope in app.scopes[1:])
        for _, writer in idle:
            writer.close()


def test_nobody_holds_more_than_is_left_for_the_others() -> None:
    shares = RequestShares("requests in flight", 12)
    for _ in range(6):
        shares.take("a")
    with pytest.raises(RateLimited, match=r"you have 6 requests in flight .* 6 are left"):
        shares.take("a")
    for _ in range(3):
        shares.take("b")
    with pytest.raises(RateLimited):
        shares.take("b")
    for newcomer in ("c", "d", "e"):
        shares.take(newcomer)
    with pytest.raises(Overloaded, match="12 requests in flight"):
        shares.take("f")
    shares.give("a")
    shares.take("f")


def test_a_uvicorn_that_lacks_what_we_override_is_refused_by_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(HttpToolsProtocol, "on_response_complete")
    with pytest.raises(SettingsError, match=rf"uvicorn {uvicorn.__version__}.*response_complete"):
        asyncio.run(serving_once())


async def serving_once() -> None:
    _, api = application()
    async with serving(api, "127.0.0.1", 0):
        pass
