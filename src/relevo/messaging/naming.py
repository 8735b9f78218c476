"""What entities and their classes are called: rows carry numbers, users read names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.kernel.postgres import catalog
from relevo.messaging.running.context import EntityNames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.kernel.postgres import Database

SQL = catalog.load(__package__)


class KnownNames:
    """The names that this process has met; new ones come up seldom."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[int, EntityNames] = {}

    async def of(self, rows: Sequence[Any]) -> Mapping[int, EntityNames]:
        """Return names by entity, at least for these rows of claimed messages."""
        known = self._known
        pairs = {(row["entity_id"], row["class"]) for row in rows if row["kind"] == "claimed"}
        unknown = {
            entity for entity, number in pairs
            if entity not in known or number not in known[entity].classes
        }  # fmt: skip
        if unknown:
            classes: dict[tuple[int, str], dict[int, str]] = {}
            for row in await self._database.fetch(SQL.class_names, list(unknown)):
                classes.setdefault((row["entity_id"], row["path"]), {})[row["number"]] = row["name"]
            for (id_, path), of in classes.items():
                known[id_] = EntityNames(path, of)
        return known
