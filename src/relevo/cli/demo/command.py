"""`relevo demo`: what there is, shown on real processes in a quarter of a minute."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from relevo.app import App
from relevo.cli import exits
from relevo.cli.calls import LocalCalls, over_http
from relevo.cli.demo.hosts import KIND, QUICK, RECEIPT, REPORT, TABLES, UNIT, DemoHosts
from relevo.cli.options import LOCAL, command
from relevo.cli.render import new_console
from relevo.cli.signals import StopSignals
from relevo.cli.up import command_line, show_key
from relevo.errors import Forbidden, RelevoError, Unauthenticated, Unavailable
from relevo.http.operations import operation
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from rich.console import Console

    from relevo.cli.hosting import Announcement
    from relevo.cli.session import Session
    from relevo.settings import Settings

SQL = catalog.load("relevo.cli")
COOKS: Final = ("ana", "bo", "carla")
CUSTOMERS: Final = ("Iria", "Uxía", "Xoán")
RECEIPTS: Final = 3
LOOK_SECONDS: Final = 0.15
SEEN_SECONDS_MAX: Final = 60.0

Picture = dict[str, int]
"""How many tables each host serves; those without a host are under the empty name."""


@command("demo", shared=LOCAL)
@click.option("--port", type=int, metavar="PORT", help="Default: 8080, or a free one.")
@click.option("--once", is_flag=True, help="End after the walk, as it does without a terminal.")
@click.pass_obj
def demo(session: Session, port: int | None, once: bool) -> int:
    """Start Relevo in .relevo and take a guided tour, on real processes.

    Goes on serving until Ctrl-C. Takes its hosts, its key and its data away when it ends.
    """
    session.log_quietly()
    stays = sys.stdin.isatty() and not once and not os.environ.get("CI")
    settings = session.local_settings(port=port)
    return asyncio.run(_demo(settings, session.given.get("config"), stays=stays))


async def _demo(settings: Settings, config: Path | None, *, stays: bool) -> int:
    console = new_console()
    with StopSignals() as signals:
        try:
            async with AsyncExitStack() as stack:
                console.print("Starting the database (the first time takes a few seconds) …")
                app = await stack.enter_async_context(App(settings=settings))
                await stack.enter_async_context(_tidied(app, console))
                hosts = await stack.enter_async_context(DemoHosts(settings, config))
                await Walk(app, hosts, console).run(stays=stays)
                if stays:
                    signals.starting = False
                    await signals.asked.wait()
        except asyncio.CancelledError:
            if signals.number is None:
                raise
            return exits.of_signal(signals.number)
    return exits.OK


@asynccontextmanager
async def _tidied(app: App, console: Console) -> AsyncIterator[None]:
    """Remove the demo's unit and jobs at the end, when its hosts have stopped."""
    try:
        yield
    finally:
        with suppress(RelevoError):
            await app.database.write(SQL.delete_unit, KIND, UNIT, idempotent=True)
        with suppress(RelevoError):
            async for job in app.jobs.query().where(handler=[RECEIPT, REPORT]):
                await app.jobs.handle(job.id).delete()
        console.print("\nThe demo has ended and taken its things along. Go on with: relevo up")


