"""What `relevo doctor` looks at, and how a check answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from relevo.kernel.leases.directory import Directory
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.wakeups import Wakeups

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.kernel.postgres.database import Database
    from relevo.settings import Settings

SQL = catalog.load("relevo.cli")
State = Literal["ok", "warn", "fail", "skip"]
Need = Literal["nothing", "database", "schema"]


class Finding(Struct, frozen=True):
    """The result of a check, and what to do about it."""

    state: State
    detail: str
    advice: str = ""


class Patient:
    """The installation under examination."""

    def __init__(self, settings: Settings, database: Database | None = None) -> None:
        self.settings = settings
        self._database = database
        self.server: dict[str, str] = {}
        """PostgreSQL's settings in this session."""
        self.has: frozenset[Need] = frozenset({"nothing"})
        """What is available to checks."""

    @property
    def database(self) -> Database:
        """The pool, for checks that need the database."""
        assert self._database is not None
        return self._database

    @property
    def home(self) -> Path:
        """The data folder."""
        return self.settings.home.expanduser().absolute()

    @property
    def directory(self) -> Directory:
        """Hosts and leases."""
        return Directory(self.database, Wakeups(self.database))

    async def look(self) -> None:
        """Read the facts that most checks need."""
        if self._database is None:
            return
        rows = await self.database.fetch(SQL.server_settings)
        self.server = {row["name"]: row["setting"] for row in rows}
        self.has |= {"database"}
        if await self.database.fetchval(SQL.has_schema):
            self.has |= {"schema"}
