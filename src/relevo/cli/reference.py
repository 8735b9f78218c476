"""Writes docs/reference/cli.md from the commands: `python -m relevo.cli.reference > that`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import click

from relevo.cli.exits import EXITS
from relevo.cli.options import EVERYWHERE, SharedOption
from relevo.cli.root import PROGRAM, build

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEAD = """\
# The command line

This page is made from the commands by `python -m relevo.cli.reference`.

Commands work on the embedded database of this folder (`.relevo`), on the one that `--database`
names, or with `--url` over HTTP on a running host, with the access key in `RELEVO_KEY`,
`RELEVO_KEY_FILE` or `--key`. Both ways give the same results and the same exit codes. Results are
tables for people (plain columns in a pipe), or with `--output json` exactly what the API answers.
Errors are one line on standard error that says what to do. Tab completion: `relevo completion`.
"""


def page() -> str:
    """Return the page."""
    root = build()
    context = click.Context(root, info_name=PROGRAM)
    parts = [
        _HEAD,
        "## Exit codes\n",
        _table(("code", "meaning"), ((f"`{each.code}`", each.meaning) for each in EXITS)),
        "## Options of every command\n",
        "They may stand before or after the command's name; commands that work on the database"
        " itself do not take `--url` and `--key`.\n",
        _table(("option", "meaning"), _records(EVERYWHERE, context)),
        "## Commands\n",
        *_commands(root, context),
    ]
    return "\n".join(parts)


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, below)
        else:
            yield _describe(command, below)


def _describe(command: click.Command, context: click.Context) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"### {context.command_path}\n", f"`{usage}`\n", f"{_text(command)}\n"]
    own = [p for p in command.params if not isinstance(p, SharedOption)]
    if own:
        lines.append(_table(("parameter", "meaning"), _records(own, context)))
    return "\n".join(lines)


def _text(command: click.Command) -> str:
    """Return the help of a command; what it marks as laid out is a block of code."""
    blocks = []
    for block in inspect.cleandoc(command.help or "").split("\n\n"):
        if block.startswith("\b\n"):
            blocks.append("```\n{}\n```".format(block.removeprefix("\b\n")))
        else:
            blocks.append(block)
    return "\n\n".join(blocks)


def _records(
    parameters: Iterable[click.Parameter], context: click.Context
) -> Iterator[tuple[str, str]]:
    for parameter in parameters:
        record = parameter.get_help_record(context)
        if record is not None:
            yield f"`{record[0]}`", record[1]


def _table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    lines = ["| {} | {} |".format(*head), "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(text)} |" for name, text in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("  [required]", " Required.")


if __name__ == "__main__":
    click.echo(page(), nl=False)
