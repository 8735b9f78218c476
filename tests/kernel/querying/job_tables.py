"""A catalogue over real tables for tests of planning: jobs, and what is about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from relevo.kernel.querying import answers, planning, preferences
from relevo.kernel.querying.catalogue import Catalogue, Column, Navigation, Table
from relevo.kernel.querying.model import Caller, Query
from relevo.kernel.querying.odata import options as odata_options
from relevo.kernel.querying.odata.options import Request

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database
    from relevo.kernel.querying.shapes import Statement

NOW: Final = datetime(2026, 3, 11, 14, 35, 20, tzinfo=UTC)
ANA, BEN, EVE = UUID(int=1), UUID(int=2), UUID(int=3)
NORTH, SOUTH = UUID(int=11), UUID(int=12)
CREW: Final = UUID(int=21)
ALL: Final = Caller(user_id=ANA, unit=NORTH, scope="all", may_read_payload=True)
KEY: Final = b"k" * 32

STATES: Final = {
    0: {"en": "Ready", "es": "Lista"},
    1: {"en": "Suspended", "es": "Suspendida"},
    2: {"en": "Locked", "es": "Bloqueada"},
    3: {"en": "Completed", "es": "Completada"},
}
STATUSES: Final = {0: {"en": "Waiting For Resources"}, 30: {"en": "Succeeded"}}

SCHEMA: Final = """
create table q_live (
    id uuid primary key, name text, sequence bigint not null, depth int, ratio float8, waiting bool,
    status smallint not null, created_at timestamptz not null, due timestamptz, owner uuid,
    unit uuid, about_type text, about_id text, data text, version bigint not null default 1);
