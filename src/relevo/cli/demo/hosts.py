"""The hosts of `relevo demo`: processes of their own that share twelve tables of a kitchen."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from relevo.app import App
from relevo.cli import hosting
from relevo.cli.hosting import Announcement
from relevo.cli.options import LOCAL, command
from relevo.cli.up import announcer
from relevo.errors import Unavailable
from relevo.kernel.leases import UnitSettings
from relevo.kernel.telemetry import configure_logs

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.cli.session import Session
    from relevo.jobs import JobContext
    from relevo.kernel.leases import Lease
    from relevo.settings import Settings

KIND: Final = "demo"
UNIT: Final = "kitchen"
TABLES: Final = tuple(f"table-{number:02}" for number in range(1, 13))
QUICK: Final = {"lease_expiration": 3.0, "lease_renew": 1.0, "lease_acquire": 1.0}
"""So that nobody waits ten seconds for a dead host."""
RECEIPT: Final = "demo-receipt"
REPORT: Final = "demo-report"
RECEIPT_SECONDS: Final = 0.1
DISH_SECONDS: Final = 0.25
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 15.0


@command("demo-host", shared=LOCAL, hidden=True)
@click.option("host_name", "--name", required=True)
@click.option("--port", type=int, default=0)
@click.pass_obj
def demo_host(session: Session, /, **arguments: Any) -> None:
    """Run one host of the demo until standard input ends."""
    settings = session.local_settings(**arguments, **QUICK)
    # A walk on this machine; the certificate need not be made out to its address.
    settings = msgspec.structs.replace(settings, tls_cert=None, tls_key=None)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    configure_logs(settings.log_format, settings.log_level)
    app = App(settings=settings)
    define_jobs(app)
    announce = announcer("json")
    hosting.run(app, hosting.Hosting(started=lambda _, told: announce(told), also=join_kitchen))


def _stop_with_parent() -> None:
    """Whoever started us keeps a pipe open; when it closes, however that came, we stop."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def define_jobs(app: App) -> None:
    """Let this host write receipts, one at a time for each customer, and the nightly report."""

    @app.job(RECEIPT, token=lambda customer, number: customer)
    async def receipt(ctx: JobContext, customer: str, number: int) -> str:
        await asyncio.sleep(RECEIPT_SECONDS)
        return app.leases.name

    @app.job(REPORT)
    async def report(ctx: JobContext) -> None:
        """Count the dishes of the day; the demo ends before it is night."""


async def join_kitchen(app: App) -> None:
    """Serve tables: as many of the twelve as there are cooks to share them with."""
    settings = UnitSettings(handoff_timeout=5.0, rest=1.0)
    await app.leases.join(KIND, UNIT, _cook, leases=TABLES, settings=settings)


async def _cook(lease: Lease) -> None:
    """Serve dish after dish, each noted with the lease: whoever takes over counts on from there."""
    dishes = lease.position.get("dishes", 0)
    while not lease.stopping.is_set():
        lease.check()
        dishes += 1
        await lease.save({"dishes": dishes})
        with suppress(TimeoutError):
            async with asyncio.timeout(DISH_SECONDS):
                await lease.stopping.wait()


class DemoHosts:
    """Starts, kills and stops the demo's host processes; leaves none behind."""

    def __init__(self, settings: Settings, config: Path | None) -> None:
        self._environment = {**os.environ, "RELEVO_HOME": str(settings.home.absolute())}
        self._environment["RELEVO_SCHEMA"] = settings.schema
        if settings.database_url is not None:
            self._environment["RELEVO_DATABASE_URL"] = settings.database_url
        if config is not None:
            self._environment["RELEVO_CONFIG"] = str(config.absolute())
        self.log_path = settings.home / "demo.log"
        self._log: int | None = None
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> DemoHosts:
        self.log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        return self

    async def __aexit__(self, *_: object) -> None:
        processes = list(self._running.values())
        for process in processes:
            with suppress(ProcessLookupError):
                process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                for process in processes:
                    await process.wait()
        except TimeoutError:
            for name in list(self._running):
                await self.kill(name)
        if self._log is not None:
            os.close(self._log)

    async def start(self, name: str, port: int = 0) -> Announcement:
        """Start a host and return what it says when it serves; raises `Unavailable`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "relevo.cli", "demo-host", "--name", name, "--port", str(port),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for us; we tell them
        )  # fmt: skip
        self._running[name] = process
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise Unavailable(f"the host {name!r} did not start; {self.log_path} says why")
        return msgspec.json.decode(line, type=Announcement)

    async def kill(self, name: str) -> None:
        """SIGKILL a host, and wait until it is gone."""
        process = self._running.pop(name)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
