"""`relevo completion`: the completion scripts of shells."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from relevo.cli.options import DEBUG, command
from relevo.errors import InternalError

SHELLS: Final = ("bash", "zsh", "fish")


@command("completion", shared=DEBUG)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL", help="bash, zsh or fish.")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(relevo completion bash)"   in ~/.bashrc
    zsh:   eval "$(relevo completion zsh)"    in ~/.zshrc
    fish:  relevo completion fish > ~/.config/fish/completions/relevo.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise InternalError(f"click has no completion for {shell}")
    root = context.find_root().command
    click.echo(kind(root, {}, "relevo", "_RELEVO_COMPLETE").source())
