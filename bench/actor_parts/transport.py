"""What a call between hosts costs, beside the bare frames that it is made of.

A part of `python -m bench actors`.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from bench import Figure
from relevo.actors.core.calls import Answer, Call, Chain, Returned
from relevo.actors.transport import frames
from relevo.actors.transport.handshake import PeerIdentity
from relevo.actors.transport.listener import Listener
from relevo.actors.transport.peers import Peers
from relevo.actors.transport.receiving import NoReceiver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.actors.transport.receiving import Peer

CALLS: Final = 20_000
CALLERS: Final = 500
ROUNDS: Final = 5
BODY: Final = msgspec.msgpack.encode([500])


def a_call() -> Call:
    return Call("account/s:alice", "deposit", BODY, 30.0, Chain(1))


class Echo(NoReceiver):
    def deliver(self, call: Call, peer: Peer) -> Awaitable[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        answer.set_result(Returned(call.body))
        return answer


class Bare(asyncio.Protocol):
    """Frames and nothing else."""

    def __init__(self) -> None:
        self._reader = frames.FrameReader(1_000_000)
        self._out = bytearray()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._number = 0
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        for payload in self._reader.feed(data):
            match frames.decode(payload):
                case frames.CallFrame(number, call):
                    self._put(frames.AnswerFrame(number, Returned(call.body)))
                case frames.AnswerFrame(number, answer):
                    self._waiting.pop(number).set_result(answer)

    def call(self, call: Call) -> asyncio.Future[Answer]:
        self._number += 1
        answer = self._waiting[self._number] = self._loop.create_future()
        self._put(frames.CallFrame(self._number, call))
        return answer

    def _put(self, frame: frames.TransportFrame) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        frames.append(self._out, frame)

    def _flush(self) -> None:
        data, self._out = self._out, bytearray()
        self._transport.write(data)


async def rate(ask: Callable[[], Awaitable[Answer]], callers: int, calls: int) -> float:
    async def one() -> None:
        for _ in range(calls // callers):
            await ask()

    gc.collect()
    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(callers)))
    return calls / (time.perf_counter() - begun)


async def measure(name: str) -> list[Figure]:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        receiver = Peers(
            partial(PeerIdentity, "b", "2", 1), cluster="c", key=bytes(32), receiver=Echo()
        )
        caller = Peers(partial(PeerIdentity, "a", "1"), cluster="c", key=bytes(32))
        listener = Listener(receiver, Path(folder))
        address = await listener.start()
        server = await loop.create_unix_server(Bare, f"{folder}/bare.sock")
        transport, bare = await loop.create_unix_connection(Bare, f"{folder}/bare.sock")
        figures = []
        for title, callers, calls in (
            ("pipelined", CALLERS, CALLS),
            ("one by one", 1, CALLS // 10),
        ):
            rates: tuple[list[float], list[float]] = ([], [])
            for _ in range(ROUNDS):
                rates[0].append(await rate(lambda: caller.call(address, a_call()), callers, calls))
                rates[1].append(await rate(lambda: bare.call(a_call()), callers, calls))
            figures.append(
                Figure(
                    name=f"asks {title}, {name}",
                    measured=median(rates[0]),
                    unit="asks/s",
                    beside=median(rates[1]),
                    bound=0.3,
                )
            )
        transport.close()
        server.close()
        await caller.close()
        await receiver.close()
        await listener.stop()
    return figures
