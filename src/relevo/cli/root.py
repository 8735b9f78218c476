"""The `relevo` command: its tree of commands, and how errors end."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from relevo.cli import exits, tree
from relevo.cli.nouns import NounGroup
from relevo.cli.options import EVERYWHERE
from relevo.cli.output.printing import printable
from relevo.cli.session import Session
from relevo.errors import RelevoError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM: Final = "relevo"
_HELP: Final = """Relevo gets every piece of work to whoever should do it.

`relevo up` starts it. Commands work on the database of this folder (.relevo), on the one that
--database names, or with --url over HTTP on a running host.
"""


class _Root(NounGroup):
    """All commands, in the sections of the tree; nothing is imported to list them."""

    def __init__(self) -> None:
        super().__init__(())
        self.name, self.help, self.no_args_is_help = PROGRAM, _HELP, True
        self.params = list(EVERYWHERE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or the group of a noun."""
        return super().get_command(ctx, cmd_name) if cmd_name in tree.NOUNS else None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of commands and nouns."""
        return list(tree.NOUNS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin so, and the options."""
        names = [name for name in tree.NOUNS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=tree.NOUNS[name].help) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the introduction."""
        click.Command.format_help_text(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        for heading, nouns in tree.SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, noun.help) for name, noun in nouns.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(each.code), each.meaning) for each in exits.EXITS])


def build() -> click.Group:
    """Return the command tree."""
    described = click.version_option(package_name="relevo", message="%(prog)s %(version)s")
    root: click.Group = described(_Root())
    return root


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line of this process and exit with a code of `exits.EXITS`."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; an error is one line on standard error."""
    session = Session()
    try:
        result: Any = build().main(
            list(arguments), prog_name=PROGRAM, obj=session, standalone_mode=False
        )
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return exits.of_signal(signal.SIGPIPE)
    except (click.Abort, KeyboardInterrupt):
        return exits.of_signal(signal.SIGINT)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return exits.USAGE
    except click.ClickException as error:
        return _fail(error, _usage(error), error.exit_code, session)
    except RelevoError as error:
        return _fail(error, error.message, exits.exit_code(error), session)
    except Exception as error:
        return _fail(error, _unexpected(error), exits.UNEXPECTED, session)
    return result if isinstance(result, int) else exits.OK


def _fail(error: Exception, text: str, code: int, session: Session) -> int:
    if session.debug:
        traceback.print_exception(error)
    line = " ".join(text.split())
    click.echo(f"error: {printable(line)}", err=True)
    return code


def _unexpected(error: Exception) -> str:
    from asyncpg import PostgresError  # here, because most commands end without this

    from relevo.kernel.postgres.failures import unexpected

    if isinstance(error, PostgresError):
        return unexpected(error)
    return f"unexpected {type(error).__name__}: {error}; please report it, with --debug"


def _usage(error: click.ClickException) -> str:
    """Return the error with a hint to the help, in one line."""
    text = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return text
    end = "" if text.endswith(("?", "?)")) else "."
    return f"{text}{end} See `{context.command_path} --help`."


def _forget_output() -> None:
    """Discard further output, because its reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
