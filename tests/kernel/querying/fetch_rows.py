"""Rows for tests of FetchXML on real tables, and what a query answers on them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
import pytest

from relevo.kernel.querying import planning
from tests.kernel.querying.fetch_tables import (
    CALLER,
    CATALOGUE,
    JOBS,
    ME,
    NOTES,
    NOW,
    PEOPLE,
    TEAM,
    UNIT,
)

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.querying.catalogue import Table
    from relevo.kernel.querying.model import Caller, Query

Row = dict[str, Any]
NAMES: Final = [
    None,
    "",
    "Rebuild",
    "rebuild",
    "REBUILD index",
    "a_b",
    "axb",
    "100%",
    "Ärger",
    "[x",
]
DAYS: Final = [0, -1, 1, -7, 7, -3, 40, -40, 400, -400, 0, -2, 2]


def _job(n: int) -> Row:
    made = NOW + timedelta(days=DAYS[n % len(DAYS)], hours=n - 20)
    return {
        "asyncoperationid": UUID(int=100 + n),
        "name": NAMES[n % len(NAMES)],
        "message": "rebuild" if n % 3 else None,
        "data": "secret" if n % 2 else None,
        "sequence": n,
        "operationtype": n % 4,
        "depth": n % 5 or None,
        "executiontimespan": n / 4 if n % 7 else None,
        "iswaitingforevent": [True, False, None][n % 3],
        "statecode": n % 4,
        "createdon": made,
        "startedon": made + timedelta(hours=n % 3 - 1) if n % 4 else None,
        "ownerid": [ME, TEAM, UUID(int=9), None][n % 4],
        "owningbusinessunit": [UNIT, None, UUID(int=8)][n % 3],
        "regardingobjectid": str(UUID(int=200 + n)) if n % 2 else None,
    }


JOB_ROWS: Final = [_job(n) for n in range(60)]
PEOPLE_ROWS: Final[list[Row]] = [
    {"systemuserid": key, "fullname": name, "hiredon": NOW}
    for key, name in ((ME, "Zoe"), (TEAM, "Ann"))
]
NOTE_ROWS: Final[list[Row]] = [
    {
        "annotationid": UUID(int=201 + n),
        "subject": f"note {n % 3}",
        "stars": n % 4 or None,
        "objectid": UUID(int=100 + n % 11),
    }
    for n in range(25)
]
ROWS: Final[list[tuple[Table, list[Row]]]] = [
    (JOBS, JOB_ROWS),
    (PEOPLE, PEOPLE_ROWS),
    (NOTES, NOTE_ROWS),
]


@pytest.fixture
async def tables(database: Database) -> Database:
    for table, rows in ROWS:
        columns = ", ".join(f"{one.name} {one.sql_type}" for one in table.columns)
        await database.write(f"create table {table.source} ({columns})")
        await database.write(
            f"insert into {table.source} select * "
            f"from jsonb_populate_recordset(null::{table.source}, $1::text::jsonb)",
            msgspec.json.encode(rows).decode(),
        )
    return database


async def answer(database: Database, query: Query, caller: Caller = CALLER) -> list[Row]:
    """The rows of a query, by the names of their values."""
    statement = planning.plan(query, CATALOGUE, caller)
    rows = await database.fetch(statement.sql, *statement.parameters)
    return [{one.name: row[one.cell] for one in statement.shape.fields} for row in rows]


async def found(database: Database, query: Query) -> set[int]:
    """Which jobs a query finds, by their sequence."""
    return {row["asyncoperationid"].int - 100 for row in await answer(database, query)}


def xml(attribute: str, operator: str, *values: object) -> str:
    """A condition."""
    inner = "".join(f"<value>{value}</value>" for value in values)
    return f"<condition attribute='{attribute}' operator='{operator}'>{inner}</condition>"
