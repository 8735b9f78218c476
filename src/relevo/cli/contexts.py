"""Contexts: names for the databases and hosts that a user works with, kept in one private file.

A context counts where neither options nor the environment select a database or host. Keys may be
in a file of their own, which the context names, or in the file of contexts, and are never shown.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue, NotFound, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "RELEVO_CONTEXT"
CONTEXTS_MAX: Final = 1_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Context(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where commands go: a host at `url`, or a database."""

    url: str | None = None
    ca: str | None = None
    key: str | None = None
    key_file: str | None = None
    database: str | None = None
    schema: str | None = None
    home: str | None = None

    def __repr__(self) -> str:
        return f"Context(url={self.url!r}, home={self.home!r}, …)"


class SavedContexts(Struct, frozen=True, kw_only=True):
    """All contexts of a user, and the name of the selected one."""

    selected: str | None = None
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """Return a context; raises `NotFound`."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none yet"
            raise NotFound(f"there is no context {name!r}; known: {known}")
        return self.contexts[name]


def file_of(environ: Mapping[str, str]) -> Path:
    """Return the file of a user's contexts."""
    folder = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "~") / ".config"
    return Path(folder).expanduser() / "relevo" / "contexts.json"


def load(file: Path) -> SavedContexts:
    """Return the contexts of a file, none if it is missing; others must not be able to read it."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        body = file.read_bytes()
    except FileNotFoundError:
        return SavedContexts()
    except OSError as error:
        raise SettingsError(f"the contexts in {file} cannot be read: {error}") from None
    if mode & 0o077:
        raise SettingsError(
            f"{file} holds keys and is open to others (mode {mode:04o}); run: chmod 600 {file}"
        )
    try:
        return msgspec.json.decode(body, type=SavedContexts)
    except msgspec.DecodeError as error:
        raise SettingsError(f"the contexts in {file} cannot be read: {error}") from None


def store(file: Path, saved: SavedContexts) -> None:
    """Replace the contexts of a file, which only the user may read."""
    if len(saved.contexts) > CONTEXTS_MAX:
        raise InvalidValue(f"there are {CONTEXTS_MAX} contexts; remove some first")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(msgspec.json.format(msgspec.json.encode(saved), indent=2))
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def require_name(name: str) -> None:
    """Raise `InvalidValue` unless a context may have this name."""
    if not _NAME.fullmatch(name):
        raise InvalidValue(
            f"{name!r} is no name of a context; use up to 63 letters, digits, dots, dashes and _"
        )
