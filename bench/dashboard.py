"""The dashboard over many jobs and router workers: first paint, filters, and a page left open.

`BENCH_DASHBOARD_JOBS=100000 python -m bench dashboard` has a tenth of the jobs and workers.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import aiohttp
import asyncpg
import msgspec
from msgspec import Struct
from yarl import URL

from bench import Figure
from relevo import App
from relevo.dashboard.pages import PAGES
from relevo.kernel.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

JOBS: Final = int(os.environ.get("BENCH_DASHBOARD_JOBS", "1000000"))
WORKERS: Final = JOBS // 100
VIEWERS: Final = 20
WATCH_SECONDS: Final = 60.0
ROUNDS: Final = 5
PAINT_MS, FILTER_MS, CORE_PERCENT, STATEMENTS = 1_000.0, 500.0, 2.0, 1.0
CHROMIUM: Final = Path("/usr/bin/chromium")
FILTERS: Final = (
    "status=failed", "status=waiting", "status=succeeded&status=failed",
    "filter=" + quote("name eq 'order-77'"),
    "filter=" + quote("contains(name,'77')"),
    "filter=" + quote("contains(name,'none of them')"),
    "filter=" + quote("retrycount gt 0 and contains(name,'mail')"),
    "filter=" + quote("startswith(name,'order-9') and statuscode eq 31"),
    "handler=handler-3", "handler=handler-3&status=failed", "lane=bulk",
)  # fmt: skip
"""Of the page of jobs; the last but few find nothing, and have to look at everything to know."""

PAINTED: Final = """() => new Promise((done) => new PerformanceObserver((list) => {
  const first = list.getEntriesByName("first-contentful-paint")[0];
  if (first) done(first.startTime);
}).observe({ type: "paint", buffered: true }))"""

HOW: Final = f"""
{JOBS:,} system jobs (nine of ten completed in the last 28 days) and {WORKERS:,} router workers with
as many waiting jobs, filled by SQL into an embedded PostgreSQL; one `relevo up`. First paint is
Chromium's, from a warm connection, else the time of the HTML; a filter is the time until its page
has arrived; each the median of {ROUNDS}. A page left open is watched for {WATCH_SECONDS:.0f} s by
{VIEWERS} viewers; the CPU time is that of the host and PostgreSQL beyond what they use without.
"""

FILL: Final = """
insert into relevo.job_history (id, rank, created_at, modified_at, started_at, completed_at,
  status, lane, handler, name, token, data, host_name, attempt, retries, error_code, message)
select relevo.uuid7(), n, at, at, at, at,
  status, case when n % 10 = 0 then 'bulk' else 'default' end, 'handler-' || n % 20,
  case when n % 7 = 0 then 'mail-' else 'order-' end || n, 'c' || n % 5000, repeat('x', 200),
  'host-' || n % 4, 1 + n % 3, n % 3, case status when 31 then -2147204784 end,
  case status when 31 then 'it did not work' end
from generate_series(1, $1::bigint) n cross join lateral (
  select now() - (1 - n / $1::float8) * interval '28 days' as at,
    case when n % 40 = 0 then 31 when n % 100 = 7 then 32 else 30 end as status) t
"""
FILL_OPEN: Final = """
insert into relevo.job (id, rank, created_at, modified_at, postpone_until, status, lane, handler,
  name, data)
select relevo.uuid7(), n, at, at, at + interval '7 days', 10, 'default', 'handler-' || n % 20,
  'order-' || n, repeat('x', 200)
from generate_series(1, $1::bigint) n cross join lateral (
  select now() - n / $1::float8 * interval '1 day' as at) t
"""
FILL_WORKERS: Final = """
insert into relevo.router_worker (id, version, created_at, modified_at, available, registration,
  registered_at, seen_at, capacity, queues, channels, labels, tags)
