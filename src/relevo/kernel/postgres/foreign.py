"""Transactions of callers, given as `tx=`: what is one, and SQL functions in it.

Of asyncpg, psycopg, SQLAlchemy or Django, async or not.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

import asyncpg
from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.binding import DEFAULT, BoundTransaction, bound, transaction_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence

    from relevo.kernel.postgres.database import Transaction

DRIVERS: Final = ("asyncpg", "django", "psycopg", "psycopg2", "sqlalchemy")
BLOCKING: Final[ContextVar[Callable[[Callable[[], Any]], Awaitable[Any]] | None]] = ContextVar(
    "relevo.blocking", default=None
)
"""Runs calls of a blocking driver, set by callers that wait in a thread of their own: a statement
of theirs may wait for another transaction, and must not hold up the event loop meanwhile."""
ONE_ORDER: Final = (
    "Two transactions wrote the same items in opposite order. Run this transaction again, and let"
    " all transactions write shared items in one order, for example by partition key and id."
)


class Function(Struct, frozen=True):
    """A set-based SQL function: it takes arrays, one element per row, and returns one value."""

    name: str
    """With the schema `relevo`, whatever that of the caller's Relevo is."""
    types: tuple[str, ...]
    """The type of each array as `pg_catalog` names it, or a chain of casts: `text[]::jsonb[]`."""
    otherwise: str
    """The advice for a caller with another driver."""

    async def call(self, tx: Any, arrays: Sequence[Sequence[Any]], schema: str = DEFAULT) -> Any:
        """Call the function on a connection that is in a transaction, and return its result.

        Its effects are there when that commits, and never were if it is rolled back.
        """
        driver = driver_of(tx, self.otherwise)
        if driver == "asyncpg":
            marks = (f"${n + 1}" for n in range(len(arrays)))
            return await tx.fetchval(bound(self._sql(marks), schema), *arrays)
        calling = self._call_by(driver, tx, arrays, schema)
        blocking = BLOCKING.get()
        if blocking is None:
            return await calling
        return await blocking(lambda: _completed(calling))

    async def _call_by(
        self, driver: str, tx: Any, arrays: Sequence[Sequence[Any]], schema: str
    ) -> Any:
        """Call the function by another driver than asyncpg; waits only for one that is async."""
        values = [_text(one) for array in arrays for one in array]
        if driver == "sqlalchemy":
            import sqlalchemy  # an optional dependency

            names = [f"v{n}" for n in range(len(values))]
            casts = iter(f"cast(:{name} as pg_catalog.text)" for name in names)
            clause = sqlalchemy.text(bound(self._sql_of_values(arrays, casts), schema))
            found = await _done(tx.execute(clause, dict(zip(names, values, strict=True))))
            return found.scalar()
        # A named cursor of the caller would declare the statement instead of running it.
        connection = tx if driver == "django" else getattr(tx, "connection", tx)
        cursor = connection.cursor()
        if driver == "psycopg":
            cursor.row_factory = lambda _: tuple
        statement = bound(self._sql_of_values(arrays, iter(["%s"] * len(values))), schema)
        await _done(cursor.execute(statement, values))
        row = await _done(cursor.fetchone())
        await _done(cursor.close())
        return next(iter(row.values())) if isinstance(row, Mapping) else row[0]

    def _sql(self, arguments: Iterable[str]) -> str:
        typed = (f"{one}::{type_}" for one, type_ in zip(arguments, self.types, strict=True))
        # Callers have search paths of their own, in which a type may have another meaning.
        sql = f"select {self.name}({', '.join(typed)})".replace("::", "::pg_catalog.")
        return catalog.own(self.name, sql, any_path=True)

    def _sql_of_values(self, arrays: Sequence[Sequence[Any]], marks: Iterator[str]) -> str:
        """The statement with a mark for each value."""
        lists = (", ".join(next(marks) for _ in array) for array in arrays)
        return self._sql(f"array[{one}]" for one in lists)


def checked(tx: Any, otherwise: str = "") -> Transaction:
    """Return the transaction that a caller gave, or refuse what is none.

    `otherwise` says what to do in a transaction of another driver.
    """
    inside = getattr(tx, "is_in_transaction", None)
    if inside is None or not inside():
        raise InvalidValue(
            f"tx is a {type(tx).__qualname__} that is in no transaction of asyncpg; give what"
            " ctx.transaction() or app.database.transaction() gave, inside of its block"
            f"{otherwise}",
            pointer="tx",
        )
    return cast("Transaction", tx)


@asynccontextmanager
async def naming_remedy() -> AsyncIterator[None]:
    """Tell the caller of a transaction that was ended by a deadlock how to avoid the next one.

    The error stays what it is, so that whoever repeats transactions repeats this one.
    """
    try:
        yield
    except asyncpg.DeadlockDetectedError as error:
        error.hint = ONE_ORDER
        raise


def in_schema(tx: Any, schema: str) -> Any:
    """Return a connection of a caller such that statements of Relevo's run in a schema."""
    is_asked = tx is not None and driver_of(tx) == "asyncpg"
    return transaction_in(tx, schema) if is_asked else tx


def driver_of(tx: Any, otherwise: str = "") -> str:
    """Return whose connection it is, also one of a class of the caller's own."""
    if isinstance(tx, BoundTransaction):
        return "asyncpg"
    for kind in type(tx).__mro__:
        module = kind.__module__.partition(".")[0]
        if module in DRIVERS:
            return module
    raise InvalidValue(
        f"tx is a {type(tx).__qualname__} of {type(tx).__module__!r}; give a connection of asyncpg,"
        f" psycopg, SQLAlchemy or Django{otherwise}",
        pointer="tx",
    )


def _completed(calling: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a call by a blocking driver, which never waits for the event loop."""
    try:
        calling.send(None)
    except StopIteration as done:
        return done.value
    calling.close()
    raise InvalidValue("tx is an async connection; give a blocking one here", pointer="tx")


async def _done(answer: Any) -> Any:
    """Return the result of a driver's call, awaited if the driver is async."""
    return await answer if inspect.isawaitable(answer) else answer


def _text(value: Any) -> str | None:
    """A value as text that the statement casts, so that no driver chooses a type for it."""
    if value is None:
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
