"""Transactions that callers give to calls of Relevo, as `tx=`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import asyncpg

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres.database import Transaction

ONE_ORDER: Final = (
    "Two transactions wrote the same items in opposite order. Run this transaction again, and let"
    " all transactions write shared items in one order, for example by partition key and id."
)


def checked(tx: Any, otherwise: str = "") -> Transaction:
    """Return the transaction that a caller passed, or refuse anything else.

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
    """Add to a deadlock error how to avoid the next one.

    The error keeps its type, so that code that retries transactions retries this one.
    """
    try:
        yield
    except asyncpg.DeadlockDetectedError as error:
        error.hint = ONE_ORDER
        raise
