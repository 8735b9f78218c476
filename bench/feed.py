"""How fast changes go in, come out and find their handler; how fast hosts share them."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench import Figure
from bench.feed_items import BODY, fill, item
from relevo import App, settings
from relevo.feed.service import FeedPart
from relevo.kernel import telemetry
from relevo.kernel.leases import Directory
from relevo.kernel.part import Host
from relevo.kernel.postgres import Wakeups
from relevo.kernel.postgres.embedded.server import EmbeddedServer
from relevo.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from relevo.feed import Change, FeedContainer
    from relevo.testing.recorder import Recorder

LARGE: Final = int(os.environ.get("BENCH_FEED_ITEMS", "5000000"))
"""Items of the large container; set BENCH_FEED_ITEMS for a quick run."""
SMALL: Final = 50_000
STREAM: Final = 1_000_000
"""Items that are read to see how fast that goes: enough for the start not to count."""
PAGE: Final = 1_000
ROUNDS: Final = 7
CALLERS: Final = 2_000
WRITES: Final = 40_000
LATENCIES: Final = 1_000

HOW: Final = f"""
Embedded PostgreSQL, fsync on, all in one process unless it says "hosts". An item is 200 bytes of
JSON. Writes: {CALLERS:,} callers each await one upsert of a new item after the other, 16 ranges;
bare is one connection that inserts the same rows into a like table with `unnest`, 500 at a time.
Reading: a processor with a handler that does nothing, from the call that completes a fifth of
{STREAM:,} items to the last call (elsewhere from the first lease gained),
with max_items = {PAGE:,} (and 100, the default); bare is asyncpg alone that
selects the same rows in pages of {PAGE:,}, over one connection or as many as a host has. Both sides
take turns; medians of {ROUNDS} rounds. Latency: from the call of upsert to the call of the
handler, one write at a time at about 200/s. The large container has {LARGE:,} items; its first
{SMALL:,} are read. Hosts: real processes with product defaults, from the start of seven
interpreters at once beside a running one until counts differ by at most one.
"""


async def run() -> list[Figure]:
    telemetry.configure_logs("json", "warning")
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        server = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            return await _measure(server.url, Path(folder))
        finally:
            await asyncio.to_thread(server.leave)


async def _measure(url: str, folder: Path) -> list[Figure]:
    async with App(settings=_settings(url)) as app:
        bare = await app.database.endpoint.connect()
        try:
            figures = await _writes(app, bare)
            figures += await _latency(app, url)
            figures += await _reading(app, bare, url)
            figures += await _fine_leases(app, url)
            figures += await _size(app, bare, url)
        finally:
            await bare.close()
    return figures + await _balance(url, folder)


async def _writes(app: App, bare: asyncpg.Connection) -> list[Figure]:
    rates: dict[str, list[float]] = {"bare": [], "grouped": []}
    await bare.execute("create table bare_item (like relevo.item including all)")
    for turn in range(ROUNDS):
        orders = app.container(f"writes{turn}", "/city", ranges=16)
        await orders.describe()
        rates["grouped"].append(await _write_rate(orders))
        await bare.execute("truncate bare_item")
        rates["bare"].append(await _bare_write_rate(bare))
    grouped, limit = (statistics.median(rates[side]) for side in ("grouped", "bare"))
    return [
        Figure(name="grouped writes", measured=grouped, unit="items/s", beside=10_000, bound=1.0),
        Figure(name="grouped writes beside bare insert", measured=grouped, unit="items/s",
               beside=limit),
    ]  # fmt: skip


async def _write_rate(orders: FeedContainer[Any]) -> float:
    left = iter(range(WRITES))

    async def caller() -> None:
        for number in left:
            await orders.upsert(item(number))

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return WRITES / (time.perf_counter() - started)


async def _bare_write_rate(bare: asyncpg.Connection) -> float:
    body = '{"id": "00000000", "city": "c000", "text": "' + BODY + '"}'
    sql = """insert into bare_item (container_id, range_id, ordinal, lsn, ts, pk, id, epk, body)
             select 1, n % 16, 1, n, now(), 'c' || n % 1000, n::text, 'e' || n % 1000, b::jsonb
             from unnest($1::integer[], $2::text[]) as g (n, b)"""
    started = time.perf_counter()
    for first in range(0, WRITES, 500):
        await bare.execute(sql, list(range(first, first + 500)), [body] * 500)
    return WRITES / (time.perf_counter() - started)


async def _latency(app: App, url: str) -> list[Figure]:
    """Write and serve in one process, as `relevo up` does."""
    host = App(settings=_settings(url))
    orders = host.container("latency", "/city", ranges=16)
    arrived: dict[str, float] = {}

    @orders.on_changes("bench")
    async def note(changes: list[Change[Any]]) -> None:
        now = time.perf_counter()
        arrived.update((change.id, now) for change in changes)

    sent: dict[str, float] = {}
    async with host.host(name="latency"):
        await _until_held(host, 16)
        for number in range(LATENCIES):
            one = item(number)
            sent[one["id"]] = time.perf_counter()
            await orders.upsert(one)
            await asyncio.sleep(0.005)
        while len(arrived) < LATENCIES:
            await asyncio.sleep(0.01)
    took = sorted((arrived[i] - sent[i]) * 1000 for i in sent)
    return [
        Figure(name="write to handler, p50", measured=took[LATENCIES // 2], unit="ms",
               beside=15.0, bound=1.0, sense="at_most"),
        Figure(name="write to handler, p99", measured=took[LATENCIES * 99 // 100], unit="ms",
               beside=100.0, bound=1.0, sense="at_most"),
    ]  # fmt: skip


async def _reading(app: App, bare: asyncpg.Connection, url: str) -> list[Figure]:
    await fill(app, bare, "read", 16, SMALL)
    await fill(app, bare, "stream", 16, STREAM)
    ours, default, limit, many = [], [], [], []
    connections = [await app.database.endpoint.connect() for _ in range(app.settings.pool_size)]
    for _ in range(ROUNDS):
        limit.append(await _bare_read_rate(app, connections[:1], "stream"))
        many.append(await _bare_read_rate(app, connections, "stream"))
        ours.append(await _read_rate(url, "stream", STREAM, warm=STREAM // 5))
        default.append(await _read_rate(url, "stream", STREAM, warm=STREAM // 5, max_items=100))
    for connection in connections:
        await connection.close()
    rate, standard, one, ten = (statistics.median(r) for r in (ours, default, limit, many))
    return [
        Figure(name=f"reading, pages of {PAGE:,}, beside bare select", measured=rate,
               unit="changes/s", beside=one, bound=0.5),
        Figure(name="the same beside bare select over 10 connections", measured=rate,
               unit="changes/s", beside=ten),
        Figure(name=f"reading, pages of {PAGE:,}", measured=rate, unit="changes/s",
               beside=30_000, bound=1.0),
        Figure(name="reading, pages of 100", measured=standard, unit="changes/s", beside=30_000),
    ]  # fmt: skip


async def _fine_leases(app: App, url: str) -> list[Figure]:
    bare = await app.database.endpoint.connect()
    try:
        await fill(app, bare, "four-ranges", 4, SMALL)
        await fill(app, bare, "one-range", 1, SMALL)
    finally:
        await bare.close()
    coarse, fine = [], []
    for _ in range(ROUNDS):
        coarse.append(await _read_rate(url, "four-ranges", SMALL))
        fine.append(await _read_rate(url, "one-range", SMALL, leases=4))
    return [
        Figure(name="four leases in one range beside one in each of four",
               measured=statistics.median(fine), unit="changes/s",
               beside=statistics.median(coarse), bound=0.5),
    ]  # fmt: skip


async def _size(app: App, bare: asyncpg.Connection, url: str) -> list[Figure]:
    await fill(app, bare, "large", 16, LARGE)
    small, large = [], []
    for _ in range(ROUNDS):
        small.append(await _read_rate(url, "read", SMALL))
        large.append(await _read_rate(url, "large", SMALL))
    return [
        Figure(name=f"reading from {LARGE:,} items beside {SMALL:,}",
               measured=statistics.median(large), unit="changes/s",
               beside=statistics.median(small), bound=0.9),
    ]  # fmt: skip


async def _read_rate(
    url: str, container: str, count: int, *, warm: int = 0, **options: Any
) -> float:
    """Changes per second of a new unit that reads from the beginning.

    The clock starts when the first lease is gained, so that no page is read before it; or when
    `warm` changes were delivered, so that the first second of a host's life is not measured with
    it: connections, plans, and what a leader looks after when it begins.
    """
    host = App(settings=_settings(url))
    name = f"bench{time.perf_counter_ns()}"
    seen, before, began, took, done = 0, 0, 0.0, 0.0, asyncio.Event()
    options.setdefault("max_items", PAGE)

    @host.container(container).on_changes(name, start="beginning", **options)
    async def nothing(changes: list[Change[Any]]) -> None:
        nonlocal seen, before, began, took
        seen += len(changes)
        if warm and not before and seen >= warm:
            before, began = seen, time.perf_counter()
        if seen >= count and not took:
            took = time.perf_counter() - began
            done.set()

    @nothing.on_acquired
    def start_clock(_token: str, _epoch: int) -> None:
        nonlocal began
        began = began or time.perf_counter()

    async with host.host(name=name):
        await done.wait()
        counted = seen
    if container != "large":  # a duplicate would flatter the rate
        assert seen == count, f"{seen:,} deliveries of {count:,} changes"
    return (counted - before) / took


async def _bare_read_rate(
    app: App, connections: Sequence[asyncpg.Connection], container: str
) -> float:
    """Select the same rows in pages of the same size, over as many connections as a host has."""
    sql = """select lsn, ordinal, ts, pk, id, range_id, body from relevo.item
             where range_id = $1 and lsn > $2 order by lsn, ordinal limit $3"""
    ranges, seen = iter((await app.container(container).ranges()).open), 0

    async def read(connection: asyncpg.Connection) -> None:
        nonlocal seen
        for one in ranges:
            after = 0
            while rows := await connection.fetch(sql, one.id, after, PAGE):
                after = rows[-1]["lsn"]
                seen += len(rows)

    started = time.perf_counter()
    await asyncio.gather(*map(read, connections))
    assert seen == STREAM
    return seen / (time.perf_counter() - started)


async def shared(app: App, record: Recorder) -> None:
    """What the host processes run."""

    async def nothing(changes: list[Change[Any]]) -> None:
        pass

    app.container("balance", "/city", ranges=64).processor("bench", nothing)
    await app.parts.of(FeedPart).start(Host(app.leases, app.supervisor))


async def _balance(url: str, folder: Path) -> list[Figure]:
    hosts = [f"host{n}" for n in range(8)]
    async with (
        App(settings=_settings(url)) as app,
        Cluster(url, "bench.feed:shared", folder) as cluster,
    ):
        await cluster.start(hosts[0])
        await _until_shared(app, cluster, hosts[:1])
        started = time.monotonic()
        for name in hosts[1:]:
            await cluster.start(name, wait=False)
        await _until_shared(app, cluster, hosts)
        took = time.monotonic() - started
    return [
        Figure(name="64 leases, 1 to 8 hosts: balanced", measured=took, unit="s",
               beside=12.0, bound=1.0, sense="at_most")
    ]  # fmt: skip


async def _until_shared(app: App, cluster: Cluster, hosts: list[str]) -> None:
    directory = Directory(app.database, Wakeups(app.database))

    async def balanced() -> bool:
        found: dict[str | None, int] = {}
        for lease in await directory.leases(unit="leases/balance/bench", limit=100):
            found[lease.owner] = found.get(lease.owner, 0) + 1
        return set(found) == set(hosts) and max(found.values()) - min(found.values()) <= 1

    await cluster.until(balanced, f"64 leases shared by {hosts}", timeout=120)


async def _until_held(host: App, count: int) -> None:
    while sum(one.unit.startswith("leases/") for one in host.leases.held) < count:
        await asyncio.sleep(0.01)


def _settings(url: str) -> Any:
    return settings.load({"database_url": url}, environ={})
