"""Generates docs/reference/cli.md from the commands: `python -m relevo.cli.reference`."""

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

`python -m relevo.cli.reference` generates this page from the commands.

Commands work on the embedded database of this folder (`.relevo`), on the one that `--database`
names, or with `--url` over HTTP on a running host, with the access key in `RELEVO_KEY`,
`RELEVO_KEY_FILE` or `--key`; a saved context stands for these. Results and exit codes are the same
in all cases. [Use the command line](../how-to/use-the-command-line.md) explains contexts, output
formats, short ids and `--watch`. An error is one line on standard error that says what to do.
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
        "They may come before or after the command's name. A command refuses those that have"
        " no effect on it.\n",
        _table(("option", "meaning"), _records(EVERYWHERE, context)),
        "## Commands\n",
        *_commands(root, context),
    ]
    return "\n".join(parts)


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        assert command is not None
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
    """Return the help of a command; paragraphs marked with \\b become code blocks."""
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
