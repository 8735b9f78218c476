"""What a host costs that has nothing to do: transactions a second, and its share of a core."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from bench import Figure
from bench.costs import children, on_cpu
from relevo import App, settings
from relevo.kernel import serving, telemetry
from relevo.kernel.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Sequence

SETTLE_SECONDS: Final = 75.0
"""A new leader first catches up with what has been left, and each duty has come once."""
SECONDS: Final = float(os.environ.get("BENCH_IDLE_SECONDS", "60"))
COMMITS: Final = "select sum(xact_commit + xact_rollback)::int from pg_stat_database"

HOW: Final = f"""
One host in a process of its own serves a job, a feed and a queue, and nobody calls it. After
{SETTLE_SECONDS:.0f} s, transactions of the server are counted for {SECONDS:.0f} s, those of
autovacuum among them, and the CPU of the host and of PostgreSQL is read from /proc.
"""


async def run() -> list[Figure]:
    """Let a host idle, and read what it cost."""
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        server = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            return await _measured(server.url)
        finally:
            await asyncio.to_thread(server.leave)


async def _measured(url: str) -> list[Figure]:
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.idle", url,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert host.stdin is not None
    assert host.stdout is not None
    await host.stdout.readline()
    connection = await asyncpg.connect(url)
    postmaster = int(
        (await connection.fetchval("select pg_read_file('postmaster.pid')")).split()[0]
    )

    async def read() -> tuple[int, float, float]:
        await connection.execute("select pg_stat_clear_snapshot()")
        server = on_cpu(postmaster) + sum(on_cpu(pid) for pid in children(postmaster))
        return await connection.fetchval(COMMITS), on_cpu(host.pid), server

    await asyncio.sleep(SETTLE_SECONDS)
    commits, own, server = await read()
    await asyncio.sleep(SECONDS)
    commits_after, own_after, server_after = await read()
    await connection.close()
    host.stdin.close()
    await host.wait()
    seconds = (commits_after - commits, own_after - own, server_after - server)
    rate, own, server = (spent / SECONDS for spent in seconds)
    return [
        Figure(
            name="transactions a second of an idle host", measured=rate, unit="/s",
            beside=4.0, bound=1.0, sense="at_most",
        ),
        Figure(
            name="share of a core, the host's process", measured=own * 100, unit="%",
            beside=0.5, bound=1.0, sense="at_most",
        ),
        Figure(name="share of a core, PostgreSQL", measured=server * 100, unit="%"),
    ]  # fmt: skip


async def serve(url: str) -> None:
    """Serve some of everything until standard input ends."""
    telemetry.configure_logs("json", "warning")
    app = App(settings=settings.load({"database_url": url}, environ={}))

    @app.job("receipt")
    async def receipt() -> None: ...

    @app.container("orders", partition_key="/city").on_changes("kitchen")
    async def cook(changes: Sequence[Any]) -> None: ...

    @app.queue("inbox").on_messages("clerks")
    async def read(message: Any) -> None: ...

    async with app.host():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    serving.run(serve(sys.argv[1]))
