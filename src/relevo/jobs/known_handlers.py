"""Which handlers hosts have ever registered, so that a submit for a misspelt one warns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from relevo.jobs.core import reasons
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.jobs")
ASKED_AGAIN_SECONDS: Final = 5.0
"""How long a handler counts as never registered before the database is asked again."""
UNKNOWN_MAX: Final = 1_000
log = get_logger(__name__)


class KnownHandlers:
    """Remembers the handlers that hosts have had; they never become unknown again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[str] = set()
        self._unknown: dict[str, tuple[float, str]] = {}

    def remembered(self, handler: str) -> str | None:
        """Return the warning of an earlier submit; asks nothing."""
        return self._unknown[handler][1] if handler in self._unknown else None

    async def warning(self, handler: str) -> str | None:
        """Return a warning if no host has ever registered a handler; logs the first of each."""
        if handler in self._known:
            return None
        asked_at, text = self._unknown.get(handler, (-ASKED_AGAIN_SECONDS, ""))
        now = time.monotonic()
        if now - asked_at < ASKED_AGAIN_SECONDS:
            return text
        rows = await self._database.fetch(SQL.handler_names, handler)
        names = [row["name"] for row in rows]
        if handler in names:
            self._known.add(handler)
            self._unknown.pop(handler, None)
            return None
        if not text:
            text = reasons.never_registered(handler, names)
            log.warning("jobs.handler_never_registered", handler=handler[:100], says=text)
        if len(self._unknown) >= UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[handler] = (now, text)
        return text
