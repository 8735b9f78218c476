"""Writes text to the terminal, without the characters in it that would control the terminal."""

from __future__ import annotations

import json
import sys

import click


def note(text: str) -> None:
    """Print a note on standard error, beside the result."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=True)


def echo_text(text: str) -> None:
    """Write a text to standard output."""
    click.echo(terminal_text(text) if sys.stdout.isatty() else text)


def terminal_text(text: str, *, json: bool = False) -> str:
    """Return text, or JSON, as it may be written to a terminal: only line ends control it."""
    return "\n".join(map(json_printable if json else printable, text.split("\n")))


def printable(text: str) -> str:
    """Return text without characters that would move the cursor or change the terminal.

    >>> printable("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def json_printable(text: str) -> str:
    """Return the JSON with characters escaped that would change a terminal or the text direction.

    JSON itself escapes only the first 32 characters; C1 controls and direction marks would reach
    the terminal.

    >>> print(json_printable('"a\x9b2J\u202eb"'))
    "a\\u009b2J\\u202eb"
    """
    lines = text.split("\n")
    if all(map(str.isprintable, lines)):
        return text
    return "\n".join(
        "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line) for line in lines
    )
