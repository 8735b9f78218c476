"""Parts that are defined before the app connects get their database later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.errors import Conflict

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.wakeups import Wakeups


class Attachable:
    """Has a database and wake-ups from `attach` on, and says so when it is used before.

    `what` is what a caller who comes too early wanted to use.
    """

    def __init__(
        self, what: str, database: Database | None = None, wakeups: Wakeups | None = None
    ) -> None:
        self._what = what
        self._attached = (database, wakeups) if database and wakeups else None

    def attach(self, database: Database, wakeups: Wakeups) -> None:
        """Connect, or connect anew."""
        self._attached = (database, wakeups)

    @property
    def database(self) -> Database:
        """The pool; raises before the app is connected."""
        return self._connected[0]

    @property
    def wakeups(self) -> Wakeups:
        """Hints to and from other processes."""
        return self._connected[1]

    @property
    def _connected(self) -> tuple[Database, Wakeups]:
        if self._attached is None:
            raise Conflict(f"the app is not connected; use {self._what} inside `async with app`")
        return self._attached
