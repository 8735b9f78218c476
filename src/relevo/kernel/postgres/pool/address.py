"""Database URLs: the options of libpq, of vendors and of other drivers."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

from relevo.errors import SettingsError

_SCHEMES: Final = frozenset({"postgresql", "postgres"})
_DRIVERS: Final = frozenset({"asyncpg", "psycopg", "psycopg2", "psycopg_async"})
_OTHER_WORDS: Final = {"ssl": "sslmode"}
"""SQLAlchemy's names, in URLs for asyncpg, of libpq's options."""
_HONOURED: Final = frozenset({"connect_timeout", "pgbouncer"})
_LEFT_OUT: Final = frozenset({
    "channel_binding", "fallback_application_name", "gssdelegation", "gssencmode", "keepalives",
    "keepalives_count", "keepalives_idle", "keepalives_interval", "load_balance_hosts",
    "requirepeer", "sslcertmode", "sslcompression", "sslsni", "tcp_user_timeout",
})  # fmt: skip
"""Options of libpq that asyncpg does not have, and would send to the server as settings."""
_DEMANDS: Final = frozenset({"channel_binding", "gssencmode"})
"""Options of these that a user of `require` may rely on."""


class DatabaseAddress(Struct, frozen=True, kw_only=True):
    """The servers of a database URL, and its other options."""

    urls: tuple[str, ...]
    """One for each host, as asyncpg reads it."""
    connect_seconds: float | None = None
    """`connect_timeout`: how long each host may take to answer; None for Relevo's own limit."""
    is_pooled: bool = False
    """`pgbouncer=true`: a pooler in transaction mode is announced."""
    left_out: tuple[str, ...] = ()
    """Names of the options that have no effect."""
    unmet: tuple[str, ...] = ()
    """Of these, those that demand something which Relevo cannot give."""


def parse(url: str) -> DatabaseAddress:
    """Read a URL; raises `SettingsError` if it cannot be one.

    >>> parse("postgresql+asyncpg://db/shop?keepalives=1&connect_timeout=5").urls
    ('postgresql://db/shop',)
    """
    parts = _parts(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    options = {
        name: value
        for name, value in _libpq_words(given).items()
        if name not in _LEFT_OUT | _HONOURED
    }
    if options.keys() != given.keys():
        parts = parts._replace(query=urlencode(options, quote_via=quote))
    left_out = tuple(name for name in given if name in _LEFT_OUT)
    return DatabaseAddress(
        urls=_each_host(parts, options),
        connect_seconds=_seconds(given.get("connect_timeout")),
        is_pooled=given.get("pgbouncer", "").lower() in ("true", "1", "on", "yes"),
        left_out=left_out,
        unmet=tuple(name for name in left_out if name in _DEMANDS and given[name] == "require"),
    )


def for_drivers(url: str) -> str:
    """The URL as libpq and asyncpg read it: without the driver, and without options of Relevo's.

    >>> for_drivers("postgresql+psycopg://db/shop?pgbouncer=true&application_name=shop")
    'postgresql://db/shop?application_name=shop'
    """
    parts = _parts(url)
    options = _libpq_words(dict(parse_qsl(parts.query, keep_blank_values=True)))
    options.pop("pgbouncer", None)
    return parts._replace(query=urlencode(options, quote_via=quote)).geturl()


def place(url: str) -> str:
    """The URL without user, password and options."""
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "local")
    return f"{where}{parts.path}"


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise SettingsError(f"the database URL cannot be used: {error}") from error
    scheme, plus, driver = parts.scheme.partition("+")
    if scheme not in _SCHEMES or (plus and driver not in _DRIVERS):
        raise SettingsError(
            f"a database URL starts with postgresql://, not {parts.scheme or 'nothing'}://"
        )
    return parts._replace(scheme=scheme) if plus else parts


def _libpq_words(given: dict[str, str]) -> dict[str, str]:
    """The options under libpq's names."""
    options = {_OTHER_WORDS.get(name, name): value for name, value in given.items()}
    if given.get("ssl") in ("true", "True", "1"):
        options["sslmode"] = "require"
    return options


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or 0)
    except ValueError:
        raise SettingsError(
            f"connect_timeout in the database URL is a number of seconds, not {text!r}"
        ) from None
    return seconds if seconds > 0 else None


def _each_host(parts: SplitResult, options: dict[str, str]) -> tuple[str, ...]:
    """One URL for each host. Several are a cluster with one primary, which alone takes writes."""
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts + options.get("host", ""):
        return (parts.geturl(),)
    options = {"target_session_attrs": "read-write", **options}
    if hosts:
        places = [(f"{user}{at}{host}", options) for host in hosts.split(",")]
    else:
        named = options["host"].split(",")
        ports = options.get("port", "5432").split(",")
        ports = ports if len(ports) > 1 else ports * len(named)
        if len(ports) != len(named):
            raise SettingsError(
                f"the database URL names {len(named)} hosts and {len(ports)} ports; give one port,"
                " or one for each host"
            )
        places = [
            (parts.netloc, options | {"host": host, "port": port})
            for host, port in zip(named, ports, strict=True)
        ]
    return tuple(
        parts._replace(netloc=netloc, query=urlencode(each, quote_via=quote)).geturl()
        for netloc, each in places
    )
