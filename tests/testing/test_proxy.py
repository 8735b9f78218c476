"""The proxy between real sockets, and between asyncpg and a real PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import select
import socket
import socketserver
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import asyncpg
import pytest
from msgspec import Struct

from relevo.errors import Closed, InvalidValue
from relevo.testing.proxy import Bytes, Proxy
from relevo.testing.proxy_connections import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

LOST = (asyncpg.ConnectionDoesNotExistError, ConnectionResetError)


class Echo:
    """An echo server in threads of its own, which remembers what reached it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.received = bytearray()
        self.peers: list[socket.socket] = []
        self._closed = 0
        self._news = threading.Condition()
        serve = self._serve

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                serve(self.request)

        self.target: tuple[str, int] | str
        self._server: socketserver.TCPServer
        if kind == "unix":
            self.target = str(folder / "echo.sock")
            self._server = socketserver.ThreadingUnixStreamServer(self.target, Handler)
        else:
            self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
            self.target = ("127.0.0.1", self._server.server_address[1])

    def __enter__(self) -> Echo:
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for_closed(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self._closed >= count, timeout=30)

    def _serve(self, peer: socket.socket) -> None:
        self.peers.append(peer)
        with suppress(ConnectionError):
            while data := peer.recv(CHUNK_BYTES):
                self.received += data
                peer.sendall(data)
        with self._news:
            self._closed += 1
            self._news.notify_all()


class Bench:
    """An echo server, a proxy to it, and clients that go through the proxy."""

    def __init__(self, echo: Echo, proxy: Proxy, closing: ExitStack) -> None:
        self.echo = echo
        self.proxy = proxy
        self._closing = closing

    def connect(self) -> socket.socket:
        address = ("127.0.0.1", self.proxy.port)
        return self._closing.enter_context(socket.create_connection(address))

    def echoes(self, client: socket.socket, data: bytes = b"ping") -> bool:
        client.sendall(data)
        return received(client, len(data)) == data


def received(client: socket.socket, size: int) -> bytes:
    """`size` bytes; fewer if the connection ends before."""
    return client.recv(size, socket.MSG_WAITALL)


def has_news(client: socket.socket) -> bool:
    """Bytes, an end or a reset are there to be read."""
    return bool(select.select([client], [], [], 0)[0])


