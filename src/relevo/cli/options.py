"""The options that many commands share, and the layout of their help."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from relevo.cli.session import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relevo.cli.session import Session

NAMES: Final = {"help_option_names": ["-h", "--help"]}
SHARED_HEADING: Final = "Options of every command"


class SharedOption(click.Option):
    """An option that may come before or after the command's name; stored in the session."""

    def __init__(self, *declarations: str, **attributes: Any) -> None:
        super().__init__(declarations, callback=_remember, expose_value=False, **attributes)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        session: Session = context.obj
        session.given[parameter.name or ""] = value


WHERE: Final = (
    SharedOption(
        "--database", metavar="URL", help="PostgreSQL to use instead of the embedded one."
    ),
    SharedOption("--schema", metavar="NAME", help="Database schema of Relevo. Default: relevo"),
    SharedOption(
        "--home",
        metavar="FOLDER",
        type=click.Path(file_okay=False, path_type=Path),
        help="Data folder, with the embedded database and the master key. Default: .relevo",
    ),
    SharedOption(
        "--config",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Settings file. Default: relevo.toml, if it exists.",
    ),
)
REMOTE: Final = (
    SharedOption(
        "--url", metavar="URL", help="Use the host at this URL, over HTTP. Also: RELEVO_URL."
    ),
    SharedOption(
        "--key",
        metavar="KEY",
        help="Access key for --url. RELEVO_KEY and RELEVO_KEY_FILE are safer: ps shows neither.",
    ),
    SharedOption(
        "--ca",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="CA certificates for --url (PEM), instead of the system's. Also: RELEVO_CA.",
    ),
)
SELECTION: Final = (
    SharedOption(
        "--context",
        metavar="NAME",
        help="Use the database or host of `relevo context save NAME`. Also: RELEVO_CONTEXT.",
    ),
)
OUTPUT: Final = (
    SharedOption(
        "--output",
        "-o",
        type=click.Choice(OUTPUTS),
        help="Output format. Default: table.",
    ),
)
ALWAYS: Final = (
    SharedOption(
        "--log-level",
        type=click.Choice(("debug", "info", "warning", "error")),
        help="Lowest level that is logged to standard error.",
    ),
    SharedOption("--debug", is_flag=True, help="Show the traceback of an error."),
)
DEBUG: Final = ALWAYS[1:]
"""The options of commands that connect to nothing."""
EVERYWHERE: Final = (*WHERE, *REMOTE, *SELECTION, *OUTPUT, *ALWAYS)
LOCAL: Final = (*WHERE, *SELECTION, *OUTPUT, *ALWAYS)
"""The options of commands that never use HTTP."""


class RelevoCommand(click.Command):
    """A command whose help lists its own options before the shared ones.

    A shared option that was given before the command's name is refused if it has no effect here.
    """

    def __init__(
        self, *args: Any, shared: tuple[SharedOption, ...] = (), **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.context_settings = {**NAMES, **self.context_settings}
        self.params.extend(self.shared_options(self.params, shared))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, if every shared option that was given has an effect on it."""
        session: Session | None = ctx.obj
        own = {each.name: each for each in self.params if isinstance(each, SharedOption)}
        for name, value in session.given.items() if session else ():
            option = next(each for each in EVERYWHERE if each.name == name)
            known = own.get(name)
            if known is None:
                raise click.UsageError(f"{option.opts[0]} has no effect here; remove it", ctx)
            known.type_cast_value(ctx, value)  # a command may know fewer choices than others
        return super().invoke(ctx)

    def shared_options(
        self, params: Sequence[click.Parameter], shared: tuple[SharedOption, ...]
    ) -> list[SharedOption]:
        """Return copies of the shared options, to follow the command's own parameters."""
        own = {name for parameter in params for name in parameter.opts}
        for option in shared:
            assert not own & set(option.opts), f"{self.name}: {option.opts} is a shared option"
        return [copy.copy(option) for option in shared]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two sections."""
        _format_options(self, ctx, formatter)


class CommandGroup(click.Group):
    """A group of `RelevoCommand`s."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.context_settings = {**NAMES, **self.context_settings}

    def leaf(self, name: str, **attributes: Any) -> Callable[[Callable[..., Any]], RelevoCommand]:
        """Add a command to this group; see `command`."""

        def add(function: Callable[..., Any]) -> RelevoCommand:
            made = command(name, **attributes)(function)
            self.add_command(made)
            return made

        return add

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two sections, then the commands."""
        _format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)


def _format_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    names: list[str] = []
    for parameter in command.get_params(ctx):
        shared = isinstance(parameter, SharedOption)
        if shared and ctx.parent is not None:
            names.append(parameter.opts[0])  # described once, by `relevo --help`
        elif isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
            sections.setdefault(SHARED_HEADING if shared else "Options", []).append(record)
    for heading, records in sections.items():
        with formatter.section(heading):
            formatter.write_dl(records)
    if names:
        with formatter.section(f"{SHARED_HEADING} (see `relevo --help`)"):
            formatter.write_text(" ".join(names))


def command(
    name: str, *, shared: tuple[SharedOption, ...] = ALWAYS, **attributes: Any
) -> Callable[[Callable[..., Any]], RelevoCommand]:
    """Turn a function into a `RelevoCommand`; its docstring is the help."""

    def make(function: Callable[..., Any]) -> RelevoCommand:
        return click.command(name, cls=RelevoCommand, shared=shared, **attributes)(function)

    return make
