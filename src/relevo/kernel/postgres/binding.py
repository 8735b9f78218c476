"""Binds Relevo's SQL to the schema that a database keeps it in.

Every text names its objects as if the schema were `relevo`, so that it can be read and loaded as it
stands. A connection of a Relevo that lives elsewhere binds each text once, and remembers it: names
of objects, the channel of its wake-ups and the classes of its advisory locks become those of its
schema. Several Relevos in one database therefore never meet. Texts for `relevo` itself stay as they
are and cost nothing.

Inside of string literals a name is bound only where it names an object, such as in `nextval('…')`:
`'relevo.job.completed'` is the type of an event in every schema.
"""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any, Final, cast

from relevo.kernel.postgres import locks
from relevo.kernel.postgres.catalog import is_own, marked_with

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Transaction

DEFAULT: Final = "relevo"
OWN_PATH: Final = "pg_catalog, pg_temp"
"""The search path of Relevo's statements: `pg_temp` last, for unless it is named it is first."""
TURN_OWN: Final = (
    "select pg_catalog.current_setting('search_path'),"
    f" pg_catalog.set_config('search_path', '{OWN_PATH}', true)"
)
"""Sets it for the rest of a transaction; returns the path before."""
TURN_BACK: Final = "select pg_catalog.set_config('search_path', $1, true)"
NAME_MAX: Final = 50
"""Names that begin with the schema's, as those of roles and sessions, have at most 63 bytes."""
_PLAIN: Final = re.compile(rf"[a-z_][a-z0-9_]{{0,{NAME_MAX - 1}}}")
_TAKEN: Final = re.compile(r"pg_.*|information_schema|public")
_TOKEN: Final = re.compile(
    r"""
      --[^\n]* | /\*.*?\*/ | "(?:[^"]|"")*"
    | (?P<lock>\bpg_(?:try_)?advisory_xact_lock(?:_shared)?\()(?P<number>\d+)
    | (?P<setting>\b(?:current_setting|set_config)\('relevo\.\w+')
    | (?P<schema>(?:\b(?:pg_notify|to_regnamespace)\(|\bnspname\s=\s)'relevo')
    | (?P<object>\b(?:nextval|to_regclass|format)\('(?:[^']|'')*' | '[^']*'::regclass)
    | '(?:[^']|'')*'
    | (?P<name>\brelevo\.(?=[a-z_]))
    | (?P<made>\bschema\s(?:if\s(?:not\s)?exists\s)?)relevo\b(?!\.)
    """,
    re.VERBOSE | re.DOTALL,
)
_STATEMENTS: Final = frozenset({"execute", "executemany", "fetch", "fetchrow", "fetchval"})
_TEXTS_MAX: Final = 4096
"""How many bound texts are remembered: all named ones, and those of users asked last."""


def is_usable(schema: str) -> bool:
    """Whether Relevo can use a schema of this name: a plain one, not reserved."""
    return _PLAIN.fullmatch(schema) is not None and _TAKEN.fullmatch(schema) is None


def application_name(schema: str) -> str:
    """The application name of Relevo's sessions.

    >>> application_name("relevo"), application_name("shop")
    ('relevo', 'relevo:shop')
    """
    return DEFAULT if schema == DEFAULT else f"{DEFAULT}:{schema}"


def quoted(schema: str) -> str:
    """The schema as SQL names it; a plain name may also be a word of SQL, such as `order`."""
    return DEFAULT if schema == DEFAULT else f'"{schema}"'


@functools.lru_cache(maxsize=_TEXTS_MAX)
def bound(sql: str, schema: str) -> str:
    """Return a statement for a schema; one that is bound already stays as it is.

    >>> bound("/* relevo store.read */ select lsn, 'relevo.x' from relevo.item", "shop")
    '/* relevo shop/store.read */ select lsn, \\'relevo.x\\' from "shop".item'
    """
    marked = marked_with(sql, schema)
    if marked is sql or schema == DEFAULT:
        return marked
    return _TOKEN.sub(functools.partial(_in_schema, schema), marked)


def _in_schema(schema: str, match: re.Match[str]) -> str:
    text = match[0]
    match match.lastgroup:
        case "number":
            return f"{match['lock']}{locks.of(int(match['number']), schema)}"
        case "name":
            return f"{quoted(schema)}."
        case "object":
            return re.sub(r"\brelevo\.", f"{quoted(schema)}.", text)
        case "schema":
            return text.replace(f"'{DEFAULT}'", f"'{schema}'")
        case "setting":  # whose prefix must not be one that another extension has reserved
            return f"{text[:-1]}_{schema}'"
        case "made":
            return f"{match['made']}{quoted(schema)}"
        case _:
            return text


def transaction_in(tx: Any, schema: str) -> Any:
    """Return a caller's transaction for Relevo's statements of a schema.

    A connection of another Relevo would bind them to its own schema, and any other to none.
    """
    if getattr(tx, "schema", None) == schema:
        return tx
    return BoundTransaction(tx, schema)


class BoundTransaction:
    """A connection of asyncpg whose owner is not the Relevo that runs statements on it.

    Relevo's statements run with its search path, and the caller's comes back after each.
    """

    def __init__(self, inner: Any, schema: str) -> None:
        self._inner = cast("Transaction", inner)
        self.schema = schema

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return functools.partial(self._run, found) if name in _STATEMENTS else found

    async def _run(self, method: Any, sql: str, *args: Any, **options: Any) -> Any:
        sql = bound(sql, self.schema)
        if not is_own(sql) or hasattr(self._inner, "schema"):  # one of Relevo's does it by itself
            return await method(sql, *args, **options)
        before = await self._inner.fetchval(TURN_OWN)
        try:
            result = await method(sql, *args, **options)
        except Exception:
            with contextlib.suppress(Exception):  # if the transaction failed, its end does it
                await self._inner.fetchval(TURN_BACK, before)
            raise
        await self._inner.fetchval(TURN_BACK, before)
        return result
