"""How fast messages go in, through and out, beside RabbitMQ, Redis Streams and bare statements."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg

from bench import Figure
from bench.jobs_peers import Unavailable, default_folder
from bench.jobs_peers.install import Peer, installed
from bench.jobs_peers.run import CALLERS, PAYLOAD_BYTES, Side, fresh_database, now
from bench.messaging_deep import bare_rates, deep_claims, fair_beside, server_cost
from bench.messaging_peers import PEERS, RABBITMQ, server
from relevo.kernel import telemetry
from relevo.kernel.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MESSAGES: Final = int(os.environ.get("BENCH_MESSAGES", "20000"))
WAITING: Final = int(os.environ.get("BENCH_MESSAGES_WAITING", "5000000"))
"""Messages beside which claims are measured."""
STEPS: Final = os.environ.get("BENCH_MESSAGES_STEPS", "peers orderings statements deep").split()
FILLFACTORS: Final = os.environ.get("BENCH_MESSAGES_FILLFACTORS", "").split()
"""Of the table of messages, one after the other; by default that of the schema."""
ROUNDS: Final = int(os.environ.get("BENCH_MESSAGES_ROUNDS", "3"))
SUBSCRIPTIONS: Final = 10
RELEVO: Final = "relevo"
BARE: Final = "bare"

HOW: Final = f"""
Bodies of {PAYLOAD_BYTES} bytes, fsync on, handlers that do nothing, everybody in processes of their
own; everybody takes turns, medians of {ROUNDS} rounds. Single: {CALLERS} senders each await one
send after the other. Batch: 500 at a time, one call after the other. Drain: {2 * MESSAGES:,}
messages are there before loaded consumers begin; from the first call of a handler until none is
left. Pickup: from the call that sends to the call of the handler, 50 messages a second, nothing
else at work. RabbitMQ: durable queue, persistent messages, publisher confirms, manual acks with a
prefetch of 1,000, aio-pika. Redis: a stream with a group, acknowledged and deleted. Bare: the
statements that Relevo sends, with the same arrays in batches of 500, from asyncpg; the drain by two
connections. Claims with many waiting, fairness and the CPU of PostgreSQL are those of the bare
statements, too. Claims with many waiting stand beside claims of few that are as old, that is sent
before the last checkpoint, and of few that were just sent; what a claim reads and writes is the
median of PostgreSQL's own counters. BENCH_MESSAGES, BENCH_MESSAGES_WAITING, BENCH_MESSAGES_ROUNDS
and BENCH_MESSAGES_STEPS make a shorter run of it: BENCH_MESSAGES_STEPS=deep measures these claims
alone, and BENCH_MESSAGES_FILLFACTORS="80 50" with each of these fill factors.
"""

OURS: Final = Peer(
    name=RELEVO,
    language="python",
    packages=(),
    unfinished="select count(*) from (select from relevo.message limit 1) m",
    clear="truncate relevo.message, relevo.message_delta, relevo.message_count",
)
Figures = dict[str, float]


class MessageSide(Side):
    """Relevo, or a broker, whose workers have settled what they have counted."""

    chunk = 500
    latency_seconds = 4

    async def clear(self) -> None:
        """Remove what is there."""
        if self._connection is None:
            await self.prepare()
        else:
            await super().clear()

    async def server_seconds(self) -> float:
        """As `Side.server_seconds`; of a broker it is not known."""
        return 0.0 if self._connection is None else await super().server_seconds()

    async def until_done(self) -> float:
        """As `Side.until_done`."""
        return now() if self._connection is None else await super().until_done()

    async def figures(self, jobs: int) -> Figures:
        """Measure everything."""
        await self.prepare()
        found = {
            "single_per_second": jobs / await self.submit("single", jobs, CALLERS, 0),
            "bulk_per_second": 2 * jobs / await self.submit("bulk", 2 * jobs, self.chunk),
        }
        for workers in (1, 2):
            found |= await self.drain(workers, 2 * jobs)
        return found | await self.pickup()

    async def copies(self, jobs: int) -> Figures:
        """Measure how many copies at subscriptions are made."""
        copies = jobs // SUBSCRIPTIONS * SUBSCRIPTIONS
        took = await self.submit("fanout", copies // SUBSCRIPTIONS, self.chunk)
        return {"copies_per_second": copies / took}


async def run() -> list[Figure]:
    telemetry.configure_logs("json", "warning")
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        embedded = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            return await _measure(embedded.url)
        finally:
            await asyncio.to_thread(embedded.leave)


async def _measure(url: str) -> list[Figure]:
    figures: list[Figure] = []
    if "peers" in STEPS:
        figures += _beside_peers(await _rounds(url))
    if "orderings" in STEPS:
        figures += await _orderings(url)
    async with fresh_database(url, "bench_statements") as own:
        if "statements" in STEPS:
            figures += await server_cost(own, MESSAGES) + await fair_beside(own, MESSAGES)
    if "deep" in STEPS:
        for fillfactor in FILLFACTORS or (None,):
            async with fresh_database(url, "bench_deep") as own:
                figures += await deep_claims(own, WAITING, fillfactor)
    return figures


async def _rounds(url: str) -> dict[str, Figures]:
    """Measure everybody in turns; return medians."""
    found: dict[str, list[Figures]] = {}
    async with AsyncExitStack() as stack:
        sides = {name: side for name in PEERS if (side := await _broker(stack, name))}
        for _ in range(ROUNDS):
            for name, side in sides.items():
                found.setdefault(name, []).append(await side.figures(MESSAGES))
            found.setdefault(RELEVO, []).append(await _ours(url, {}))
            async with fresh_database(url, "bench_bare") as own:
                found.setdefault(BARE, []).append(await bare_rates(own, 2 * MESSAGES))
    return {name: _median(many) for name, many in found.items()}


async def _broker(stack: AsyncExitStack, name: str) -> MessageSide | None:
    try:
        program = await asyncio.to_thread(installed, PEERS[name], default_folder())
        url = await stack.enter_async_context(server(name))
    except Unavailable as error:
        print(f"skipped: {error}", file=sys.stderr)
        return None
    return MessageSide(PEERS[name], program, url, None)


async def _ours(url: str, environment: Mapping[str, str], *, drains: bool = False) -> Figures:
    """Measure everything, or the drain by two hosts alone."""
    os.environ.update(environment)
    async with fresh_database(url, "bench_relevo") as own:
        connection = await asyncpg.connect(own)
        try:
            program = [sys.executable, "-m", "bench.messaging_side"]
            side = MessageSide(OURS, program, own, connection)
            if drains:
                await side.prepare()
                return await side.drain(2, 2 * MESSAGES)
            return await side.figures(MESSAGES) | await side.copies(2 * MESSAGES)
        finally:
            await connection.close()
            for name in environment:
                os.environ.pop(name, None)


async def _orderings(url: str) -> list[Figure]:
    """Drains of three classes mixed by two hosts, with tiers and floor share beside `fifo`."""
    found: dict[str, list[Figures]] = {}
    for _ in range(ROUNDS):
        for ordering in ("aging", "fifo"):
            environment = {"BENCH_MESSAGES_ORDERING": ordering, "BENCH_MESSAGES_MIXED": "1"}
            found.setdefault(ordering, []).append(await _ours(url, environment, drains=True))
    aging, fifo = (_median(found[name])["drain_2_per_second"] for name in ("aging", "fifo"))
    return [Figure(name="express and floor, 2 hosts, beside fifo", measured=aging,
                   unit="messages/s", beside=fifo, bound=0.7)]  # fmt: skip


def _median(many: Sequence[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in many) for name in many[0]}


def _beside_peers(medians: Mapping[str, Figures]) -> list[Figure]:
    ours, bare, rabbit = medians[RELEVO], medians[BARE], medians.get(RABBITMQ, {})
    figures: list[Figure] = []
    for name, key, least, times in (
        ("send, 100 senders", "single_per_second", 15_000, 3.0),
        ("batch send (500)", "bulk_per_second", 40_000, 2.0),
        ("receive + complete, 1 process", "drain_1_per_second", 20_000, 3.0),
        ("receive + complete, 2 processes", "drain_2_per_second", 20_000, 3.0),
    ):
        figures.append(_promised(name, ours[key], least))
        if key in rabbit:
            figures.append(_beside(f"  beside {RABBITMQ}", ours[key], rabbit[key], times))
        share = 0.6 if key == "drain_1_per_second" else None
        if key in bare:
            figures.append(_beside("  beside bare statements", ours[key], bare[key], share))
    for key, most in (("pickup_p50_ms", 4.0), ("pickup_p99_ms", 20.0)):
        name = f"send to handler, {key.split('_')[1]}"
        figures.append(Figure(name=name, measured=ours[key], unit="ms", beside=most, bound=1.0,
                              sense="at_most"))  # fmt: skip
    copies = "one message to 10 filtered subscriptions, copies"
    figures.append(_promised(copies, ours["copies_per_second"], 20_000))
    figures += [
        Figure(name=f"{peer}: {key.replace('_', ' ')}", measured=value, unit="")
        for peer, found in medians.items() if peer not in (RELEVO, BARE)
        for key, value in found.items() if "cpu" not in key
    ]  # fmt: skip
    return figures


def _promised(name: str, measured: float, least: float) -> Figure:
    return Figure(name=name, measured=measured, unit="/s", beside=least, bound=1.0)


def _beside(name: str, measured: float, other: float, bound: float | None) -> Figure:
    return Figure(name=name, measured=measured, unit="/s", beside=other, bound=bound)
