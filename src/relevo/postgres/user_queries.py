"""Runs the queries that users write: on connections of their own, of which there are few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.core import uses
from relevo.postgres import catalog

if TYPE_CHECKING:
    import asyncpg

    from relevo.postgres.database import Database
    from relevo.querying.shapes import Statement


async def run_query(database: Database, statement: Statement) -> list[asyncpg.Record]:
    """Return the rows of a planned query; a key of the HTTP API has its share here too."""
    with uses.used_for("queries", uses.current().key):
        return await database.fetch(
            catalog.own("querying.query", statement.sql), *statement.parameters
        )
