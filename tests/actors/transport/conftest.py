"""Processes that call each other over real sockets, all in this one."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relevo.actors.core.calls import Answer, Call, Chain, Returned
from relevo.actors.transport.handshake import PeerIdentity
from relevo.actors.transport.listener import Listener
from relevo.actors.transport.peers import Peers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from relevo.actors.transport.receiving import Peer

KEY = b"k" * 32
PATIENCE = 30.0
"""Seconds that a wait may take; a test that is right never waits so long."""


def a_call(method: str = "echo", body: bytes = b"\x90", **told: Any) -> Call:
    return Call("account/s:alice", method, body, told.pop("timeout", 30.0), Chain(1), **told)


async def until(condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)
    assert condition(), what


class Recorder:
    """Answers `echo` at once, anything else when the test says so."""

    def __init__(self) -> None:
        self.delivered: list[Call] = []
        self.answers: list[asyncio.Future[Answer]] = []
        self.canceled: list[Call] = []
        self.subscribed: dict[int, bytes] = {}
        self.peers: list[Peer] = []
        self.probes: list[bytes] = []
        self.lost_peers = 0

    def deliver(self, call: Call, peer: Peer) -> Awaitable[Answer]:
        if call.method == "fail":
            raise ValueError("a fault of the host")
        self.delivered.append(call)
        self.peers.append(peer)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        if call.method == "echo":
            answer.set_result(Returned(call.body))
        return answer

    def cancel(self, call: Call, answer: Awaitable[Answer], peer: Peer) -> None:
        assert answer in self.answers
        self.canceled.append(call)

    def subscribe(self, subscription: int, body: bytes, peer: Peer) -> Awaitable[Answer]:
        self.subscribed[subscription] = body
        self.peers.append(peer)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        answer.set_result(Returned(b""))
        return answer

    def unsubscribe(self, subscription: int, peer: Peer) -> None:
        del self.subscribed[subscription]

    def probe(self, body: bytes, peer: Peer) -> None:
        self.probes.append(body)

    def lost(self, peer: Peer) -> None:
        self.lost_peers += 1

    @property
    def bodies(self) -> list[bytes]:
        return [call.body for call in self.delivered]


class Process:
    """A process with its peers, and a listener if it is a host."""

    def __init__(self, peers: Peers, recorder: Recorder, listener: Listener | None) -> None:
        self.peers = peers
        self.recorder = recorder
        self.listener = listener

    @property
    def address(self) -> str:
        assert self.listener is not None
        assert self.listener.address is not None
        return self.listener.address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


class Processes:
    """Starts processes, and stops them with the test."""

    def __init__(self, home: Path, stack: AsyncExitStack) -> None:
        self._home = home
        self._stack = stack
        self._count = 0
        self._addresses: dict[str, str | None] = {}

    async def host(
        self, name: str, *, listen: str | None = None, advertise: bool = True, **told: Any
    ) -> Process:
        process = self._process(name, listens=True, **told)
        listener = process.listener = Listener(process.peers, self._home, listen)
        address = await listener.start()
        self._stack.push_async_callback(listener.stop)
        self._addresses[name] = address if advertise else None
        return process

    def client(self, name: str = "client", **told: Any) -> Process:
        return self._process(name, listens=False, **told)

    def _process(self, name: str, *, listens: bool, **told: Any) -> Process:
        self._count += 1
        incarnation = told.pop("incarnation", f"{name}-{self._count}")
        since = told.pop("since", 1 if listens else 0)
        recorder = Recorder()
        settings = {"cluster": "cluster", "key": KEY, "receiver": recorder, **told}

        def identity() -> PeerIdentity:
            return PeerIdentity(name, incarnation, since, self._addresses.get(name))

        peers = Peers(identity, **settings)
        self._stack.push_async_callback(peers.close, 0.5)
        return Process(peers, recorder, None)


class Relay:
    """Passes bytes on to a host until so many have gone upstream; then it resets both ends."""

    def __init__(self, port: int, bytes_max: int) -> None:
        self._target = port
        self.left = bytes_max
        self.passed = 0
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, forth = await asyncio.open_connection("127.0.0.1", self._target)

        async def down() -> None:
            while data := await server.read(65_536):
                back.write(data)

        downstream = asyncio.ensure_future(down())
        with contextlib.suppress(OSError):
            while self.left and (data := await client.read(self.left)):
                forth.write(data)
                await forth.drain()
                self.left -= len(data)
                self.passed += len(data)
        downstream.cancel()
        await asyncio.gather(downstream, return_exceptions=True)
        forth.close()  # what was passed arrives
        back.transport.abort()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path is short, as those of sockets have to be."""
    with tempfile.TemporaryDirectory(prefix="rel-") as folder:
        yield Path(folder)


@pytest.fixture
async def processes(short_path: Path) -> AsyncIterator[Processes]:
    async with AsyncExitStack() as stack:
        yield Processes(short_path, stack)