@pytest.fixture(params=["tcp", "unix"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with (
        Echo(request.param, tmp_path) as echo,
        Proxy(echo.target) as proxy,
        ExitStack() as closing,
    ):
        yield Bench(echo, proxy, closing)


def test_bytes_pass_both_ways_and_are_counted(bench: Bench) -> None:
    one, other = bench.connect(), bench.connect()
    assert bench.echoes(one, b"hello")
    assert bench.echoes(other, b"you")
    assert bench.proxy.connections == 2
    bench.proxy.wait(lambda: bench.proxy.transferred == Bytes(upstream=8, downstream=8))
    assert bench.proxy.held == Bytes(upstream=0, downstream=0)


def test_an_end_of_stream_passes(bench: Bench) -> None:
    client = bench.connect()
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    assert received(client, 10) == b"last words"
    assert received(client, 1) == b""
    bench.proxy.wait(lambda: bench.proxy.connections == 0)


def test_a_cut_holds_bytes_and_healing_delivers_them_late(bench: Bench) -> None:
    client = bench.connect()
    assert bench.echoes(client)
    bench.proxy.cut()
    client.sendall(b"late")
    bench.proxy.wait(lambda: bench.proxy.held.upstream == 4)
    assert bench.echo.received == b"ping"
    assert not has_news(client)
    bench.proxy.heal()
    assert received(client, 4) == b"late"


def test_an_upstream_cut_lets_the_server_speak(bench: Bench) -> None:
    client = bench.connect()
    assert bench.echoes(client)
    bench.proxy.cut_upstream()
    client.sendall(b"late")
    bench.echo.peers[0].sendall(b"news")
    assert received(client, 4) == b"news"
    bench.proxy.wait(lambda: bench.proxy.held.upstream == 4)
    assert bench.echo.received == b"ping"
    bench.proxy.heal()
    assert received(client, 4) == b"late"


def test_a_downstream_cut_lets_the_client_speak(bench: Bench) -> None:
    client = bench.connect()
    assert bench.echoes(client)
    bench.proxy.cut_downstream()
    client.sendall(b"heard")
    bench.proxy.wait(lambda: bench.proxy.held.downstream == 5)
    assert bench.echo.received == b"pingheard"
    assert not has_news(client)
    bench.proxy.heal()
    assert received(client, 5) == b"heard"


def test_a_cut_hides_that_the_other_side_is_gone(bench: Bench) -> None:
    dying = bench.connect()
    assert bench.echoes(dying)
    asking = bench.connect()
    bench.proxy.cut_downstream()
    bench.echo.peers[0].shutdown(socket.SHUT_WR)
    # The proxy looks at all its sockets at once: having seen these bytes, it has seen that end.
    asking.sendall(b"still there?")
    bench.proxy.wait(lambda: bench.proxy.transferred.upstream == 16)
    assert not has_news(dying)
    bench.proxy.heal()
    assert received(dying, 1) == b""


def test_a_cut_hides_a_reset_from_the_server_until_it_is_healed(bench: Bench) -> None:
    dying, asking = bench.connect(), bench.connect()
    assert bench.echoes(dying)
    assert bench.echoes(asking)
    bench.proxy.cut()
    dying.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    dying.close()
    asking.sendall(b"held")
    bench.proxy.wait(lambda: bench.proxy.held.upstream == 4)
    bench.proxy.cut()  # one more round through its loop, in which it would end the connection
    assert bench.proxy.connections == 2
    bench.proxy.heal()
    bench.echo.wait_for_closed(1)
    bench.proxy.wait(lambda: bench.proxy.connections == 1)


def test_a_connection_made_in_a_cut_is_unknown_to_the_server(tmp_path: Path) -> None:
    with Proxy(tmp_path / "echo.sock") as proxy:
        proxy.cut()
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(b"anybody?")
            proxy.wait(lambda: proxy.connections == 1)
            proxy.cut()  # one more round through its loop, in which it would find no server
            with Echo("unix", tmp_path):
                proxy.heal()
                assert received(client, 8) == b"anybody?"
                client.shutdown(socket.SHUT_WR)


def test_healing_with_drop_resets_and_delivers_nothing_that_was_held(bench: Bench) -> None:
    client = bench.connect()
    assert bench.echoes(client)
    bench.proxy.cut()
    client.sendall(b"lost")
    bench.proxy.wait(lambda: bench.proxy.held.upstream == 4)
    bench.proxy.heal(drop=True)
    with pytest.raises(ConnectionResetError):
        received(client, 1)
    bench.echo.wait_for_closed(1)
    assert bench.echo.received == b"ping"
    assert bench.proxy.held == Bytes(upstream=0, downstream=0)
    assert bench.echoes(bench.connect())


def test_a_connection_that_is_reset_before_it_began_leaves_no_socket_open(bench: Bench) -> None:
    ends: list[socket.socket] = []

    def accept_and_reset() -> None:  # in one go, so that what carries the bytes never runs
        bench.connect()
        listener = bench.proxy._listener
        assert listener
        select.select([listener], [], [], 30)
        bench.proxy._accept(listener)
        ends.extend(end for one in bench.proxy._open.values() for end in one._sockets)
        bench.proxy._end(reset=True)

    bench.proxy._apply(accept_and_reset)
    bench.proxy.wait(lambda: bench.proxy.connections == 0)
    assert [end.fileno() for end in ends] == [-1]


def test_reset_breaks_present_connections_only(bench: Bench) -> None:
    clients = [bench.connect(), bench.connect()]
    for client in clients:
        assert bench.echoes(client)
    bench.proxy.reset()
    assert bench.proxy.connections == 0
    for client in clients:
        with pytest.raises(ConnectionResetError):
            received(client, 1)
    bench.echo.wait_for_closed(2)
    assert bench.echoes(bench.connect())


def test_refuse_turns_new_connections_away_and_keeps_present_ones(bench: Bench) -> None:
    client, port = bench.connect(), bench.proxy.port
    assert bench.echoes(client)
    bench.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        bench.connect()
    assert bench.echoes(client)
    bench.proxy.heal()
    assert bench.proxy.port == port
    assert bench.echoes(bench.connect())


def test_a_server_that_is_down_shows_as_a_reset(tmp_path: Path) -> None:
    with (
        Proxy(tmp_path / "nobody.sock") as proxy,
        pytest.raises(ConnectionResetError),
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        client.recv(1)


def test_a_pattern_acts_just_before_it_is_delivered(bench: Bench) -> None:
    client = bench.connect()
    trigger = bench.proxy.on_bytes("upstream", b"COMMIT", bench.proxy.cut)
    client.sendall(b"INSERT; COMMIT;")
    bench.proxy.wait(lambda: trigger.fired == 1)
    assert bench.proxy.transferred.upstream == len(b"INSERT; ")
    assert bench.proxy.held.upstream == len(b"COMMIT;")
    bench.proxy.heal()
    assert received(client, 15) == b"INSERT; COMMIT;"


def test_a_pattern_is_found_across_chunks(bench: Bench) -> None:
    client = bench.connect()
    trigger = bench.proxy.on_bytes("upstream", b"COMMIT", bench.proxy.cut_upstream)
    for part in (b"COMM", b"COM"):
        assert bench.echoes(client, part)
    assert trigger.fired == 0
    client.sendall(b"MIT;")
    bench.proxy.wait(lambda: trigger.fired == 1)
    assert bench.proxy.held.upstream == len(b"MIT;")
    assert bench.echo.received == b"COMMCOM"


def test_a_pattern_may_break_the_connection_before_the_answer_is_seen(bench: Bench) -> None:
    client = bench.connect()
    bench.proxy.on_bytes("downstream", b"COMMIT", bench.proxy.reset)
    client.sendall(b"COMMIT")
    with pytest.raises(ConnectionResetError):
        received(client, 1)
    assert bench.echo.received == b"COMMIT"
    assert bench.proxy.transferred == Bytes(upstream=6, downstream=0)


def test_a_pattern_acts_as_often_as_asked_and_each_match_once(bench: Bench) -> None:
    client, seen = bench.connect(), []
    twice = bench.proxy.on_bytes(
        "upstream", re.compile(rb"commit|rollback", re.IGNORECASE), lambda: seen.append(1), times=2
    )
    always = bench.proxy.on_bytes("upstream", b"T", lambda: seen.append(2), times=None)
    for part in (b"COMMIT;Commit;", b"ROLLBACK", b"T"):
        assert bench.echoes(client, part)
    assert (twice.fired, always.fired) == (2, 2)
    assert seen == [1, 2, 1, 2]
    bench.proxy.heal()
    assert bench.echoes(client, b"T")
    assert always.fired == 2


def test_an_action_that_fails_is_raised_when_the_proxy_is_closed(bench: Bench) -> None:
    def fail() -> None:
        raise ProcessLookupError("no such process")

    client = bench.connect()
    bench.proxy.on_bytes("upstream", b"x", fail)
    client.sendall(b"x")
    assert received(client, 1) == b""
    with pytest.RaisesGroup(ProcessLookupError, flatten_subgroups=True):
        bench.proxy.close()


def test_latency_ends_when_it_is_healed(bench: Bench) -> None:
    client = bench.connect()
    bench.proxy.slow(latency=3600.0, jitter=3600.0)
    client.sendall(b"slow")
    bench.proxy.wait(lambda: bench.proxy.held.upstream == 4)
    assert bench.echo.received == b""
    bench.proxy.heal()
    assert received(client, 4) == b"slow"


def test_a_limited_rate_drips(bench: Bench) -> None:
    client, sent = bench.connect(), bytes(100_000)
    bench.proxy.slow(bytes_per_second=1000.0)
    client.sendall(sent)
    bench.proxy.wait(lambda: bench.proxy.transferred.upstream > 0)
    assert bench.proxy.held.upstream > 0
    bench.proxy.heal()
    assert received(client, len(sent)) == sent


def test_a_cut_stops_a_transfer_at_once_and_holds_no_more_than_a_chunk(bench: Bench) -> None:
    client, sent = bench.connect(), bytes(range(256)) * 256 * 1024
    sending = threading.Thread(target=client.sendall, args=[sent])
    sending.start()
    bench.proxy.wait(lambda: bench.proxy.transferred.downstream > 0)
    bench.proxy.cut()
    before = bench.proxy.transferred
    assert max(bench.proxy.held.upstream, bench.proxy.held.downstream) <= CHUNK_BYTES
    assert sending.is_alive()  # it is far more than the kernel buffers
    echoed = received(client, before.downstream)  # makes room for what must not come
    assert not has_news(client)
    assert bench.proxy.transferred == before
    bench.proxy.heal()
    echoed += received(client, len(sent) - len(echoed))
    sending.join()
    assert echoed == sent


def test_it_serves_threads_without_an_event_loop_while_it_is_shaken(tmp_path: Path) -> None:
    def talk(port: int, answers: list[bytes]) -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            for number in range(200):
                client.sendall(b"%06d" % number)
                answers.append(client.recv(6, socket.MSG_WAITALL))

    answers: list[list[bytes]] = [[] for _ in range(4)]
    with Echo("tcp", tmp_path) as echo, Proxy(echo.target, seed=7) as proxy:
        talkers = [threading.Thread(target=talk, args=(proxy.port, each)) for each in answers]
        for talker in talkers:
            talker.start()
        proxy.wait(lambda: proxy.connections == 4)
        while any(talker.is_alive() for talker in talkers):
            proxy.cut()
            proxy.heal()
            proxy.slow(jitter=0.001)
            proxy.cut_upstream()
            proxy.refuse()
            proxy.heal()
        proxy.wait(lambda: proxy.connections == 0)
    assert answers == [[b"%06d" % number for number in range(200)]] * 4
    assert proxy.transferred == Bytes(upstream=4 * 200 * 6, downstream=4 * 200 * 6)


def test_a_condition_that_never_holds_times_out_with_the_counts(bench: Bench) -> None:
    with pytest.raises(TimeoutError, match=r"0 connections.*upstream=0"):
        bench.proxy.wait(lambda: bench.proxy.connections > 0, timeout=0.0)


def test_a_proxy_that_is_not_running_says_so(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path / "nobody.sock")
    for _ in range(2):
        with pytest.raises(Closed):
            proxy.cut()
        with pytest.raises(Closed):
            _ = proxy.port
        with proxy:
            proxy.cut()
        proxy.close()


@pytest.mark.parametrize(
    ("base", "through"),
    [
        ("postgresql://ana:s%40crt@db:6432/shop", "postgresql://ana:s%40crt@127.0.0.1:{}/shop"),
        ("postgres://postgres:@/x?host=/run/pg&port=5433", "postgres://postgres:@127.0.0.1:{}/x"),
        ("postgresql://ana@%2Frun%2Fpg/shop", "postgresql://ana@127.0.0.1:{}/shop"),
        ("postgresql://a:1,b:2/x?options=%20", "postgresql://127.0.0.1:{}/x?options=%20"),
    ],
)
def test_a_url_is_led_through_the_proxy(tmp_path: Path, base: str, through: str) -> None:
    with Proxy(tmp_path / "nobody.sock") as proxy:
        assert proxy.url(base) == through.format(proxy.port)


def test_the_target_is_read_from_a_url(tmp_path: Path) -> None:
    with (
        Echo("tcp", tmp_path) as echo,
        Proxy.to(f"postgresql://ana@localhost:{echo.target[1]}/x") as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        client.sendall(b"ping")
        assert client.recv(4, socket.MSG_WAITALL) == b"ping"


@pytest.mark.parametrize("url", ["postgresql:///x", "postgresql://a,b/x", "postgresql://a:1,b:2/x"])
def test_a_url_without_exactly_one_host_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="one host"):
        Proxy.to(url)


class Ledger(Struct):
    """A table in a real PostgreSQL, seen through the proxy and directly."""

    proxy: Proxy
    through: asyncpg.Connection
    direct: asyncpg.Connection

    async def rows(self) -> int:
        return int(await self.direct.fetchval("select count(*) from ledger"))

    async def insert(self) -> None:
        async with self.through.transaction():
            await self.through.execute("insert into ledger values (1)")


@pytest.fixture
async def ledger(relevo_url: str) -> AsyncIterator[Ledger]:
    async with Proxy.to(relevo_url) as proxy:
        direct = await asyncpg.connect(relevo_url)
        through = await asyncpg.connect(proxy.url(relevo_url))
        await direct.execute("create table ledger (id int)")
        yield Ledger(proxy, through, direct)
        through.terminate()
        await direct.close()


async def test_postgres_answers_through_the_proxy(ledger: Ledger) -> None:
    await ledger.insert()
    assert await ledger.through.fetchval("select count(*) from ledger") == 1
    assert ledger.proxy.connections == 1


async def test_a_query_hangs_in_a_cut_and_completes_when_it_is_healed(ledger: Ledger) -> None:
    ledger.proxy.cut()
    query = asyncio.create_task(ledger.through.fetchval("select 6 * 7"))
    await ledger.proxy.until(lambda: ledger.proxy.held.upstream > 0)
    assert not query.done()
    ledger.proxy.heal()
    assert await query == 42


async def test_a_reset_fails_the_query_under_way(ledger: Ledger) -> None:
    trigger = ledger.proxy.on_bytes("upstream", b"pg_sleep", ledger.proxy.reset)
    with pytest.raises(LOST):
        await ledger.through.execute("select pg_sleep(3600)")
    assert trigger.fired == 1


async def test_a_commit_whose_answer_is_lost_has_happened(ledger: Ledger) -> None:
    trigger = ledger.proxy.on_bytes("upstream", b"COMMIT", ledger.proxy.cut_downstream)
    inserting = asyncio.create_task(ledger.insert())
    await ledger.proxy.until(lambda: trigger.fired == 1 and ledger.proxy.held.downstream > 0)
    assert not inserting.done()
    assert await ledger.rows() == 1
    ledger.proxy.heal(drop=True)
    with pytest.raises(LOST):
        await inserting
    assert await ledger.rows() == 1


async def test_a_commit_that_is_lost_itself_has_not_happened(ledger: Ledger) -> None:
    trigger = ledger.proxy.on_bytes("upstream", b"COMMIT", ledger.proxy.cut)
    inserting = asyncio.create_task(ledger.insert())
    await ledger.proxy.until(lambda: trigger.fired == 1)
    ledger.proxy.heal(drop=True)
    with pytest.raises(LOST):
        await inserting
    # Who gets the table for itself knows that the transaction has ended.
    await ledger.direct.execute("begin; lock table ledger; commit")
    assert await ledger.rows() == 0
