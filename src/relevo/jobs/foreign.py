"""Storing jobs in a transaction of the caller: asyncpg, psycopg or SQLAlchemy, async or not."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import InvalidValue
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.binding import DEFAULT, BoundTransaction, bound, transaction_in

if TYPE_CHECKING:
    from collections.abc import Sequence

SQL = catalog.load("relevo.jobs")
DRIVERS: Final = ("asyncpg", "psycopg", "psycopg2", "sqlalchemy")
STATEMENT: Final = catalog.own(
    "jobs.submit_in",
    "select relevo.submit_jobs_in(array[{}]::uuid[], array[{}]::text[], array[{}]::text[],"
    " array[{}]::text[], array[{}]::text[], array[{}]::timestamptz[], array[{}]::text[],"
    " array[{}]::smallint[], array[{}]::uuid[], array[{}]::text[]::jsonb[])",
    any_path=True,
)


async def store(tx: Any, arrays: Sequence[Sequence[Any]], schema: str = DEFAULT) -> str:
    """Store jobs, given as the arrays of the statement; returns the numbers of the transaction.

    They exist when it commits, and never did if it is rolled back. Nothing is locked.
    """
    driver = driver_of(tx)
    if driver == "asyncpg":  # it knows the schema: it is Relevo's, or `in_schema` made it so
        number: str = await tx.fetchval(SQL.submit_in, *arrays)
        return number
    values = [_text(one) for array in arrays for one in array]
    if driver == "sqlalchemy":
        import sqlalchemy  # only those who use it have it

        names = iter(f"v{n}" for n in range(len(values)))
        marks = [[f"cast(:{next(names)} as text)" for _ in array] for array in arrays]
        clause = sqlalchemy.text(_statement(marks, schema))
        found = await _done(tx.execute(clause, {f"v{n}": one for n, one in enumerate(values)}))
        return str(found.scalar())
    # A cursor of the caller may be a named one, which would declare the statement and not run it.
    cursor = getattr(tx, "connection", tx).cursor()
    if driver == "psycopg":
        cursor.row_factory = lambda _: tuple
    marks = [["%s"] * len(array) for array in arrays]
    await _done(cursor.execute(_statement(marks, schema), values))
    row = await _done(cursor.fetchone())
    await _done(cursor.close())
    return str(next(iter(row.values())) if isinstance(row, Mapping) else row[0])


def in_schema(tx: Any, schema: str) -> Any:
    """Return a connection of a caller such that statements of Relevo's run in a schema."""
    is_asked = tx is not None and driver_of(tx) == "asyncpg"
    return transaction_in(tx, schema) if is_asked else tx


def driver_of(tx: Any) -> str:
    """Whose connection it is; also one of a class of the caller's own."""
    if isinstance(tx, BoundTransaction):
        return "asyncpg"
    for kind in type(tx).__mro__:
        module = kind.__module__.partition(".")[0]
        if module in DRIVERS:
            return module
    raise InvalidValue(
        f"tx is a {type(tx).__qualname__} of {type(tx).__module__!r}; give a connection of asyncpg,"
        " psycopg or SQLAlchemy, or call the SQL function relevo.submit_job yourself",
        pointer="tx",
    )


def _statement(marks: Sequence[Sequence[str]], schema: str) -> str:
    return bound(STATEMENT, schema).format(*(", ".join(one) for one in marks))


async def _done(answer: Any) -> Any:
    """What a call of a driver came to, of which there are async ones and others."""
    return await answer if inspect.isawaitable(answer) else answer


def _text(value: Any) -> str | None:
    """A value as text that the statement casts: no driver then has an opinion of its type."""
    if value is None:
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
