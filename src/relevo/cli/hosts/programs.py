"""Loads users' programs; an error in a program is shown with the program's own traceback."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from relevo.app import App
from relevo.cli import exits
from relevo.errors import RelevoError
from relevo.settings import PREFIX

if TYPE_CHECKING:
    from types import ModuleType, TracebackType

    from relevo.cli.session import Session


class ProgramBroken(click.ClickException):
    """A program could not be loaded."""

    exit_code = exits.USAGE


def load(target: str, default: str | None = None) -> tuple[ModuleType, str]:
    """Return the module and the name of `module:name`; the current folder is searched too.

    `default` is used if no name is given. Raises `click.ClickException`; an exception of the
    program itself is shown with its traceback.
    """
    where, _, name = target.partition(":")
    if PurePath(where).name and (where.endswith(".py") or os.sep in where):
        meant = ".".join(part for part in PurePath(where).with_suffix("").parts if part != "..")
        raise click.UsageError(f"{where!r} is a file; give its module: {meant}:{name or 'app'}")
    name = name or default or ""
    if not where or where.startswith(".") or not name:
        raise click.UsageError(f"{target!r} is not of the form module:{default or 'name'}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(where), name
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if where == missing or where.startswith(f"{missing}."):
            raise click.UsageError(f"there is no module {where!r}: {error}") from error
        _tell(error)
        raise ProgramBroken(f"{where} needs the module {missing!r}, which is missing") from error
    except RelevoError:
        raise
    except Exception as error:
        _tell(error)
        what = f"{type(error).__name__}: {error}"
        raise ProgramBroken(f"{where} could not be loaded: {what}") from error


def app_of(target: str) -> App:
    """Return the app of a program; raises `click.ClickException`."""
    module, name = load(target, "app")
    app = vars(module).get(name)
    if isinstance(app, App):
        return app
    apps = [variable for variable, value in vars(module).items() if isinstance(value, App)]
    advice = f"use {module.__name__}:{apps[0]}" if apps else "give the variable with the app"
    raise click.UsageError(f"{name!r} of {module.__name__} is not a relevo.App; {advice}")


def app_for(target: str, session: Session, **arguments: Any) -> App:
    """Return the app of a program, with the options of the command line applied.

    The database and the settings file are passed in the environment, because the program reads them
    when it is loaded; a program that chooses others itself is refused. The other `arguments` are
    settings that apply when it serves.
    """
    tell_program(session)
    app = app_of(target)
    require_told(app, session)
    options = {**arguments, "log_level": session.given.get("log_level")}
    changes = {name: value for name, value in options.items() if value is not None}
    app.settings = msgspec.structs.replace(app.settings, **changes)
    return app


_PLACES: Final = {
    "database": "database_url", "schema": "schema", "home": "home", "config": "config",
}  # fmt: skip
"""Options that a program has to know when it is loaded, and the settings that they are."""


def tell_program(session: Session) -> None:
    """Put the options that select a database into the environment, where a program finds them."""
    for name, setting in _PLACES.items():
        if session.given.get(name):
            os.environ[f"{PREFIX}{setting.upper()}"] = str(session.given[name])


def require_told(app: App, session: Session) -> None:
    """Check that a program uses the database of the options; raises `click.UsageError`."""
    for name, setting in _PLACES.items():
        given = session.given.get(name)
        if given and name != "config" and str(getattr(app.settings, setting)) != str(given):
            raise click.UsageError(
                f"the program sets its own {name}; remove --{name}, or call relevo.App() without"
                f" {setting}"
            )


def _tell(error: Exception) -> None:
    """Show the traceback from the first frame of the program."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and _is_loading(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(error.with_traceback(trace))


def _is_loading(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")
