"""`relevo up`: one host, from nothing, and what to do with it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.rule import Rule
from rich.text import Text as Line

from relevo.app import App
from relevo.cli import hosting
from relevo.cli.generic.values import Text
from relevo.cli.hosting import Hosting
from relevo.cli.options import LOCAL, command
from relevo.cli.programs import app_for
from relevo.cli.render import echo_json, new_console
from relevo.kernel.telemetry import configure_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from relevo.cli.hosting import Announcement
    from relevo.cli.session import Output, Session


@command("up", shared=LOCAL)
@click.argument(
    "target",
    type=Text(),
    required=False,
    metavar="[MODULE:APP]",
    help="A program whose jobs, processors, tables and messages it serves too.",
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
@click.option("--port", type=int, metavar="PORT", help="Default: 8080; 0 takes a free one.")
@click.option(
    "host_name", "--name", metavar="NAME", help="Name of this host; unique. Default: made up."
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
@click.option("--address", metavar="URL", help="Where other hosts reach this one.")
@click.option(
    "--drain-seconds",
    type=float,
    metavar="SECONDS",
    help="How long running work may take to end. Default: 30.",
)
@click.pass_obj
def up(session: Session, /, target: str | None, **arguments: Any) -> None:
    """Run one host: the API, and the work behind it.

    With MODULE:APP it is also a host for what that program defines, and the API has its tables and
    messages. The program may say itself which database it is about. Otherwise this starts the
    embedded PostgreSQL unless --database names another one. The first access key is made at the
    first start and shown once; RELEVO_ACCESS_KEY (base64 of 32 random bytes) presets it. SIGTERM or
    Ctrl-C drains and stops; a second one ends at once.
    """
    if target is None:
        app = App(settings=session.local_settings(**arguments))
    else:
        app = app_for(target, session, **arguments)
    configure_logs(app.settings.log_format, app.settings.log_level)
    announce = announcer(session.output)
    hosting.run(app, Hosting(started=lambda _, told: announce(told)))


def announcer(output: Output) -> Callable[[Announcement | None], None]:
    """Return what tells people, or with `json` a program, that the host serves the API."""
    console = new_console()

    def tell(told: Announcement | None) -> None:
        if told is None:
            return
        if output == "json":
            echo_json(msgspec.json.encode(told))
        else:
            announce(told, console)

    return tell


def announce(told: Announcement, console: Console) -> None:
    """Print where everything is, the first key if it is new, and what to do next."""
    where = "embedded PostgreSQL in " if told.embedded else "PostgreSQL at "
    lines = {
        "host": told.host,
        "database": f"{where}{told.database}",
        "ready?": f"{told.url}/readyz",
        "metrics": f"{told.url}/metrics (needs a key)",
        "API": f"{told.url}/openapi.json",
    }
    console.print(Line(f"Relevo {told.version} is up at {told.url}", style="bold green"))
    for name, text in lines.items():
        console.print(Line.assemble((f"  {name:<10}", "dim"), text), soft_wrap=True)
    if told.first_key is not None:
        show_key(told.first_key, told.url, console)
    elif told.preset_key:
        console.print("\nThe access key is the one preset by RELEVO_ACCESS_KEY.")
    console.print("\nNext, in another terminal (Ctrl-C here drains and stops):")
    program = command_line(told)
    for arguments in ("host list", "lease list", "key create --name ci --role viewer"):
        console.print(f"  {program} {arguments}", soft_wrap=True)


def command_line(told: Announcement) -> str:
    """Return how a command is begun that is to reach the same installation."""
    if not told.embedded:
        return f"relevo --url {told.url}"
    if Path(told.database) == Path(".relevo").resolve():
        return "relevo"
    return f"relevo --home {shlex.quote(told.database)}"


def show_key(key: str, url: str, console: Console) -> None:
    """Between rules, not in a box, so that the lines can be copied."""
    console.print()
    console.print(Rule("first access key: shown this once, keep it safe", align="left"))
    console.print(Line(f"export RELEVO_KEY={key}"), soft_wrap=True)
    example = f'curl -H "Authorization: Bearer $RELEVO_KEY" {url}/v1/hosts'
    console.print(Line(example), soft_wrap=True)
    console.print(Rule())
