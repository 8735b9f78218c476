"""The `relevo` command: its tree of commands, and how errors end."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import click

from relevo.actors.cli.schema import schema as actor_schema
from relevo.actors.cli.watch import watch as actor_watch
from relevo.cli import exits
from relevo.cli import run as job_run
from relevo.cli.backup import backup, restore
from relevo.cli.completion import completion
from relevo.cli.doctor.command import doctor
from relevo.cli.generic import commands as generic
from relevo.cli.grants import grants
from relevo.cli.migrate import migrate
from relevo.cli.options import EVERYWHERE, CommandGroup
from relevo.cli.render import printable
from relevo.cli.session import Session
from relevo.cli.up import up
from relevo.dataverse.cli import bulk_delete as job_bulk
from relevo.dataverse.cli import users as user
from relevo.errors import RelevoError
from relevo.feed.cli import commands as feed
from relevo.feed.cli import run as feed_run
from relevo.jobs.cli import commands as job
from relevo.jobs.cli.retrying import retry
from relevo.kernel.postgres.failures import unexpected
from relevo.messaging.cli import lines
from relevo.messaging.cli.autoscale import autoscale
from relevo.messaging.cli.top import top
from relevo.router.cli import commands as router
from relevo.router.cli import desk as router_desk
from relevo.router.cli import importing as router_import

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM: Final = "relevo"
_HELP: Final = """Relevo gets every piece of work to whoever should do it.

`relevo up` starts it. Commands work on the database of this folder (.relevo), on the one that
--database names, or with --url over HTTP on a running host.
"""


class _Root(CommandGroup):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(each.code), each.meaning) for each in exits.EXITS])


def build() -> click.Group:
    """Return the command tree."""
    root = _Root(PROGRAM, help=_HELP, params=list(EVERYWHERE), no_args_is_help=True)
    root = click.version_option(version("relevo"), message="%(prog)s %(version)s")(root)
    for each in (up, job_run.run, top, doctor, migrate, backup, restore, grants, completion):
        root.add_command(each)
    generic.add_commands(root)
    for each in (feed.lag, feed.tail, feed_run.run):
        generic.group_of(root, "feed").add_command(each)
    for each in (job.submit, job.show, job.wait, retry, job.views, job.watch, job_bulk.bulk_delete):
        generic.group_of(root, "job").add_command(each)
    for each in (lines.send_to_queue, lines.receive_from_queue):
        generic.group_of(root, "queue").add_command(each)
    generic.group_of(root, "topic").add_command(lines.send_to_topic)
    generic.group_of(root, "subscription").add_command(lines.receive_from_subscription)
    generic.group_of(root, "consumer").add_command(autoscale)
    generic.group_of(root, "user").add_command(user.show)
    for each in (actor_schema, actor_watch):
        generic.group_of(root, "actor").add_command(each)
    router_group = generic.group_of(root, "router")
    for each in (router.classify, router.watch, router_desk.work, router_import.take_over):
        router_group.add_command(each)
    for each in (router.explain_job, router.explain_worker):
        generic.group_of(router_group, "explain").add_command(each)
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
    except asyncpg.PostgresError as error:
        return _fail(error, unexpected(error), exits.UNEXPECTED, session)
    except Exception as error:
        text = f"unexpected {type(error).__name__}: {error}; please report it, with --debug"
        return _fail(error, text, exits.UNEXPECTED, session)
    return result if isinstance(result, int) else exits.OK


def _fail(error: Exception, text: str, code: int, session: Session) -> int:
    if session.debug:
        traceback.print_exception(error)
    line = " ".join(text.split())
    click.echo(f"error: {printable(line)}", err=True)
    return code


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
