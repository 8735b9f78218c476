"""Every `relevo …` command that a text names exists, with the options that the text gives it."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from relevo.cli import tree
from relevo.cli.root import build

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
TEXTS: Final = ("*.md", "docs/**/*.md", "deploy/**/*", "src/relevo/dashboard/**/*.html",
                "src/relevo/dashboard/**/*.toml", "Makefile")  # fmt: skip
MADE: Final = ROOT / "docs" / "reference" / "cli.md"
PROGRAMS: Final = ("src/**/*.py", "examples/**/*.py", "docs/*.py")

_INLINE: Final = re.compile(r"`(relevo [^`]+)`")
_LINE: Final = re.compile(r"(?<![\w./=@\[-])(?<!schema )relevo (?=[a-z-])(.*)")
_SHOWN: Final = re.compile(r"(?:^|[\"'(>]|with: |[&|;$] |exec |\$\()relevo (?=[a-z-])([^`\n]*)")
_COMMENT: Final = re.compile(r"\s#\s.*|\\$")
_OPEN: Final = re.compile(r"[^a-z-]|\.\.\.")
"""A word that stands for something else: NAME, <id>, {name}, $id, …"""


class Mention(Struct, frozen=True):
    """A command as a text names it, after `relevo`."""

    where: str
    text: str
    complete: bool
    """Whether it ends where the command ends; else a sentence may go on."""


def _mentions() -> Iterator[Mention]:
    for pattern in TEXTS:
        for path in ROOT.glob(pattern):
            if path.is_file() and path != MADE:
                yield from _of_text(path, path.read_text("utf-8"))
    for pattern in PROGRAMS:
        for path in ROOT.glob(pattern):
            text = path.read_text("utf-8")
            if "relevo " in text:
                yield from _of_program(path, text)


def _of_text(path: Path, text: str) -> Iterator[Mention]:
    where = str(path.relative_to(ROOT))
    language = None
    for line in text.splitlines():
        if line.startswith("```"):
            language = line[3:].split() if language is None else None
        pattern = _SHOWN if path.suffix != ".md" else _LINE if _is_shell(language) else None
        if pattern is not None and (found := pattern.search(line)):
            yield Mention(where, _COMMENT.sub("", found[1]), complete=True)
    for inline in _INLINE.findall(text):
        yield Mention(where, inline.removeprefix("relevo "), complete=True)


def _is_shell(language: list[str] | None) -> bool:
    return language is not None and language[:1] not in (["python"], ["sql"])


def _of_program(path: Path, text: str) -> Iterator[Mention]:
    where = str(path.relative_to(ROOT))
    for constant in _constants(ast.parse(text)):
        for inline in _INLINE.findall(constant):
            yield Mention(where, inline.removeprefix("relevo "), complete=True)
        for line in _INLINE.sub("", constant).splitlines():
            yield from (Mention(where, shown, complete=False) for shown in _SHOWN.findall(line))


def _constants(node: ast.AST) -> Iterator[str]:
    """Return the texts of a program; NAME stands for what a format string fills in."""
    match node:
        case ast.JoinedStr(values=values):
            yield "".join(_part(value) for value in values)
        case ast.Constant(value=str(text)):
            yield text
        case ast.keyword(arg="name"):  # a thread's
            pass
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _constants(child)


def _part(value: ast.expr) -> str:
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=ast.Name(id="program")):
            return "relevo"
        case _:
            return "NAME"


def _words(text: str) -> list[str]:
    """Return the words of a command, until it ends or a value goes on in another line."""
    words: list[str] = []
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        for word in lexer:
            if set(word) <= set("();<>|&"):
                del words[len(words) - (word[0] == ">" and words[-1:] == ["2"]) :]
                break
            words.append(word)
    except ValueError:
        words.append("…")
    return words


def _fault(root: click.Group, mention: Mention) -> str | None:
    """Return what is wrong with a command, or None."""
    context, words = click.Context(root, info_name="relevo"), _words(mention.text)
    command: click.Command = root
    try:
        while isinstance(command, click.Group):
            words = _after_options(command, context, words)
            if not words or _OPEN.search(words[0]):
                return None
            context, command = _below(command, context, words[0].rstrip(",.:;)"))
            if words[0][-1] in ",.:;)":
                return None
            words = words[1:]
        if _OPEN.fullmatch("".join(words)[:1]) and not mention.complete:
            return None
        if words and words[-1].startswith("-"):
            words.append("…")  # a text may name an option without its value
        _, extra, _ = command.make_parser(context).parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    extra = [word for word in extra if word not in ("…", "$@")]
    return f"too many words: {' '.join(extra)}" if extra and mention.complete else None


def _after_options(group: click.Group, context: click.Context, words: list[str]) -> list[str]:
    """Return the words after the options before a command."""
    if not words or not words[0].startswith("-"):
        return words
    parser = group.make_parser(context)
    parser.allow_interspersed_args = False
    return parser.parse_args(words)[1]


def _below(
    group: click.Group, context: click.Context, word: str
) -> tuple[click.Context, click.Command]:
    """Return a command of a group; of the first of several words, if all exist."""
    made = [group.resolve_command(context, [name])[1] for name in re.split(r"[|/]", word)]
    assert made[0] is not None
    return click.Context(made[0], info_name=word, parent=context), made[0]


def test_every_command_that_a_text_names_exists() -> None:
    root, mentions = build(), list(_mentions())
    assert len(mentions) > 300
    faults = {
        f"{mention.where}: relevo {mention.text.strip()}: {fault}"
        for mention in mentions
        if (fault := _fault(root, mention)) is not None
    }
    assert not faults, "\n".join(sorted(faults))


def test_the_help_of_a_noun_names_verbs_that_exist() -> None:
    root = build()
    context, missing = click.Context(root, info_name="relevo"), {}
    for name, noun in tree.NOUNS.items():
        group = root.get_command(context, name)
        _, colon, verbs = noun.help.rstrip(".").partition(": ")
        if isinstance(group, click.Group) and colon:
            below = group.list_commands(click.Context(group, parent=context))
            named = {verb.removesuffix("s") for verb in verbs.split(", ")}
            missing[name] = named - {verb.removesuffix("s") for verb in below}
    assert not {name: verbs for name, verbs in missing.items() if verbs}
