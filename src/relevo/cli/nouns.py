"""Groups of commands: the nouns of the tree and the words below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from relevo.cli import tree
from relevo.cli.options import CommandGroup
from relevo.kernel.command_words import also_of, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class NounGroup(CommandGroup):
    """The commands below some words of the tree; each is imported when it is asked for."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__(words[-1] if words else None)
        self._words = words
        self._made: dict[str, click.Command] = {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one made for people stands in for the generated one."""
        made = self._made.get(cmd_name) or self._own(cmd_name) or self._generated(cmd_name)
        if made is not None:
            self._made[cmd_name] = made
        return made

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, which imports those of the noun."""
        at = len(self._words)
        own = (tuple(path.split()) for path in tree.COMMANDS)
        return sorted(
            {words[at] for words in (*own, *self._words_below()) if self._is_below(words)}
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; the error for an unknown name has the similar ones."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            names = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=names, ctx=ctx
            ) from None

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the help in one line."""
        return self.help_text

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help."""
        formatter.write_paragraph()
        formatter.write_text(self.help_text)

    @property
    def help_text(self) -> str:
        """What the tree says about the noun, or the verbs below the words."""
        if len(self._words) == 1:
            return tree.NOUNS[self._words[0]].help
        verbs = ", ".join(self.list_commands(click.Context(self)))
        return f"{(self.name or '').capitalize()}: {verbs}."

    def _own(self, name: str) -> click.Command | None:
        """Return a command made for people, or the group of such commands."""
        words = (*self._words, name)
        if (target := tree.COMMANDS.get(" ".join(words))) is not None:
            command: click.Command = tree.imported(target)
            return command
        below = " ".join((*words, ""))
        return NounGroup(words) if any(path.startswith(below) for path in tree.COMMANDS) else None

    def _generated(self, name: str) -> click.Command | None:
        from relevo.cli.generic.commands import OperationCommand  # here: see `tree`

        words = (*self._words, name)
        for operation in tree.operations_of(words[0]):
            if words == also_of(operation.name):
                return OperationCommand(operation, name)
            found = words_of(operation.name)
            if words == found:
                return OperationCommand(operation, name, must_exist=bool(also_of(operation.name)))
            if found[: len(words)] == words:
                return NounGroup(words)
        return None

    def _words_below(self) -> Iterator[tuple[str, ...]]:
        for operation in tree.operations_of(self._words[0]):
            yield words_of(operation.name)
            if (also := also_of(operation.name)) is not None:
                yield also

    def _is_below(self, words: tuple[str, ...]) -> bool:
        at = len(self._words)
        return len(words) > at and words[:at] == self._words
