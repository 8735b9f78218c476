"""`relevo up`: one host, from nothing, and what to do with it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.rule import Rule
from rich.text import Text

from relevo.cli import hosting
from relevo.cli.options import LOCAL, command
from relevo.cli.render import echo_json, new_console

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from relevo.cli.hosting import Announcement
    from relevo.cli.session import Output, Session


@command("up", shared=LOCAL)
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
def up(session: Session, /, **arguments: Any) -> None:
    """Run one host: the API, and the work behind it.

    Starts the embedded PostgreSQL unless --database names another one. The first access key is
    made at the first start and shown once; RELEVO_ACCESS_KEY (base64 of 32 random bytes) presets
    it. SIGTERM or Ctrl-C drains and stops; a second one ends at once.
    """
    settings = session.local_settings(**arguments)
    hosting.run(settings, announcer(session.output))


def announcer(output: Output) -> Callable[[Announcement], None]:
    """Return what tells people, or with `json` a program, that the host serves."""
    if output == "json":
        return lambda told: echo_json(msgspec.json.encode(told))
    console = new_console()
    return lambda told: announce(told, console)


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
    console.print(Text(f"Relevo {told.version} is up at {told.url}", style="bold green"))
    for name, text in lines.items():
        console.print(Text.assemble((f"  {name:<10}", "dim"), text), soft_wrap=True)
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
    console.print(Text(f"export RELEVO_KEY={key}"), soft_wrap=True)
    example = f'curl -H "Authorization: Bearer $RELEVO_KEY" {url}/v1/hosts'
    console.print(Text(example), soft_wrap=True)
    console.print(Rule())
