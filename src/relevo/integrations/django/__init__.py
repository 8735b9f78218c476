"""Relevo inside Django: jobs in the ORM's transaction, the Tasks backend, a command that runs them.

INSTALLED_APPS = [..., "relevo.integrations.django"]
RELEVO_APP = "shop.jobs.app"                    # your relevo.App

with transaction.atomic():
    order = Order.objects.create(dish="soup")
    submit(receipt, order=order.id)             # exists if, and only if, the block commits
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload
from urllib.parse import quote, urlencode

from relevo import sync
from relevo.app import App
from relevo.errors import SettingsError
from relevo.jobs import JobDefinition

if TYPE_CHECKING:
    from collections.abc import Mapping

P = ParamSpec("P")
R = TypeVar("R")

SETTING: Final = "RELEVO_APP"
ENGINE: Final = "django.db.backends.postgresql"


def database(url: str) -> dict[str, Any]:
    """Return a database URL as an entry of Django's `DATABASES`."""
    from psycopg import conninfo

    given: dict[str, Any] = dict(conninfo.conninfo_to_dict(url))
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST"}
    entry = {ours: str(given.pop(theirs, "")) for theirs, ours in names.items()}
    port = str(given.pop("port", ""))
    return {"ENGINE": ENGINE, **entry, "PORT": port, "OPTIONS": given}


def database_url(alias: str = "default") -> str:
    """Return the URL of an entry of Django's `DATABASES`: `relevo.App(database_url())`."""
    from django.conf import settings

    entry: Mapping[str, Any] = settings.DATABASES[alias]
    if entry["ENGINE"] != ENGINE:
        raise SettingsError(
            f"the database {alias!r} of Django is on {entry['ENGINE']}; Relevo needs {ENGINE}"
        )
    text = {name: str(value) for name, value in entry.get("OPTIONS", {}).items()}
    options = {name: value for name, value in text.items() if name in _LIBPQ}
    options |= {"host": entry.get("HOST") or "", "port": str(entry.get("PORT") or "")}
    query = urlencode({name: value for name, value in options.items() if value}, quote_via=quote)
    user, password = (quote(entry.get(name) or "", safe="") for name in ("USER", "PASSWORD"))
    owner = f"{user}:{password}@" if password else f"{user}@" if user else ""
    return f"postgresql://{owner}/{quote(entry['NAME'], safe='')}?{query}"


_LIBPQ: Final = frozenset({"sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout"})
"""Options of Django's entries that are parts of a URL; others belong to psycopg."""


def named_app() -> App:
    """Return the App that the setting `RELEVO_APP` names; raises `SettingsError`."""
    from django.conf import settings
    from django.utils.module_loading import import_string

    path = getattr(settings, SETTING, None)
    if path is None:
        raise SettingsError(f"set {SETTING} to the path of your relevo.App: 'shop.jobs.app'")
    app = import_string(path)
    if not isinstance(app, App):
        raise SettingsError(
            f"{SETTING} = {path!r} is a {type(app).__name__}; name a relevo.App of a module"
        )
    return app


@cache
def client() -> sync.App:
    """Return the client of the App that the setting `RELEVO_APP` names."""
    return sync.App(named_app())


@overload
def submit(handler: JobDefinition[P, R], /, *args: P.args, **kwargs: P.kwargs) -> sync.Job[R]: ...


@overload
def submit(handler: str, data: Any = None, /, **options: Any) -> sync.Job[Any]: ...


def submit(handler: Any, /, *args: Any, **kwargs: Any) -> sync.Job[Any]:
    """Submit a job on Django's connection: inside `transaction.atomic` it is part of the block.

    Outside of one, Django commits it at once. `on_commit` is not needed. The connection is that of
    the database `default`; for another, give `tx=connections["other"]`.
    """
    from django.db import connection

    if isinstance(handler, JobDefinition):
        if handler.options.get("tx") is None:
            handler = handler.using(tx=connection)
    else:
        kwargs.setdefault("tx", connection)
    job: sync.Job[Any] = client().submit(handler, *args, **kwargs)
    return job
