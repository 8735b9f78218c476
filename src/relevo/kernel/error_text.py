"""Errors of user code as text that can always be stored and shown. Pure.

An error may have no text, or one that PostgreSQL does not take (NUL, lone surrogates), or one that
fails when it is asked for. None of that may keep a failure from being written down.
"""

from __future__ import annotations

import traceback
from typing import Final

LINE_MAX: Final = 1_000
"""Characters of an error in a line of the log."""
_TRACEBACK: Final = "Traceback (most recent call last):"


def fit(text: str, most: int) -> str:
    """Return a text that the database can hold: at most `most` characters.

    What is too much is cut out of the middle, where a marker says so: a trace begins with where it
    was called and ends with what was raised.
    """
    encoded = str.encode(text, "utf-8", "backslashreplace")
    found = encoded.decode("utf-8").replace("\0", "\\x00")
    if len(found) <= most:
        return found
    marker = f"\n[… {len(found) - most:,} characters and more left out …]\n"
    room = max(0, most - len(marker))
    return (found[: room // 2] + marker + found[len(found) - (room - room // 2) :])[:most]


def message(error: BaseException, most: int) -> str:
    """Return the text of an error."""
    try:
        return fit(str(error), most)
    except Exception:
        return unspeakable(error)


def shown(error: BaseException, most: int = LINE_MAX) -> str:
    """Return an error as Python shows it, with its type."""
    try:
        return fit(repr(error), most)
    except Exception:
        return unspeakable(error)


def trace(error: BaseException, most: int) -> str:
    """Return the traceback of an error."""
    try:
        return fit("".join(traceback.format_exception(error)), most)
    except Exception:
        return unspeakable(error)


def headline(trace: str) -> str:
    """Return the error that a traceback ends with, without the way to it; at most `LINE_MAX`.

    >>> headline("Traceback (most recent call last):\\n  File a.py\\nValueError: no\\nsuch row")
    'ValueError: no\\nsuch row'
    """
    _, found, end = trace.rpartition(_TRACEBACK)
    lines = (end if found else trace).strip("\n").splitlines()
    if found:  # frames are indented, and the error begins behind them
        at = next((n for n, line in enumerate(lines) if not line.startswith(" ")), len(lines) - 1)
        lines = lines[at:]
    return fit("\n".join(lines).strip(), LINE_MAX)


def unspeakable(error: BaseException) -> str:
    """The text of an error whose own `str` fails."""
    return f"{type(error).__name__} (its text cannot be shown)"
