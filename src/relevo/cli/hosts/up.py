"""`relevo up`: one host with the API, and its start message."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.rule import Rule
from rich.text import Text as Line

from relevo.app import App
from relevo.cli.generic.values import Text
from relevo.cli.hosts import hosting
from relevo.cli.hosts.hosting import Hosting
from relevo.cli.hosts.programs import app_for
from relevo.cli.options import ALWAYS, OUTPUT, WHERE, command
from relevo.cli.output.render import Renderer, new_console
from relevo.kernel.telemetry import configure_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from relevo.cli.hosts.hosting import Announcement
    from relevo.cli.session import Output, Session


@command("up", shared=(*WHERE, *OUTPUT, *ALWAYS))
@click.argument(
    "target",
    type=Text(),
    required=False,
    metavar="[MODULE:APP]",
    help="A program whose jobs, processors, tables and messages the host also serves.",
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port", type=int, metavar="PORT", help="Port to listen on; 0 takes a free one. Default: 8080."
)
@click.option(
    "host_name", "--name", metavar="NAME", help="Unique name of this host. Default: generated."
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Serve https with this certificate and its chain (PEM).",
)
@click.option(
    "--tls-key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Private key of the certificate (PEM, without a password).",
)
@click.option("--address", metavar="URL", help="URL under which other hosts reach this one.")
@click.option(
    "--drain-seconds",
    type=float,
    metavar="SECONDS",
    help="How long running work may take to finish at a stop. Default: 30.",
)
@click.pass_obj
def up(session: Session, /, target: str | None, **arguments: Any) -> None:
    """Run one host: the API, and the work behind it.

    With MODULE:APP it also serves the program's jobs, processors, tables and messages. The program
    may choose the database itself. Otherwise the host uses the embedded PostgreSQL, or the one that
    --database names. The first start creates the first access key and shows it once;
    RELEVO_ACCESS_KEY (base64 of 32 random bytes) presets it. SIGTERM or Ctrl-C drains and stops; a
    second one ends the process at once.
    """
    if target is None:
        app = App(settings=session.settings(**arguments))
    else:
        app = app_for(target, session, **arguments)
    configure_logs(app.settings.log_format, app.settings.log_level or "info")
    announce = announcer(session.output)
    hosting.run(app, Hosting(started=lambda _, announcement: announce(announcement)))


def announcer(output: Output) -> Callable[[Announcement | None], None]:
    """Return a function that prints the start message, as text or as JSON."""
    console = new_console()

    def show(announcement: Announcement | None) -> None:
        if announcement is None:
            return
        if output != "table":
            Renderer(output).data(msgspec.to_builtins(announcement), line=True)
        else:
            announce(announcement, console)

    return show


def announce(announcement: Announcement, console: Console) -> None:
    """Print the addresses, the first key if it is new, and the next commands."""
    where = "embedded PostgreSQL in " if announcement.embedded else "PostgreSQL at "
    lines = {
        "host": announcement.host,
        "database": f"{where}{announcement.database}",
        **({"dashboard": announcement.sign_in} if announcement.sign_in else {}),
        "ready?": f"{announcement.url}/readyz",
        "metrics": f"{announcement.url}/metrics (needs a key)",
        "API": f"{announcement.url}/openapi.json",
    }
    console.print(
        Line(f"Relevo {announcement.version} is up at {announcement.url}", style="bold green")
    )
    for name, text in lines.items():
        console.print(Line.assemble((f"  {name:<10}", "dim"), text), soft_wrap=True)
    if announcement.first_key is not None:
        show_key(announcement.first_key, announcement.url, console)
    elif announcement.preset_key:
        console.print("\nThe access key is the one preset by RELEVO_ACCESS_KEY.")
    console.print("\nNext, in another terminal (Ctrl-C here drains and stops):")
    program = command_line(announcement)
    for arguments in ("host list", "lease list", "key create --name ci --role viewer"):
        console.print(f"  {program} {arguments}", soft_wrap=True)


def command_line(announcement: Announcement) -> str:
    """Return the start of a command line that reaches this installation."""
    if not announcement.embedded:
        return f"relevo --url {announcement.url}"
    if Path(announcement.database) == Path(".relevo").resolve():
        return "relevo"
    return f"relevo --home {shlex.quote(announcement.database)}"


def show_key(key: str, url: str, console: Console) -> None:
    """Print the first key between rules, not in a box, so that the lines can be copied."""
    console.print()
    console.print(Rule("first access key: shown this once, keep it safe", align="left"))
    console.print(Line(f"export RELEVO_KEY={key}"), soft_wrap=True)
    example = f'curl -H "Authorization: Bearer $RELEVO_KEY" {url}/v1/hosts'
    console.print(Line(example), soft_wrap=True)
    console.print(Rule())