class Walk:
    """The steps of the demo."""

    def __init__(self, app: App, hosts: DemoHosts, console: Console) -> None:
        self._app = app
        self._hosts = hosts
        self._console = console

    async def run(self, *, stays: bool) -> None:
        """Take all steps; `stays` if somebody will look around afterwards."""
        first = await self._one_host()
        await self._more_hosts()
        await self._a_host_dies()
        await self._receipts()
        await self._keys(first)
        if first.first_key is not None:
            show_key(first.first_key, first.url, self._console)
        if stays:
            self._where_to_look(first)

    async def _one_host(self) -> Announcement:
        self._title("1  A host")
        port = self._app.settings.port
        if port and _is_taken(self._app.settings.host, port):
            self._say(f"Port {port} is taken, so the host gets a free one.")
            port = 0
        first = await self._hosts.start(COOKS[0], port)
        await _until_ready(first.url)
        self._say(f"{COOKS[0]} serves {first.url}, and /readyz says that it can do its work.")
        self._say(f"A unit of {len(TABLES)} leases, tables of a kitchen, is all its own:")
        await self._look_until(lambda seen: seen.get(COOKS[0]) == len(TABLES))
        return first

    async def _more_hosts(self) -> None:
        self._title("2  Two more hosts")
        self._say("They share the tables; nobody told them how, and no table had two cooks:")
        await asyncio.gather(*(self._hosts.start(name) for name in COOKS[1:]))
        share = len(TABLES) // len(COOKS)
        await self._look_until(lambda seen: all(seen.get(name) == share for name in COOKS))

    async def _a_host_dies(self) -> None:
        victim, others = COOKS[1], (COOKS[0], COOKS[2])
        self._title(f"3  SIGKILL for {victim}")
        seconds = QUICK["lease_expiration"]
        self._say(
            f"Its tables go to the others when its time ({seconds:g} s here) is over, and the"
        )
        self._say("count of their dishes goes on from what it had noted:")
        await self._hosts.kill(victim)
        share = len(TABLES) // len(others)
        await self._look_until(lambda seen: all(seen.get(name) == share for name in others))

    async def _receipts(self) -> None:
        self._title("4  Receipts, apart from the cooking")
        self._say("Jobs of one customer run one after the other, those of others meanwhile:")
        jobs = self._app.jobs
        made = []
        for n in range(1, RECEIPTS + 1):
            for customer in CUSTOMERS:
                data = {"customer": customer, "number": n}
                made.append((customer, await jobs.submit(RECEIPT, data, token=customer)))
        try:
            by = [(customer, await job.wait(timeout=SEEN_SECONDS_MAX)) for customer, job in made]
        except TimeoutError:
            raise Unavailable(
                f"the receipts are not written after {SEEN_SECONDS_MAX:.0f} s;"
                f" see {self._hosts.log_path}"
            ) from None
        for customer in CUSTOMERS:
            hosts = ", ".join(host for one, host in by if one == customer)
            self._say(f"   {customer:<8}{RECEIPTS} receipts, written by {hosts}")
        nightly = await jobs.submit(
            REPORT, recurrence="FREQ=DAILY;BYHOUR=3;BYMINUTE=0", timezone="Europe/Madrid"
        )
        due = (await nightly.get()).postpone_until
        self._say(f"The nightly report waits for its time: {due:%Y-%m-%d %H:%M} UTC.")

    async def _keys(self, first: Announcement) -> None:
        self._title("5  Keys")
        made = await LocalCalls(self._app).call(
            operation("keys.create"), {"name": "demo", "roles": ["viewer"]}
        )
        key = msgspec.json.decode(made.body)
        try:
            async with (
                over_http(first.url, key["secret"]) as viewer,
                over_http(first.url, None) as stranger,
            ):
                seen = await viewer.call(operation("hosts.list"), {})
                count = sum(host["live"] for host in msgspec.json.decode(seen.body)["items"])
                self._say(f"With the key of a viewer, GET /v1/hosts answers: {count} are live.")
                try:
                    await viewer.call(operation("hosts.drain"), {"name": COOKS[0]})
                except Forbidden as error:
                    self._say(f"It may look, not touch: {error.message}")
                try:
                    await stranger.call(operation("hosts.list"), {})
                except Unauthenticated as error:
                    self._say(f"Without a key: {error.message}")
        finally:
            await LocalCalls(self._app).call(operation("keys.revoke"), {"id": key["key"]["id"]})

    def _where_to_look(self, first: Announcement) -> None:
        self._title("Look around")
        program = command_line(first)
        for line in (
            f"{first.url}/openapi.json    everything that can be asked",
            f"{program} lease list --kind {KIND}    the tables, in another terminal",
            f"{program} job list    the receipts, and the report that waits",
            f"{program} host drain {COOKS[0]}    have a cook hand over its tables",
            f"{program} doctor    is everything as it should be?",
            f"{self._hosts.log_path}    what the hosts log",
        ):
            self._say(line)
        self._console.print("\nIt serves until Ctrl-C.")

    async def _look_until(self, wanted: Callable[[Picture], bool]) -> None:
        """Show who serves which tables until it is as wanted."""
        with Live(console=self._console, auto_refresh=False) as live:
            try:
                async with asyncio.timeout(SEEN_SECONDS_MAX):
                    while True:
                        picture, table = await self._picture()
                        live.update(table, refresh=True)
                        if wanted(picture):
                            break
                        await asyncio.sleep(LOOK_SECONDS)
            except TimeoutError:
                raise Unavailable(
                    f"the tables are not shared as they should be after {SEEN_SECONDS_MAX:.0f} s;"
                    f" see {self._hosts.log_path}"
                ) from None
        if not self._console.is_terminal:
            self._console.print()  # there, `Live` ends without a newline

    async def _picture(self) -> tuple[Picture, Table]:
        leases = await self._app.directory.leases(kind=KIND, unit=UNIT, limit=len(TABLES))
        live = {host.name for host in await self._app.directory.hosts(limit=500) if host.live}
        picture: Picture = {}
        dishes: Picture = {}
        for lease in leases:
            owner = lease.owner or ""
            picture[owner] = picture.get(owner, 0) + 1
            dishes[owner] = dishes.get(owner, 0) + lease.position.get("dishes", 0)
        table = Table(box=None, pad_edge=False, show_header=False)
        for name in (*COOKS, *sorted(picture.keys() - set(COOKS))):
            if name in picture or name in live:
                table.add_row(*_row(name, name in live, picture.get(name, 0), dishes.get(name, 0)))
        return picture, table

    def _title(self, text: str) -> None:
        self._console.print()
        self._console.print(Rule(text, align="left"))

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def _row(name: str, live: bool, tables: int, dishes: int) -> tuple[Any, ...]:
    style = "green" if live else "red"
    state = "" if not name else "live" if live else "dead"
    bar = Text("■ " * tables, style=style)
    return (
        Text(f"   {name or 'nobody':<8}"),
        Text(state, style=style),
        bar,
        Text(f"{dishes} dishes"),
    )


def _is_taken(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


async def _until_ready(url: str) -> None:
    async with over_http(url, None) as calls, asyncio.timeout(SEEN_SECONDS_MAX):
        while True:
            if (await calls.call(operation("system.readyz"), {})).status == 200:
                return
            await asyncio.sleep(LOOK_SECONDS)