create table q_done (like q_live including all);
create view q_jobs as select * from q_live union all select * from q_done;
create table q_users (id uuid primary key, fullname text, unit uuid);
create table q_teams (id uuid primary key, name text);
create table q_accounts (id uuid primary key, name text);
create table q_notes (id uuid primary key, subject text, stars int, job uuid, owner uuid);
"""

JOBS: Final = Table(
    name="asyncoperation",
    set_name="asyncoperations",
    schema_name="AsyncOperation",
    key="asyncoperationid",
    primary_name="name",
    source="q_jobs",
    owner="ownerid",
    unit="owningbusinessunit",
    version="versionnumber",
    sources_by_state={
        "statecode": {0: "q_live", 1: "q_live", 2: "q_live", 3: "q_done"},
        "statuscode": {0: "q_live", 10: "q_live", 20: "q_live", 30: "q_done", 31: "q_done"},
    },
    columns=(
        Column(name="asyncoperationid", type="guid", sql="{t}.id", required=True),
        Column(name="name", type="text"),
        Column(name="sequence", type="bigint", required=True),
        Column(name="depth", type="int"),
        Column(name="ratio", type="float"),
        Column(name="iswaitingforevent", type="bool", sql="{t}.waiting"),
        Column(name="statecode", type="choice", sql="({t}.status / 10)", labels=STATES),
        Column(name="statuscode", type="choice", sql="{t}.status", labels=STATUSES),
        Column(name="createdon", type="datetime", sql="{t}.created_at", required=True),
        Column(name="postponeuntil", type="datetime", sql="{t}.due"),
        Column(
            name="ownerid",
            type="lookup",
            sql="{t}.owner",
            targets=("systemuser", "team"),
            target="(case when {t}.owner = '00000000-0000-0000-0000-000000000015' then 'team' "
            "else 'systemuser' end)",
        ),
        Column(name="owningbusinessunit", type="lookup", sql="{t}.unit"),
        Column(
            name="regardingobjectid",
            type="lookup",
            sql="{t}.about_id",
            stored="text",
            targets=("account", "note"),
            target="{t}.about_type",
        ),
        Column(name="data", type="memo", payload=True),
        Column(name="versionnumber", type="bigint", sql="{t}.version", required=True),
        Column(name="secret", type="text", sql="{t}.name", filterable=False),
    ),
    navigations=(
        Navigation(
            name="owninguser", table="systemuser", column="ownerid", target_column="systemuserid"
        ),
        Navigation(
            name="regardingobjectid_account",
            table="account",
            column="regardingobjectid",
            target_column="accountid",
        ),
        Navigation(
            name="job_notes",
            table="note",
            column="asyncoperationid",
            target_column="jobid",
            collection=True,
        ),
    ),
)
USERS: Final = Table(
    name="systemuser",
    set_name="systemusers",
    schema_name="SystemUser",
    key="systemuserid",
    primary_name="fullname",
    source="q_users",
    columns=(
        Column(name="systemuserid", type="guid", sql="{t}.id", required=True),
        Column(name="fullname", type="text"),
    ),
    navigations=(
        Navigation(
            name="user_jobs",
            table="asyncoperation",
            column="systemuserid",
            target_column="ownerid",
            collection=True,
        ),
    ),
)
TEAMS: Final = Table(
    name="team",
    set_name="teams",
    schema_name="Team",
    key="teamid",
    primary_name="name",
    source="q_teams",
    columns=(
        Column(name="teamid", type="guid", sql="{t}.id", required=True),
        Column(name="name", type="text"),
    ),
)
ACCOUNTS: Final = Table(
    name="account",
    set_name="accounts",
    schema_name="Account",
    key="accountid",
    primary_name="name",
    source="q_accounts",
    columns=(
        Column(name="accountid", type="guid", sql="{t}.id", required=True),
        Column(name="name", type="text"),
    ),
    navigations=(
        Navigation(
            name="Account_AsyncOperations",
            table="asyncoperation",
            column="accountid",
            target_column="regardingobjectid",
            collection=True,
        ),
    ),
)
NOTES: Final = Table(
    name="note",
    set_name="notes",
    schema_name="Note",
    key="noteid",
    primary_name="subject",
    source="q_notes",
    owner="ownerid",
    columns=(
        Column(name="noteid", type="guid", sql="{t}.id", required=True),
        Column(name="subject", type="text"),
        Column(name="stars", type="int"),
        Column(name="jobid", type="lookup", sql="{t}.job", targets=("asyncoperation",)),
        Column(name="ownerid", type="lookup", sql="{t}.owner", targets=("systemuser",)),
    ),
    navigations=(
        Navigation(
            name="job", table="asyncoperation", column="jobid", target_column="asyncoperationid"
        ),
    ),
)
CATALOGUE: Final = Catalogue((JOBS, USERS, TEAMS, ACCOUNTS, NOTES))

Row = dict[str, Any]


def job(n: int, **values: Any) -> Row:
    """A job as it is stored, with what is said of it."""
    return {
        "id": UUID(int=1_000 + n),
        "name": f"job {n}",
        "sequence": n,
        "depth": None,
        "ratio": None,
        "waiting": None,
        "status": 0,
        "created_at": NOW,
        "due": None,
        "owner": ANA,
        "unit": NORTH,
        "about_type": None,
        "about_id": None,
        "data": None,
        "version": 1,
        **values,
    }


async def create(database: Database) -> None:
    """Make the tables."""
    for statement in filter(str.strip, SCHEMA.split(";")):
        await database.write(statement)


async def insert(database: Database, table: str, rows: list[Row]) -> None:
    """Store rows."""
    names = f"jsonb_populate_recordset(null::{table}, $1::text::jsonb)"
    await database.write(
        f"insert into {table} select * from {names}", msgspec.json.encode(rows).decode()
    )


async def insert_jobs(database: Database, rows: list[Row]) -> None:
    """Store jobs where their status belongs."""
    await insert(database, "q_live", [row for row in rows if row["status"] < 30])
    await insert(database, "q_done", [row for row in rows if row["status"] >= 30])


def request(caller: Caller = ALL, page_size: int | None = None) -> Request:
    """What reading a query needs."""
    return Request(catalogue=CATALOGUE, caller=caller, now=NOW, key=KEY, page_size=page_size)


def asked(
    text: str, table: Table = JOBS, caller: Caller = ALL, page_size: int | None = None
) -> Query:
    """The query of the query part of a URL."""
    return odata_options.query_of(odata_options.read(text), table, request(caller, page_size))


async def run(database: Database, statement: Statement) -> list[Any]:
    """What a statement gives."""
    return await database.fetch(statement.sql, *statement.parameters)


async def answer(
    database: Database,
    query: Query | str,
    *,
    caller: Caller = ALL,
    prefer: str | None = None,
    table: Table = JOBS,
) -> answers.AnswerPage:
    """A page of a query."""
    known = preferences.read(prefer)
    if isinstance(query, str):
        query = asked(query, table, caller, known.page_size)
    statement = planning.plan(query, CATALOGUE, caller, names=known.wants(answers.FORMATTED))
    return answers.read(await run(database, statement), statement.shape, known, caller)


async def numbers(database: Database, query: Query | str, caller: Caller = ALL) -> list[int]:
    """The sequence numbers of the jobs that a query finds, in its order."""
    page = await answer(database, query, caller=caller)
    return [UUID(row["asyncoperationid"]).int - 1_000 for row in page.rows]