select 'w' || n, 1, now(), now(), true, 1, now(), now(), 100, array['q' || n % 100],
  '[{"channelId": "talk", "capacityCostPerJob": 1}]', '{"skill": 1}', '{}'
from generate_series(1, $1::bigint) n
"""
FILL_LOADS: Final = """
insert into relevo.router_load (worker_id, idle_since, acted_at)
select 'w' || n, now(), now() from generate_series(1, $1::bigint) n
"""
FILL_ROUTER_JOBS: Final = """
insert into relevo.router_job (id, version, created_at, modified_at, status, channel_id, queue_id,
  priority, mode, enqueued_at, arrival, entered)
select 'j' || n, 1, now(), now(), 'queued', 'write', 'q' || n % 100, n % 5, 'queueAndMatch',
  now() - n * interval '1 second', n, true
from generate_series(1, $1::bigint) n
"""


class Usage(Struct, frozen=True):
    """CPU seconds of the host and PostgreSQL, and transactions of the database."""

    host: float
    server: float
    transactions: int


class Site(Struct, frozen=True):
    """A host with a dashboard, and who is signed in."""

    url: str
    host: int
    session: aiohttp.ClientSession
    connection: asyncpg.Connection
    postmaster: int

    async def seconds(self, path: str) -> float:
        """Return how long a page takes to arrive."""
        begun = time.perf_counter()
        async with self.session.get(f"{self.url}{path}") as answer:
            text = await answer.text()
            assert answer.status == 200, (path, answer.status, text[:500])
        return time.perf_counter() - begun

    async def usage(self) -> Usage:
        """Return what has been used so far."""
        await self.connection.execute("select pg_stat_clear_snapshot()")
        return Usage(
            cpu_seconds(self.host),
            sum(map(cpu_seconds, [self.postmaster, *children(self.postmaster)])),
            await self.connection.fetchval(
                "select xact_commit + xact_rollback from pg_stat_database"
                " where datname = current_database()"
            ),
        )


async def run() -> list[Figure]:
    """Fill a database, start a host, and look at it."""
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        server = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            async with App(server.url):
                pass  # makes the schema
            connection = await asyncpg.connect(server.url)
            await _fill(connection)
            async with _site(server.url, folder, connection) as site:
                return [*await _paints(site), *await _filters(site), *await _left_open(site)]
        finally:
            await asyncio.to_thread(server.leave)


async def _fill(connection: asyncpg.Connection) -> None:
    await connection.execute(FILL, JOBS - JOBS // 10)
    await connection.execute(FILL_OPEN, JOBS // 10)
    for statement in (FILL_WORKERS, FILL_LOADS, FILL_ROUTER_JOBS):
        await connection.execute(statement, WORKERS)
    await connection.execute("vacuum analyze")


class _site:  # noqa: N801 - used like a function
    """Starts a host and signs in by its link."""

    def __init__(self, url: str, folder: str, connection: asyncpg.Connection) -> None:
        self._url, self._folder, self._connection = url, folder, connection

    async def __aenter__(self) -> Site:
        environment = {"RELEVO_HOME": f"{self._folder}/host", "RELEVO_LOG_LEVEL": "warning"}
        self._host = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "relevo.cli", "up", "--port", "0", "--output", "json",
            "--database", self._url, "--name", "bench",
            stdout=asyncio.subprocess.PIPE, env={**os.environ, **environment},
        )  # fmt: skip
        assert self._host.stdout is not None
        told = msgspec.json.decode(await self._host.stdout.readline())
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        async with self._session.get(told["sign_in"]) as answer:
            assert answer.status == 200, await answer.text()
        postmaster = await self._connection.fetchval("select pg_read_file('postmaster.pid')")
        return Site(
            told["url"], self._host.pid, self._session, self._connection, int(postmaster.split()[0])
        )

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._connection.close()
        self._host.terminate()
        await self._host.wait()


async def _paints(site: Site) -> list[Figure]:
    """The slowest pages of the navigation."""
    pages = {page.name: page.path for page in PAGES if page.group is not None}
    found = {name: await _median(site, path) for name, path in pages.items()}
    if CHROMIUM.exists():
        found |= {name: milliseconds async for name, milliseconds in _painted(site, pages)}
    slowest = sorted(found, key=found.__getitem__, reverse=True)[:5]
    return [
        _figure(f"first paint of {pages[name]}", found[name], "ms", PAINT_MS) for name in slowest
    ]


async def _painted(site: Site, pages: dict[str, str]) -> AsyncIterator[tuple[str, float]]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        context = await browser.new_context()
        cookies = site.session.cookie_jar.filter_cookies(URL(site.url))
        await context.add_cookies(
            [{"name": each.key, "value": each.value, "url": site.url} for each in cookies.values()]
        )
        page = await context.new_page()
        for name, path in pages.items():
            times = []
            for _ in range(ROUNDS):
                await page.goto(f"{site.url}{path}")
                times.append(float(await page.evaluate(PAINTED)))
            yield name, sorted(times)[ROUNDS // 2]
        await browser.close()


async def _filters(site: Site) -> list[Figure]:
    found = {query: await _median(site, f"/jobs?{query}") for query in FILTERS}
    slowest = sorted(found, key=found.__getitem__, reverse=True)[:4]
    return [_figure(f"/jobs?{query}"[:60], found[query], "ms", FILTER_MS) for query in slowest]


async def _median(site: Site, path: str) -> float:
    await site.seconds(path)
    return sorted([1e3 * await site.seconds(path) for _ in range(ROUNDS)])[ROUNDS // 2]


async def _left_open(site: Site) -> list[Figure]:
    """What viewers of a page cost beyond an idle host, before and after."""
    pages = {
        "/jobs": ("/jobs",) * VIEWERS, "/router": ("/router",) * VIEWERS, "/": ("/",) * VIEWERS,
        "five pages": ("/", "/jobs", "/router", "/queues", "/hosts") * (VIEWERS // 5),
    }  # fmt: skip
    idle = [await _watched(site, ())]
    watched = {name: await _watched(site, paths) for name, paths in pages.items()}
    idle.append(await _watched(site, ()))
    seconds = sum(each.host + each.server for each in idle) / len(idle)
    transactions = sum(each.transactions for each in idle) / len(idle)
    figures = []
    for name, used in watched.items():
        label = f"{name} open, {VIEWERS} viewers"
        share = 100 * (used.host + used.server - seconds) / WATCH_SECONDS
        statements = (used.transactions - transactions) / WATCH_SECONDS
        figures += [
            _figure(f"{label}: CPU", share, "% of a core", CORE_PERCENT),
            _figure(f"{label}: statements", statements, "/s", STATEMENTS),
        ]
    return figures


async def _watched(site: Site, paths: tuple[str, ...]) -> Usage:
    """Return what is used while viewers have pages open."""
    viewers = [asyncio.create_task(_view(site, path)) for path in paths]
    await asyncio.sleep(3)  # the first parts have been sent
    before = await site.usage()
    await asyncio.sleep(WATCH_SECONDS)
    after = await site.usage()
    for viewer in viewers:
        viewer.cancel()
    await asyncio.gather(*viewers, return_exceptions=True)
    return Usage(
        after.host - before.host,
        after.server - before.server,
        after.transactions - before.transactions,
    )


async def _view(site: Site, path: str) -> None:
    headers = {"Accept": "text/event-stream"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with site.session.get(f"{site.url}{path}", headers=headers, timeout=timeout) as stream:
        assert stream.status == 200, await stream.text()
        async for _ in stream.content:
            pass


def _figure(name: str, measured: float, unit: str, most: float) -> Figure:
    return Figure(name=name, measured=measured, unit=unit, beside=most, bound=1.0, sense="at_most")


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process, and of those children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(process) for process in text.split()]
